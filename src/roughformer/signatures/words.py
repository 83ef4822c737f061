"""Words over the letters 0 ... d-1: the coordinates of signatures and log-signatures.

Pure Python without dependencies, because the native kernel's code generator runs where nothing
else is installed. A word is a tuple of letters; a truncated signature holds one number for each
word of length 1 ... n, ordered by length, then lexicographically.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import product

__all__ = [
    "Word",
    "all_words",
    "bracket",
    "lyndon_count",
    "lyndon_factors",
    "lyndon_words",
    "shuffle",
    "tracked_words",
    "word_count",
    "word_index",
]

Word = tuple[int, ...]


def word_count(d: int, n: int) -> int:
    """Number of words of length 1 ... n, d + d² + ... + dⁿ."""
    return sum(d**k for k in range(1, n + 1))


def lyndon_count(d: int, n: int) -> int:
    """Number of Lyndon words of length 1 ... n (Witt's formula), the size of a log-signature."""

    def mobius(m: int) -> int:
        sign, p = 1, 2
        while m > 1:
            if m % p == 0:
                m //= p
                if m % p == 0:
                    return 0
                sign = -sign
            p += 1
        return sign

    return sum(
        sum(mobius(k // j) * d**j for j in range(1, k + 1) if k % j == 0) // k
        for k in range(1, n + 1)
    )


def all_words(d: int, n: int) -> Iterator[Word]:
    """Every word of length 1 ... n, by length, then lexicographically."""
    for k in range(1, n + 1):
        yield from product(range(d), repeat=k)


def word_index(word: Word, d: int) -> int:
    """Position of ``word`` in the order of ``all_words``."""
    index = 0
    for letter in word:
        index = index * d + letter + 1
    return index - 1


def _generate_lyndon(d: int, n: int) -> Iterator[Word]:
    """Duval's algorithm: all Lyndon words of length <= n in lexicographic order."""
    if d == 0 or n == 0:
        return
    word = [-1]
    while word:
        word[-1] += 1
        yield tuple(word)
        length = len(word)
        while len(word) < n:
            word.append(word[-length])
        while word and word[-1] == d - 1:
            word.pop()


@lru_cache(maxsize=64)
def lyndon_words(d: int, n: int) -> tuple[Word, ...]:
    """Lyndon words of length 1 ... n by length, then lexicographically.

    A word is Lyndon if it is strictly smaller than each of its proper suffixes. They index a
    basis of the free Lie algebra, hence the coordinates of a log-signature.
    """
    return tuple(sorted(_generate_lyndon(d, n), key=lambda w: (len(w), w)))


def lyndon_factors(word: Word) -> tuple[Word, ...]:
    """The unique factorisation into non-increasing Lyndon words (Chen, Fox, Lyndon)."""
    factors, i = [], 0
    while i < len(word):
        j, k = i + 1, i
        while j < len(word) and word[k] <= word[j]:
            k = i if word[k] < word[j] else k + 1
            j += 1
        while i <= k:
            factors.append(word[i : i + j - k])
            i += j - k
    return tuple(factors)


@cache
def shuffle(u: Word, v: Word) -> dict[Word, int]:
    """The shuffle product u ⧢ v as {word: multiplicity}; S_u S_v = Σ multiplicity · S_word."""
    if not u or not v:
        return {u + v: 1}
    total: Counter[Word] = Counter()
    for rest, count in shuffle(u[1:], v).items():
        total[u[:1] + rest] += count
    for rest, count in shuffle(u, v[1:]).items():
        total[v[:1] + rest] += count
    return dict(total)


def tracked_words(d: int, n: int) -> tuple[Word, ...]:
    """Lyndon words of length <= n and all their prefixes: what the kernel accumulates.

    Every other coordinate of a signature is a polynomial in these (Radford's theorem), and a
    word's running value needs only the values of its own prefixes.
    """
    tracked = {w[:k] for w in lyndon_words(d, n) for k in range(1, len(w) + 1)}
    return tuple(sorted(tracked, key=lambda w: (len(w), w)))


@cache
def bracket(word: Word) -> dict[Word, int]:
    """The Lie bracket of a Lyndon word, expanded in words: {word: integer coefficient}.

    Standard bracketing: a letter is itself; otherwise [u, v] = uv - vu where v is the longest
    proper suffix that is Lyndon. The expansion is ``word`` + lexicographically larger words.
    """
    if len(word) == 1:
        return {word: 1}
    split = next(i for i in range(1, len(word)) if lyndon_factors(word[i:]) == (word[i:],))
    left, right = bracket(word[:split]), bracket(word[split:])
    total: Counter[Word] = Counter()
    for a, x in left.items():
        for b, y in right.items():
            total[a + b] += x * y
            total[b + a] -= x * y
    return {w: c for w, c in total.items() if c}
