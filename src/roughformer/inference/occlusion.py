"""What can be hidden from a model, to see what its answer rests on.

The main input of a model, x ``(B, W, ...)``, has W rows for each series, and features: tokens of
windows, or spectra of windows. "Hidden" is a value that tells nothing. Of tokens, of the spectrum
of the whole path and of static covariates it is NaN, not known, which models scale to 0 as they do
the mean of the training part; of spectra of windows it is a flat one, 0.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.inference.predictor import Predictor
from roughformer.tokens.spectrum import frequencies
from roughformer.tokens.tempo import TempoEncoder

__all__ = ["NOTHING", "Hideable", "hideable"]

NOTHING = -1
Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Hideable:
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
        found = torch.zeros(n, len(self.names), device=share.device)
        for (z, _, first), slope in zip(pairs, slopes, strict=True):
            each = z * slope
            # (n, W, ...), rows added up; or (n, F) of one row: the last token, or the spectrum.
            each = each.sum(dim=1).reshape(n, -1) if each.dim() > 2 else each
            found[:, first : first + each.shape[1]] += each
        return found

    def hide(self, jobs: Tensor) -> Inputs:
        """Copies of the inputs: of the series ``jobs[:, 0]`` without the window ``jobs[:, 1]``, the
        channel ``jobs[:, 2]`` and the static covariate ``jobs[:, 3]``, each a number or NOTHING.
        """
        series, window, channel, covariate = jobs.unbind(dim=1)
        inputs = self.take(series)
        x = inputs[self.main]
        ones = [1] * (x.dim() - 2)
        # NOTHING (-1) picks the last row, which is then switched off.
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


def hideable(predictor: Predictor, inputs: Inputs) -> Hideable:
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
    return Hideable(
        inputs=inputs,
        main="tokens",
        hidden=torch.nan,
        scales=tuple((module, first[name]) for name, module in named if name in first),
        covers=torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device),
        holds=holds.to(tokens.device),
        names=names,
    )


def _spectra(encoder: TempoEncoder, inputs: Inputs) -> Hideable:
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
    return Hideable(
        inputs=inputs,
        main="spectra",
        hidden=0.0,
        scales=(),
        covers=torch.from_numpy(covers).to(spectra.device),
        holds=holds.to(spectra.device),
        names=[f"{name} at {rate:.4g} turns" for name in of for rate in turns],
    )
