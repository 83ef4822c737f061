"""Layers for PyTorch models: ``rf.nn.MultiViewSignature``."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.signatures import (
    Basis,
    Layout,
    Lifts,
    Transform,
    View,
    Windows,
    layout_of,
    observed,
    padded_series,
    padded_tokens,
    place,
)

__all__ = ["MultiViewSignature", "SignatureTokens"]

_USUAL_CHANNELS = 256  # series with more are met once before they can be compiled


class SignatureTokens(NamedTuple):
    """What ``MultiViewSignature`` returns.

    Attributes
    ----------
    tokens : Tensor of shape (B, W, F)
        Features of each window, in the dtype of the values; 0 where a series has no window.
    times : Tensor of shape (B, W)
        When each window ends, in the unit of the times given.
    mask : Tensor of shape (B, W)
        True where a series has a window.
    """

    tokens: Tensor
    times: Tensor
    mask: Tensor


class MultiViewSignature(nn.Module):
    """Multi-view signatures of irregular series as a layer: the tokens of a Rough Transformer.

    For window ends t_1 < ... < t_W of each series the truncated signatures

        S(X)_{t_0, t_k} (global)   and   S(X)_{t_{k-1}, t_k} (local)

    of the piecewise-linear path X through its observations. It has no weights, is differentiable
    in values and times, and computes on the device and in the dtype of its inputs (sums in float64
    where torch takes them, so not on devices without it, such as Apple's). On a CPU the native
    kernel computes it, unless gradients in the times or second derivatives are wanted.

    Parameters
    ----------
    windows : int, Windows or sequence of float, default=75
        A number of windows over each series' own span, a rule, or cut times shared by all series.
    depth : int, default=2
        Truncation level.
    views : tuple of {"global", "local"}
        Which views, in the order of the features.
    lifts : sequence or mapping, default=()
        ``rf.Time()``, ``rf.Lag(delay)``, ``rf.Counts()``, ``rf.Basepoint()``, ``rf.Clock(count)``,
        for all views or by view.
    transform : {"signature", "logsignature"}
        Signatures, or their logarithms in Lyndon coordinates.
    basis : {"brackets", "words"}
        Which coordinates, of log-signatures.
    hold : bool, default=False
        Fill gaps with the last value and hold it up to each window's end, so that a window tells
        nothing of what comes after it, instead of linear interpolation.

    Examples
    --------
    >>> layer = MultiViewSignature(windows=4, depth=2)
    >>> tokens, times, mask = layer(torch.randn(8, 100, 3))
    >>> tokens.shape, layer.n_features(3)
    (torch.Size([8, 4, 24]), 24)
    """

    def __init__(
        self,
        windows: Any = 75,
        depth: int = 2,
        views: tuple[View, ...] | View = ("global", "local"),
        lifts: Lifts = (),
        *,
        transform: Transform = "signature",
        basis: Basis = "brackets",
        hold: bool = False,
    ) -> None:
        """Check the options."""
        super().__init__()
        self.windows = Windows.of(windows)
        if self.windows.rule == "explicit" and (
            not self.windows.shared or self.windows.cuts[0].dtype.kind == "M"
        ):
            raise InputError(
                "a layer needs one rule for all series to come: windows by count, duration or "
                "points, or one row of cut times as numbers"
            )
        self.options = (depth, views, lifts, transform, basis)
        self.hold = hold
        self._layouts = {n: layout_of(n, *self.options) for n in range(1, _USUAL_CHANNELS + 1)}
        if hold and any(x.counts for x in self._layouts[1].lifts.values()):
            raise InputError("held paths have no gaps to count between; leave Counts() out")

    def n_features(self, n_channels: int) -> int:
        """Count the features of a token.

        Parameters
        ----------
        n_channels : int
            Channels of the series.

        Returns
        -------
        int
            The last axis of the tokens.
        """
        return layout_of(n_channels, *self.options).size

    def feature_names(self, channels: int | Sequence[str]) -> list[str]:
        """Name the features of a token by their words, e.g. ``local:time*x0``.

        Parameters
        ----------
        channels : int or sequence of str
            Number or names of the channels.

        Returns
        -------
        list of str
        """
        return layout_of(channels, *self.options).names()

    def forward(
        self, values: Tensor, times: Tensor | None = None, lengths: Tensor | None = None
    ) -> SignatureTokens:
        """Tokens of a batch of padded series.

        Parameters
        ----------
        values : Tensor of shape (B, L, C)
            NaN = not observed: gaps are filled linearly between a channel's own observations.
        times : Tensor of shape (B, L) or (L,), optional
            Increasing within each series; 0, 1, 2, ... if None.
        lengths : Tensor of shape (B,), optional
            Points of each series; what is behind them is ignored. All by default.

        Returns
        -------
        SignatureTokens
        """
        values, times, lengths = padded_series(values, times, lengths)
        data = observed(values, times, lengths)
        placed = place(self.windows, data)
        layout = self._layout(int(values.shape[2]))
        tokens = padded_tokens(values, times, lengths, placed, layout, hold=self.hold)
        ends = data.start.unsqueeze(1) + placed.edges[:, 1:]
        ends = ends.to(times.dtype) if times.is_floating_point() else ends
        mask = placed.mask
        if mask is None:
            mask = torch.ones_like(ends, dtype=torch.bool)
        return SignatureTokens(tokens, ends, mask)

    def _layout(self, n_channels: int) -> Layout:
        # What is here already is not worked out while torch.compile traces.
        if n_channels not in self._layouts:
            self._layouts[n_channels] = layout_of(n_channels, *self.options)
        return self._layouts[n_channels]

    def extra_repr(self) -> str:
        """The options, for ``print``."""
        depth, views, lifts, transform, _ = self.options
        rule = self.windows.rule
        count = "cut times" if rule == "explicit" else f"{self.windows.amount:g} by {rule}"
        return f"windows={count}, depth={depth}, views={views}, lifts={lifts}, {transform}"
