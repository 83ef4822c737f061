"""Words of observations of streams (``tokens/observations.py``), one window after the other."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from roughformer.stream.state import State
from roughformer.tokens import Tokenizer
from roughformer.tokens.observations import WORDS

__all__ = ["RunningObservations"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_WINDOW = ("n", "x", "xx", "t", "tt", "tx", "low", "high", "first", "last", "when")
_EMPTY = {"low": np.inf, "high": -np.inf}


class RunningObservations:
    """What the channels of ``state.n`` streams were seen to do: in the open window, since the
    start, and in the last ``recent`` windows.
    """

    def __init__(self, tokenizer: Tokenizer, state: State) -> None:
        """Its arrays are added to ``state``."""
        self.tokenizer = tokenizer
        self.c = len(tokenizer.channels)
        self.now = self._add(state, "seen")
        self.past = self._add(state, "past")
        size = max(tokenizer.recent - 1, 1)
        self.ring = {
            name: state.add(f"recent_{name}", (size, self.c), np.float64, _EMPTY.get(name, 0.0))
            for name in ("n", "x", "low", "high")
        }

    def _add(self, state: State, prefix: str) -> dict[str, Floats]:
        return {
            name: state.add(f"{prefix}_{name}", (self.c,), np.float64, _EMPTY.get(name, 0.0))
            for name in _WINDOW
        }

    def extend(self, slot: Ints, channel: Ints, when: Floats, values: Floats) -> None:
        """Observations ``(m,)`` of the open windows, each stream's in order; ``when`` from the
        stream's first point on.
        """
        assert self.tokenizer.value_range is not None
        if len(slot) == 0:
            return
        z = self.tokenizer.value_range(values, channel)
        now = self.now
        at = (slot, channel)
        for name, what in (
            ("n", 1.0), ("x", z), ("xx", z * z), ("t", when), ("tt", when**2), ("tx", when * z)
        ):  # fmt: skip
            np.add.at(now[name], at, what)
        np.minimum.at(now["low"], at, z)
        np.maximum.at(now["high"], at, z)
        key = slot * self.c + channel
        order = np.argsort(key, kind="stable")
        new = np.append(True, key[order][1:] != key[order][:-1])
        first = order[new]
        last = order[np.append(new[1:], True)]
        fresh = now["first"][at][first]
        # The first of a window stays; whether there was one tells the count before these.
        count = np.diff(np.append(np.flatnonzero(new), len(order)))
        had = now["n"][at][first] > count
        now["first"][slot[first], channel[first]] = np.where(had, fresh, z[first])
        now["last"][slot[last], channel[last]] = z[last]
        now["when"][slot[last], channel[last]] = when[last]

    def _joined(self, slots: Ints) -> dict[str, Floats]:
        """Since the start, the open window included."""
        now = {name: part[slots] for name, part in self.now.items()}
        past = {name: part[slots] for name, part in self.past.items()}
        joint = {name: past[name] + now[name] for name in ("n", "x", "xx", "t", "tt", "tx")}
        joint["low"] = np.minimum(past["low"], now["low"])
        joint["high"] = np.maximum(past["high"], now["high"])
        seen, before = now["n"] > 0, past["n"] > 0
        joint["first"] = np.where(before, past["first"], now["first"])
        joint["last"] = np.where(seen, now["last"], past["last"])
        joint["when"] = np.where(seen, now["when"], past["when"])
        return joint

    def close(self, slots: Ints, window: Ints) -> None:
        """The open windows ``window (s,)`` end."""
        for name, part in self._joined(slots).items():
            self.past[name][slots] = part
        for name, ring in self.ring.items():
            ring[slots, window % ring.shape[1]] = self.now[name][slots]
        for name, part in self.now.items():
            part[slots] = _EMPTY.get(name, 0.0)

    def _recent(self, slots: Ints, window: Ints, size: int) -> dict[str, Floats]:
        """Over the last ``size`` windows, the open one included."""
        found = {name: self.now[name][slots] for name in self.ring}
        for back in range(1, size):
            there = (window >= back)[:, None]
            for name, ring in self.ring.items():
                old = np.where(
                    there, ring[slots, (window - back) % ring.shape[1]], _EMPTY.get(name, 0.0)
                )
                how = {"low": np.minimum, "high": np.maximum}.get(name, np.add)
                found[name] = how(found[name], old)
        return found

    def tokens(self, slots: Ints, window: Ints, end: Floats) -> Tensor:
        """``(s, F)`` float32, of windows that end ``end (s,)`` after the first point."""
        unit, half = self.tokenizer.time_unit, self.tokenizer.recent
        quarter = max(half // 2, 1)
        now, whole = {name: part[slots] for name, part in self.now.items()}, self._joined(slots)
        recent, latest = (self._recent(slots, window, size) for size in (half, quarter))
        n, some = whole["n"], np.maximum(whole["n"], 1)
        mean, when = whole["x"] / some, whole["t"] / some
        time_variance = whole["tt"] / some - when**2
        apart = time_variance > (0.01 * unit) ** 2
        slope = (whole["tx"] / some - when * mean) / np.where(apart, time_variance, 1.0) * unit

        def known(what: Floats, where: npt.NDArray[np.bool_]) -> Floats:
            return np.where(where, what, np.nan)

        seen, ever = now["n"] > 0, n > 0
        words = {
            "local": {
                "log n": np.log1p(now["n"]),
                "mean": known(now["x"] / np.maximum(now["n"], 1), seen),
                "min": known(now["low"], seen),
                "max": known(now["high"], seen),
            },
            "global": {
                "log n": np.log1p(n),
                "mean": known(mean, ever),
                "min": known(whole["low"], ever),
                "max": known(whole["high"], ever),
                "first": known(whole["first"], ever),
                "last": known(whole["last"], ever),
                "sd": known(np.sqrt(np.maximum(whole["xx"] / some - mean**2, 0.0)), n > 1),
                "slope": known(slope, apart),
                "rise": known(whole["last"] - whole["first"], n > 1),
                "since": known((end[:, None] - whole["when"]) / unit, ever),
                "recent log n": np.log1p(recent["n"]),
                "recent mean": known(recent["x"] / np.maximum(recent["n"], 1), recent["n"] > 0),
                "recent min": known(recent["low"], recent["n"] > 0),
                "recent max": known(recent["high"], recent["n"] > 0),
                "latest mean": known(latest["x"] / np.maximum(latest["n"], 1), latest["n"] > 0),
            },
        }
        parts = [
            np.stack([words[view][word] for word in WORDS[view]], axis=-1).reshape(len(slots), -1)
            for view in self.tokenizer.config.views
        ]
        return torch.from_numpy(np.concatenate(parts, axis=-1)).float()
