"""Which windows, channels and words drove a prediction.

Let f be what is explained: the log-odds of a class, log p / (1 - p) after calibration, or a number
in units of the world. What "hidden" means is said in ``roughformer.inference.occlusion``.

windows    f(x) - f(x with one window hidden).
channels   f(x) - f(x with every word that has a letter of the channel hidden in all windows, and
           the channel's spectrum, if the model sees one). Channels share words, so these do not
           add up.
static     f(x) - f(x with one static covariate not known).
words      Integrated gradients of f from everything hidden to what the model sees, z, over all
           windows: w_i = Σ_k z_ki ∫ ∂f/∂z_ki(α z) dα for α from 0 to 1. Their sum over *all* words
           is f(x) - f(all windows hidden) = ``value - baseline``. The integral is taken in ever
           smaller steps until this holds to 0.2 % of Σ |w_i|, which takes many where f bends
           at every step (Neural CDEs), and what is left is shared out by size; a warning says if
           it does not hold to 2 %. Static covariates stay as they are. "Words" are the features
           of the kind of model; docs/model.md says which.

A ``SignatureEnsemble`` sees a series as a whole and bends at every threshold, so there

windows    f(x) - f(x without the observations in one of twelve even windows),
channels   f(x) - f(x without the channel),
words      f(x) - f(x with the functionals of one kind, channel and width at their training means),

and nothing adds up to anything.

Above 0 spoke for the class (or raised the number), below 0 against it. A word of the global view
tells about the whole path up to its window's end: hiding one window leaves that knowledge in the
windows after it.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.inference.occlusion import NOTHING, hideable
from roughformer.inference.predictor import Predictor
from roughformer.inference.targets import ClassTargets, NumberTargets
from roughformer.model.ensemble import SignatureEnsemble
from roughformer.model.outputs import point_of
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.util.checks import whole_number

__all__ = ["Explanation", "explain"]

_STEPS = 24  # nodes of the Gauss-Legendre rule for a piece of the integral over α
_MOST_PIECES = 32
_MISS = 0.002  # of all words' sizes together
_MOST_SHARED = 0.02
_NUMBERS_AT_ONCE = 2**22  # bounds the tokens of a model call: copies x windows x features
_SERIES_AT_ONCE = 256

Inputs = dict[str, Tensor]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Explanation:
    """What drove one prediction; see the module for the meaning of the numbers.

    Attributes
    ----------
    windows : ndarray (L,)
        Importance of each window.
    window_edges : ndarray (L + 1,)
        Where windows begin and end, in the unit of the series' times.
    channels : dict of str to float
        Importance of each channel.
    words : dict of str to float
        Importance of the most important words, largest first, by the names of the encoder.
    static : dict of str to float
        Importance of each number that static covariates become.
    prediction : str
        What the model predicts, in words.
    target : object
        The class, or the number of the output, that is explained.
    value : float
        f(x): the log-odds of that class, or the predicted number.
    baseline : float
        f with all windows hidden: all words together make up the difference to ``value``.
    """

    windows: Floats
    window_edges: Floats
    channels: dict[str, float]
    words: dict[str, float]
    static: dict[str, float]
    prediction: str
    target: Any
    value: float
    baseline: float


def explain(
    predictor: Predictor,
    batch: SeriesBatch,
    *,
    n_words: int | None = 20,
    target: Any = None,
    threads: int | None = None,
) -> list[Explanation]:
    """One ``Explanation`` for each series of ``batch``.

    ``target``: the class to explain (None: the predicted one of each series), or the number of the
    output of a regression with several. ``n_words``: how many words are told, None: all. A causal
    model's prediction at the last window is explained.
    """
    if n_words is not None:
        n_words = whole_number(n_words, "n_words", 0)
    chosen = _chosen_output(predictor, target)
    found: list[Explanation] = []
    with _evaluating(predictor.model):
        for i in range(0, len(batch), _SERIES_AT_ONCE):
            part = batch[i : i + _SERIES_AT_ONCE]
            kind = _Occluder if isinstance(predictor.model, SignatureEnsemble) else _Explainer
            found += kind(predictor, part, chosen, threads).explanations(n_words)
    return found


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and back to each module's own afterwards."""
    was = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in was:
            module.training = training


def _chosen_output(predictor: Predictor, target: Any) -> int | None:
    """The number of the output to explain; None: that of the predicted class."""
    targets = predictor.targets
    if isinstance(targets, ClassTargets):
        if target is None:
            return None
        for number, label in enumerate(targets.classes):
            if not isinstance(target, np.ndarray) and label == target:
                return number
        raise InputError(f"target must be one of the classes {list(targets.classes)}: {target!r}")
    n = predictor.outputs.n_outputs
    if target is None:
        if n == 1:
            return 0
        raise InputError(f"the model predicts {n} numbers: give target=0 ... {n - 1} for one")
    if isinstance(target, bool) or not isinstance(target, int | np.integer) or not 0 <= target < n:
        raise InputError(f"target must be the number of an output, 0 ... {n - 1}, got {target!r}")
    return int(target)


class _Explainer:
    """The inputs of B series, and the output of each that is explained."""

    def __init__(
        self, predictor: Predictor, batch: SeriesBatch, chosen: int | None, threads: int | None
    ) -> None:
        self.predictor, self.batch = predictor, batch
        encoded = predictor.encoder.encode(batch, threads=threads)
        inputs = {name: x.to(predictor.device) for name, x in encoded.items()}
        self.hideable = hideable(predictor, inputs)
        self.names, self.static_names = self.hideable.names, list(predictor.encoder.static)
        self.edges = predictor.window_edges(batch)
        everything = torch.arange(len(batch), device=predictor.device)
        with torch.no_grad():
            self.output, all_hidden = (  # (B, m[, k])
                torch.cat([self._outputs(take(which)) for which in self._chunks(everything)])
                for take in (self.hideable.take, self.hideable.hide_all)
            )
        self.at = self.output.argmax(dim=1) if chosen is None else torch.full((len(batch),), chosen)
        self.value = self._explained(self.output, self.at)
        self.baseline = self._explained(all_hidden, self.at)

    def explanations(self, n_words: int | None) -> list[Explanation]:
        """One for each series."""
        windows, channels, static = self._occlusion()
        encoder, targets = self.predictor.encoder, self.predictor.targets
        # Most of the work goes into the words: none is done if none are told.
        words = np.zeros((len(self.batch), len(self.names)))
        if n_words != 0:
            words = self._words()
        explained = self.at.tolist()
        if isinstance(targets, ClassTargets):
            explained = [targets.labels[number] for number in explained]
        return [
            Explanation(
                windows=windows[b, : len(self.edges[b]) - 1].copy(),
                window_edges=self.edges[b],
                channels=dict(zip(encoder.channels, channels[b].tolist(), strict=True)),
                words=_largest(self.names, words[b], n_words),
                static=dict(zip(self.static_names, static[b].tolist(), strict=True)),
                prediction=self.predictor.describe(self.output[b], int(self.at[b])),
                target=explained[b],
                value=float(self.value[b]),
                baseline=float(self.baseline[b]),
            )
            for b in range(len(self.batch))
        ]

    def _occlusion(self) -> tuple[Floats, Floats, Floats]:
        """Changes of f by hiding ``(B, L)`` windows, ``(B, C)`` channels, ``(B, S)`` covariates."""
        n = len(self.batch)
        n_static = len(self.predictor.encoder.static)
        sizes = (len(self.hideable.covers), len(self.hideable.holds), n_static)
        # A row for each copy: its series, then the window, the channel or the covariate to hide.
        jobs = torch.full((n, sum(sizes), 4), NOTHING, dtype=torch.long)
        jobs[:, :, 0] = torch.arange(n)[:, None]
        first = 0
        for kind, size in enumerate(sizes, start=1):
            jobs[:, first : first + size, kind] = torch.arange(size)
            first += size
        jobs = jobs.flatten(0, 1).to(self.predictor.device)
        changes = []
        with torch.no_grad():
            for which in self._chunks(jobs):
                of = which[:, 0].cpu()
                after = self._explained(self._outputs(self.hideable.hide(which)), self.at[of])
                changes.append(self.value[of] - after)
        change = torch.cat(changes).view(n, sum(sizes)).numpy() if changes else np.zeros((n, 0))
        windows, channels, static = np.split(change, np.cumsum(sizes)[:-1], axis=1)
        return windows, channels, static

    def _words(self) -> Floats:
        """Integrated gradients ``(B, F)``, adding up to value - baseline; in more pieces for the
        series whose words miss it.
        """
        words = torch.zeros(len(self.batch), len(self.hideable.names), dtype=torch.float64)
        wanted = self.value - self.baseline
        left, pieces = torch.arange(len(self.batch)), 1
        while len(left):
            words[left] = self._integrals(left, pieces)
            miss = wanted[left] - words[left].sum(dim=1)
            left = left[miss.abs() > _MISS * words[left].abs().sum(dim=1)]
            pieces *= 2
            if pieces > _MOST_PIECES:
                break
        size = words.abs().sum(dim=1).clamp(min=1e-300)
        rest = (wanted - words.sum(dim=1)) / size
        far = rest.abs() > _MOST_SHARED
        if far.any():
            warnings.warn(
                f"the words of {int(far.sum())} of {len(far)} series do not add up, by up to "
                f"{float(rest.abs().max()):.0%} of their sizes: the answer changes too abruptly "
                "with them; rely on windows and channels",
                UserWarning,
                stacklevel=5,
            )
        return (words + torch.where(far, 0.0, rest)[:, None] * words.abs()).numpy()

    def _integrals(self, series: Tensor, pieces: int) -> Tensor:
        """``(n, F)`` for some series ``(n,)``: Gauss-Legendre's rule on ``pieces`` parts of u from
        0 to 1, α = u³: norms make f change fastest where little is shown yet.
        """
        nodes, weights = np.polynomial.legendre.leggauss(_STEPS)
        u = ((np.arange(pieces)[:, None] + (nodes + 1) / 2) / pieces).ravel()
        weight = torch.from_numpy(3 * u**2 * np.tile(weights, pieces) / (2 * pieces))
        device, n = self.predictor.device, len(series)
        share = torch.from_numpy(u**3).float().to(device)
        place = torch.arange(n, device=device).repeat_interleave(len(u))
        step = torch.arange(len(u), device=device).repeat(n)
        total = torch.zeros(n, len(self.hideable.names), dtype=torch.float64)
        for which in self._chunks(torch.stack([place, step], dim=1)):
            row, at = which.unbind(dim=1)
            of = series.to(device)[row]
            number = self.at[of.cpu()]

            def f(inputs: Inputs, number: Tensor = number) -> Tensor:
                return self._explained(self._outputs(inputs), number)

            words = self.hideable.slopes(f, of, share[at])
            total.index_add_(0, row.cpu(), weight[at.cpu()][:, None] * words.cpu().double())
        return total

    def _chunks(self, rows: Tensor) -> Iterator[Tensor]:
        """Rows for one call of the model each."""
        _, rows_each, *features = self.hideable.inputs[self.hideable.main].shape
        each = rows_each * max(math.prod(features), rows_each)  # attention is over pairs of rows
        size = max(_NUMBERS_AT_ONCE // max(each, 1), 1)
        return (rows[i : i + size] for i in range(0, len(rows), size))

    def _outputs(self, inputs: Inputs) -> Tensor:
        """``(n, m[, k])`` in main memory, float32."""
        output = self.predictor.model(**inputs).float().cpu()
        shape = inputs["times"].shape
        mask = inputs.get("mask", torch.ones(shape, dtype=torch.bool)).cpu()
        return self.predictor.at_last_window(output, mask)

    def _explained(self, output: Tensor, at: Tensor) -> Tensor:
        """f ``(n,)``, float64, of outputs ``(n, m[, k])`` at the class or number ``at (n,)``."""
        targets = self.predictor.targets
        at = at[:, None]
        if isinstance(targets, NumberTargets):
            points = targets.to_world(point_of(output, self.predictor.outputs))
            return points.gather(1, at)[:, 0]
        logits = output.double() / self.predictor.calibration
        own = logits.gather(1, at)[:, 0]
        if logits.shape[1] == 1:
            return own  # one class has no odds
        others = logits.scatter(1, at, -torch.inf).logsumexp(dim=1)
        return own - others


class _Occluder(_Explainer):
    """What an ensemble says without a part of the observations, or of its functionals."""

    def __init__(
        self, predictor: Predictor, batch: SeriesBatch, chosen: int | None, threads: int | None
    ) -> None:
        self.predictor, self.batch, self.threads = predictor, batch, threads
        self.edges = predictor.window_edges(batch)
        self.output = predictor.raw(batch, threads=threads)[0]
        self.at = self.output.argmax(dim=1) if chosen is None else torch.full((len(batch),), chosen)
        self.value = self._explained(self.output, self.at)
        nothing = self._without(np.ones(batch.values.shape, dtype=np.bool_))
        self.baseline = self._explained(nothing, self.at)
        assert isinstance(predictor.model, SignatureEnsemble)
        encoder = predictor.encoder
        self.groups = predictor.model.path.functionals.groups(encoder.channels, encoder.kinds)
        self.names = list(self.groups)
        self.static_names = encoder.static_encoder.names

    def _without(self, hidden: npt.NDArray[np.bool_]) -> Tensor:
        """Outputs for the series without the ``hidden (N, C)`` observations."""
        batch = self.batch
        values = np.where(hidden, np.nan, batch.values)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnobservedWarning)
            return self.predictor.raw(batch.with_values(values), threads=self.threads)[0]

    def _change(self, output: Tensor) -> Floats:
        return (self.value - self._explained(output, self.at)).numpy()

    def _occlusion(self) -> tuple[Floats, Floats, Floats]:
        batch, encoder = self.batch, self.predictor.encoder
        row = np.concatenate(
            [
                np.searchsorted(edges[1:-1], batch.series(b)[0], side="right")
                for b, edges in enumerate(self.edges)
            ]
        )
        n_windows = max(len(edges) - 1 for edges in self.edges)
        shape = batch.values.shape
        windows = [
            self._change(self._without(np.broadcast_to((row == k)[:, None], shape)))
            for k in range(n_windows)
        ]
        column = np.arange(shape[1])
        channels = [
            self._change(self._without(np.broadcast_to(column == c, shape)))
            for c in range(shape[1])
        ]
        static = []
        inputs = encoder.encode(batch, threads=self.threads)
        names = encoder.static_encoder.names
        for k in range(-len(names), 0):
            unknown = inputs["summary"].clone()
            unknown[:, len(encoder.usual) + k] = encoder.usual[k]
            with torch.no_grad():
                static.append(self._change(self.predictor.model(**inputs | {"summary": unknown})))
        parts = (windows, channels, static)
        found = [np.stack(p, axis=1) if p else np.zeros((len(batch), 0)) for p in parts]
        return found[0], found[1], found[2]

    def _words(self) -> Floats:
        model = self.predictor.model
        assert isinstance(model, SignatureEnsemble)
        inputs = self.predictor.encoder.encode(self.batch, threads=self.threads)
        with torch.no_grad():
            seen = model.path(inputs["cells"], model.config.parts)
            found = [
                self._change(model.blended(model.hidden(seen, group), inputs["summary"]).float())
                for group in self.groups.values()
            ]
        return np.stack(found, axis=1)


def _largest(names: list[str], importance: Floats, count: int | None) -> dict[str, float]:
    """The ``count`` words of largest size, in that order; words of one name are one."""
    total: dict[str, float] = {}
    for name, value in zip(names, importance.tolist(), strict=True):
        total[name] = total.get(name, 0.0) + value
    order = sorted(total, key=lambda name: -abs(total[name]))
    return {name: total[name] for name in order[:count]}
