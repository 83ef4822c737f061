"""Which windows, channels and words drove a prediction.

Let f be what is explained: the log-odds of a class, log p / (1 - p) after calibration, or a number
in units of the target. A model's main input, x ``(B, W, ...)``, has W rows for each series, and
features: tokens of windows, or spectra of windows. "Hidden" is a value that tells nothing: for
tokens, the spectrum of the whole path and static covariates NaN (not known), which models scale to
0 as they do the mean of the training part; for spectra of windows a flat one, 0.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.inference import ClassTargets, NumberTargets, Predictor
from roughformer.model import SignatureEnsemble
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.tokens import TempoEncoder, frequencies
from roughformer.util.checks import optional, whole_number

Inputs = dict[str, Tensor]
Floats = npt.NDArray[np.float64]

_NOTHING = -1
_STEPS = 24  # nodes of the Gauss-Legendre rule for a piece of the integral over α
_MOST_PIECES = 32
_MISS = 0.002  # of all words' sizes together
_MOST_SHARED = 0.02
_NUMBERS_AT_ONCE = 2**22  # bounds the tokens of a model call: copies x windows x features
_SERIES_AT_ONCE = 256


@dataclass(frozen=True)
class MaskedInputs:
    """The inputs of B series, and what hides their L windows and C channels."""

    inputs: Inputs
    main: str
    """Which of them is x."""
    hidden: float
    """What x is where it is hidden."""
    scales: tuple[tuple[nn.Module, int], ...]
    """What scales features, so that hidden is 0, and the number of its first feature in ``names``;
    none: x is as it is."""
    covers: Tensor
    """``(L, W)``: rows that are hidden with each window."""
    holds: Tensor
    """``(C, ...)``: features that are hidden with each channel."""
    names: list[str]
    """Of the features, flat."""

    def take(self, series: Tensor) -> Inputs:
        """Inputs of some series ``(n,)``."""
        return {name: x[series] for name, x in self.inputs.items()}

    def hide_all(self, series: Tensor) -> Inputs:
        """``take`` with nothing shown of x, nor of the spectrum of the whole path."""
        inputs = self.take(series)
        hidden = {self.main: torch.full_like(inputs[self.main], self.hidden)}
        if "spectrum" in inputs:
            hidden["spectrum"] = torch.full_like(inputs["spectrum"], torch.nan)
        return inputs | hidden

    def slopes(self, f: Callable[[Inputs], Tensor], series: Tensor, share: Tensor) -> Tensor:
        """``(n, F)``: Σ_k z_ki ∂f/∂z_ki at share · z, z ``(n, W, ...)`` what the model sees of x.

        ``f`` gives n numbers for the inputs of n series; ``share (n,)``.
        """
        inputs = self.take(series)
        pairs: list[tuple[Tensor, Tensor, int]] = []

        def shrink(z: Tensor, first: int) -> Tensor:
            z = z.detach()
            part = (share.view(-1, *[1] * (z.dim() - 1)) * z).requires_grad_()
            pairs.append((z, part, first))
            return part

        with torch.enable_grad(), _outputs_changed(self.scales, shrink):
            if not self.scales:
                inputs[self.main] = shrink(inputs[self.main], 0)
            total = f(inputs).sum()
            slopes = torch.autograd.grad(total, [part for _, part, _ in pairs])
        n = len(series)
        totals = torch.zeros(n, len(self.names), device=share.device)
        for (z, _, first), slope in zip(pairs, slopes, strict=True):
            each = z * slope
            # (n, W, ...), rows added up; or (n, F) of one row: the last token, or the spectrum.
            each = each.sum(dim=1).reshape(n, -1) if each.dim() > 2 else each
            totals[:, first : first + each.shape[1]] += each
        return totals

    def hide(self, jobs: Tensor) -> Inputs:
        """Copies of the inputs: of the series ``jobs[:, 0]`` without the window ``jobs[:, 1]``, the
        channel ``jobs[:, 2]`` and the static covariate ``jobs[:, 3]``, each a number or _NOTHING.
        """
        series, window, channel, covariate = jobs.unbind(dim=1)
        inputs = self.take(series)
        x = inputs[self.main]
        ones = [1] * (x.dim() - 2)
        # _NOTHING (-1) picks the last row, which is then switched off.
        rows = self.covers[window] & (window >= 0)[:, None]  # (n, W)
        features = self.holds[channel] & (channel >= 0).view(-1, *ones)  # (n, ...)
        which = rows.view(*rows.shape, *ones) | features.unsqueeze(1)
        inputs[self.main] = x.masked_fill(which, self.hidden)
        for name, number in (("spectrum", channel), ("static", covariate)):
            if name in inputs:  # (n, C, J) or (n, S)
                places = torch.arange(inputs[name].shape[1], device=jobs.device)
                unknown = number[:, None] == places
                unknown = unknown.view(*unknown.shape, *[1] * (inputs[name].dim() - 2))
                inputs[name] = inputs[name].masked_fill(unknown, torch.nan)
        return inputs


@contextmanager
def _outputs_changed(
    modules: tuple[tuple[nn.Module, int], ...], change: Callable[[Tensor, int], Tensor]
) -> Iterator[None]:
    """What the modules give is changed by ``change`` on its way."""
    hooks = [
        module.register_forward_hook(
            lambda module, args, output, first=first: change(output, first)
        )
        for module, first in modules
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def masked_inputs(predictor: Predictor, inputs: Inputs) -> MaskedInputs:
    """For the ``inputs`` of a predictor's model, on its device."""
    if isinstance(predictor.encoder, TempoEncoder):
        return _spectra(predictor.encoder, inputs)
    if not hasattr(predictor.encoder, "feature_channels"):
        raise InputError(
            f"a model with the inputs of {type(predictor.encoder).__name__} cannot be explained"
        )
    encoder: Any = predictor.encoder
    tokens = inputs["tokens"]
    uses = encoder.feature_channels()
    holds = torch.zeros(len(encoder.channels), len(uses), dtype=torch.bool)
    for feature, channels in enumerate(uses):
        holds[list(channels), feature] = True
    first = {"standardize": 0, "standardize_last": 0, "standardize_spectrum": len(uses)}
    named = ((name.split(".")[-1], module) for name, module in predictor.model.named_modules())
    names = list(encoder.names)
    if "spectrum" in inputs:
        turns = frequencies(encoder.config.spectrum) / (2 * np.pi)
        names += [f"spectrum:{channel} at {x:.4g}" for channel in encoder.channels for x in turns]
    return MaskedInputs(
        inputs=inputs,
        main="tokens",
        hidden=torch.nan,
        scales=tuple((module, first[name]) for name, module in named if name in first),
        covers=torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device),
        holds=holds.to(tokens.device),
        names=names,
    )


def _spectra(encoder: TempoEncoder, inputs: Inputs) -> MaskedInputs:
    """A window hides every spectrum that has at least half of its time in it."""
    spectra = inputs["spectra"]  # (B, K, 2C, J)
    n, c, j = max(encoder.n_windows, 1), len(encoder.channels), spectra.shape[-1]
    end = np.asarray(inputs["times"][:1].cpu(), dtype=np.float64).reshape(-1)
    begin = end - 1 / n
    begin[-1] = 0.0  # the last is that of the whole span
    edges = np.arange(n + 1) / n
    common = np.minimum(end, edges[1:, None]) - np.maximum(begin, edges[:-1, None])  # (n, K)
    covers = common >= (0.5 - 1e-6) * (end - begin)
    owner = torch.arange(2 * c) % c  # channels, then their variations
    holds = (torch.arange(c)[:, None] == owner).unsqueeze(-1).expand(c, 2 * c, j)
    of = [*encoder.channels, *(f"variation of {name}" for name in encoder.channels)]
    turns = encoder.low * np.exp(encoder.step * np.arange(j))
    return MaskedInputs(
        inputs=inputs,
        main="spectra",
        hidden=0.0,
        scales=(),
        covers=torch.from_numpy(covers).to(spectra.device),
        holds=holds.to(spectra.device),
        names=[f"{name} at {rate:.4g} turns" for name in of for rate in turns],
    )


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
    series : SeriesBatch
        The series itself, a batch of one.
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
    series: SeriesBatch

    def to_frame(self) -> Any:
        """Put all importances into one pandas DataFrame.

        Returns
        -------
        DataFrame
            A row for each window, channel, static covariate and word, with the columns ``kind``,
            ``name``, ``start`` and ``end`` (of windows), ``importance``.
        """
        pandas = optional("pandas", "tables")
        edges = self.window_edges
        rows = [
            ("window", str(k + 1), edges[k], edges[k + 1], x) for k, x in enumerate(self.windows)
        ]
        for kind, importances in self._named().items():
            rows += [(kind, name, np.nan, np.nan, x) for name, x in importances.items()]
        return pandas.DataFrame(rows, columns=["kind", "name", "start", "end", "importance"])

    def _named(self) -> dict[str, dict[str, float]]:
        return {"channel": self.channels, "static": self.static, "word": self.words}

    def plot(self, path: Any = None) -> Any:
        """Plot the series shaded by the importance of its windows, over bars for the others.

        Parameters
        ----------
        path : path, optional
            Also save the figure there (PNG, SVG, PDF by its ending).

        Returns
        -------
        matplotlib.figure.Figure
        """
        from roughformer.plots import plot_explanation

        return plot_explanation(self, path=path)

    def _repr_html_(self) -> str:
        """Show the prediction and the largest importances of each kind."""
        rows = []
        if len(self.windows):
            most = int(np.abs(self.windows).argmax())
            start, end = self.window_edges[most : most + 2]
            rows.append(("window", f"{start:.4g} to {end:.4g}", float(self.windows[most])))
        for kind, importances in self._named().items():
            first = sorted(importances, key=lambda name: -abs(importances[name]))[:5]
            rows += [(kind, name, importances[name]) for name in first]
        cells = "".join(
            f"<tr><td>{kind}</td><td>{escape(name)}</td><td>{x:+.4g}</td></tr>"
            for kind, name, x in rows
        )
        head = "<tr><th></th><th></th><th>importance</th></tr>"
        return f"<p>{escape(self.prediction)}</p><table>{head}{cells}</table>"


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
    output of a regression with several. ``n_words``: number of words, None: all. A causal
    model's prediction at the last window is explained.
    """
    if n_words is not None:
        n_words = whole_number(n_words, "n_words", 0)
    chosen = _chosen_output(predictor, target)
    explainer = _Occluder if isinstance(predictor.model, SignatureEnsemble) else _Explainer
    explanations: list[Explanation] = []
    with _evaluating(predictor.model):
        for i in range(0, len(batch), _SERIES_AT_ONCE):
            part = batch[i : i + _SERIES_AT_ONCE]
            explanations += explainer(predictor, part, chosen, threads).explanations(n_words)
    return explanations


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
        self.masked = masked_inputs(predictor, inputs)
        self.names, self.static_names = self.masked.names, list(predictor.encoder.static)
        self.edges = predictor.window_edges(batch)
        everything = torch.arange(len(batch), device=predictor.device)
        with torch.no_grad():
            self.output, all_hidden = (  # (B, m[, k])
                torch.cat([self._outputs(take(which)) for which in self._chunks(everything)])
                for take in (self.masked.take, self.masked.hide_all)
            )
        self.at = self.output.argmax(dim=1) if chosen is None else torch.full((len(batch),), chosen)
        self.value = self._explained(self.output, self.at)
        self.baseline = self._explained(all_hidden, self.at)

    def explanations(self, n_words: int | None) -> list[Explanation]:
        """One for each series."""
        windows, channels, static = self._occlusion()
        encoder, targets = self.predictor.encoder, self.predictor.targets
        # Most of the work goes into the words.
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
                prediction=_described(self.predictor, self.output[b], int(self.at[b])),
                target=explained[b],
                value=float(self.value[b]),
                baseline=float(self.baseline[b]),
                series=self.batch[b : b + 1],
            )
            for b in range(len(self.batch))
        ]

    def _occlusion(self) -> tuple[Floats, Floats, Floats]:
        """Changes of f by hiding ``(B, L)`` windows, ``(B, C)`` channels, ``(B, S)`` covariates."""
        n = len(self.batch)
        n_static = len(self.predictor.encoder.static)
        sizes = (len(self.masked.covers), len(self.masked.holds), n_static)
        # A row for each copy: its series, then the window, the channel or the covariate to hide.
        jobs = torch.full((n, sum(sizes), 4), _NOTHING, dtype=torch.long)
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
                after = self._explained(self._outputs(self.masked.hide(which)), self.at[of])
                changes.append(self.value[of] - after)
        change = torch.cat(changes).view(n, sum(sizes)).numpy() if changes else np.zeros((n, 0))
        windows, channels, static = np.split(change, np.cumsum(sizes)[:-1], axis=1)
        return windows, channels, static

    def _words(self) -> Floats:
        """Integrated gradients ``(B, F)``, adding up to value - baseline; in more pieces for the
        series whose words miss it.
        """
        words = torch.zeros(len(self.batch), len(self.masked.names), dtype=torch.float64)
        total = self.value - self.baseline
        left, pieces = torch.arange(len(self.batch)), 1
        while len(left):
            words[left] = self._integrals(left, pieces)
            miss = total[left] - words[left].sum(dim=1)
            left = left[miss.abs() > _MISS * words[left].abs().sum(dim=1)]
            pieces *= 2
            if pieces > _MOST_PIECES:
                break
        size = words.abs().sum(dim=1).clamp(min=1e-300)
        rest = (total - words.sum(dim=1)) / size
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
        total = torch.zeros(n, len(self.masked.names), dtype=torch.float64)
        for which in self._chunks(torch.stack([place, step], dim=1)):
            row, at = which.unbind(dim=1)
            of = series.to(device)[row]
            number = self.at[of.cpu()]

            def f(inputs: Inputs, number: Tensor = number) -> Tensor:
                return self._explained(self._outputs(inputs), number)

            words = self.masked.slopes(f, of, share[at])
            total.index_add_(0, row.cpu(), weight[at.cpu()][:, None] * words.cpu().double())
        return total

    def _chunks(self, rows: Tensor) -> Iterator[Tensor]:
        """Rows for one call of the model each."""
        _, rows_each, *features = self.masked.inputs[self.masked.main].shape
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
        at = at[:, None]
        if isinstance(self.predictor.targets, NumberTargets):
            return self.predictor.answers(output)["point"].gather(1, at)[:, 0]
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
        self.output = predictor.forward(batch, threads=threads)[0]
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
            return self.predictor.forward(batch.with_values(values), threads=self.threads)[0]

    def _changes(self, outputs: list[Tensor]) -> Floats:
        """``(B, k)``: by how much each of k outputs changes f."""
        changes = [(self.value - self._explained(output, self.at)).numpy() for output in outputs]
        return np.stack(changes, axis=1) if changes else np.zeros((len(self.batch), 0))

    def _occlusion(self) -> tuple[Floats, Floats, Floats]:
        batch, encoder = self.batch, self.predictor.encoder
        window = np.concatenate(
            [
                np.searchsorted(edges[1:-1], batch.series(b)[0], side="right")
                for b, edges in enumerate(self.edges)
            ]
        )
        n_windows = max(len(edges) - 1 for edges in self.edges)
        n, c = batch.values.shape
        windows = [
            self._without((window == k)[:, None] & np.ones(c, bool)) for k in range(n_windows)
        ]
        channels = [self._without((np.arange(c) == k) & np.ones((n, 1), bool)) for k in range(c)]
        static = []
        inputs = encoder.encode(batch, threads=self.threads)
        for k in range(-len(self.static_names), 0):
            unknown = inputs["summary"].clone()
            unknown[:, len(encoder.usual) + k] = encoder.usual[k]
            with torch.no_grad():
                static.append(self.predictor.model(**inputs | {"summary": unknown}))
        return self._changes(windows), self._changes(channels), self._changes(static)

    def _words(self) -> Floats:
        model = self.predictor.model
        assert isinstance(model, SignatureEnsemble)
        inputs = self.predictor.encoder.encode(self.batch, threads=self.threads)
        with torch.no_grad():
            seen = model.path(inputs["cells"], model.config.parts)
            outputs = [
                model.blended(model.hidden(seen, group), inputs["summary"]).float()
                for group in self.groups.values()
            ]
        return self._changes(outputs)


def _largest(names: list[str], importance: Floats, count: int | None) -> dict[str, float]:
    """The ``count`` words of largest size, in that order; words of one name are one."""
    total: dict[str, float] = {}
    for name, value in zip(names, importance.tolist(), strict=True):
        total[name] = total.get(name, 0.0) + value
    order = sorted(total, key=lambda name: -abs(total[name]))
    return {name: total[name] for name in order[:count]}


def _described(predictor: Predictor, output: Tensor, number: int) -> str:
    """The class and its probability, or the target of that number and its uncertainty."""
    if isinstance(predictor.targets, ClassTargets):
        shares = predictor.answers(output)["probabilities"]
        best = int(shares.argmax())
        return f"{predictor.targets.labels[best]} (probability {float(shares[best]):.2f})"
    answers = predictor.answers(output.unsqueeze(0))
    predicted = {name: x[0, number].numpy() for name, x in answers.items()}
    text = f"{predicted['point']:.4g}"
    if "deviation" in predicted:
        text += f" ± {predicted['deviation']:.2g}"
    if "quantiles" in predicted:
        text += f" ({predicted['quantiles'][0]:.4g} to {predicted['quantiles'][-1]:.4g})"
    return text if predictor.outputs.n_outputs == 1 else f"target {number}: {text}"
