"""The heart-rate set: its figures are those that were published."""

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from roughformer.errors import InputError, MissingDataError
from roughformer.io import read_wfdb
from roughformer_paper.datasets import (
    data_root,
    heart_rate_recording,
    heart_rate_split,
    heart_rate_test_recordings,
    load_heart_rate,
)

SPLITS = {
    "patient": "d470c8ce45d7d44d7263389f8bfa07e3c88292b4dd7e1fca0833b4e633a3f06c",
    "random": "d76b103c74ced287cd9a129b25336576e96ff45cfb3742260056b4b19f42a642",
}


@pytest.fixture(scope="module")
def root():
    pytest.importorskip("wfdb")
    named = os.environ.get("ROUGHFORMER_DATA") or Path(__file__).parents[2].parent / "shared/data"
    try:
        return data_root("bidmc", named)
    except MissingDataError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def heart_rate(root):
    return load_heart_rate(root)


def test_the_set_has_the_published_size_and_labels(heart_rate):
    labels = heart_rate.labels
    assert len(heart_rate) == 7949
    assert round(labels.mean(), 2) == 89.18
    assert round(labels.std(), 2) == 13.20
    assert (round(labels.min(), 2), round(labels.max(), 2)) == (56.03, 128.25)
    assert heart_rate.channels == ("PPG", "ECG")
    assert heart_rate.values.dtype == np.float32
    assert not heart_rate.missing
    np.testing.assert_array_equal(heart_rate.grid, np.arange(4000) / 125)


def test_windows_are_cut_where_their_ids_say(heart_rate, root):
    recordings = heart_rate.static[:, 0]
    counts = np.bincount(recordings.astype(int))[1:]
    assert counts.tolist() == [150] * 22 + [149] + [150] * 30
    ids = heart_rate.ids[recordings == 23]
    assert (ids[0], ids[-1]) == ("bidmc23:0002", "bidmc23:0446")
    (i,) = np.flatnonzero(heart_rate.ids == "bidmc07:0123")
    span = read_wfdb(root / "bidmc07", channels=["PLETH", "II"], start=123, stop=155)
    np.testing.assert_array_equal(heart_rate.series(i)[1], span.values.astype(np.float32))
    numerics = read_wfdb(root / "bidmc07n", channels=["HR"], start=123, stop=155)
    assert abs(heart_rate.labels[i] - numerics.values.mean()) < 1e-3


@pytest.mark.parametrize("recording", [7, 23])
def test_windows_of_a_whole_recording_are_those_of_the_set(heart_rate, root, recording):
    times, values, beats = heart_rate_recording(recording, root)
    np.testing.assert_allclose(times, np.arange(len(values)) / 125)
    for i in np.flatnonzero(heart_rate.static[:, 0] == recording)[[0, 60, -1]]:
        start = int(heart_rate.ids[i].split(":")[1])
        window = values[125 * start : 125 * (start + 32)]
        np.testing.assert_array_equal(heart_rate.series(i)[1], window)
        assert np.nanmean(beats[start : start + 32]) == pytest.approx(heart_rate.labels[i])


def test_a_recording_that_is_not_there_is_refused():
    for number in (0, 54):
        with pytest.raises(InputError, match=r"recordings are 1 ... 53"):
            heart_rate_recording(number)


def test_test_recordings_are_those_of_the_patient_split():
    counts = [149 if r == 23 else 150 for r in range(1, 54)]
    owner = np.repeat(np.arange(1, 54), counts)
    held = np.unique(owner[heart_rate_split("patient")["test"]])
    np.testing.assert_array_equal(heart_rate_test_recordings(), held)


def test_predicting_the_training_mean_has_the_published_error(heart_rate):
    split = heart_rate_split("patient")
    train = np.concatenate([split["train"], split["validation"]])
    error = heart_rate.labels[split["test"]] - heart_rate.labels[train].mean()
    assert round(float(np.sqrt(np.mean(error**2))), 2) == 14.11


def test_the_nearest_training_window_has_the_published_error(heart_rate):
    split = heart_rate_split("patient")
    train = np.concatenate([split["train"], split["validation"]])
    windows = heart_rate.values.reshape(len(heart_rate), -1)  # (B, 8000)
    known = windows[train].astype(np.float64)
    squares = (known**2).sum(axis=1)
    guesses = []
    for rows in np.array_split(split["test"], 8):
        distance = squares - 2 * windows[rows].astype(np.float64) @ known.T
        guesses.append(heart_rate.labels[train][distance.argmin(axis=1)])
    error = np.concatenate(guesses) - heart_rate.labels[split["test"]]
    assert f"{np.sqrt(np.mean(error**2)):.6f}" == "14.836506"


def test_the_other_targets_leave_out_windows_without_a_label(root):
    rate = load_heart_rate(root, target="RR", verify=False)
    assert len(rate) == 7949 - 79
    assert (rate.labels > 0).all()
    assert (rate.static[:, 0] == 13).sum() == 150 - 79
    oxygen = load_heart_rate(root, target="SpO2", verify=False)
    assert len(oxygen) == 7949 - 150
    assert not (oxygen.static[:, 0] == 19).any()
    assert oxygen.labels.min() > 50
    split = heart_rate_split("patient", recordings=oxygen.static[:, 0])
    assert [len(part) for part in split.values()] == [4650, 900, 2399 - 150]


def test_the_monitor_says_a_pulse_of_every_window_that_is_near_its_heart_rate(heart_rate, root):
    pulse = load_heart_rate(root, target="Pulse", verify=False)
    np.testing.assert_array_equal(pulse.ids, heart_rate.ids)
    apart = np.abs(pulse.labels - heart_rate.labels)
    assert np.median(apart) < 1
    assert apart[heart_rate.static[:, 0] == 41].max() > 20  # its ECG has beats without a pulse


def test_a_damaged_file_is_found(root, tmp_path):
    copy = tmp_path / "bidmc"
    shutil.copytree(root, copy)
    for file in [copy, *copy.iterdir()]:
        file.chmod(0o755)
    data = bytearray((copy / "bidmc31.dat").read_bytes())
    data[1000] ^= 1
    (copy / "bidmc31.dat").write_bytes(data)
    with pytest.raises(InputError, match=r"bidmc31\.dat is damaged"):
        load_heart_rate(tmp_path)
    with (copy / "SHA256SUMS.txt").open("a") as sums:
        sums.write("\n")
    with pytest.raises(InputError, match=r"not the list of version 1\.0\.0"):
        load_heart_rate(tmp_path)


def test_an_absent_set_says_where_to_get_it_and_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.delenv("ROUGHFORMER_DATA", raising=False)
    with pytest.raises(MissingDataError, match=r"physionet\.org/content/bidmc/1\.0\.0.*root=") as e:
        load_heart_rate(tmp_path)
    assert str(tmp_path) in str(e.value)
    with pytest.raises(MissingDataError, match="ROUGHFORMER_DATA"):
        load_heart_rate()
    monkeypatch.setenv("ROUGHFORMER_DATA", str(tmp_path))
    (tmp_path / "bidmc").mkdir()
    (tmp_path / "bidmc" / "bidmc01.hea").touch()
    assert data_root("bidmc") == tmp_path / "bidmc"
    assert data_root("bidmc", tmp_path / "bidmc") == tmp_path / "bidmc"


def test_an_unknown_target_or_protocol_is_refused():
    with pytest.raises(InputError, match="target must be one of HR, Pulse, RR, SpO2"):
        load_heart_rate(target="BP")
    with pytest.raises(InputError, match="'patient' or 'random'"):
        heart_rate_split("best")


@pytest.mark.parametrize("protocol", ["patient", "random"])
def test_the_splits_are_fixed(protocol):
    split = heart_rate_split(protocol)
    sizes = np.array([len(part) for part in split.values()])
    joined = np.concatenate([sizes, *split.values()]).astype("<i8")
    assert hashlib.sha256(joined.tobytes()).hexdigest() == SPLITS[protocol]
    assert sorted(np.concatenate(list(split.values())).tolist()) == list(range(7949))


def test_the_patient_split_is_the_official_one_and_shares_no_recording():
    owner = np.repeat(np.arange(1, 54), [150] * 22 + [149] + [150] * 30)
    for seed in (0, 1):
        split = heart_rate_split("patient", seed=seed)
        assert len(split["train"]) + len(split["validation"]) == 5550
        assert len(split["test"]) == 2399
        groups = [set(owner[part].tolist()) for part in split.values()]
        assert [len(group) for group in groups] == [31, 6, 16]
        assert len(set.union(*groups)) == 53
    official = set((np.random.RandomState(1234).permutation(53)[:16] + 1).tolist())
    assert groups[2] == official


def test_the_random_split_is_70_15_15_and_moves_with_the_seed():
    split, other = heart_rate_split("random"), heart_rate_split("random", seed=1)
    assert [len(part) for part in split.values()] == [5564, 1192, 1193]
    assert not np.array_equal(split["test"], other["test"])
