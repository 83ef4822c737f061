"""Small causal models with random weights: what a stream repeats does not depend on training."""

from typing import Any

import numpy as np
import torch

import roughformer as rf
from roughformer.inference.targets import ClassTargets, NumberTargets
from roughformer.model import Ensemble

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "basepoint": {"basepoint": True},
    "clocks": {"clock": 3},
    "no time": {"time": "none"},
    "local": {"views": ("local",)},
    "context": {"context": 3},
    "context 1, depth 3": {"context": 1, "depth": 3},
    "global context": {"views": ("global",), "context": 7},
    "all": {"clock": 2, "context": 5, "basepoint": True, "transform": "logsignature"},
    "points": {"windows": {"points": 4}, "clock": 2},
    "points, context": {"windows": {"points": 3}, "context": 2},
    # Higher words of single steps are rounding, which must not be scaled up.
    "steps": {"windows": {"points": 1}, "depth": 4, "transform": "logsignature", "context": 1},
    "observations": {"observations": True},
    "observations alone": {"observations": True, "depth": 0, "context": 3},
    "static": {"static": ("age",)},
}


def series(
    n: int = 5, channels: int = 2, seed: int = 0, missing: float = 0.3, points: int = 40
) -> rf.SeriesBatch:
    """Ragged, irregular, with gaps; some points on multiples of 0.25."""
    rng = np.random.default_rng(seed)
    times, values = [], []
    for _ in range(n):
        size = int(rng.integers(2, points))
        t = np.cumsum(rng.exponential(0.2, size))
        on = rng.random(size) < 0.3
        t = np.unique(np.where(on, np.round(t / 0.25) * 0.25, t))
        times.append(t + rng.normal(0, 100))
        x = np.cumsum(rng.normal(size=(len(t), channels)), axis=0) + rng.normal(size=channels) * 3
        x[rng.random(x.shape) < missing] = np.nan
        values.append(x)
    offsets = np.cumsum([0, *map(len, times)])
    static = rng.normal(size=(n, 2))
    return rf.SeriesBatch(
        np.concatenate(times), np.concatenate(values), offsets, static=static,
        static_names=["age", "height"],
    )  # fmt: skip


def predictor(
    batch: rf.SeriesBatch,
    *,
    classes: int = 3,
    members: int = 1,
    seed: int = 0,
    model: dict[str, Any] | None = None,
    **tokens: Any,
) -> rf.Predictor:
    """A causal RFormer on tokens of ``batch``; ``classes=0``: a regression of one number."""
    options: dict[str, Any] = {"windows": {"duration": 0.5}, "hold": True, "depth": 2} | tokens
    tokenizer = rf.Tokenizer.fit(rf.TokenConfig(**options), batch)
    own: dict[str, Any] = {"d_model": 8, "n_heads": 2, "n_layers": 2} | (model or {})
    torch.manual_seed(seed)
    config = rf.RFormerConfig(
        n_features=tokenizer.n_features, n_static=len(tokenizer.static), causal=True,
        context=tokenizer.config.context, n_outputs=classes or 1,
        task="classification" if classes else "regression", **own,
    )  # fmt: skip
    inputs = tokenizer.encode(batch)
    made = []
    for _ in range(members):
        one = rf.RFormer(config).attach(tokenizer)
        one.fit_scaling(inputs)
        for name, weight in one.named_parameters():
            if name.endswith("age"):
                torch.nn.init.normal_(weight)
        made.append(one.eval())
    whole = made[0] if members == 1 else Ensemble(made, [0.5, *[2.0] * (members - 1)]).eval()
    targets: Any = NumberTargets(mean=(70.0,), scale=(10.0,))
    if classes:
        targets = ClassTargets(classes=tuple(f"c{i}" for i in range(classes)), dtype="<U2")
    return rf.Predictor(tokenizer, whole, targets, calibration=1.7)
