"""Windows: rules for the cut times t_0 < t_1 < ... < t_L of each series.

Window k is [t_{k-1}, t_k]. Cuts are times, not indices: they may fall between observations, and
the path, piecewise linear through the points, is interpolated there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from roughformer.errors import CapacityError, InputError
from roughformer.series import SeriesBatch
from roughformer.signatures.paths import Cuts, Floats, Ints
from roughformer.util.checks import real_number, whole_number

if TYPE_CHECKING:
    from torch import Tensor

    from roughformer.signatures.torch_backend import Observed, Placed

# More cut times than this (1 GB) are a mistake in a number or a unit, not a wish.
_MOST_CUTS = 2**27


def _check_number(cuts: float, what: str) -> None:
    if cuts > _MOST_CUTS:
        raise CapacityError(
            f"{what} would be {cuts:.3g} cut times, more than the {_MOST_CUTS} allowed; is a "
            "duration in the unit of the times, or the number of windows meant otherwise?"
        )


def _as_cuts(raw: Any, what: str) -> npt.NDArray[Any]:
    """Cut times as float64 or, for dates, datetime64[ns]; checked."""
    cuts = np.asarray(raw)
    if cuts.dtype == object and cuts.size and all(isinstance(c, date) for c in cuts.flat):
        cuts = cuts.astype("datetime64[ns]")
    if cuts.dtype.kind == "m":
        cuts = cuts / np.timedelta64(1, "s")
    if cuts.dtype.kind == "M":
        cuts = cuts.astype("datetime64[ns]")
        numbers = np.where(np.isnat(cuts), np.nan, (cuts - cuts[:1]) / np.timedelta64(1, "ns"))
        _check_increasing(numbers, what)
        return cuts
    if cuts.size and cuts.dtype.kind not in "iuf":
        raise InputError(f"{what} must be numbers or dates, got {cuts.dtype}")
    cuts = cuts.astype(np.float64)
    _check_increasing(cuts, what)
    return cuts


def _in_seconds(cuts: npt.NDArray[Any], origin: np.datetime64 | None) -> Floats:
    """Dates counted from the batch's origin, as its times are; numbers as they are."""
    if cuts.dtype.kind != "M":
        return cuts
    if origin is None:
        raise InputError(
            "the cut times are dates, the times of these series are numbers; give the cut times "
            "as numbers in the same unit"
        )
    return np.asarray((cuts - origin) / np.timedelta64(1, "ns")) / 1e9


def _check_increasing(cuts: Floats, what: str) -> None:
    if cuts.ndim != 1 or len(cuts) == 0:
        raise InputError(f"{what} must be a 1-D array of at least one time, got shape {cuts.shape}")
    bad = np.flatnonzero(~np.isfinite(cuts))
    if len(bad):
        raise InputError(f"{what} must be finite, got {cuts[bad[0]]} at position {bad[0]}")
    bad = np.flatnonzero(~(np.diff(cuts) > 0))
    if len(bad):
        i = int(bad[0])
        raise InputError(
            f"{what} must be strictly increasing, got {cuts[i]} then {cuts[i + 1]} at positions "
            f"{i} and {i + 1}; sort them and remove duplicates (an empty window has no signature)"
        )


@dataclass(frozen=True, eq=False)
class Windows:
    """A rule for the cut times of each series.

    Made by ``by_count``, ``by_duration``, ``by_points``, ``explicit`` or ``of``. Rules are equal if
    they say the same.

    Parameters
    ----------
    rule : {"count", "duration", "points", "explicit"}
        How series are cut.
    amount : float, default 0
        Number of windows, duration of a window or number of its points.
    cuts : tuple of ndarray, default ()
        Explicit cut times, of each series or one row for all: float64 or datetime64[ns].
    shared : bool, default False
        Whether the one row of ``cuts`` is for all series.
    exact : bool, default False
        Whether a remainder that may be rounding is a window too; see ``by_duration``.
    """

    rule: Literal["count", "duration", "points", "explicit"]
    amount: float = 0.0
    cuts: tuple[npt.NDArray[Any], ...] = ()  # float64, or datetime64[ns]
    shared: bool = False
    exact: bool = False

    def _said(self) -> tuple[Any, ...]:
        """All of it, as what can be compared and hashed."""
        cuts = tuple((row.dtype.kind, tuple(row.tolist())) for row in self.cuts)
        return (self.rule, self.amount, cuts, self.shared, self.exact)

    def __eq__(self, other: object) -> bool:
        """Whether both say the same."""
        return self._said() == other._said() if isinstance(other, Windows) else NotImplemented

    def __hash__(self) -> int:
        """Equal rules have equal hashes."""
        return hash(self._said())

    @classmethod
    def by_count(cls, n: int) -> "Windows":
        """Cut each series' own span into windows of equal duration.

        Parameters
        ----------
        n : int
            Number of windows.

        Returns
        -------
        Windows
        """
        return cls("count", whole_number(n, "the number of windows", 1))

    @classmethod
    def by_duration(
        cls, seconds: float | timedelta | np.timedelta64, *, exact: bool = False
    ) -> "Windows":
        """Cut into windows of a given duration, from each series' first point on.

        The last window is shorter if the span is not a multiple.

        Parameters
        ----------
        seconds : float, timedelta or timedelta64
            Duration in the unit of the times (seconds for dates).
        exact : bool, default False
            Whether a remainder that may be rounding (a billionth of a window) is a window too,
            instead of part of the one before it. Only then are the windows of a series that goes
            on those of the series so far.

        Returns
        -------
        Windows
        """
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if isinstance(seconds, np.timedelta64):
            seconds = float(seconds / np.timedelta64(1, "ns")) / 1e9
        length = real_number(seconds, "the duration of a window", "positive", positive=True)
        return cls("duration", length, exact=bool(exact))

    @classmethod
    def by_points(cls, n: int) -> "Windows":
        """Cut at every ``n``-th observation.

        Parameters
        ----------
        n : int
            Number of points of a window; the last one may have fewer.

        Returns
        -------
        Windows
        """
        return cls("points", whole_number(n, "the number of points of a window", 1))

    @classmethod
    def explicit(cls, cuts: Any) -> "Windows":
        """Cut at given times.

        Outside a series' span its path is constant, so windows there have signature zero.

        Parameters
        ----------
        cuts : array-like (L + 1,) or (B, L + 1), or sequence of array-like (L_i + 1,)
            Cut times shared by all series, or of each: numbers in the unit of the times, or dates
            where the series have dates.

        Returns
        -------
        Windows
        """
        array: Sequence[Any] | npt.NDArray[Any] = cuts
        if isinstance(cuts, np.ndarray) or not (len(cuts) and np.ndim(cuts[0]) > 0):
            array = np.asarray(cuts)
            if array.ndim == 1:
                return cls("explicit", cuts=(_as_cuts(array, "the cut times"),), shared=True)
        rows = (_as_cuts(row, f"the cut times of series {b}") for b, row in enumerate(array))
        return cls("explicit", cuts=tuple(rows))

    @classmethod
    def of(
        cls, windows: "Windows | int | Mapping[Any, float] | Sequence[float] | npt.NDArray[Any]"
    ) -> "Windows":
        """Read a rule from its short form.

        Parameters
        ----------
        windows : Windows, int, dict or array-like
            A rule as it is, a number of windows, ``{"duration": d}``, ``{"points": n}``, or
            explicit cut times.

        Returns
        -------
        Windows
        """
        if isinstance(windows, Windows):
            return windows
        if isinstance(windows, Mapping):
            rules: dict[str, Any] = {"duration": cls.by_duration, "points": cls.by_points}
            if len(windows) != 1 or next(iter(windows)) not in rules:
                raise InputError(
                    "windows as a dict have one entry, {'duration': d} or {'points': n}, got "
                    f"{dict(windows)!r}"
                )
            ((rule, amount),) = windows.items()
            made: Windows = rules[rule](amount)
            return made
        if isinstance(windows, int | np.integer) and not isinstance(windows, bool):
            return cls.by_count(int(windows))
        if isinstance(windows, str | bytes | bool) or not np.iterable(windows):
            raise InputError(
                "windows must be a whole number of windows, an array of cut times, or one of "
                f"Windows.by_count, by_duration, by_points and explicit; got {windows!r}"
            )
        return cls.explicit(windows)

    def place(self, batch: SeriesBatch) -> Cuts:
        """Place the cut times of each series of a batch.

        Parameters
        ----------
        batch : SeriesBatch
            Series to cut.

        Returns
        -------
        Cuts
        """
        n_series = len(batch)
        if self.rule == "points":
            return self._by_points(batch)
        if self.rule == "explicit":
            return self._explicit(batch)
        start, end = batch.span
        on_grid = batch.grid is not None and n_series > 0
        span = (end - start)[: 1 if on_grid else None]
        if self.rule == "count":
            n = int(self.amount)
            _check_number(len(span) * (n + 1.0), f"{n} windows for each of {len(batch)} series")
            counts = np.full(len(span), n, dtype=np.int64)
            flat = np.zeros(0)
            if len(span):  # else nothing is made, however many windows
                flat = (span[:, None] * (np.arange(n + 1) / n)[None, :]).ravel()
            n_default = n
        else:
            number = self._how_many(span)
            longest = span.max(initial=0.0)
            _check_number(
                float(number.sum()), f"windows of {self.amount:g} over spans of up to {longest:g}"
            )
            counts = number.astype(np.int64)
            row, k = _rows(counts + 1)
            flat = np.where(k == counts[row], span[row], k * self.amount)
            n_default = 0
        if on_grid:
            zeros = np.zeros(n_series, np.int64)
            return Cuts(flat, zeros, np.full(n_series, counts[0]), start, shared=True)
        return Cuts.ragged(flat, counts, start, n_default)

    def _how_many(self, span: Floats) -> Floats:
        """Windows by duration that series of these spans have."""
        if not self.exact:
            # Allow for rounding: 0.3 / 0.1 is three windows, not three and a sliver.
            return np.asarray(np.maximum(np.ceil(span / self.amount * (1 - 1e-12) - 1e-9), 1))
        number = np.ceil(span / self.amount)
        # The quotient is rounded; whether a cut lies before the end is not.
        number -= (number - 1) * self.amount >= span
        number += number * self.amount < span
        return np.asarray(np.maximum(number, 1))

    def _by_points(self, batch: SeriesBatch) -> Cuts:
        n = int(self.amount)
        counts = np.maximum(-(-(batch.lengths - 1) // n), 1)
        row, k = _rows(counts + 1)
        position = np.minimum(k * n, batch.lengths[row] - 1)
        start = batch.span[0]
        times = batch.times[batch.offsets[:-1][row] + position] - start[row]
        return Cuts.ragged(times, counts, start)

    def _explicit(self, batch: SeriesBatch) -> Cuts:
        n_series = len(batch)
        zero = np.zeros(n_series)
        rows = [_in_seconds(row, batch.time_origin) for row in self.cuts]
        if self.shared:
            n = len(rows[0]) - 1
            counts = np.full(n_series, n, dtype=np.int64)
            first = np.zeros(n_series, np.int64)
            return Cuts(rows[0], first, counts, zero, shared=True, n_default=n)
        if len(rows) != n_series:
            raise InputError(
                f"explicit cut times were given for {len(rows)} series, the batch has "
                f"{n_series}; give one row for each series, or one row shared by all"
            )
        counts = np.array([len(c) - 1 for c in rows], dtype=np.int64)
        flat = np.concatenate(rows) if rows else np.zeros(0)
        return Cuts.ragged(flat, counts, zero)


def _rows(sizes: Ints) -> tuple[Ints, Ints]:
    """For ragged rows of these sizes, laid out flat: the row of each entry and its place in it."""
    row = np.repeat(np.arange(len(sizes)), sizes)
    return row, np.arange(len(row)) - (np.cumsum(sizes) - sizes)[row]


# The same for padded series, in torch: also in graphs, and on other devices.


def place(rule: Windows, data: "Observed") -> "Placed":
    """The windows of each series, as ``Windows.place``; their number W is that of the series that
    may have most.
    """
    import torch

    from roughformer.signatures.torch_backend import Placed, inside_of, number

    span = data.span.unsqueeze(1)
    device = span.device
    if rule.rule == "count":
        n = int(rule.amount)
        shares = torch.arange(n + 1, dtype=torch.float64, device=device) / n
        return Placed(span * shares, None)
    if rule.rule == "explicit":
        cuts = torch.as_tensor(rule.cuts[0], dtype=torch.float64, device=device)
        return Placed(cuts - data.start.unsqueeze(1), None)
    if rule.rule == "points":
        step = int(rule.amount)
        count = _window_count(rule, data.span, data.lengths)
        column = torch.arange(_most(count) + 1, device=device).unsqueeze(0)
        at = torch.minimum(column * step, (data.lengths - 1).unsqueeze(1))
        edges = data.since.gather(1, at)
    else:
        count = _window_count(rule, data.span, data.lengths)
        column = torch.arange(_most(count) + 1, device=device).unsqueeze(0)
        ends = column.double() * number(rule.amount, span)
        edges = torch.where(column >= count.unsqueeze(1), span, ends)
    return Placed(edges, inside_of(count, edges.shape[1] - 1))


def _window_count(rule: Windows, span: "Tensor", lengths: "Tensor") -> "Tensor":
    """How many windows by duration or points series of these spans and lengths ``(B,)`` have, as
    ``Windows.place`` counts them.
    """
    from roughformer.signatures.torch_backend import number

    if rule.rule == "points":
        step = int(rule.amount)
        return ((lengths + (step - 2)) // step).clamp(min=1)
    amount = number(rule.amount, span)
    if not rule.exact:
        # Allow for rounding: 0.3 / 0.1 is three windows, not three and a sliver.
        share = span / amount * number(1 - 1e-12, span)
        return _whole((share - number(1e-9, span)).ceil())
    count = (span / amount).ceil()
    # The quotient is rounded; whether a cut lies before the end is not.
    count = count - ((count - 1) * amount >= span).double()
    count = count + (count * amount < span).double()
    return _whole(count)


def _whole(count: "Tensor") -> "Tensor":
    """At least 1, and still a number where the quotient is beyond all whole ones."""
    return count.clamp(1, 2.0**62).long()


def _most(count: "Tensor") -> int:
    """The largest of ``(B,)``: a size that a graph takes from the data."""
    if count.shape[0] == 0:
        return 1
    import torch

    under_vmap = not torch.compiler.is_compiling() and torch._C._functorch.is_batchedtensor(count)
    if count.is_meta or under_vmap:
        raise InputError(
            "times and lengths decide how many windows by duration or points there are, and "
            "tensors on the meta device or under vmap have no numbers; take windows by count, or "
            "cut times"
        )
    most: int = count.max().item()  # type: ignore[assignment]  # int() would fix it for ever
    torch._check(most >= 1)  # type: ignore[no-untyped-call]
    return most
