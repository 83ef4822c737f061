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
from scipy.stats import beta, chi2

from roughformer.errors import InputError
from roughformer.util.checks import real_number, whole_number

Floats = npt.NDArray[np.float64]
_LEAST = 20  # recordings that a bound needs
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
        match = _WORDS.fullmatch(text.strip())
        if match is None:
            raise InputError(f"an alarm is written {_SYNTAX}, got {text!r}")
        of, side, *numbers = match.groups()
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

    def _is_past(self, values: Floats, bound: float) -> npt.NDArray[np.bool_]:
        """Which values are beyond a bound on the side of alarm; NaN is not."""
        return np.asarray(values > bound if self.above else values < bound)

    def _is_cleared(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Which values clear the alarm; NaN does not."""
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
        self.since, self.begun = np.full(n, np.nan), np.full(n, np.nan)

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
        past = self.alarm._is_past(values, self.alarm.threshold)
        begun = self.begun[slots]
        begun = np.where(past & np.isnan(begun), times, np.where(known & ~past, np.nan, begun))
        self.begun[slots] = begun
        # Rounding of times must not delay an alarm to the next event.
        tiny = 1e-9 * np.maximum(np.abs(times), 1)
        raised = ~was & past & (times - begun >= self.alarm.after - tiny)
        cleared = was & self.alarm._is_cleared(values)
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
        known = self.delays[~np.isnan(self.delays)]
        return float(np.median(known)) if len(known) else math.nan


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


@dataclass(frozen=True)
class GuaranteedAlarm:
    """An alarm whose rate of false alarms is bounded, and what it did on held-out recordings.

    Attributes
    ----------
    alarm : Alarm
        With the threshold that was chosen.
    rate : float
        False alarms in a unit of time that were allowed.
    confidence : float
        Probability with which the bounds hold, over draws of recordings.
    bound : float
        Upper bound on the rate of false alarms, at most ``rate``.
    false_alarms : int
        Number of false alarms in the recordings.
    duration : float
        Time that was watched in all, with answers.
    recordings : int
        Number of recordings with answers.
    recordings_bound : float
        Upper bound on the share of recordings (as long as these) with a false alarm.
    most_in_one : int
        Most false alarms in one recording.
    detection : Detection or None
        Delays of the onsets, if they were given.
    """

    alarm: Alarm
    rate: float
    confidence: float
    bound: float
    false_alarms: int
    duration: float
    recordings: int
    recordings_bound: float
    most_in_one: int
    detection: Detection | None

    def __str__(self) -> str:
        """The alarm and its bounds, in a few sentences."""
        words = [
            f"{self.alarm}: {self.false_alarms} false alarms in {self.duration:g} units of time of "
            f"{self.recordings} recordings.",
            f"With a confidence of {self.confidence:.0%} there are at most {self.bound:.3g} a unit "
            f"of time ({self.rate:.3g} allowed), and at most {self.recordings_bound:.0%} of "
            "recordings like these have one.",
        ]
        if self.detection is not None:
            n = len(self.detection.delays)
            words.append(
                f"{n - self.detection.missed} of {n} onsets were detected, after a median of "
                f"{self.detection.median_delay:.3g}."
            )
        return " ".join(words)


def alarm_with_guarantee(
    recordings: Sequence[tuple[Any, Any]],
    rate: float,
    *,
    thresholds: Any = None,
    above: bool = True,
    after: float = 0.0,
    hysteresis: float = 0.0,
    of: Any = None,
    onsets: Sequence[Any] | None = None,
    horizon: float | None = None,
    confidence: float = 0.95,
) -> GuaranteedAlarm:
    """Choose the most sensitive threshold whose rate of false alarms is bounded.

    Thresholds are tried from the least to the most sensitive, and the last one before the first
    whose upper bound on the rate exceeds ``rate`` is taken. As their order is fixed beforehand, the
    bound holds for the one that is taken (fixed-sequence testing) with the probability
    ``confidence``.

    The unit is a recording: false alarms may come in clusters, and more in some recordings than in
    others, as long as recordings are independent of one another and like those to come. The bound
    is that of Fay and Feuer (1997). With k false alarms in all, at most m in one recording, and the
    variance v of k, estimated between recordings (but at least k, that of Poisson),

        rate T ≤ V χ²(confidence, 2 K² / V) / 2K,    K = k + m, V = v + m²    (m at least 1).

    In simulations with 40 recordings whose own rates are equal, exponential or gamma of shape 0.3,
    it failed in 1, 3 and 5 % of draws at a confidence of 95 %; with 20 in 1, 3 and 7 %. None of the
    recordings may have been used to fit the model.

    Parameters
    ----------
    recordings : sequence of (times, values)
        What is watched in held-out recordings, 20 at least: times ``(n,)`` in order, numbers, and
        values ``(n,)`` such as a probability at the ends of windows; NaN = no answer, and the time
        since the event before does not count as watched.
    rate : float
        False alarms in a unit of time to allow, for instance ``1 / 24`` for one in 24 hours.
    thresholds : array-like, optional
        Thresholds to try, chosen without a look at the recordings. By default 199 for
        probabilities, evenly spaced in log-odds from 0.001 to 0.999.
    above : bool, default True
        Whether past the threshold is greater, else less.
    after : float, default 0.0
        How long the value must be past the threshold.
    hysteresis : float, default 0.0
        How far back the value must come until the alarm is cleared.
    of : object, optional
        Class or target that is watched, for the alarm that is returned.
    onsets : sequence of array-like, optional
        For each recording the times at which what is to be detected began. An alarm within
        ``horizon`` after an onset is not false, and this time does not count as watched.
    horizon : float, optional
        Longest time from an onset to its alarm; needed if there are onsets.
    confidence : float, default 0.95
        Probability with which the bounds hold.

    Returns
    -------
    GuaranteedAlarm

    Examples
    --------
    >>> import numpy as np
    >>> from roughformer.inference.alarms import alarm_with_guarantee
    >>> rng = np.random.default_rng(0)
    >>> hours = [(np.arange(0, 50, 0.1), rng.beta(1, 9, 500)) for _ in range(20)]
    >>> guaranteed = alarm_with_guarantee(hours, rate=1 / 24)
    >>> guaranteed.bound <= 1 / 24
    True
    """
    real_number(rate, "rate", "a positive number", positive=True)
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie between 0 and 1, got {confidence!r}")
    if real_number(hysteresis, "hysteresis", "a finite number") < 0:
        raise InputError(f"hysteresis must not be negative, got {hysteresis!r}")
    watched = [_watched(times, values) for times, values in recordings]
    starts = [np.zeros(0)] * len(watched) if onsets is None else [np.asarray(x) for x in onsets]
    if len(starts) != len(watched):
        raise InputError(f"there are onsets for {len(starts)} of {len(watched)} recordings")
    if onsets is not None and horizon is None:
        raise InputError("onsets need a horizon: the longest time from an onset to its alarm")
    reach = 1.0 if horizon is None else horizon
    quiet = np.array([_quiet_time(*x, s, reach) for x, s in zip(watched, starts, strict=True)])
    counted = quiet != 0  # without time between answers nothing is told of a rate
    quiet = quiet[counted]
    n, total = len(quiet), float(quiet.sum())
    if n < _LEAST:
        raise InputError(
            f"{n} recordings with answers do not tell how much false alarms differ between "
            f"recordings; give {_LEAST} at least, each of which stands for itself"
        )
    least = -math.log(1 - confidence) / rate
    if total < least:
        raise InputError(
            f"a rate of {rate:g} cannot be guaranteed with a confidence of {confidence:g} by "
            f"{total:g} units of time without an event: even without any false alarm {least:.6g} "
            "are needed; give more recordings, or allow a higher rate"
        )
    best: GuaranteedAlarm | None = None
    for threshold in _in_order(thresholds, above):
        release = None if not hysteresis else threshold - (hysteresis if above else -hysteresis)
        alarm = Alarm(float(threshold), release, above, after, of)
        detections = [
            time_to_detection(s, _raised(alarm, t, v), reach)
            for (t, v), s in zip(watched, starts, strict=True)
        ]
        false = np.array([d.false_alarms for d in detections])[counted]
        count, bound = int(false.sum()), _rate_bound(false, quiet, n, confidence)
        if bound > rate:
            break
        hit = int((false > 0).sum())
        delays = np.concatenate([d.delays for d in detections])
        detection = Detection(delays, count, count / total)
        best = GuaranteedAlarm(
            alarm, rate, confidence, bound, count, total, n,
            1.0 if hit == n else float(beta.ppf(confidence, hit + 1, n - hit)), int(false.max()),
            None if onsets is None else detection,
        )  # fmt: skip
    if best is None:
        raise InputError(
            "even the least sensitive threshold has more false alarms than the rate allows; give "
            "thresholds that are further away, a longer 'after', or allow a higher rate"
        )
    return best


def _rate_bound(false: npt.NDArray[np.int64], quiet: Floats, n: int, confidence: float) -> float:
    """Upper bound on the rate of n recordings with ``false`` alarms in times ``quiet``."""
    count, total, most = int(false.sum()), float(quiet.sum()), max(int(false.max()), 1)
    apart = float(((false - count / total * quiet) ** 2).sum()) * n / (n - 1)
    mean, variance = count + most, max(apart, count) + most**2
    return float(chi2.ppf(confidence, 2 * mean**2 / variance)) * variance / (2 * mean * total)


def _watched(times: Any, values: Any) -> tuple[Floats, Floats]:
    if np.asarray(times).dtype.kind in "mMO":
        raise InputError(
            "the times of a recording must be numbers in the unit of the rate, got dates or "
            "durations; for a rate in an hour: (times - times[0]) / np.timedelta64(1, 'h')"
        )
    t, v = (np.asarray(x, dtype=np.float64) for x in (times, values))
    if t.ndim != 1 or t.shape != v.shape or not len(t):
        raise InputError(
            f"a recording has times (n,) and values (n,), n from 1 on, got {t.shape} and {v.shape}"
        )
    if not np.isfinite(t).all() or (np.diff(t) < 0).any():
        raise InputError("the times of a recording must be finite and in order")
    return t, v


def _quiet_time(times: Floats, values: Floats, onsets: Any, horizon: float) -> float:
    """How long a recording has answers, without the time within ``horizon`` after an onset."""
    answered = np.append(0.0, np.cumsum(np.diff(times) * ~np.isnan(values[1:])))
    lost, reached = 0.0, float(times[0])
    for onset in np.sort(np.asarray(onsets, dtype=np.float64)):
        a, b = np.interp([max(onset, reached), onset + horizon], times, answered)
        lost += max(float(b - a), 0.0)
        reached = max(reached, onset + horizon)
    return float(answered[-1]) - lost


def _in_order(thresholds: Any, above: bool) -> Floats:
    """Thresholds from the least to the most sensitive."""
    if thresholds is None:
        odds = np.linspace(-math.log(999), math.log(999), 199)
        thresholds = 1 / (1 + np.exp(-odds))
    increasing = np.unique(np.asarray(thresholds, dtype=np.float64))
    if not len(increasing) or not np.isfinite(increasing).all():
        raise InputError("thresholds must be finite numbers, one at least")
    return increasing[::-1] if above else increasing


def _raised(alarm: Alarm, times: Floats, values: Floats) -> Floats:
    """Times at which an alarm is raised in one recording, as by ``AlarmState``, without a loop."""
    known = ~np.isnan(values)
    times, values = times[known], values[known]
    past, place = alarm._is_past(values, alarm.threshold), np.arange(len(times))
    # Since when the value is past the threshold: the event after the last that was not.
    begun = np.maximum.accumulate(np.where(past, -1, place)) + 1
    since = times[np.minimum(begun, max(len(times) - 1, 0))]
    ready = past & (times - since >= alarm.after - 1e-9 * np.maximum(np.abs(times), 1))
    # What the last event that changed anything did; before all events the alarm is cleared.
    change = np.where(ready, 1, np.where(alarm._is_cleared(values), -1, 0))
    last = np.maximum.accumulate(np.where(change != 0, place, -1))
    active = (last >= 0) & (change[last] > 0)
    return np.asarray(times[active & ~np.r_[False, active[:-1]]])


def _rounds(slots: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Rows in groups of different slots: the first event of each slot, the second, ..."""
    if not len(slots):
        return []
    order = np.argsort(slots, kind="stable")
    first = np.flatnonzero(np.diff(slots[order], prepend=slots[order][0] - 1))
    rank = np.arange(len(slots)) - np.repeat(first, np.diff(np.append(first, len(slots))))
    by_rank = order[np.argsort(rank, kind="stable")]
    return np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])


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
