"""Chen's relation: the signature of a path joined from pieces is the product of their signatures.

So the local views of a multi-view signature multiply to the global one, at any cuts.
"""

import numpy as np

from roughformer import multiview_signature, signature
from roughformer.series import SeriesBatch
from roughformer.signatures import word_count
from roughformer.signatures.algebra import inverse, multiply
from roughformer_paper.reproduce.experiment import Job, Page, Row, Table
from roughformer_paper.reproduce.theory_common import Array, Part, deviation, random_paths, verdict
from roughformer_paper.reproduce.theory_invariance import random_clock

__all__ = ["PART", "product"]

_DEPTH = 4
_EXACT, _SINGLE = 1e-10, 1e-3  # allowed in float64 and in float32


def product(tokens: Array, d: int, n: int) -> Array:
    """Running products over the windows: ``(B, L, words)`` -> the same shape."""
    total = [tokens[:, 0]]
    for k in range(1, tokens.shape[1]):
        total.append(multiply(total[-1], tokens[:, k], d, n))
    return np.stack(total, axis=1)


def _run(job: Job) -> Row:
    rng = np.random.default_rng(job["seed"])
    n, length, windows = job["n_paths"], job["length"], job["windows"]
    x = random_paths(n, length, 2, 20, rng)
    # Irregular times: the cuts, even in time, fall between samples.
    batch = SeriesBatch.from_tensor(x, t=random_clock(n, length, rng))
    size = word_count(3, _DEPTH)
    found: dict[str, float] = {}
    for kind in ("float64", "float32"):
        tokens = multiview_signature(
            batch.with_values(batch.values.astype(kind)), windows, _DEPTH, lifts="time"
        ).astype(np.float64)
        joined = product(tokens[..., size:], 3, _DEPTH)
        found[kind] = deviation(joined, tokens[..., :size], 3, _DEPTH)
        if kind == "float64":  # the engine makes global views as products: one pass is independent
            whole = signature(batch, _DEPTH, lifts="time")
            found["one pass"] = deviation(joined[:, -1], whole, 3, _DEPTH)
    whole = signature(SeriesBatch.from_tensor(x), _DEPTH)
    half = length // 2
    left, right = (
        signature(SeriesBatch.from_tensor(part), _DEPTH) for part in (x[:, : half + 1], x[:, half:])
    )
    found["two pieces"] = deviation(multiply(left, right, 2, _DEPTH), whole, 2, _DEPTH)
    back = signature(SeriesBatch.from_tensor(x[:, ::-1].copy()), _DEPTH)
    found["backwards"] = deviation(back, inverse(whole, 2, _DEPTH), 2, _DEPTH)
    # Pieces x[i:j] share no point: the step from one to the next is in none of them.
    total = np.zeros_like(whole)
    for part in np.array_split(x, min(windows, length // 2), axis=1):
        piece = signature(SeriesBatch.from_tensor(part.copy()), _DEPTH)
        total = multiply(total, piece, 2, _DEPTH)
    found["slices"] = deviation(total, whole, 2, _DEPTH)
    return {"deviation": found}


def _show(rows: list[Row], figures: bool) -> Page:
    groups = sorted({row["job"]["windows"] for row in rows})
    names = {
        "float64": "local views multiplied = global view, float64",
        "float32": "the same, float32",
        "one pass": "local views multiplied = whole path in one pass, float64",
        "two pieces": "S(a ∗ b) = S(a) ⊗ S(b), float64",
        "backwards": "S(path backwards) = S(path)⁻¹, float64",
        "slices": "windows as half-open slices of samples (the paper's public code)",
    }
    worst = {
        (key, w): max(r["deviation"][key] for r in rows if r["job"]["windows"] == w)
        for key in names
        for w in groups
    }
    exact = max(v for (key, _), v in worst.items() if key not in ("float32", "slices"))
    single = max(worst["float32", w] for w in groups)
    missed = max(worst["slices", w] for w in groups)
    note = verdict(
        "the signature of joined pieces is the product of theirs, so local views give the global.",
        exact < _EXACT and single < _SINGLE,
        f"to {exact:.1e} in float64 and {single:.1e} in float32, with irregular times and cuts "
        "between samples. Windows as slices that share no sample lose the step at each cut and "
        f"miss the product by up to {missed:.2g}.",
    )
    return Page(
        tables=[
            Table(
                "Chen's relation: largest relative deviation of a level",
                ["identity", *(f"{w} windows" if w > 1 else "1 window" for w in groups)],
                [[title, *(worst[key, w] for w in groups)] for key, title in names.items()],
                note,
            )
        ]
    )


PART = Part(
    name="chen",
    cases={
        "tiny": [{"n_paths": 10, "length": 60, "windows": w} for w in (1, 5)],
        "quick": [{"n_paths": 100, "length": 500, "windows": w} for w in (1, 5, 75)],
        "full": [{"n_paths": 500, "length": 2000, "windows": w} for w in (1, 5, 75, 300)],
    },
    run=_run,
    show=_show,
)
