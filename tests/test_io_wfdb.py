"""WFDB records; wfdb itself writes the test files."""

import sys

import numpy as np
import pytest

from roughformer.errors import InputError
from roughformer.io import read_wfdb


def _write(folder, name, signals, names, fs=10):
    wfdb = pytest.importorskip("wfdb")
    n = len(names)
    wfdb.wrsamp(
        name,
        fs=fs,
        units=["mV"] * n,
        sig_name=names,
        p_signal=signals,
        fmt=["16"] * n,
        adc_gain=[1000.0] * n,
        baseline=[0] * n,
        write_dir=str(folder),
    )


def _signals(length, channels, seed=0):
    return np.random.default_rng(seed).integers(-2000, 2000, size=(length, channels)) / 1000


def test_records_are_series_in_physical_units_and_seconds(tmp_path):
    first, second = _signals(30, 2), _signals(20, 2, seed=1)
    first[4, 1] = np.nan
    _write(tmp_path, "r1", first, ["II,", "PLETH,"])
    _write(tmp_path, "r2", second[:, ::-1], ["PLETH", "II"], fs=4)
    batch = read_wfdb([tmp_path / "r1.hea", tmp_path / "r2"])
    assert batch.channels == ("II", "PLETH")
    assert batch.ids.tolist() == ["r1", "r2"]
    np.testing.assert_allclose(batch.series(0)[1], first, atol=1e-9)
    np.testing.assert_allclose(batch.series(1)[1], second, atol=1e-9)
    np.testing.assert_array_equal(batch.series(0)[0], np.arange(30) / 10)
    np.testing.assert_array_equal(batch.series(1)[0], np.arange(20) / 4)


def test_a_directory_gives_its_listed_records_or_all(tmp_path):
    for name in ("b", "a"):
        _write(tmp_path, name, _signals(5, 1), ["x"])
    assert read_wfdb(tmp_path).ids.tolist() == ["a", "b"]
    (tmp_path / "RECORDS").write_text("b\n")
    assert read_wfdb(tmp_path).ids.tolist() == ["b"]


def test_channels_and_a_span_of_time_can_be_chosen(tmp_path):
    signals = _signals(50, 3)
    _write(tmp_path, "r", signals, ["a", "b", "c"])
    batch = read_wfdb(tmp_path / "r", channels=["c", "a"], start=1.05, stop=2.0)
    assert batch.channels == ("c", "a")
    np.testing.assert_array_equal(batch.times, np.arange(11, 20) / 10)
    np.testing.assert_allclose(batch.values, signals[11:20][:, [2, 0]], atol=1e-9)


def test_what_cannot_be_read_is_refused_with_words(tmp_path):
    _write(tmp_path, "r", _signals(50, 1), ["a"])
    _write(tmp_path, "s", _signals(50, 2), ["a", "b"])
    with pytest.raises(InputError, match=r"pass channels= with some that all have, e.g. \['a'\]"):
        read_wfdb([tmp_path / "r", tmp_path / "s"])
    with pytest.raises(InputError, match="no channel 'z'; it has a"):
        read_wfdb(tmp_path / "r", channels=["z"])
    with pytest.raises(InputError, match="no sample in"):
        read_wfdb(tmp_path / "r", start=99)
    with pytest.raises(InputError, match="header at"):
        read_wfdb(tmp_path / "absent")
    with pytest.raises(InputError, match="empty list"):
        read_wfdb([])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found none"):
        read_wfdb(tmp_path / "empty")


def test_without_the_package_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "r.hea").write_text("r 1 10 5\n")
    monkeypatch.setitem(sys.modules, "wfdb", None)
    with pytest.raises(InputError, match=r"pip install 'roughformer\[wfdb\]'"):
        read_wfdb(tmp_path / "r")


@pytest.mark.parametrize(
    "header",
    [
        "r 2 10 30\nr.dat 2 1000(0)/mV 12 0 0 0 0 a\nr.dat 16 1000(0)/mV 16 0 0 0 0 b\n",
        "r 2 10 30\nr.dat 16 1000(0)/mV 16 0 0 0 0 a\nr.da",
        "r 2 10\nr.dat 16 1000(0)/mV 16 0 0 0 0 a\nr.dat 16 1000(0)/mV 16 0 0 0 0 b\n",
        "r 2 0 30\nr.dat 16 1000(0)/mV 16 0 0 0 0 a\nr.dat 16 1000(0)/mV 16 0 0 0 0 b\n",
        "r 1",
    ],
)
def test_a_damaged_header_is_refused_in_words(tmp_path, header):
    _write(tmp_path, "r", _signals(30, 2), ["a", "b"])
    (tmp_path / "r.hea").write_text(header)
    with pytest.raises(InputError, match=r"record|header"):
        read_wfdb(tmp_path / "r")
