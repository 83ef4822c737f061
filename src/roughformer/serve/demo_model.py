"""The model of ``roughformer serve --demo``: heart rate from made-up pulses, trained once."""

import os
from collections.abc import Callable
from pathlib import Path

from roughformer.errors import CheckpointError, InputError
from roughformer.estimators import RateRegressor
from roughformer.serve.pulse import make_pulse
from roughformer.train import TrainConfig
from roughformer.util.checkpoint import load_checkpoint

__all__ = ["DEMO_ALARM", "DEMO_EVERY", "DEMO_SPAN", "demo_model", "train_demo_model"]

DEMO_SPAN = 32.0  # seconds that the model looks back
DEMO_EVERY = 1.0  # seconds between its answers
DEMO_ALARM = "above 110 release 105 after 3"
_SHORTEST = 2.0  # seconds: what a stream has to offer soon after its start
_SERIES = 400
_RECIPE = 1  # of another number: what is in the cache is of an older one


def demo_model(
    cache: str | os.PathLike[str] | None = None,
    *,
    threads: int | None = None,
    say: Callable[[str], object] = print,
) -> Path:
    """The directory of the model, in ``cache`` (default: ``$XDG_CACHE_HOME/roughformer`` or
    ``~/.cache/roughformer``); trained first if it is not there or cannot be read.
    """
    directory = _home(cache) / f"demo-{_RECIPE}"
    try:
        load_checkpoint(directory)
        say(f"the demo's model is in {directory}")
        return directory
    except CheckpointError:
        pass  # not there yet, or damaged
    say(f"training the demo's model on made-up pulses, about a minute; it is kept in {directory}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the demo's model cannot be kept in {directory.parent} ({error.strerror}); choose "
            "another directory with --cache"
        ) from error
    train_demo_model(threads=threads).save(directory)
    return directory


def train_demo_model(
    *, n: int = _SERIES, epochs: int = 8, threads: int | None = None
) -> RateRegressor:
    """A ``TempoFormer``, taught with up to 90 % of the observations left out."""
    model = RateRegressor(
        rate_unit=1 / 60,
        drop=(0.0, 0.9),
        epochs=epochs,
        learning_rate=4e-3,
        n_jobs=threads,
        random_state=0,
        training=TrainConfig(warp=0.2, draws=4),
    )
    train = make_pulse(n, DEMO_SPAN, seed=1, shortest=_SHORTEST)
    held = make_pulse(max(n // 5, 8), DEMO_SPAN, seed=2, shortest=_SHORTEST)
    model.fit(train, train.labels, validation_data=(held, held.labels))
    model.predictor_.metadata["data"] = {"target": "heart rate"}
    return model


def _home(cache: str | os.PathLike[str] | None) -> Path:
    if cache is not None:
        return Path(cache)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "roughformer"
