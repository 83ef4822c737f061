"""Alarms on what a stream says: a threshold with hysteresis, and how soon it detects.

A value v(t) passes a threshold θ at the first event with v > θ (or v < θ). If it is past it at all
events of [t_0, t] with t - t_0 ≥ ``after``, the alarm is raised at t; a raised alarm is cleared at
the first event with v < ``release`` (or v > ``release``).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.checks import real_number, whole_number
from roughformer.errors import InputError

__all__ = ["Alarm", "AlarmState", "Detection", "time_to_detection"]

Floats = npt.NDArray[np.float64]
_SYNTAX = "'[class=NAME | target=NAME] above|below NUMBER [release NUMBER] [after NUMBER]'"
_WORDS = re.compile(
    r"(?:(?:class=|target=)?(.+?)\s+)?(above|below)\s+(\S+)"
    r"(?:\s+release\s+(\S+))?(?:\s+after\s+(\S+))?"
)


@dataclass(frozen=True)
class Alarm:
    """A threshold with hysteresis on what a stream predicts.

    Parameters
    ----------
    threshold : float
        The alarm is raised when the value is past it for at least ``after``.
    release : float, optional
        The alarm is cleared when the value is back past it; by default the threshold itself.
    above : bool, default True
        Whether past is greater, else less.
    after : float, default 0.0
        How long the value must be past the threshold.
    of : object, optional
        The class whose (calibrated) probability is watched, or the name or number of a target; by
        default the only target.
    """

    threshold: float
    release: float | None = None
    above: bool = True
    after: float = 0.0
    of: Any = None

    def __post_init__(self) -> None:
        """The release is on the quiet side of the threshold."""
        real_number(self.threshold, "the threshold of an alarm", "a finite number")
        if real_number(self.after, "after", "a finite time") < 0:
            raise InputError(f"after must not be negative, got {self.after}")
        if self.release is None:
            return
        gap = self.threshold - real_number(self.release, "release", "a finite number")
        if (gap if self.above else -gap) < 0:
            side = "below" if self.above else "above"
            raise InputError(
                f"release must not be {'above' if self.above else 'below'} the threshold "
                f"{self.threshold:g}, got {self.release:g}; it is {side}, so that an alarm does "
                "not come and go with every small change"
            )

    @classmethod
    def parse(cls, text: str) -> "Alarm":
        """Read an alarm from text.

        Parameters
        ----------
        text : str
            ``"above 100 release 95 after 5"``, ``"class=sick above 0.8 release 0.6"``.

        Returns
        -------
        Alarm
        """
        found = _WORDS.fullmatch(text.strip())
        if found is None:
            raise InputError(f"an alarm is written {_SYNTAX}, got {text!r}")
        of, side, *numbers = found.groups()
        try:
            threshold, release, after = (None if n is None else float(n) for n in numbers)
        except ValueError:
            raise InputError(f"an alarm is written {_SYNTAX}; no number in {text!r}") from None
        assert threshold is not None
        return cls(threshold, release, side == "above", after or 0.0, of)

    def __str__(self) -> str:
        """As ``parse`` reads it."""
        words = [] if self.of is None else [str(self.of)]
        words += ["above" if self.above else "below", f"{self.threshold:.12g}"]
        words += [] if self.release is None else ["release", f"{self.release:.12g}"]
        return " ".join(words + (["after", f"{self.after:.12g}"] if self.after else []))

    def column(self, classes: Sequence[Any] | None, targets: Sequence[str]) -> int:
        """Find the number of what is watched.

        Parameters
        ----------
        classes : sequence or None
            Classes of the model; None for a regression.
        targets : sequence of str
            Names of the targets of a regression.

        Returns
        -------
        int
        """
        names = [str(name) for name in (targets if classes is None else classes)]
        what = "target" if classes is None else "class"
        if self.of is None and classes is None and len(names) == 1:
            return 0
        if self.of is not None and str(self.of) in names:
            return names.index(str(self.of))
        if self.of is not None and classes is None and str(self.of).isdecimal():
            return whole_number(int(self.of), "target", 0, len(names) - 1)
        raise InputError(
            f"the alarm {str(self)!r} must name what it watches: {what}=NAME, one of "
            f"{', '.join(names)}"
        )

    def past(self, values: Floats, bound: float) -> npt.NDArray[np.bool_]:
        """Tell which values are beyond a bound on the side of alarm; NaN is not.

        Parameters
        ----------
        values : ndarray (e,)
            Values watched.
        bound : float
            The threshold, say.

        Returns
        -------
        ndarray of bool (e,)
        """
        return np.asarray(values > bound if self.above else values < bound)

    def back(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Tell which values clear the alarm; NaN does not.

        Parameters
        ----------
        values : ndarray (e,)
            Values watched.

        Returns
        -------
        ndarray of bool (e,)
        """
        bound = self.threshold if self.release is None else self.release
        return np.asarray(values < bound if self.above else values > bound)


class AlarmState:
    """One alarm on many slots.

    Parameters
    ----------
    alarm : Alarm
        The alarm.
    n : int
        Number of slots; none has an alarm at first.

    Attributes
    ----------
    active : ndarray of bool (n,)
        Where the alarm is raised.
    since : ndarray (n,)
        When it was raised; NaN = not.
    begun : ndarray (n,)
        Since when the value is past the threshold; NaN = not.
    """

    def __init__(self, alarm: Alarm, n: int) -> None:
        """No slot has an alarm."""
        self.alarm = alarm
        self.active = np.zeros(n, dtype=bool)
        self.since = np.full(n, np.nan)
        self.begun = np.full(n, np.nan)

    def update(
        self, slots: npt.NDArray[np.int64], times: Floats, values: Floats
    ) -> npt.NDArray[np.int8]:
        """Take in events, in order of time for each slot. A NaN leaves everything as it is.

        Parameters
        ----------
        slots : ndarray of int (e,)
            Slots of the events.
        times : ndarray (e,)
            Their times.
        values : ndarray (e,)
            Values watched.

        Returns
        -------
        ndarray of int8 (e,)
            What each event did: 1 raised the alarm, -1 cleared it, 0 left it.
        """
        done = np.zeros(len(slots), dtype=np.int8)
        for rows in _rounds(slots):
            done[rows] = self._step(slots[rows], times[rows], values[rows])
        return done

    def _step(self, slots: npt.NDArray[np.int64], times: Floats, values: Floats) -> Any:
        """``update`` for slots that are all different."""
        known = ~np.isnan(values)
        was = self.active[slots]
        past = self.alarm.past(values, self.alarm.threshold)
        begun = self.begun[slots]
        begun = np.where(past & np.isnan(begun), times, np.where(known & ~past, np.nan, begun))
        self.begun[slots] = begun
        # Rounding of times must not delay an alarm to the next event.
        tiny = 1e-9 * np.maximum(np.abs(times), 1)
        raised = ~was & past & (times - begun >= self.alarm.after - tiny)
        cleared = was & self.alarm.back(values)
        self.active[slots] = (was | raised) & ~cleared
        since = np.where(raised, times, self.since[slots])
        self.since[slots] = np.where(cleared, np.nan, since)
        return raised.astype(np.int8) - cleared.astype(np.int8)

    def reset(self, slot: int) -> None:
        """Begin a slot anew.

        Parameters
        ----------
        slot : int
            Which slot.
        """
        self.active[slot], self.since[slot], self.begun[slot] = False, np.nan, np.nan

    def resize(self, n: int) -> None:
        """Change the number of slots.

        Parameters
        ----------
        n : int
            The new number.
        """
        for name, empty in (("active", False), ("since", np.nan), ("begun", np.nan)):
            old = getattr(self, name)
            new = np.full(n, empty, dtype=old.dtype)
            new[: min(n, len(old))] = old[:n]
            setattr(self, name, new)

    def save(self, slot: int) -> dict[str, Any]:
        """Save the state of a slot, for JSON.

        Parameters
        ----------
        slot : int
            Which slot.

        Returns
        -------
        dict
        """
        return {
            "alarm": str(self.alarm),
            "active": bool(self.active[slot]),
            "since": _or_none(self.since[slot]),
            "begun": _or_none(self.begun[slot]),
        }

    def load(self, slot: int, state: dict[str, Any]) -> None:
        """Restore the state of a slot.

        Parameters
        ----------
        slot : int
            Which slot.
        state : dict
            What ``save`` returned; the state of another alarm only resets the slot.
        """
        self.reset(slot)
        if state.get("alarm") == str(self.alarm):
            self.active[slot] = state.get("active") is True
            self.since[slot] = _or_nan(state.get("since"))
            self.begun[slot] = _or_nan(state.get("begun"))


@dataclass(frozen=True)
class Detection:
    """How an alarm met the onsets of what it should detect.

    Attributes
    ----------
    delays : ndarray (n,)
        From each onset to the first alarm; NaN = missed.
    false_alarms : int
        Number of alarms that belong to no onset.
    false_rate : float
        False alarms in a unit of time; NaN if the duration is not known.
    """

    delays: Floats
    false_alarms: int
    false_rate: float

    @property
    def missed(self) -> int:
        """Number of onsets without an alarm."""
        return int(np.isnan(self.delays).sum())

    @property
    def median_delay(self) -> float:
        """Median delay of the onsets that were detected; NaN if none was."""
        found = self.delays[~np.isnan(self.delays)]
        return float(np.median(found)) if len(found) else math.nan


def time_to_detection(
    onsets: Any, raised: Any, horizon: float, *, duration: float | None = None
) -> Detection:
    """Measure how soon alarms detect onsets in one recording.

    An alarm belongs to the last onset before it (or at the same time), if that is at most
    ``horizon`` ago; else it is false. An onset is detected by the first alarm that belongs to it.

    Parameters
    ----------
    onsets : array-like (n,)
        Times of the onsets.
    raised : array-like (a,)
        Times at which an alarm was raised.
    horizon : float
        Longest time from an onset to its alarm.
    duration : float, optional
        Of the recording, for the rate of false alarms.

    Returns
    -------
    Detection
    """
    starts, alarms = (np.sort(np.asarray(x, dtype=np.float64).ravel()) for x in (onsets, raised))
    if not (np.isfinite(starts).all() and np.isfinite(alarms).all()):
        raise InputError("onsets and alarms must be finite times")
    real_number(horizon, "horizon", "a positive time", positive=True)
    if duration is not None:
        real_number(duration, "duration", "a positive time", positive=True)
    of = np.searchsorted(starts, alarms, side="right") - 1
    since = alarms - np.where(of >= 0, np.append(starts, np.inf)[of], -np.inf)
    belongs = (of >= 0) & (since <= horizon)
    delays = np.full(len(starts), np.inf)
    np.minimum.at(delays, of[belongs], since[belongs])
    false = int((~belongs).sum())
    rate = math.nan if duration is None else false / duration
    return Detection(np.where(np.isinf(delays), np.nan, delays), false, rate)


def _rounds(slots: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Rows in groups of different slots: the first event of each slot, the second, ..."""
    if not len(slots):
        return []
    order = np.argsort(slots, kind="stable")
    first = np.flatnonzero(np.diff(slots[order], prepend=slots[order][0] - 1))
    rank = np.arange(len(slots)) - np.repeat(first, np.diff(np.append(first, len(slots))))
    return [order[rank == k] for k in range(int(rank.max()) + 1)]


def _or_none(x: float) -> float | None:
    return None if math.isnan(x) else float(x)


def _or_nan(x: Any) -> float:
    """A finite time; whatever else a snapshot may hold is none."""
    if not isinstance(x, int | float) or isinstance(x, bool):
        return math.nan
    try:
        return float(x) if math.isfinite(x) else math.nan
    except OverflowError:  # a whole number with hundreds of digits
        return math.nan
