"""Recordings to play on the page: made up in the package, and BIDMC's where it is installed."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from roughformer.io import read_wfdb
from roughformer.serve.pulse import CHANNELS, Disturbance, pulse_signal

__all__ = ["Facts", "Samples", "recordings", "samples_of"]

Floats = npt.NDArray[np.float64]
_RATE = 125.0  # samples per second
_BIDMC_SECONDS = 480.0
_BIDMC_TEST = (5, 7, 9, 14, 19, 21, 23, 26, 28, 30, 32, 33, 40, 41, 49, 53)  # the archive's
_MADE_UP_SEED = 7_000_000  # persons that no training of the demo's model has seen


@dataclass(frozen=True)
class Facts:
    """What is told about a recording before it is played."""

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
class _Story:
    """A made-up recording: the heart rate at some moments, smooth in between."""

    facts: Facts
    moments: tuple[float, ...]
    rates: tuple[float, ...]
    disturbances: tuple[Disturbance, ...] = ()


_STORIES = (
    _Story(
        Facts(
            "exercise",
            "Made up: rest, exercise, rest",
            "The rate rises from 64 to 128 beats a minute and falls again.",
            300.0,
        ),
        (0, 60, 130, 180, 250, 300),
        (64, 66, 120, 128, 84, 72),
    ),
    _Story(
        Facts(
            "tachycardia",
            "Made up: a sudden fast rhythm",
            "At 1:00 the heart jumps from 76 to 148 beats a minute, and back at 2:15.",
            240.0,
        ),
        (0, 60, 61, 134, 136, 240),
        (74, 78, 148, 146, 80, 74),
    ),
    _Story(
        Facts(
            "disturbed",
            "Made up: disturbed channels",
            "The patient moves: ECG useless from 0:40 to 1:20; the PPG sensor is off from 1:50 to "
            "2:30.",
            240.0,
        ),
        (0, 80, 160, 240),
        (82, 92, 78, 86),
        (
            Disturbance("ECG", 40.0, 80.0),
            Disturbance("PPG", 110.0, 150.0, "off"),
        ),
    ),
    _Story(
        Facts(
            "slow",
            "Made up: a slow heart",
            "The rate falls from 70 to 44 beats a minute and recovers.",
            240.0,
        ),
        (0, 50, 110, 170, 240),
        (70, 68, 44, 46, 62),
    ),
)


def recordings() -> dict[str, Facts]:
    """All that can be played here, by name; BIDMC's test recordings if they are on this machine."""
    facts = [story.facts for story in _STORIES]
    facts += [
        Facts(
            f"bidmc{number:02d}",
            f"BIDMC {number:02d} (a test recording)",
            "An intensive-care patient; the truth is the bedside monitor's.",
            _BIDMC_SECONDS,
        )
        for number in _BIDMC_TEST
        if _bidmc(number).with_suffix(".dat").is_file()
    ]
    return {recording.name: recording for recording in facts}


def _bidmc(number: int) -> Path:
    """The WFDB record in ROUGHFORMER_DATA, without a suffix; it need not exist."""
    return Path(os.environ.get("ROUGHFORMER_DATA", ""), "bidmc", f"bidmc{number:02d}")


@lru_cache(maxsize=8)
def samples_of(name: str) -> Samples:
    """The observations of a recording that ``recordings`` names."""
    for number, story in enumerate(_STORIES):
        if story.facts.name == name:
            return _told(story, _MADE_UP_SEED + number)
    number = int(name.removeprefix("bidmc"))
    record = _bidmc(number)
    times, values = read_wfdb(record, channels=["PLETH", "II"]).series(0)
    numerics = read_wfdb(record.with_name(f"{name}n"), channels=["HR"]).values[:, 0]
    if number == 23:  # its numerics start a second before its waveforms
        numerics = numerics[1:]
    rate = np.rint(numerics[: int(times[-1])])  # whole numbers, blurred by WFDB's scaling
    seconds = np.arange(1, len(rate) + 1, dtype=np.float64)
    return Samples(times, values.astype(np.float32), seconds, rate)


def _told(story: _Story, seed: int) -> Samples:
    times = np.arange(round(story.facts.seconds * _RATE) + 1) / _RATE
    rng = np.random.default_rng(seed)
    smooth = np.interp(times, story.moments, story.rates)
    breathing = 1 + 0.015 * np.sin(2 * np.pi * (0.24 * times + rng.random()))
    rate = smooth * breathing
    values = pulse_signal(times, rate, seed, story.disturbances)
    ends = np.arange(1, int(times[-1]) + 1, dtype=np.float64)
    before = np.concatenate([[0.0], np.cumsum(rate)])
    at = np.searchsorted(times, ends, side="right")
    begin = np.searchsorted(times, ends - 1, side="right")
    return Samples(times, values, ends, (before[at] - before[begin]) / (at - begin))
