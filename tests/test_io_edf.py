"""EDF files; pyedflib itself writes the test files."""

import sys

import numpy as np
import pytest

from roughformer.errors import InputError
from roughformer.io import read_edf


def _write(path, signals, rates, labels):
    pyedflib = pytest.importorskip("pyedflib")
    with pyedflib.EdfWriter(str(path), len(signals), pyedflib.FILETYPE_EDFPLUS) as writer:
        writer.setSignalHeaders(
            [
                {
                    "label": label,
                    "dimension": "uV",
                    "sample_frequency": rate,
                    "physical_max": 100.0,
                    "physical_min": -100.0,
                    "digital_max": 32767,
                    "digital_min": -32768,
                    "transducer": "",
                    "prefilter": "",
                }
                for label, rate in zip(labels, rates, strict=True)
            ]
        )
        writer.writeSamples(signals)


def _signal(n, seed):
    return np.random.default_rng(seed).uniform(-99, 99, size=n)


STEP = 200 / 65535  # one digital unit: what EDF can resolve here


def test_channels_of_different_rates_share_their_union_of_times(tmp_path):
    fast, slow = _signal(12, 0), _signal(8, 1)  # 2 s at 6 and 4 samples per second
    _write(tmp_path / "a.edf", [fast, slow], [6, 4], ["fast", "slow"])
    batch = read_edf(tmp_path / "a.edf")
    assert batch.channels == ("fast", "slow")
    assert batch.ids.tolist() == ["a"]
    union = sorted({k / 6 for k in range(12)} | {k / 4 for k in range(8)})
    np.testing.assert_allclose(batch.times, union, atol=1e-12)
    assert len(batch.times) == 16  # 12 + 8, of which 4 (0, 0.5, 1, 1.5 s) coincide
    seen = ~np.isnan(batch.values)
    np.testing.assert_allclose(batch.times[seen[:, 0]], np.arange(12) / 6, atol=1e-12)
    np.testing.assert_allclose(batch.times[seen[:, 1]], np.arange(8) / 4, atol=1e-12)
    np.testing.assert_allclose(batch.values[seen[:, 0], 0], fast, atol=STEP)
    np.testing.assert_allclose(batch.values[seen[:, 1], 1], slow, atol=STEP)


def test_files_are_series_and_channels_can_be_chosen(tmp_path):
    for name, seconds in (("a", 2), ("b", 3)):
        signals = [_signal(seconds * 5, 0), _signal(seconds * 5, 1)]
        _write(tmp_path / f"{name}.edf", signals, [5, 5], ["C3", "C4"])
    batch = read_edf([tmp_path / "a.edf", tmp_path / "b.edf"], channels=["C4"])
    assert batch.lengths.tolist() == [10, 15]
    assert not batch.missing
    np.testing.assert_allclose(batch.series(1)[1][:, 0], _signal(15, 1), atol=STEP)
    np.testing.assert_allclose(batch.series(0)[0], np.arange(10) / 5, atol=1e-12)


def test_what_cannot_be_read_is_refused_with_words(tmp_path):
    _write(tmp_path / "a.edf", [_signal(5, 0)], [5], ["C3"])
    _write(tmp_path / "b.edf", [_signal(5, 0)] * 2, [5, 5], ["C3", "C4"])
    with pytest.raises(InputError, match=r"pass channels= with some that all have, e.g. \['C3'\]"):
        read_edf([tmp_path / "a.edf", tmp_path / "b.edf"])
    with pytest.raises(InputError, match="no channel 'O1'; it has C3"):
        read_edf(tmp_path / "a.edf", channels=["O1"])
    with pytest.raises(InputError, match="found nothing"):
        read_edf(tmp_path / "absent.edf")
    with pytest.raises(InputError, match="empty list"):
        read_edf([])
    (tmp_path / "bad.edf").write_text("not edf")
    with pytest.raises(InputError, match="not an EDF or BDF file"):
        read_edf(tmp_path / "bad.edf")


def test_without_the_package_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "a.edf").write_text("")
    monkeypatch.setitem(sys.modules, "pyedflib", None)
    with pytest.raises(InputError, match=r"pip install 'roughformer\[edf\]'"):
        read_edf(tmp_path / "a.edf")
