"""Writes the straight-line parts of the kernel for small (d, n) as C++.

For each pair three functions on vectors of lanes (one lane = one series):

* ``run``: S <- S ⊗ exp(x) for each increment x, on the tracked words only (Lyndon words and their
  prefixes), by Horner's scheme: with p = prefix of length m of a word of length k,
  P_m = P_{m-1} · x_{p_m}/(k-m+1) + S_p, and S_w += P_{k-1} · x_{w_k}.
* ``rebuild``: all words from the tracked ones. A word w that is not Lyndon splits at a Lyndon
  factor into u, v, and S_u S_v = Σ (u ⧢ v) gives S_w from smaller words.
* ``chen``: H <- G ⊗ L on all words; H may be G.
"""

import math
from collections.abc import Callable

from roughformer.signatures.words import (
    Word,
    all_words,
    lyndon_factors,
    shuffle,
    tracked_words,
    word_index,
)

# Pairs with straight-line code: where the tracked words nearly fit the registers. Larger ones run
# on the generic kernel; so do depths above 4, because rebuilding words of length 5 and 6 by shuffle
# identities costs digits in float32 (2e-5 ... 6e-5 of a level's maximum instead of 1e-5).
SPECIAL: tuple[tuple[int, int], ...] = (
    *((1, n) for n in range(1, 7)),
    *((2, n) for n in range(1, 5)),
    *((3, n) for n in range(1, 5)),
    *((4, n) for n in range(1, 5)),
    *((5, n) for n in range(1, 4)),
    *((6, n) for n in range(1, 4)),
    *((7, n) for n in range(1, 3)),
    *((8, n) for n in range(1, 3)),
)


def _name(prefix: str, word: Word) -> str:
    return prefix + "_".join(map(str, word))


class _Rebuild:
    """How a word that is not tracked follows from smaller ones."""

    def __init__(self, word: Word) -> None:
        factors = lyndon_factors(word)
        best: tuple[int, Word, Word, dict[Word, int], int] | None = None
        for u, v in (
            (factors[0], word[len(factors[0]) :]),
            (word[: -len(factors[-1])], factors[-1]),
        ):
            terms = dict(shuffle(u, v))
            own = terms.pop(word)
            # Radford: every other word of the shuffle is smaller, so it is known already.
            if any(term >= word for term in terms):
                raise AssertionError(f"shuffle of {u} and {v} has a word above {word}")
            if best is None or len(terms) < best[0]:
                best = (len(terms), u, v, terms, own)
        assert best is not None
        _, self.u, self.v, self.terms, self.own = best
        self.word = word


def _rebuild_plan(d: int, n: int) -> list[_Rebuild]:
    tracked = set(tracked_words(d, n))
    return [_Rebuild(w) for w in all_words(d, n) if w not in tracked]


def _scaled(letter: int, divisor: int) -> str:
    return f"x{letter}" if divisor == 1 else f"x{letter}d{divisor}"


def _divisors(n: int) -> str:
    return "".join(f"const V r{q} = splat(S(1) / S({q}));\n" for q in range(2, n + 1))


def _scale_letters(d: int, n: int) -> str:
    return "".join(f"const V x{c}d{q} = x{c} * r{q};\n" for q in range(2, n + 1) for c in range(d))


def _step(d: int, n: int, tracked: tuple[Word, ...]) -> str:
    """One Horner step on the variables s<word>, given x0 ... x<d-1> and their fractions.

    Longest words first, because they read the old values of shorter ones; depth first within a
    length, so that few partial sums are alive at a time and most stay in registers.
    """
    lines = []
    for k in range(n, 0, -1):
        goals = [w for w in tracked if len(w) == k]

        def descend(p: Word, k: int = k, goals: list[Word] = goals) -> None:
            if len(p) == k - 1:
                before = _name(f"p{k}_", p)
                for w in goals:
                    if w[:-1] == p:
                        gain = f"{before} * x{w[-1]}" if p else f"x{w[-1]}"
                        lines.append(f"{_name('s', w)} += {gain};")
                return
            for q in sorted({w[: len(p) + 1] for w in goals if w[: len(p)] == p}):
                scaled = _scaled(q[-1], k - len(q) + 1)
                product = f"{_name(f'p{k}_', p)} * {scaled}" if p else scaled
                lines.append(f"const V {_name(f'p{k}_', q)} = {product} + {_name('s', q)};")
                descend(q)

        descend(())
    return "\n".join(lines) + "\n"


def _run(d: int, n: int) -> str:
    tracked = tracked_words(d, n)
    out = [f"static void run_{d}_{n}(V* S_, const V* rows, long steps) {{"]
    out.append(_divisors(n))
    out += [f"V {_name('s', w)} = S_[{i}];" for i, w in enumerate(tracked)]
    out += [f"V y{c} = rows[{c}];" for c in range(d)]
    out.append(f"for (long s = 1; s <= steps; ++s) {{ const V* row = rows + s * {d};")
    out += [f"const V z{c} = row[{c}]; const V x{c} = z{c} - y{c}; y{c} = z{c};" for c in range(d)]
    out.append(_scale_letters(d, n))
    out.append(_step(d, n, tracked))
    out.append("}")
    out += [f"S_[{i}] = {_name('s', w)};" for i, w in enumerate(tracked)]
    out.append("}")
    return "\n".join(out)


def _rebuild(d: int, n: int) -> str:
    tracked = tracked_words(d, n)
    out = [f"static void rebuild_{d}_{n}(const V* S_, V* F) {{"]
    out += [
        f"const V {_name('s', w)} = S_[{i}]; F[{word_index(w, d)}] = {_name('s', w)};"
        for i, w in enumerate(tracked)
    ]
    for rule in _rebuild_plan(d, n):
        value = f"{_name('s', rule.u)} * {_name('s', rule.v)}"
        for term, count in sorted(rule.terms.items()):
            factor = "" if count == 1 else f"splat(S({count})) * "
            value += f" - {factor}{_name('s', term)}"
        if rule.own != 1:
            value = f"({value}) * splat(S(1) / S({rule.own}))"
        name = _name("s", rule.word)
        out.append(f"const V {name} = {value}; F[{word_index(rule.word, d)}] = {name};")
    out.append("}")
    return "\n".join(out)


def _chen(d: int, n: int) -> str:
    out = [f"static void chen_{d}_{n}(V* H, const V* G, const V* __restrict L) {{"]
    for k in range(n, 0, -1):  # longest first: they read the shorter words of G, which may be H

        def descend(u: Word, k: int = k) -> None:
            # Values of G are read before anything is written near them: the compiler cannot know
            # that the words written here are longer than those still to be read.
            for letter in range(d):
                w = (*u, letter)
                i = word_index(w, d)
                if len(w) < k:
                    out.append(f"{{ const V {_name('g', w)} = G[{i}];")
                    descend(w)
                    out.append("}")
                    continue
                value = f"(G[{i}] + L[{i}])"
                for m in range(1, k):
                    value += f" + {_name('g', w[:m])} * L[{word_index(w[m:], d)}]"
                out.append(f"H[{i}] = {value};")

        descend(())
    out.append("}")
    return "\n".join(out)


def _chebyshev(values: Callable[[float], float], degree: int) -> list[float]:
    """Coefficients in z of the polynomial through the Chebyshev points of [0, 1/4]."""
    n = degree + 1
    angles = [math.pi * (k + 0.5) / n for k in range(n)]
    samples = [values((math.cos(a) + 1) / 8) for a in angles]
    weights = [
        (1 if j == 0 else 2)
        / n
        * sum(f * math.cos(j * a) for f, a in zip(samples, angles, strict=True))
        for j in range(n)
    ]
    before, here = [1.0], [-1.0, 8.0]  # T_0 and T_1 of 8z - 1
    total = [0.0] * n
    for j, weight in enumerate(weights):
        term = before if j == 0 else here
        if j >= 2:  # T_j = 2 (8z - 1) T_{j-1} - T_{j-2}
            term = [0.0, *(16 * a for a in here)]
            for i, a in enumerate(here):
                term[i] -= 2 * a
            for i, a in enumerate(before):
                term[i] -= a
            before, here = here, term
        for i, a in enumerate(term):
            total[i] += weight * a
    return total


def _turns() -> str:
    """cos 2πf and sin 2πf / f as polynomials in f² for |f| <= 1/2, to the rounding of the type."""

    def cosine(z: float) -> float:
        return math.cos(2 * math.pi * math.sqrt(z))

    def sine(z: float) -> float:
        return math.sin(2 * math.pi * math.sqrt(z)) / math.sqrt(z)

    parts = []
    for condition, degree in (("#if RF_DOUBLE", 10), ("#else", 6)):
        parts += [condition, f"enum {{ TURNS_DEGREE = {degree} }};"]
        for name, function in (("COS_TURNS", cosine), ("SIN_TURNS", sine)):
            numbers = ", ".join(f"S({c!r})" for c in _chebyshev(function, degree))
            parts.append(f"static const S {name}[] = {{{numbers}}};")
    return "\n".join([*parts, "#endif"])


def generate() -> str:
    """The whole generated header; ``kernel.cpp`` includes it once per instruction set and type."""
    parts = ["// Generated by codegen.py; do not edit.", _turns()]
    rows = []
    for d, n in SPECIAL:
        parts += [f(d, n) for f in (_run, _rebuild, _chen)]
        tracked = len(tracked_words(d, n))
        places = ", ".join(str(word_index(w, d)) for w in tracked_words(d, n))
        parts.append(f"static const int tracked_{d}_{n}[] = {{{places}}};")
        functions = f"run_{d}_{n}, rebuild_{d}_{n}, chen_{d}_{n}"
        rows.append(f"{{{d}, {n}, {tracked}, tracked_{d}_{n}, {functions}}}")
    parts.append("static const Special SPECIAL[] = {" + ",\n".join(rows) + "};")
    cases = [f"case {d * 16 + n}: return SPECIAL + {i};" for i, (d, n) in enumerate(SPECIAL)]
    parts.append("static const Special* special_for(int d, int n) {")
    parts.append("if (n > 15 || d > 1000) return nullptr;\nswitch (d * 16 + n) {")
    parts += [*cases, "default: return nullptr;", "}", "}"]
    return "\n".join(parts) + "\n"
