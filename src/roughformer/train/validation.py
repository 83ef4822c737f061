"""Validation: splits of the training series, and scores of predictions by name."""

from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.util.checks import real_number

Index = npt.NDArray[np.int64]


def split_validation(
    n: int,
    fraction: float,
    seed: int,
    *,
    classes: npt.NDArray[Any] | None = None,
    groups: npt.NDArray[Any] | None = None,
) -> tuple[Index, Index]:
    """Numbers of the training and the validation series, increasing.

    ``groups (n,)``: whole groups are held out, so that a patient is never on both sides; as many
    as come nearest to the fraction. ``classes (n,)``: each class gives its share, and a class with
    one series stays in training. The same arguments give the same split.
    """
    share = real_number(fraction, "the validation fraction", "a number in [0, 1)")
    if not 0 <= share < 1:
        raise InputError(f"the validation fraction must be in [0, 1), got {fraction!r}")
    everything = np.arange(n)
    named = None if groups is None else _checked_groups(groups, n)
    if share == 0 or n < 2:
        return everything, everything[:0]
    rng = np.random.default_rng([seed, 0x5EED])
    if named is not None:
        held = _groups(named, n, share, rng)
    elif classes is not None:
        held = _by_class(np.asarray(classes), share, rng)
    else:
        held = np.zeros(n, dtype=bool)
        held[rng.permutation(n)[: _share(n, share)]] = True
    return everything[~held], everything[held]


def fold_validation(
    n: int,
    folds: int,
    seed: int,
    *,
    classes: npt.NDArray[Any] | None = None,
    groups: npt.NDArray[Any] | None = None,
) -> list[tuple[Index, Index]]:
    """Training and validation series of each of ``folds`` parts; every series validates once.

    Groups stay together; without groups, classes are spread evenly.
    """
    from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

    everything = np.arange(n)
    if groups is not None:
        named = _checked_groups(groups, n)
        kinds = len(np.unique(named))
        if kinds < folds:
            raise InputError(f"{folds} members need as many groups, got {kinds} of {n} series")
        splits = GroupKFold(folds, shuffle=True, random_state=seed).split(everything, None, named)
    elif n < folds:
        raise InputError(f"{folds} members need at least as many series, got {n}")
    elif classes is not None and np.bincount(classes).min() >= folds:
        splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(everything, classes)
    else:
        splits = KFold(folds, shuffle=True, random_state=seed).split(everything)
    return [(np.sort(a), np.sort(b)) for a, b in splits]


def _share(n: int, fraction: float) -> int:
    """At least one, and at least one stays."""
    return min(max(round(n * fraction), 1), n - 1)


def _checked_groups(groups: Any, n: int) -> npt.NDArray[Any]:
    """Groups ``(n,)`` that can be told apart, or ``InputError``."""
    named = np.asarray(groups)
    if named.ndim != 1 or len(named) != n:
        got = len(named) if named.ndim == 1 else f"shape {named.shape}"
        raise InputError(f"groups must name the group of each of {n} series, got {got}")
    # A series without a group could be on both sides. Only NaN differs from itself.
    unknown = [i for i, name in enumerate(named.tolist()) if name is None or name != name]
    if unknown:
        raise InputError(
            f"series {unknown[0]} has no group ({named[unknown[0]]}); give each series a group, "
            "such as a name of its own"
        )
    try:
        np.unique(named)
    except TypeError:
        raise InputError("groups must be of one kind, all text or all numbers") from None
    return named


def _groups(
    groups: npt.NDArray[Any], n: int, fraction: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    names, member = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise InputError(
            "there is one group only, so nothing can be held out for validation; give more "
            "groups, a validation set, or validation=0"
        )
    size = np.bincount(member)
    order = rng.permutation(len(names))
    total = np.cumsum(size[order])
    count = int(np.abs(total - fraction * n).argmin()) + 1
    chosen = order[: min(count, len(names) - 1)]
    return np.asarray(np.isin(member, chosen))


def _by_class(
    classes: npt.NDArray[Any], fraction: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    n = len(classes)
    held = np.zeros(n, dtype=bool)
    _, member, size = np.unique(classes, return_inverse=True, return_counts=True)
    want = _share(n, fraction)
    # Largest remainders: shares are whole numbers that add up to what is wanted.
    ideal = size * (want / n)
    take = np.minimum(np.floor(ideal).astype(int), size - 1)
    for c in np.argsort(-(ideal - take) + 1e-9 * rng.random(len(size)), kind="stable"):
        if take.sum() >= want:
            break
        if take[c] < size[c] - 1:
            take[c] += 1
    for c, count in enumerate(take):
        held[rng.permutation(np.flatnonzero(member == c))[:count]] = True
    if not held.any():  # every class has one series
        held[rng.integers(n)] = n > 1
    return held


Array = npt.NDArray[Any]
CLASSIFICATION = ("accuracy", "balanced_accuracy", "log_loss", "auroc", "auprc")
REGRESSION = ("rmse", "mae", "r2")
HIGHER_IS_BETTER = {"accuracy", "balanced_accuracy", "auroc", "auprc", "r2"}


def check_metric(name: str, task: str) -> str:
    """The metric's name; "auto" is log_loss for classes and rmse for numbers, "loss" is that of
    the training.
    """
    known = ("loss", *(CLASSIFICATION if task == "classification" else REGRESSION))
    if name == "auto":
        return "log_loss" if task == "classification" else "rmse"
    if name not in known:
        raise InputError(f"metric must be 'auto' or one of {', '.join(known)}; got {name!r}")
    return name


def better(name: str, new: float, old: float | None) -> bool:
    """Whether ``new`` improves on ``old``; NaN improves on nothing."""
    if old is None or np.isnan(old):
        return not np.isnan(new)
    return new > old if name in HIGHER_IS_BETTER else new < old


def classification_scores(
    probabilities: Array, labels: Array, weight: Array | None = None
) -> dict[str, float]:
    """``probabilities (N, K)``, ``labels (N,)`` class numbers, ``weight (N,)``.

    AUROC and AUPRC are of the rarer one of two classes (of class 1 if both are as frequent), and
    means over the classes with more; NaN where only one class is present.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    n, k = probabilities.shape
    if n == 0:
        return dict.fromkeys(CLASSIFICATION, float("nan"))
    guess = probabilities.argmax(axis=1)
    present = np.unique(labels)
    hit = guess == labels
    recall = [_mean(hit, weight, labels == c) for c in present]
    right = probabilities[np.arange(n), labels].clip(1e-12, 1.0)
    scores = {
        "accuracy": _mean(hit, weight),
        "balanced_accuracy": float(np.mean(recall)),
        "log_loss": _mean(-np.log(right), weight) + 0.0,  # 0, not -0
        "auroc": float("nan"),
        "auprc": float("nan"),
    }
    if len(present) > 1:
        which = [int(_mean(labels == 1, weight) <= 0.5)] if k == 2 else list(present)
        one = [(labels == c, probabilities[:, c]) for c in which]
        for name, score in (("auroc", roc_auc_score), ("auprc", average_precision_score)):
            scores[name] = float(np.mean([score(y, p, sample_weight=weight) for y, p in one]))
    return scores


def _mean(values: Array, weight: Array | None, among: Any = slice(None)) -> float:
    return float(np.average(values[among], weights=None if weight is None else weight[among]))


def regression_scores(
    predicted: Array, true: Array, weight: Array | None = None
) -> dict[str, float]:
    """``(N, m)`` both; NaN in ``true`` = not known, left out; ``weight (N,)``."""
    known = ~np.isnan(true)
    if not known.any():
        return dict.fromkeys(REGRESSION, float("nan"))
    error, y = (predicted - true)[known], true[known]
    share = None
    mean = np.nanmean(true, axis=0, keepdims=True)
    if weight is not None:
        shares = np.where(known, weight[:, None], 0)
        mean = np.nansum(true * shares, axis=0) / shares.sum(axis=0).clip(1e-300)
        share = shares[known]
    centre = np.broadcast_to(mean, true.shape)[known]
    spread = float(np.average((y - centre) ** 2, weights=share))
    square = float(np.average(error**2, weights=share))
    return {
        "rmse": float(np.sqrt(square)),
        "mae": float(np.average(np.abs(error), weights=share)),
        "r2": 1 - square / spread if spread > 0 else float("nan"),
    }
