"""The demo: its model, and recordings for the page to play."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from roughformer.errors import CheckpointError, InputError
from roughformer.estimators import RateRegressor
from roughformer.serve.pulse import CHANNELS, Disturbance, make_pulse, pulse_signal
from roughformer.train import TrainConfig
from roughformer.util.checkpoint import load_checkpoint

DEMO_SPAN = 32.0  # seconds that the model looks back
DEMO_EVERY = 1.0  # seconds between its predictions
DEMO_ALARM = "above 110 release 105 after 3"
_MIN_SECONDS = 2.0  # of training series: what a stream has to offer soon after its start
_N_SERIES = 400
_RECIPE = 2  # a model in the cache of another number is of an older recipe

Floats = npt.NDArray[np.float64]
_RATE = 125.0  # samples per second
_SEED = 7_000_000  # persons that no training of the demo's model has seen


# The model


def demo_model(
    cache: str | os.PathLike[str] | None = None,
    *,
    threads: int | None = None,
    say: Callable[[str], object] = print,
) -> Path:
    """Return the directory of the demo's model; train it first if it is not there.

    ``cache``: by default ``$XDG_CACHE_HOME/roughformer`` or ``~/.cache/roughformer``.
    """
    if cache is None:
        base = os.environ.get("XDG_CACHE_HOME")
        cache = (Path(base) if base else Path.home() / ".cache") / "roughformer"
    directory = Path(cache) / f"demo-{_RECIPE}"
    try:
        load_checkpoint(directory)
        say(f"the demo's model is in {directory}")
        return directory
    except CheckpointError:
        pass  # not there yet, or damaged
    say(f"training the demo's model on synthetic pulses, about a minute; it is kept in {directory}")
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
    *, n: int = _N_SERIES, epochs: int = 8, threads: int | None = None
) -> RateRegressor:
    """Train a model of heart rates with up to 90 % of the observations left out, and calibrate its
    intervals.
    """
    model = RateRegressor(
        rate_unit=1 / 60,
        drop=(0.0, 0.9),
        epochs=epochs,
        learning_rate=4e-3,
        n_jobs=threads,
        random_state=0,
        training=TrainConfig(warp=0.2, draws=4),
    )
    train = make_pulse(n, DEMO_SPAN, seed=1, shortest=_MIN_SECONDS)
    held = make_pulse(max(n // 5, 8), DEMO_SPAN, seed=2, shortest=_MIN_SECONDS)
    model.fit(train, train.labels, validation_data=(held, held.labels))
    others = make_pulse(max(n // 2, 40), DEMO_SPAN, seed=3, shortest=_MIN_SECONDS)
    model.calibrate(others, others.labels)
    model.predictor_.metadata["data"] = {"target": "heart rate"}
    return model


# Recordings, all of them synthetic


@dataclass(frozen=True)
class Recording:
    """What the page shows about a recording before it is played."""

    name: str
    title: str
    about: str
    seconds: float
    channels: tuple[str, ...] = CHANNELS


@dataclass(frozen=True)
class Samples:
    """``times (L,)``, ``values (L, C)`` (NaN = not observed), and the true heart rate over the
    second before each of ``truth_times (S,)``.
    """

    times: Floats
    values: npt.NDArray[np.float32]
    truth_times: Floats
    truth: Floats


@dataclass(frozen=True)
class _Scenario:
    """A synthetic recording: the heart rate at some moments, interpolated in between."""

    recording: Recording
    moments: tuple[float, ...]
    rates: tuple[float, ...]
    disturbances: tuple[Disturbance, ...] = ()


_SCENARIOS = (
    _Scenario(
        Recording(
            "exercise",
            "Synthetic: rest, exercise, rest",
            "The rate rises from 64 to 128 beats a minute and falls again.",
            300.0,
        ),
        (0, 60, 130, 180, 250, 300),
        (64, 66, 120, 128, 84, 72),
    ),
    _Scenario(
        Recording(
            "tachycardia",
            "Synthetic: a sudden fast rhythm",
            "At 1:00 the heart jumps from 76 to 148 beats a minute, and back at 2:15.",
            240.0,
        ),
        (0, 60, 61, 134, 136, 240),
        (74, 78, 148, 146, 80, 74),
    ),
    _Scenario(
        Recording(
            "disturbed",
            "Synthetic: disturbed channels",
            "The patient moves: ECG useless from 0:40 to 1:20; the PPG sensor is off from 1:50 to "
            "2:30.",
            240.0,
        ),
        (0, 80, 160, 240),
        (82, 92, 78, 86),
        (Disturbance("ECG", 40.0, 80.0), Disturbance("PPG", 110.0, 150.0, "off")),
    ),
    _Scenario(
        Recording(
            "slow",
            "Synthetic: a slow heart",
            "The rate falls from 70 to 44 beats a minute and recovers.",
            240.0,
        ),
        (0, 50, 110, 170, 240),
        (70, 68, 44, 46, 62),
    ),
)


def recordings() -> dict[str, Recording]:
    """All that can be played, by name."""
    return {scenario.recording.name: scenario.recording for scenario in _SCENARIOS}


@lru_cache(maxsize=8)
def load_recording(name: str) -> Samples:
    """The observations of a recording that ``recordings`` names."""
    number = list(recordings()).index(name)
    return _simulate(_SCENARIOS[number], _SEED + number)


def _simulate(scenario: _Scenario, seed: int) -> Samples:
    times = np.arange(round(scenario.recording.seconds * _RATE) + 1) / _RATE
    rng = np.random.default_rng(seed)
    breathing = 1 + 0.015 * np.sin(2 * np.pi * (0.24 * times + rng.random()))
    rate = np.interp(times, scenario.moments, scenario.rates) * breathing
    values = pulse_signal(times, rate, seed, scenario.disturbances)
    ends = np.arange(1, int(times[-1]) + 1, dtype=np.float64)
    before = np.concatenate([[0.0], np.cumsum(rate)])
    at = np.searchsorted(times, ends, side="right")
    begin = np.searchsorted(times, ends - 1, side="right")
    return Samples(times, values, ends, (before[at] - before[begin]) / (at - begin))
