"""Fitting a ``SignatureEnsemble``: ridge, trees, and a blend by out-of-fold predictions."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor

from roughformer.errors import InputError
from roughformer.model import (
    LINEAR_PARTS,
    EnsembleConfig,
    Forest,
    PathFeatures,
    SignatureEnsemble,
    blendable,
)
from roughformer.tokens import CellEncoder
from roughformer.util.checks import threads_for_boosting

__all__ = ["FittedEnsemble", "fit_ensemble"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Folds = list[tuple[Ints, Ints]]

_PENALTIES = np.logspace(-3, 3.5, 14)
_EXACT = 2000  # series up to which a penalty is chosen on all of them
_BLEND_PENALTY = 2.0
_CONSTANT = 100.0  # the feature that stands for the intercept
_ROWS = 1024  # or columns, of a block of a large product
_DUAL = 9000  # series up to which ridge works on their inner products
_MANY = {"n_functionals": 1536, "n_features": 5000}  # for more series than that
_BOOSTED = ("boosting", "rhythm")
_EMBEDDING = 64  # principal components
_TREES = 600  # of boosting, over all classes
_WIDE, _LEAST_SHARE = 2000, 0.02  # a node looks at a smaller share of more features, down to this
_BOOSTINGS = 3  # models that are averaged
_TAIL = 4.0  # deviations, beyond which words of a summary are cut for ridge
_FEW_PER_CLASS = 20  # series of a class that boosting needs


@dataclass(frozen=True)
class FittedEnsemble:
    """The model, and the out-of-fold predictions ``(B, n_outputs)`` of its parts and of the blend:
    probabilities, or targets as the loss has them. NaN where a series was in no held-out fold.
    """

    model: SignatureEnsemble
    parts: dict[str, Floats]
    blend: Floats


def fit_ensemble(
    encoder: CellEncoder,
    inputs: dict[str, Tensor],
    target: Tensor,
    *,
    n_outputs: int,
    task: str,
    weight: Tensor | None = None,
    groups: Any = None,
    seed: int = 0,
) -> FittedEnsemble:
    """Fit all parts to encoded series and their targets: class numbers ``(B,)`` or standardised
    numbers ``(B, m)``.
    """
    rng = np.random.default_rng(seed)
    classes = task == "classification"
    y = target.numpy() if classes else target.double().numpy()
    n = len(y)
    w = np.ones(n) if weight is None else weight.double().numpy() / float(weight.double().mean())
    goal = np.where(y[:, None] == np.arange(n_outputs), 1.0, -1.0) if classes else y
    folds = _folds(y if classes else None, n, groups, seed)
    cells, summary = inputs["cells"], inputs["summary"]
    sparse = encoder.sparse(summary)
    names = _parts(n, n_outputs, classes, bool(encoder.rhythmic), sparse)
    sizes = {"n_views": len(encoder.spans)} | (_MANY if n > _DUAL else {})
    path = PathFeatures(len(encoder.channels), encoder.n_cells, **sizes)
    some = torch.from_numpy(np.sort(rng.permutation(n)[:1024]))
    seen = _in_blocks(path.draw(cells[some], seed), cells, names)
    parts: dict[str, Floats] = {}
    linear, forests = {}, {}
    directions = torch.zeros(0, path.size("ppv"))
    middle, spread = summary.double().mean(dim=0), summary.double().std(dim=0, unbiased=False)
    low, high = ((middle + sign * _TAIL * spread).float() for sign in (-1, 1))
    for name in names:
        if name in (*LINEAR_PARTS, "linear"):
            fit = _ridge if n <= _DUAL else _ridge_of_many
            x = seen.pop(name, summary.clamp(low, high))
            (slope, level), decision = fit(x, goal, w, folds, groups is not None, rng)
            if classes:
                factor = _temperature(decision, y, w)
                slope, level, decision = factor * slope, factor * level, factor * decision
            tensors = {"weight": slope, "bias": level}
            linear[name] = {key: torch.from_numpy(array) for key, array in tensors.items()}
            linear[name]["usual"] = x.mean(dim=0)
            if name == "linear":
                linear[name] |= {"low": low, "high": high}
            if name == "ppv":
                directions = _principal(x[some], torch.from_numpy(w)[some])
            parts[name] = _softmax(decision) if classes else decision
            continue
        columns = None  # of the summary, if not all
        if name == "rhythm":
            columns = torch.arange(len(encoder.usual), summary.shape[1])
        elif sparse and name in ("boosting", "summary"):
            columns = torch.tensor(encoder.plain)
        x = seen.pop(name, summary)
        table = (x if columns is None else x[:, columns]).numpy()
        parts[name] = np.full((n, n_outputs), np.nan)
        with threads_for_boosting(n):
            for train, held in folds:
                grown = _grow(name, table[train], y[train], w[train], classes, seed, few=True)
                parts[name][held] = _predict(grown[0], table[held], n_outputs, classes)
            grown = _grow(name, table, y, w, classes, seed)
        forest = (
            Forest.of_boosting(grown, n_outputs)
            if name in _BOOSTED
            else Forest.of_extra_trees(grown[0], n_outputs)
        )
        forests[name] = forest if columns is None else forest.placed(columns)
    config = EnsembleConfig(
        n_channels=len(encoder.channels), n_cells=encoder.n_cells, n_outputs=n_outputs, task=task,
        n_embedding=len(directions), parts=names,
        n_words=summary.shape[1],
        forests={name: forest.shape for name, forest in forests.items()}, **sizes,
    )  # fmt: skip
    model = SignatureEnsemble(config, path)
    model.directions.copy_(directions)
    for name, state in linear.items():
        model.linear[name].load_state_dict(state)
    for name, forest in forests.items():
        model.forests[name] = forest
    known = ~np.isnan(np.stack(list(parts.values()))).any(axis=(0, 2))
    stacked = np.stack([parts[name][known] for name in names])
    if classes:
        logs = blendable(torch.from_numpy(stacked)).numpy()
        shares = _blend_classes(logs, y[known], w[known])
        blended: Floats = _softmax(np.tensordot(shares, logs, 1))
    else:
        shares = _blend_numbers(stacked, y[known], w[known])
        blended = np.asarray(np.tensordot(shares, stacked, 1), np.float64)
    model.weights.copy_(torch.from_numpy(shares))
    blend = np.full((n, n_outputs), np.nan)
    blend[known] = blended
    return FittedEnsemble(model.eval().requires_grad_(False), parts, blend)


def _parts(n: int, n_outputs: int, classes: bool, rhythm: bool, sparse: bool) -> tuple[str, ...]:
    """Which parts there is enough data for."""
    names = [*LINEAR_PARTS]
    if n >= 10:
        names += ["intervals", "summary"]
    if n >= 50 and sparse:
        names.append("linear")
    enough = n >= 200 and (not classes or (1 < n_outputs <= n / _FEW_PER_CLASS))
    if enough and (classes or n_outputs == 1):
        names.append("boosting")
        if rhythm and not classes:
            names.append("rhythm")
    return tuple(names)


def _folds(classes: Any, n: int, groups: Any, seed: int) -> Folds:
    """Five folds of few series, fewer of many; none of less than ten, unless there are groups."""
    from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

    count = 5 if n <= 200 else 3 if n <= 4000 else 2
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (n,):
            raise InputError(f"there are {n} series but groups of shape {groups.shape}")
        groups = np.unique(groups.astype(str), return_inverse=True)[1]
        count = min(count, int(groups.max()) + 1)
        if count < 2:
            warnings.warn(
                "all series are of one group: they are left out one by one",
                UserWarning,
                stacklevel=5,
            )
            return []
        split = GroupKFold(count, shuffle=True, random_state=seed)
        return list(split.split(np.zeros(n), groups=groups))
    if n < 10:
        return []
    if classes is None:
        return list(KFold(count, shuffle=True, random_state=seed).split(np.zeros(n)))
    # Classes with fewer members than folds are spread as they come.
    rare = np.bincount(classes)[classes] < count
    split = StratifiedKFold(count, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of classes with few members
        return list(split.split(np.zeros(n), np.where(rare, -1, classes)))


def _in_blocks(path: PathFeatures, cells: Tensor, names: tuple[str, ...]) -> dict[str, Tensor]:
    """Features of all series, made a few hundred at a time."""
    parts = [path(cells[i : i + 256], names) for i in range(0, len(cells), 256)]
    return {name: torch.cat([part.pop(name) for part in parts]) for name in list(parts[0])}


# Ridge


def _standardised(features: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features with weighted mean 0, deviation 1 and rows of about length 1; mean and divisor."""
    mean = torch.cat([w @ part.double() for part in torch.split(features, 1024, dim=1)]) / w.sum()
    x = features - mean.float()
    deviation = x.square().mean(dim=0).sqrt()
    varies = deviation > 1e-6 * (1 + mean.float().abs())
    scale = torch.where(varies, deviation, torch.inf) * features.shape[1] ** 0.5
    return x / scale, mean, scale.double()


def _ridge(
    features: Tensor, goal: Floats, w: Floats, folds: Folds, grouped: bool, rng: Any
) -> tuple[tuple[Floats, Floats], Floats]:
    """Slope ``(k, F)`` and intercept ``(k,)``, and predictions ``(B, k)`` for series left out: one
    at a time, or by folds where groups must stay together.

    The intercept is the coefficient of a feature so large that no penalty is felt.
    """
    n, weight = len(features), torch.from_numpy(w)
    x, mean, scale = _standardised(features, weight)
    root = weight.sqrt()
    x *= root[:, None].float()
    aim = torch.from_numpy(np.asarray(goal, np.float64))
    level = weight @ aim / weight.sum()
    y = (aim - level) * root[:, None]
    gram = _gram(x).addr_(root, root, alpha=_CONSTANT**2)
    apart = folds if grouped else []
    some = np.sort(rng.permutation(n)[:_EXACT])
    part = torch.from_numpy(some)
    penalty = _penalty(gram[part][:, part], y[part], _within(apart, some, n))
    coefficients, predicted = _dual(gram, y, penalty, apart)
    sums = [coefficients.T @ part.double() for part in torch.split(x, _ROWS, dim=1)]
    slope = torch.cat(sums, dim=1) / scale
    intercept = level - slope @ mean + _CONSTANT**2 * (root @ coefficients)
    decision = predicted / root[:, None] + level
    return (slope.numpy(), intercept.numpy()), decision.numpy()


def _gram(x: Tensor) -> Tensor:
    """``x @ x.T`` in float64; each pair of rows is multiplied once."""
    gram = x.new_empty(len(x), len(x), dtype=torch.float64)
    for i in range(0, len(x), _ROWS):
        block = x[i : i + _ROWS] @ x[i:].T
        gram[i : i + _ROWS, i:] = block
        gram[i:, i : i + _ROWS] = block.T
    return gram


def _principal(features: Tensor, w: Tensor) -> Tensor:
    """``(E, F)``: the directions in which standardised features vary most, at most 64."""
    x, _, scale = _standardised(features, w)
    values, vectors = torch.linalg.eigh(_gram(x))
    count = min(_EMBEDDING, len(x))
    top, axes = values[-count:].flip(0), vectors[:, -count:].flip(1)
    real = top > 1e-9 * top[:1].clamp(min=1e-30)
    directions: Tensor = (x.T.double() @ axes) / torch.where(real, top, torch.inf).sqrt()
    return directions.T.div(scale).float()


def _penalty(gram: Tensor, y: Tensor, folds: Folds) -> float:
    """The penalty with the least error of series left out (one at a time without folds)."""
    if folds:
        held_out = (_by_folds(gram, y, penalty, folds) for penalty in _PENALTIES)
        errors = [float((y - predicted).square().nanmean()) for predicted in held_out]
    else:
        errors = []
        values, vectors = torch.linalg.eigh(gram)
        rotated, squared = vectors.T @ y, vectors.square()
        for penalty in _PENALTIES:
            inverse = 1 / (values.clamp(min=0) + penalty)
            residual = (vectors @ (inverse[:, None] * rotated)) / (squared @ inverse)[:, None]
            errors.append(float(residual.square().mean()))
    return float(_PENALTIES[int(np.argmin(errors))])


def _dual(gram: Tensor, y: Tensor, penalty: float, folds: Folds) -> tuple[Tensor, Tensor]:
    """Coefficients of the series, and predictions for those left out."""
    factor = _factor(gram, penalty)
    coefficients = torch.cholesky_solve(y, factor)
    if folds:
        return coefficients, _by_folds(gram, y, penalty, folds)
    return coefficients, y - coefficients / _inverse_diagonal(factor)[:, None]


def _inverse_diagonal(factor: Tensor) -> Tensor:
    """The diagonal of the inverse of the matrix that has this Cholesky factor."""
    parts = []
    for i in range(0, len(factor), _ROWS):  # the inverse factor is lower triangular
        columns = torch.eye(len(factor) - i, min(_ROWS, len(factor) - i), dtype=factor.dtype)
        columns = torch.linalg.solve_triangular(factor[i:, i:], columns, upper=False)
        parts.append(columns.square().sum(dim=0))
    return torch.cat(parts)


def _by_folds(gram: Tensor, y: Tensor, penalty: float, folds: Folds) -> Tensor:
    """Predictions for the series of each fold by the others; NaN for a series of none."""
    predicted = torch.full_like(y, torch.nan)
    for train, held in folds:
        a, b = torch.from_numpy(train), torch.from_numpy(held)
        factor = _factor(gram[a][:, a], penalty)
        predicted[b] = gram[b][:, a] @ torch.cholesky_solve(y[a], factor)
    return predicted


def _within(folds: Folds, some: Ints, n: int) -> Folds:
    """Folds of n series as places among ``some`` of them."""
    place = np.full(n, -1)
    place[some] = np.arange(len(some))
    return [(place[a][place[a] >= 0], place[b][place[b] >= 0]) for a, b in folds]


def _factor(gram: Tensor, penalty: float) -> Tensor:
    """Cholesky's factor of the penalised matrix."""
    factor = gram.clone()
    factor.diagonal().add_(penalty)
    return torch.linalg.cholesky(factor, out=factor)  # type: ignore[no-any-return]


def _ridge_of_many(
    features: Tensor, goal: Floats, w: Floats, folds: Folds, grouped: bool, rng: Any
) -> tuple[tuple[Floats, Floats], Floats]:
    """The same for more series than features: the penalty, and the predictions for series left
    out, are those of the last fold, NaN elsewhere.
    """
    weight = torch.from_numpy(w)
    x, mean, scale = _standardised(features, weight)
    x = torch.cat([x, x.new_full((len(x), 1), _CONSTANT)], dim=1)
    aim = torch.from_numpy(np.asarray(goal, np.float64))
    level = weight @ aim / weight.sum()
    y = aim - level
    grams, sides = [], []
    for part in folds[-1]:
        rows = torch.from_numpy(part)
        root = weight[rows, None].sqrt()
        part_x = x[rows] * root.float()
        grams.append(_gram(part_x.T))
        sides.append((part_x.T @ (y[rows] * root).float()).double())
    held = torch.from_numpy(folds[-1][1])
    seen = x[held]
    best: tuple[float, float, Tensor] | None = None
    for penalty in np.logspace(-1, 2, 4):
        slope = torch.cholesky_solve(sides[0], _factor(grams[0], penalty))
        predicted = (seen @ slope.float()).double()
        error = float((weight[held, None] * (predicted - y[held]).square()).mean())
        if best is None or error < best[0]:
            best = error, float(penalty), predicted
    assert best is not None
    slope = torch.cholesky_solve(sides[0] + sides[1], _factor(grams[0] + grams[1], best[1])).T
    intercept = level + _CONSTANT * slope[:, -1]
    slope = slope[:, :-1] / scale
    decision = np.full((len(x), goal.shape[1]), np.nan)
    decision[folds[-1][1]] = (best[2] + level).numpy()
    return (slope.numpy(), (intercept - slope @ mean).numpy()), decision


# Trees


def _grow(
    name: str, x: Any, y: Any, w: Floats, classes: bool, seed: int, few: bool = False
) -> list[Any]:
    """Fit scikit-learn's trees: models whose predictions are averaged. ``few``: grow only as many
    as it takes to tell how good they are.
    """
    from sklearn import ensemble

    size = x.shape[1]
    # The share of the features that a node looks at: less of a wide table, so that the work does
    # not grow with its width.
    share = 0.3 if name == "summary" else 0.2 if name in _BOOSTED and not classes else 0.1
    share = max(share * min(1.0, _WIDE / max(size, 1)), _LEAST_SHARE)
    if name == "intervals":
        share = min(1.0, max(share, 12 / max(size, 1)))
    if name in _BOOSTED:
        # A round grows a tree for each of several classes: the more of them, the fewer rounds.
        count = len(np.unique(y)) if classes else 1
        rounds = min(max(_TREES // max(count, 2), 60), 300)
        options = {
            "max_iter": rounds, "learning_rate": min(9 / rounds, 0.12), "max_leaf_nodes": 10,
            "early_stopping": False, "l2_regularization": 3.0, "min_samples_leaf": 20,
            "max_features": share, "max_bins": 63,
        }  # fmt: skip
        boosting = ensemble.HistGradientBoostingRegressor
        if classes:
            boosting = ensemble.HistGradientBoostingClassifier
        # Weighted quantiles take scikit-learn a hundred times as long, even if all are equal.
        weight = w if np.ptp(w) > 0 else None
        y = y if classes else y[:, 0]
        return [
            boosting(**options, random_state=seed + i).fit(x, y, weight)
            for i in range(1 if few or size > _WIDE else _BOOSTINGS)
        ]
    options = {
        "n_estimators": 50 if few else 200 if len(x) <= 2000 else 100,
        "max_features": share,
        "random_state": seed,
        "n_jobs": torch.get_num_threads(),
    }
    if classes:
        return [ensemble.ExtraTreesClassifier(criterion="entropy", **options).fit(x, y, w)]
    y = y[:, 0] if y.shape[1] == 1 else y
    return [ensemble.ExtraTreesRegressor(min_samples_leaf=2, **options).fit(x, y, w)]


def _predict(model: Any, x: Any, n_outputs: int, classes: bool) -> Floats:
    if not classes:
        return np.asarray(model.predict(x), np.float64).reshape(len(x), -1)
    probabilities = np.zeros((len(x), n_outputs))
    one = len(model.classes_) == 1  # of which boosting gives two probabilities
    probabilities[:, model.classes_] = 1.0 if one else model.predict_proba(x)
    return probabilities


# Blending


def _softmax(z: Floats) -> Floats:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _log_loss(logits: Floats, y: Any, w: Floats) -> float:
    """Of labels that are wrong once in n: without an error so far, nothing is certain yet."""
    top = logits.max(axis=1)
    total = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
    doubt = 1 / (len(y) + 1)
    own = (1 - doubt) * logits[np.arange(len(y)), y] + doubt * logits.mean(axis=1)
    return float((w * (total - own)).sum())


def _temperature(decision: Floats, y: Any, w: Floats) -> float:
    """The factor on ridge's decisions with the least log loss."""
    known = ~np.isnan(decision).any(axis=1)
    factors = np.geomspace(0.3, 60, 54)
    losses = [_log_loss(f * decision[known], y[known], w[known]) for f in factors]
    return float(factors[int(np.argmin(losses))])


def _blend_classes(logs: Floats, y: Any, w: Floats) -> Floats:
    """Weights of log-probabilities ``(h, n, K)`` with the least log loss; drawn to equal ones."""
    h = len(logs)
    if logs.shape[1] == 0:
        return np.full(h, 1 / h)

    def loss(weights: Floats) -> float:
        apart = h * ((weights - 1 / h) ** 2).sum()
        logits = np.asarray(np.tensordot(weights, logs, 1), np.float64)
        return float(_log_loss(logits, y, w) + _BLEND_PENALTY * apart)

    solution = minimize(loss, np.full(h, 1 / h), method="L-BFGS-B", bounds=[(0, None)] * h)
    return np.asarray(solution.x)


def _blend_numbers(predicted: Floats, y: Floats, w: Floats) -> Floats:
    """Weights of predictions ``(h, n, m)`` with the least squared error, relative to that of the
    best of them; they sum to 1 and are drawn to equal ones.
    """
    h = len(predicted)
    if predicted.shape[1] == 0:
        return np.full(h, 1 / h)
    each = ((predicted - y) ** 2).mean(axis=2)
    w = w / max(float(np.min(each @ w / w.sum())), 1e-12)

    def loss(weights: Floats) -> float:
        shares = weights / weights.sum()
        error = (np.tensordot(shares, predicted, 1) - y) ** 2
        apart = h * ((shares - 1 / h) ** 2).sum()
        return float((w[:, None] * error).sum() / error.size * len(y) + _BLEND_PENALTY * apart)

    solution = minimize(loss, np.full(h, 1 / h), method="L-BFGS-B", bounds=[(1e-6, None)] * h)
    return np.asarray(solution.x / solution.x.sum())
