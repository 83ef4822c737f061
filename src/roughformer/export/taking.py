"""What one call of the step graph takes in of each stream: its points up to the end of the window
that is open, and no further. As ``stream/cutting.py``, for one piece of each stream.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from roughformer.export.dense import inside_of, number
from roughformer.export.filling import observation_order
from roughformer.export.packing import Packing, State, per_stream
from roughformer.windows import Windows

__all__ = ["Piece", "Taking"]


class Piece(NamedTuple):
    """The path goes on through the corners ``times (B, P + 2)``, from each stream's first point on,
    and ``x (B, P + 2, C)``: from where it was, through the points, to where it is now. Corners may
    be repeated: nothing moves between them.

    ``since (B, P)``, ``values (B, P, C)`` and ``seen (B, P, C)``: the points, 0 and False where
    nothing was observed or taken. ``taken (B,)``: points that were. ``fresh``, ``ended (B,)``:
    whether the stream begins, and whether its window ends. ``opened (B,)``: when that began;
    ``window (B,)``: its number.
    """

    times: Tensor
    x: Tensor
    since: Tensor
    values: Tensor
    seen: Tensor
    taken: Tensor
    fresh: Tensor
    ended: Tensor
    opened: Tensor
    window: Tensor

    @property
    def now(self) -> Tensor:
        """``(B,)``: where the stream is, from its first point on."""
        return self.times[:, -1]

    @property
    def begin(self) -> Tensor:
        """``(B, C)``: values where the piece begins."""
        return self.x[:, 0]


class Taking:
    """Cuts by ``rule``, by duration or by points."""

    def __init__(self, rule: Windows, n_channels: int, packing: Packing) -> None:
        """Its parts are added to ``packing``."""
        self.rule = rule
        for name in ("start", "time", "opened", "window", "points"):
            packing.add(name)
        packing.add("held", n_channels)

    def __call__(
        self, values: Tensor, times: Tensor, lengths: Tensor, old: State, new: State
    ) -> Piece:
        """``values (B, P, C)``, ``times (B, P)``, ``lengths (B,)``, 0 = none."""
        real = inside_of(lengths, values.shape[1])
        fresh = (old["points"] == 0) & (lengths > 0)
        start = torch.where(fresh, times[:, 0].double(), old["start"])
        since = times.double() - start.unsqueeze(1)
        window = old["window"].to(torch.int64)
        inside, ended = self._inside(since, real, lengths, old)
        taken = inside.to(torch.int64).sum(dim=1)
        last = since.gather(1, (taken - 1).clamp(min=0).unsqueeze(1))[:, 0]
        now = torch.where(taken > 0, last, old["time"])
        if self.rule.rule == "duration":
            now = torch.where(ended, self._end(old), now)
        seen = inside.unsqueeze(-1) & ~values.isnan()
        clean = torch.where(seen, values.double(), 0.0)
        count, place = observation_order(seen)
        # The last value is held on, also over the points that are not taken.
        x = torch.where(
            count > 0, clean.gather(1, place.gather(1, count)), old["held"].unsqueeze(1)
        )
        begin = torch.where(fresh.unsqueeze(1), x[:, 0], old["held"])
        where = torch.where(inside, since, now.unsqueeze(1))
        new |= {
            "start": start,
            "time": now,
            "opened": per_stream(ended, now, old["opened"]),
            "window": window + ended.to(torch.int64),
            "points": old["points"] + taken,
            "held": x[:, -1],
        }
        return Piece(
            torch.cat([old["time"].unsqueeze(1), where, now.unsqueeze(1)], dim=1),
            torch.cat([begin.unsqueeze(1), x, x[:, -1:]], dim=1),
            torch.where(inside, since, 0.0),
            clean,
            seen,
            taken,
            fresh,
            ended,
            old["opened"],
            window,
        )

    def _inside(
        self, since: Tensor, real: Tensor, lengths: Tensor, old: State
    ) -> tuple[Tensor, Tensor]:
        """Which points lie in the open window ``(B, P)``, and whether it ends with them ``(B,)``: a
        point at its end lies in it.
        """
        if self.rule.rule == "points":
            size = int(self.rule.amount)
            final = (old["window"].to(torch.int64) + 1) * size  # number of the window's last point
            before = old["points"].to(torch.int64)
            at = before.unsqueeze(1) + torch.arange(since.shape[1], device=since.device)
            return real & (at <= final.unsqueeze(1)), before + lengths > final
        end = self._end(old).unsqueeze(1)
        return real & (since <= end), (real & (since >= end)).any(dim=1)

    def _end(self, old: State) -> Tensor:
        """``(B,)``: when open windows by duration end, from the first point on."""
        return (old["window"] + 1) * number(self.rule.amount, old["window"])
