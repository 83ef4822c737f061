"""Tokens as a fitted step: what is stored, what is refused, static covariates."""

import json

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import InputError
from roughformer.tokens import SpectrumConfig, TokenConfig, Tokenizer
from roughformer.tokens.fitted import StaticEncoder
from roughformer.tokens.tokenizer import plain_windows
from small import ragged_batch


@pytest.mark.parametrize(
    "windows",
    [12, rf.Windows.by_count(3), rf.Windows.by_duration(2.5), rf.Windows.by_points(7), [0.0, 1, 5]],
)
def test_a_tokenizer_survives_json_and_gives_the_same_tokens(windows):
    batch = ragged_batch()
    config = TokenConfig(windows=windows, clock=3, spectrum=SpectrumConfig(count=8), counts=True)
    first = Tokenizer.fit(config, batch)
    again = Tokenizer.model_validate(json.loads(first.model_dump_json()))
    assert again == first
    a, b = first.encode(batch), again.encode(batch)
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[k], b[k], equal_nan=k != "mask") for k in a)
    assert a["tokens"].shape[-1] == first.n_features == len(first.names)
    assert len(first.feature_channels()) == first.n_features


def test_windows_that_fit_only_some_series_cannot_be_stored():
    with pytest.raises(InputError, match="one rule for all series"):
        plain_windows(rf.Windows.explicit([[0.0, 1.0], [0.0, 2.0]]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"views": ("global",), "clock": 3}, "clock words belong to the local view"),
        ({"depth": 0}, "observations=True only"),
        ({"hold": True, "counts": True}, "no gaps to count"),
        ({"lags": (0.0,)}, "lags are positive"),
        ({"views": ("local", "local")}, "views must be"),
        ({"spectrum": {"low": 2.0, "high": 1.0}}, "low must be below its high"),
        (
            {"depths": 3},
            "TokenConfig has no option 'depths'; did you mean 'depth'\\? It has windows",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        TokenConfig(**options)


def test_tokens_are_the_signatures_with_the_fitted_unit_of_time():
    batch = ragged_batch()
    tokenizer = Tokenizer.fit(TokenConfig(windows=4, depth=2), batch)
    expected = rf.multiview_signature(
        batch, 4, 2, lifts=rf.Time(tokenizer.time_unit), dtype=np.float32
    )
    assert np.array_equal(tokenizer.encode(batch)["tokens"].numpy(), expected)
    start, end = batch.span
    assert tokenizer.time_unit == np.median(end - start)
    last = tokenizer.encode(batch)["times"][:, -1].numpy()
    assert np.allclose(last, (end - start) / tokenizer.time_unit)


def test_ragged_windows_are_masked():
    batch = ragged_batch()
    inputs = Tokenizer.fit(TokenConfig(windows={"duration": 3.0}), batch).encode(batch)
    counts = rf.Windows.by_duration(3.0).place(batch).n_windows
    assert inputs["mask"].sum(dim=1).tolist() == counts.tolist()
    assert (inputs["tokens"][~inputs["mask"]] == 0).all()


def test_a_changed_copy_of_a_tokenizer_has_a_layout_of_its_own():
    fitted = Tokenizer.fit(TokenConfig(windows=3, depth=2), ragged_batch())
    assert fitted.layout.depth == 2
    assert fitted.rule.amount == 3
    other = fitted.config.model_copy(update={"depth": 3, "windows": 5})
    changed = fitted.model_copy(update={"config": other})
    assert changed.layout.depth == 3
    assert changed.encode(ragged_batch())["tokens"].shape[1:] == (5, changed.n_features)


def test_other_channels_than_fitted_are_refused():
    tokenizer = Tokenizer.fit(TokenConfig(windows=3), ragged_batch())
    with pytest.raises(InputError, match=r"fitted to the channels \['x0', 'x1'\]"):
        tokenizer.encode(ragged_batch(channels=3))
    with pytest.raises(InputError, match="at least one series"):
        Tokenizer.fit(TokenConfig(windows=3), ragged_batch()[:0])


def test_an_empty_batch_has_empty_tokens():
    config = TokenConfig(windows=3, clock=2, observations=True, spectrum=SpectrumConfig(count=4))
    tokenizer = Tokenizer.fit(config, ragged_batch())
    inputs = tokenizer.encode(ragged_batch()[:0])
    assert inputs["tokens"].shape == (0, 3, tokenizer.n_features)
    assert inputs["spectrum"].shape == (0, 2, 4)


def test_static_covariates_become_numbers_levels_and_marks():
    static = np.array([[1, 70.5, 0], [2, np.nan, 1], [4, 50.0, 1], [2, 1000.0, 0]] * 30)
    batch = rf.SeriesBatch.from_numpy3d(
        np.zeros((120, 1, 3)), static=static, static_names=["kind", "weight", "sex"]
    )
    encoder = StaticEncoder.fit(batch, ("kind", "weight", "sex"))
    assert encoder.names == ["kind=1", "kind=2", "kind=4", "weight", "weight unknown", "sex"]
    found = encoder.encode(batch)
    assert found[1].tolist()[:3] == [0.0, 1.0, 0.0]
    assert np.isnan(found[1, 3])
    assert found[1, 4] == 1.0
    assert StaticEncoder().encode(batch).shape == (120, 0)
    tokenizer = Tokenizer.fit(TokenConfig(windows=2, static=("kind",)), batch)
    assert tokenizer.encode(batch)["static"].shape == (120, 3)
    with pytest.raises(InputError, match="are not in these series"):
        Tokenizer.fit(TokenConfig(windows=2, static=("age",)), batch)
