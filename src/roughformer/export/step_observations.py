"""Words of observations of streams, one piece of a window after the other: as
``stream/observations.py``, dense.
"""

import torch
from torch import Tensor

from roughformer.export.filling import observation_order
from roughformer.export.observations import Counted, scaled, stacked_words, words_of
from roughformer.export.packing import Packing, State, per_stream
from roughformer.export.taking import Piece
from roughformer.tokens import Tokenizer

__all__ = ["StepObservations"]

_SUMS = ("n", "x", "xx", "t", "tt", "tx")
_KEPT = (*_SUMS, "low", "high", "first", "last", "when")
_RECENT = ("n", "x", "low", "high")


class StepObservations:
    """What the channels were seen to do: in the open window, in those before it, and in each of the
    last ones.
    """

    def __init__(self, tokenizer: Tokenizer, packing: Packing) -> None:
        """Its parts are added to ``packing``."""
        self.tokenizer, self.size = tokenizer, max(tokenizer.recent - 1, 1)
        channels = len(tokenizer.channels)
        for name in _KEPT:
            packing.add(f"seen_{name}", channels)
            packing.add(f"past_{name}", channels)
        for name in _RECENT:
            packing.add(f"recent_{name}", self.size, channels)

    def __call__(self, piece: Piece, old: State, new: State) -> Tensor:
        """``(B, F)``: words of the open windows as they are now."""
        open_ = {name: old[f"seen_{name}"] for name in _KEPT}
        past = {name: old[f"past_{name}"] for name in _KEPT}
        now = _joined(open_, self._of_piece(piece))
        whole = _joined(past, now)
        finite, summed = _stored(now), _stored(whole)
        for name in _KEPT:
            new[f"seen_{name}"] = per_stream(piece.ended, 0.0, finite[name])
            new[f"past_{name}"] = per_stream(piece.ended, summed[name], past[name])
        slot = torch.arange(self.size, device=piece.x.device)
        own = (slot == (piece.window % self.size).unsqueeze(1)).unsqueeze(-1)
        for name in _RECENT:
            ring = old[f"recent_{name}"]
            kept = torch.where(own, finite[name].unsqueeze(1), ring)
            new[f"recent_{name}"] = per_stream(piece.ended, kept, ring)
        half, unit = self.tokenizer.recent, self.tokenizer.time_unit
        recent, latest = (
            self._last(now, piece.window, old, size) for size in (half, max(half // 2, 1))
        )
        words = words_of(now, whole, recent, latest, piece.now.unsqueeze(-1), unit)
        return stacked_words(words, self.tokenizer.config.views)

    def _of_piece(self, piece: Piece) -> Counted:
        """Of the points that were taken, each ``(B, C)``."""
        assert self.tokenizer.value_range is not None
        seen = piece.seen
        z = torch.where(seen, scaled(piece.values, self.tokenizer.value_range), 0.0)
        when = torch.where(seen, piece.since.unsqueeze(-1), 0.0)
        count, place = observation_order(seen)
        first = place[:, 1:2]
        last = place.gather(1, count[:, -1:])
        return {
            "n": seen.double().sum(dim=1),
            "x": z.sum(dim=1),
            "xx": (z * z).sum(dim=1),
            "t": when.sum(dim=1),
            "tt": (when * when).sum(dim=1),
            "tx": (when * z).sum(dim=1),
            "low": torch.where(seen, z, torch.inf).amin(dim=1),
            "high": torch.where(seen, z, -torch.inf).amax(dim=1),
            "first": z.gather(1, first)[:, 0],
            "last": z.gather(1, last)[:, 0],
            "when": when.gather(1, last)[:, 0],
        }

    def _last(self, now: Counted, window: Tensor, old: State, size: int) -> Counted:
        """Over the last ``size`` windows, the open one included."""
        slot = torch.arange(self.size, device=window.device)
        # How many windows ago each entry of the ring was written, from 1 on.
        age = torch.remainder(window.unsqueeze(1) - 1 - slot, self.size) + 1
        there = ((age <= window.unsqueeze(1)) & (age < size)).unsqueeze(-1)
        ring = {name: old[f"recent_{name}"] for name in _RECENT}
        used = there & (ring["n"] > 0)
        return {
            "n": now["n"] + torch.where(used, ring["n"], 0.0).sum(dim=1),
            "x": now["x"] + torch.where(used, ring["x"], 0.0).sum(dim=1),
            "low": torch.minimum(now["low"], torch.where(used, ring["low"], torch.inf).amin(1)),
            "high": torch.maximum(now["high"], torch.where(used, ring["high"], -torch.inf).amax(1)),
        }


def _stored(counted: Counted) -> Counted:
    """With 0 for the extremes of nothing: new streams are zeros, and no state is infinite."""
    some = counted["n"] > 0
    finite = {name: torch.where(some, counted[name], 0.0) for name in ("low", "high")}
    return counted | finite


def _joined(a: Counted, b: Counted) -> Counted:
    """What was seen in one stretch and in the next one; of one without observations only ``n`` and
    the sums count, since new streams are zeros.
    """
    before, after = a["n"] > 0, b["n"] > 0
    found = {name: a[name] + b[name] for name in _SUMS}
    lows = [torch.where(before, a["low"], torch.inf), torch.where(after, b["low"], torch.inf)]
    highs = [torch.where(before, a["high"], -torch.inf), torch.where(after, b["high"], -torch.inf)]
    found["low"], found["high"] = torch.minimum(*lows), torch.maximum(*highs)
    found["first"] = torch.where(before, a["first"], b["first"])
    found["last"] = torch.where(after, b["last"], a["last"])
    found["when"] = torch.where(after, b["when"], a["when"])
    return found
