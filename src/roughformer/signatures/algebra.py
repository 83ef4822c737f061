"""Truncated tensor algebra, written to be read: the reference that the fast engine is held to.

An element of T^n(R^d) without its scalar part is an array ``(..., d + d² + ... + dⁿ)``: level k,
d^k numbers, after level k-1, each level in lexicographic order of its words. A group-like element
has scalar part 1 (``multiply``, ``exponential``, ``inverse``), a Lie element 0 (``logarithm``).
"""

from functools import lru_cache
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roughformer.signatures.words import bracket, lyndon_words, word_count, word_index

__all__ = [
    "exponential",
    "inverse",
    "levels",
    "logarithm",
    "lyndon_brackets",
    "lyndon_projection",
    "multiply",
    "path_signature",
]

Array = npt.NDArray[np.float64]


def levels(x: Array, d: int, n: int) -> list[Array]:
    """Split ``(..., words)`` into n views ``(..., d^k)``."""
    if x.shape[-1] != word_count(d, n):
        raise ValueError(f"expected {word_count(d, n)} words for d={d}, n={n}, got {x.shape[-1]}")
    ends = [word_count(d, k) for k in range(n + 1)]
    return [x[..., ends[k] : ends[k + 1]] for k in range(n)]


def _outer(a: Array, b: Array) -> Array:
    """(..., p) ⊗ (..., q) -> (..., p·q)."""
    size = a.shape[-1] * b.shape[-1]  # said, because there may be no rows
    return (a[..., :, None] * b[..., None, :]).reshape(*a.shape[:-1], size)


def _product(a: Array, b: Array, d: int, n: int, a0: float, b0: float) -> Array:
    """Levels 1 ... n of (a0 + a) ⊗ (b0 + b)."""
    left, right = levels(a, d, n), levels(b, d, n)
    out = []
    for k in range(1, n + 1):
        total = b0 * left[k - 1] + a0 * right[k - 1]
        for i in range(1, k):
            total = total + _outer(left[i - 1], right[k - i - 1])
        out.append(total)
    return np.concatenate(out, axis=-1)


def multiply(a: Array, b: Array, d: int, n: int) -> Array:
    """Levels 1 ... n of (1 + a) ⊗ (1 + b): Chen's product of two signatures."""
    return _product(a, b, d, n, 1.0, 1.0)


def exponential(x: Array, d: int, n: int) -> Array:
    """The signature of a straight line with increment ``x (..., d)``: x^{⊗k} / k!."""
    out = [np.asarray(x, dtype=np.float64)]
    for k in range(2, n + 1):
        out.append(_outer(out[-1], out[0]) / k)
    return np.concatenate(out, axis=-1) if n else np.zeros((*x.shape[:-1], 0))


def inverse(a: Array, d: int, n: int) -> Array:
    """Levels 1 ... n of (1 + a)^{-1} = Σ (-a)^k: the signature of the path run backwards."""
    power, total = -a, -a
    for _ in range(n - 1):
        power = _product(power, -a, d, n, 0.0, 0.0)
        total = total + power
    return total


def logarithm(a: Array, d: int, n: int) -> Array:
    """Levels 1 ... n of log(1 + a) = Σ (-1)^{k+1} a^k / k."""
    power, total = a, a
    for k in range(2, n + 1):
        power = _product(power, a, d, n, 0.0, 0.0)
        total = total + (-1.0) ** (k + 1) * power / k
    return total


def path_signature(path: npt.ArrayLike, n: int) -> Array:
    """Signature ``(words,)`` of the piecewise-linear path through the points ``(L, d)``."""
    points = np.asarray(path, dtype=np.float64)
    d = points.shape[1]
    total = np.zeros(word_count(d, n))
    for x in np.diff(points, axis=0):
        total = multiply(total, exponential(x, d, n), d, n)
    return total


def lyndon_projection(log: Array, d: int, n: int) -> Array:
    """Coefficients ``(..., Lyndon words)`` of the Lyndon words in a tensor logarithm."""
    return log[..., [word_index(w, d) for w in lyndon_words(d, n)]]


@lru_cache(maxsize=64)
def _bracket_matrix(d: int, n: int) -> Array:
    """M[i, j] = coefficient of Lyndon word i in the bracket of Lyndon word j."""
    words = lyndon_words(d, n)
    place = {w: i for i, w in enumerate(words)}
    matrix = np.zeros((len(words), len(words)))
    for j, w in enumerate(words):
        for term, count in bracket(w).items():
            if term in place:
                matrix[place[term], j] = count
    return matrix


def lyndon_brackets(log: Array, d: int, n: int) -> Array:
    """Coordinates ``(..., Lyndon words)`` of a Lie element in the basis of Lyndon brackets."""
    projected = lyndon_projection(log, d, n)
    solved = np.linalg.solve(
        _bracket_matrix(d, n), np.moveaxis(projected, -1, 0).reshape(projected.shape[-1], -1)
    )
    columns = np.asarray(solved, dtype=np.float64)
    return np.moveaxis(columns.reshape(projected.shape[-1], *projected.shape[:-1]), 0, -1)


# The logarithm of a signature in Lyndon coordinates, as a table that any engine can run.
#
# log S at a word w is Σ over the ways to cut w into j pieces of (-1)^{j+1}/j · Π S(piece). Only
# Lyndon words are wanted; the bracket basis follows by a unitriangular substitution with integers.


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
