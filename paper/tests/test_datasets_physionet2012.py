"""PhysioNet 2012: the two forms of the set, and its figures."""

import os
from pathlib import Path

import numpy as np
import pytest

from roughformer.errors import InputError, MissingDataError
from roughformer_paper.datasets import data_root, load_physionet2012, physionet2012_subset

NAMES = ["Age", "Gender", "Height", "ICUType"]


def _write_text(folder, subset, stays, outcomes):
    """Official layout. stays: {record: [(minute, name, value)]}; outcomes: {record: death}."""
    (folder / f"set-{subset}").mkdir(parents=True)
    for record, rows in stays.items():
        lines = ["Time,Parameter,Value"]
        lines += [f"{m // 60:02d}:{m % 60:02d},{name},{value}" for m, name, value in rows]
        (folder / f"set-{subset}" / f"{record}.txt").write_text("\n".join(lines) + "\n")
    head = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
    rows = [f"{record},1,1,5,-1,{death}\n" for record, death in outcomes.items()]
    (folder / f"Outcomes-{subset}.txt").write_text(head + "".join(rows))


def _admission(record, *values):
    return [(0, n, v) for n, v in zip(["RecordID", *NAMES], [record, *values], strict=True)]


@pytest.fixture
def small(tmp_path):
    a = {
        132540: [
            *_admission(132540, 54, 0, -1, 4),
            *[(0, "Weight", -1), (7, "GCS", 15), (67, "HR", 73), (67, "HR", 75)],
            *[(67, "Temp", 35.1), (2880, "Weight", 80.5)],
        ],
        132541: [*_admission(132541, 76, 1, 175.3, 2), (0, "Weight", -1)],
    }
    _write_text(tmp_path, "a", a, {132541: 1, 132540: 0})
    c = {152871: [*_admission(152871, 30, -1, 160, 1), (0, "Weight", 70), (1, "", 3)]}
    _write_text(tmp_path, "c", c, {152871: 1})
    return tmp_path


def test_the_official_text_files_become_ragged_series(small):
    batch = load_physionet2012(small, subsets=["a", "c"])
    assert batch.ids.tolist() == [132540, 132541, 152871]
    assert batch.labels.tolist() == [0, 1, 1]
    assert batch.lengths.tolist() == [4, 1, 1]
    np.testing.assert_allclose(batch.series(0)[0], [0, 7 / 60, 67 / 60, 48])
    column = {name: batch.values[:, i] for i, name in enumerate(batch.channels)}
    nan = np.nan
    np.testing.assert_array_equal(column["Weight"], np.float32([nan, nan, nan, 80.5, nan, 70]))
    np.testing.assert_array_equal(column["HR"], np.float32([nan, nan, 75, nan, nan, nan]))
    np.testing.assert_array_equal(column["Temp"], np.float32([nan, nan, 35.1, nan, nan, nan]))
    assert batch.n_channels == 37
    assert batch.static_names == tuple(NAMES)
    expected = [[54, 0, nan, 4], [76, 1, np.float32(175.3), 2], [30, nan, 160, 1]]
    np.testing.assert_array_equal(batch.static, expected)
    assert physionet2012_subset(batch.ids).tolist() == ["a", "a", "c"]


def test_what_is_incomplete_is_refused_with_words(small, monkeypatch):
    with pytest.raises(InputError, match="set-b"):
        load_physionet2012(small)
    with pytest.raises(InputError, match="some of 'a', 'b', 'c'"):
        load_physionet2012(small, subsets=["d"])
    (small / "Outcomes-c.txt").write_text("RecordID,In-hospital_death\n1,0\n")
    with pytest.raises(InputError, match="no outcome for record 152871"):
        load_physionet2012(small, subsets=["c"])
    (small / "Outcomes-c.txt").unlink()
    with pytest.raises(InputError, match=r"Outcomes-c\.txt"):
        load_physionet2012(small, subsets=["c"])
    (small / "set-a" / "132540.txt").write_text("Time,Parameter,Value\n00:00,Mood,1\n")
    with pytest.raises(InputError, match="unknown variable 'Mood'"):
        load_physionet2012(small, subsets=["a"])
    with pytest.raises(InputError, match="start at 132539"):
        physionet2012_subset([7])
    monkeypatch.delenv("ROUGHFORMER_DATA", raising=False)
    with pytest.raises(MissingDataError, match=r"physionet\.org/content/challenge-2012"):
        load_physionet2012()


@pytest.fixture(scope="module")
def root():
    named = os.environ.get("ROUGHFORMER_DATA") or Path(__file__).parents[2].parent / "shared/data"
    try:
        folder = data_root("physionet2012", named)
    except MissingDataError as error:
        pytest.skip(str(error))
    if not (folder / "physionet2012.npz").is_file():
        pytest.skip(f"{folder} holds text files only")
    return folder


def test_the_set_has_the_published_size_and_deaths(root):
    batch = load_physionet2012(root)
    subset = physionet2012_subset(batch.ids)
    assert [(subset == s).sum() for s in "abc"] == [4000] * 3
    assert [batch.labels[subset == s].sum() for s in "abc"] == [554, 568, 585]
    assert batch.n_points / 12000 == pytest.approx(74.86, abs=0.01)
    assert np.count_nonzero(~np.isnan(batch.values)) == 5_210_622
    assert batch.span[1].max() == 48.0
    part = load_physionet2012(root, subsets=["b"])
    assert part.equals(batch[subset == "b"])


def test_both_forms_give_the_same_batch(root, tmp_path):
    with np.load(root / "physionet2012.npz") as data:
        arrays = {name: data[name] for name in data.files}
    stays, outcomes = {}, {}
    for i in range(60):
        events = slice(*arrays["offsets"][i : i + 2])
        record = int(arrays["record_id"][i])
        names = arrays["param_names"][arrays["event_param"][events]]
        stays[record] = _admission(record, *arrays["static"][i]) + list(
            zip(arrays["event_minute"][events], names, arrays["event_value"][events], strict=True)
        )
        outcomes[record] = int(arrays["outcomes"][i, -1])
    _write_text(tmp_path, "a", stays, outcomes)
    text = load_physionet2012(tmp_path, subsets=["a"])
    assert text.equals(load_physionet2012(root, subsets=["a"])[:60])
