"""Temperature: one number, fitted on the validation part, that makes confidence honest."""

import math

from torch import Tensor
from torch.nn import functional as F

__all__ = ["fit_deviation_factor", "fit_temperature"]


def fit_temperature(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> float:
    """T > 0 that minimises the cross entropy of softmax(logits / T); ``(N, K)``, ``(N,)``,
    ``weight (K,)`` of the classes, ``sample_weight (N,)``.

    As in Platt's scaling the target is not certainty but (N + 1) / (N + K) for the label and
    1 / (N + K) for each other class: N series that are all predicted right do not prove that none
    will be predicted wrong, and T would go to 0. The loss is convex in 1/T; a golden-section search
    over log T in [-4, 4] finds it. 1 without data.
    """
    known = labels >= 0
    logits, labels = logits[known].double(), labels[known]
    each = None if sample_weight is None else sample_weight[known].double()
    if len(labels) == 0 or logits.shape[1] < 2:
        return 1.0

    n, k = logits.shape
    weight = None if weight is None else weight.double()

    def loss(log_t: float) -> float:
        scaled = logits / math.exp(log_t)
        smooth = k / (n + k)
        if each is None:
            return float(F.cross_entropy(scaled, labels, weight, label_smoothing=smooth))
        losses = F.cross_entropy(scaled, labels, weight, label_smoothing=smooth, reduction="none")
        return float((losses * each).sum())

    low, high = -4.0, 4.0
    golden = (math.sqrt(5) - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    fa, fb = loss(a), loss(b)
    for _ in range(60):
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - golden * (high - low)
            fa = loss(a)
        else:
            low, a, fa = a, b, fb
            b = low + golden * (high - low)
            fb = loss(b)
    return math.exp((low + high) / 2)


def fit_deviation_factor(
    point: Tensor, deviation: Tensor, target: Tensor, sample_weight: Tensor | None = None
) -> float:
    """The factor on standard deviations under which the validation part is most likely.

    sqrt(mean of ((y - μ) / σ)²), NaN targets left out, weighted by ``sample_weight (N,)``; 1
    without data.
    """
    known = ~target.isnan()
    z = ((target - point) / deviation)[known]
    if len(z) == 0:
        return 1.0
    square = z.double().square()
    if sample_weight is None:
        mean = square.mean()
    else:
        share = sample_weight.double().unsqueeze(-1).expand(target.shape)[known]
        mean = (square * share).sum() / share.sum()
    return float(mean.sqrt().clamp(1e-3, 1e3))
