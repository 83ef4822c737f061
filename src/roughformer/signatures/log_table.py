"""The logarithm of a signature in Lyndon coordinates, as a table that any engine can run.

log S at a word w is Σ over the ways to cut w into j pieces of (-1)^{j+1}/j · Π S(piece). Only
Lyndon words are wanted; the bracket basis follows by a unitriangular substitution with integers.
"""

from functools import lru_cache
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roughformer.signatures.words import bracket, lyndon_words, word_index

__all__ = ["LogTable", "log_table"]


class LogTable(NamedTuple):
    """out[i] = Σ_q coef[q] Π S[factor]; then out[fix_dst] += fix_coef · out[fix_src], in order."""

    term_ptr: npt.NDArray[np.int64]
    coef: npt.NDArray[np.float64]
    factor_ptr: npt.NDArray[np.int64]
    factor: npt.NDArray[np.int32]
    fix_dst: npt.NDArray[np.int32]
    fix_src: npt.NDArray[np.int32]
    fix_coef: npt.NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of Lyndon words."""
        return len(self.term_ptr) - 1


@lru_cache(maxsize=32)
def log_table(d: int, n: int, brackets: bool) -> LogTable:
    """Table for dimension d and depth n; ``brackets`` chooses the basis of Lyndon brackets."""
    words = lyndon_words(d, n)
    term_ptr, coef, factor_ptr, factor = [0], [], [0], []
    for w in words:
        for pieces in range(1, len(w) + 1):
            for cuts in combinations(range(1, len(w)), pieces - 1):
                ends = (0, *cuts, len(w))
                coef.append((-1.0) ** (pieces + 1) / pieces)
                factor += [word_index(w[a:b], d) for a, b in pairwise(ends)]
                factor_ptr.append(len(factor))
        term_ptr.append(len(coef))
    fixes: list[tuple[int, int, int]] = []
    if brackets:
        # The bracket of w is w + larger words: solve by forward substitution, smallest w first.
        place = {w: i for i, w in enumerate(words)}
        for w in sorted(words):
            fixes += [
                (place[t], place[w], -c) for t, c in bracket(w).items() if t != w and t in place
            ]
    dst, src, value = zip(*fixes, strict=True) if fixes else ((), (), ())
    return LogTable(
        np.array(term_ptr, np.int64),
        np.array(coef, np.float64),
        np.array(factor_ptr, np.int64),
        np.array(factor, np.int32),
        np.array(dst, np.int32),
        np.array(src, np.int32),
        np.array(value, np.float64),
    )
