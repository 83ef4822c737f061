"""Parameters come back from disk as they were given."""

from pathlib import Path

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import CheckpointError
from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.estimators.parameters import from_plain, to_plain
from roughformer.tokens import SpectrumConfig
from small import TINY, make, walks


def same(a, b):
    """Equal and of one kind; numbers of numpy count as Python's."""
    if isinstance(a, np.generic):
        a = a.item()
    if isinstance(a, rf.Windows):
        fields = (a.rule, a.amount, a.shared) == (b.rule, b.amount, b.shared)
        return isinstance(b, rf.Windows) and fields and same(a.cuts, b.cuts)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return a == b


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("windows", "auto"),
        ("windows", 7),
        ("windows", {"duration": 2.5}),
        ("windows", {"points": 3}),
        ("windows", (0.0, 3.0, 15.0)),
        ("windows", [0.0, 3, 15]),
        ("windows", np.array([0.0, 3.0, 15.0])),
        ("windows", np.arange(3)),
        ("windows", rf.Windows.by_count(3)),
        ("windows", rf.Windows.by_duration(2.5)),
        ("windows", rf.Windows.by_points(4)),
        ("windows", rf.Windows.explicit([0.0, 3.0, 15.0])),
        ("windows", rf.Windows.explicit(np.array(["2024-01-01", "2024-01-02"], "datetime64[ns]"))),
        ("windows", rf.Windows.explicit([[0.0, 1.0], [0.0, 2.0, 4.0]])),
        ("model", None),
        ("model", {"clip": 5.0, "sizes": (1, [2, (3,)])}),
        ("model", {"$tuple": [1]}),
        ("tokens", rf.TokenConfig(clock=3, spectrum={"count": 8, "low": 0.25}, windows=3)),
        ("depth", np.int64(2)),
        ("views", ("local",)),
        ("views", ["local"]),
        ("lags", 0.5),
        ("lags", (0.5, 1)),
        ("lags", np.array([0.5])),
        ("spectrum", None),
        ("static", ("age",)),
        ("drop", 0.25),
        ("drop", (0.0, 0.5)),
        ("patience", None),
        ("random_state", 3),
        ("run_dir", Path("runs") / "a"),
        ("run_dir", "runs/a"),
        ("class_weight", "balanced"),
        ("class_weight", {0: 2.0, 1: 3.0}),
        ("class_weight", {"a": 2.0, "b": 1}),
        ("class_weight", {True: 2.0, False: 1.0}),
        ("quantiles", (0.1, 0.9)),
        ("quantiles", [0.1, 0.9]),
    ],
)
def test_every_kind_of_value_round_trips(name, value):
    import json

    stored = json.loads(json.dumps(to_plain({name: value}), allow_nan=False))
    assert same(value, from_plain(stored, [name], {"tokens": rf.TokenConfig})[name])


def test_what_json_cannot_hold_is_left_out_and_names_of_another_version_are_refused():
    given = {"random_state": np.random.RandomState(0), "drop": float("nan"), "depth": 2}
    assert to_plain(given) == {"depth": 2}
    with pytest.raises(ValueError, match="there is no parameter clock any more"):
        from_plain({"depth": 2, "clock": 3}, ["depth"])


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (RFormerClassifier, {"class_weight": {0: 2.0, 1: 1.0}, "windows": rf.Windows.by_points(5)}),
        (
            RFormerRegressor,
            {
                "uncertainty": "quantile",
                "quantiles": (0.2, 0.8),
                "lags": (0.5,),
                "drop": (0.0, 0.5),
            },
        ),
        (RFormerRegressor, {"windows": {"points": 4}, "spectrum": SpectrumConfig(count=4)}),
        (RFormerRegressor, {"clip": 5.0, "views": ("local",), "lags": 2.0}),
    ],
)
def test_a_loaded_estimator_has_the_parameters_of_the_saved_one(kind, more, tmp_path):
    model = make(kind, **(TINY | {"epochs": 1} | more)).fit(walks(), np.arange(24) % 2)
    model.save(tmp_path / "model")
    again = kind.load(tmp_path / "model")
    given, found = model.get_params(), again.get_params()
    assert given.keys() == found.keys()
    assert [name for name in given if not same(given[name], found[name])] == []
    refitted = again.fit(walks(), np.arange(24) % 2)
    np.testing.assert_array_equal(refitted.predict(walks()), model.predict(walks()))


def test_parameters_that_cannot_be_read_are_an_error_of_the_checkpoint(tmp_path):
    model = make(RFormerRegressor, **TINY).fit(walks(), np.arange(24))
    model.predictor_.metadata["parameters"] = {"windows": {"$spiral": 3}}
    model.predictor_.save(tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"unknown kind '\$spiral'"):
        RFormerRegressor.load(tmp_path / "model")
