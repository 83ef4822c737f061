"""RFormer: series -> multi-view signature tokens -> attention blocks -> pooling -> head."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from roughformer.errors import InputError
from roughformer.model.transformer import RFormerConfig, TokenTransformer
from roughformer.series import SeriesBatch
from roughformer.signatures import inside_of, observed, padded_series
from roughformer.tokens import (
    PaddedTokens,
    State,
    StaticColumn,
    StaticEncoder,
    TokenConfig,
    Tokenizer,
    TokenStep,
    encoded_static,
    per_stream,
)

_FOR_SCALING = 4096  # series that statistics are taken from


class Step(NamedTuple):
    """What ``RFormer.step`` returns.

    Attributes
    ----------
    output : Tensor (B, n_outputs[, k])
        Outputs of the model.
    time : Tensor (B,)
        The time that they are for.
    ended : Tensor (B,)
        Whether a window ended there.
    taken : Tensor (B,)
        How many of the points were taken in; the others are to be given again.
    """

    output: Tensor
    time: Tensor
    ended: Tensor
    taken: Tensor


class RFormer(TokenTransformer):
    """The Rough Transformer as a module on padded, irregular, incomplete series.

    ``model(values, times, lengths)`` fills gaps, lifts, cuts windows, takes multi-view signatures,
    scales them and attends to them. The cost of attention is that of the windows, whatever the
    number of samples. On a CPU the native kernel takes the signatures; elsewhere torch does, on
    the device of the series.

    Parameters
    ----------
    config : RFormerConfig, optional
        Shape of the network on tokens. Leave it out and give the following instead.
    n_channels : int or sequence of str
        Channels of the series, or their names.
    n_outputs : int
        Classes, or targets of a regression.
    tokens : TokenConfig, optional
        Windows, depth, views and lifts; by default 75 windows, depth 2, both views, time.
    **options
        Of ``RFormerConfig``: ``task``, ``d_model``, ``n_heads``, ``n_layers``, ``dropout``,
        ``causal``, ``uncertainty``, ...

    Examples
    --------
    >>> model = RFormer(n_channels=2, n_outputs=3, tokens=TokenConfig(windows=8), d_model=16)
    >>> values, times = torch.randn(5, 40, 2), torch.rand(5, 40).cumsum(dim=1)
    >>> model.fit_scaling((values, times, None))
    >>> model(values, times).shape
    torch.Size([5, 3])
    """

    tokenizer: Tokenizer | None = None
    scaled = False  # whether ``fit_scaling`` has been called, or a fitted tokenizer was given
    _padded: PaddedTokens | None = None  # the tokenizer, once it is fitted

    def __init__(
        self,
        config: RFormerConfig | None = None,
        *,
        n_channels: int | Sequence[str] | None = None,
        n_outputs: int | None = None,
        tokens: TokenConfig | None = None,
        **options: Any,
    ) -> None:
        """Weights are drawn from torch's current random state."""
        if config is not None:
            super().__init__(config)
            return
        if n_channels is None or n_outputs is None:
            raise InputError(
                "an RFormer needs n_channels= and n_outputs=, or an RFormerConfig for tokens alone"
            )
        tokenizer = _unfitted(tokens or TokenConfig(), n_channels, bool(options.get("causal")))
        super().__init__(
            RFormerConfig(
                n_features=tokenizer.n_features,
                n_static=len(tokenizer.static),
                n_spectrum=tokenizer.n_spectrum,
                n_wide_features=tokenizer.n_summary,
                context=tokenizer.config.context,
                n_outputs=n_outputs,
                **options,
            )
        )
        self.tokenizer = tokenizer

    # Whole series

    def forward(
        self,
        values: Tensor | None = None,
        times: Tensor | None = None,
        lengths: Tensor | None = None,
        static: Tensor | None = None,
        **inputs: Any,
    ) -> Tensor:
        """Compute outputs for a batch of padded series.

        Parameters
        ----------
        values : Tensor of shape (B, L, C)
            NaN = not observed.
        times : Tensor of shape (B, L) or (L,), optional
            Increasing within each series; 0, 1, 2, ... if None.
        lengths : Tensor of shape (B,), optional
            Points of each series; what is behind them is ignored. All by default.
        static : Tensor of shape (B, S), optional
            Static covariates, NaN = not known.
        **inputs
            ``tokens=`` and what else ``from_tokens`` takes, instead of series.

        Returns
        -------
        Tensor of shape (B, n_outputs[, k])
            Or ``(B, W, n_outputs[, k])``, one for each window, of a causal model.
        """
        if values is None:
            return self.from_tokens(**inputs | {"times": times, "static": static})
        made: dict[str, Any] = self.tokens_of(values, times, lengths, static)
        return self.from_tokens(**made | inputs)

    def tokens_of(
        self,
        values: Tensor,
        times: Tensor | None = None,
        lengths: Tensor | None = None,
        static: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Compute the inputs of ``from_tokens`` for padded series.

        Parameters
        ----------
        values : Tensor of shape (B, L, C)
            NaN = not observed.
        times : Tensor of shape (B, L) or (L,), optional
            Increasing within each series; 0, 1, 2, ... if None.
        lengths : Tensor of shape (B,), optional
            Points of each series. All by default.
        static : Tensor of shape (B, S), optional
            Static covariates, NaN = not known.

        Returns
        -------
        dict of Tensor
        """
        padded = self._padded
        if padded is None:
            padded = self._fitted().for_padded()
        values, times, lengths = padded_series(values, times, lengths)
        _check_shapes(values, static, padded.n_channels, len(padded.static))
        inputs, _ = padded(observed(values, times, lengths), static)
        return inputs

    def _fitted(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                "this RFormer was made for tokens alone; call model.from_tokens(...), or build it "
                "with n_channels= and n_outputs="
            )
        if not self.scaled:
            raise InputError(
                "this RFormer has not seen the scale of its series yet: call "
                "model.fit_scaling(loader) with the training series first, or load a state_dict"
            )
        return self.tokenizer

    @torch.no_grad()
    def fit_scaling(self, data: Any) -> None:
        """Take scales from the training series; needed once, before training.

        What is taken: the usual span of a series (the unit of time), the range of observed values
        and covariates, and mean and deviation of every feature of the tokens. It is kept in
        ``state_dict``.

        Parameters
        ----------
        data
            A ``SeriesBatch``; what ``forward`` takes, as a tensor of values, a tuple ``(values,
            times, lengths)`` (with ``static``, if the model has covariates) or a dict by name; or
            an iterable of such, for instance a ``DataLoader`` (what comes behind those in its
            tuples, or under other names, is ignored). The first 4,096 series are looked at. Or the
            inputs of ``from_tokens`` as a dict.
        """
        if isinstance(data, dict) and "tokens" in data:
            if self.tokenizer is not None:
                data = {"least_scale": self.tokenizer.least_scale(data)} | data
            super().fit_scaling(data)
            return
        if self.tokenizer is None:
            raise InputError("this RFormer was made for tokens alone: fit_scaling takes tokens")
        batch = self._series(data)
        config = self.tokenizer.config
        fitted = Tokenizer.fit(config, batch)
        # Covariates are numbers: categories would change the shape of the weights.
        static = StaticEncoder(columns=tuple(_number(c) for c in fitted.static_encoder.columns))
        self.attach(fitted.model_copy(update={"static_encoder": static}))
        self.fit_scaling(self.tokenizer.encode(batch))

    def _series(self, data: Any) -> SeriesBatch:
        """Some of the training series."""
        assert self.tokenizer is not None
        if isinstance(data, SeriesBatch):
            return data[:_FOR_SCALING]
        parts: list[SeriesBatch] = []
        count = 0
        data = (data,) if isinstance(data, Tensor) else data
        given = isinstance(data, tuple | dict)
        for item in [data] if given else _iterated(data):
            if not given and isinstance(item, tuple | list) and len(item) <= 3:
                _check_tuple(*item)
            parts.append(_batch_of(item, self.tokenizer))
            count += len(parts[-1])
            if count >= _FOR_SCALING:
                break
        if count == 0:
            raise InputError("fit_scaling needs the training series, got none")
        return SeriesBatch.concatenate(parts)[:_FOR_SCALING]

    def get_extra_state(self) -> Tensor:
        """What ``fit_scaling`` took beside the buffers, as bytes of JSON."""
        known = self.tokenizer is not None and self.scaled
        text = self.tokenizer.model_dump_json() if known and self.tokenizer else ""
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what ``get_extra_state`` returned.

        Parameters
        ----------
        state : Tensor
            Bytes of JSON.
        """
        text = bytes(state.cpu().tolist())
        self.scaled, self._padded = False, None
        if text:
            self.attach(Tokenizer.model_validate(json.loads(text)))

    def attach(self, tokenizer: Tokenizer) -> Self:
        """Take a fitted tokenizer, whose tokens these weights are for.

        Parameters
        ----------
        tokenizer : Tokenizer
            With as many features as the model takes.

        Returns
        -------
        self
        """
        if tokenizer.n_features != self.config.n_features:
            raise InputError(
                f"the tokens have {tokenizer.n_features} features, this model takes "
                f"{self.config.n_features}"
            )
        self.tokenizer, self.scaled = tokenizer, True
        self._padded = tokenizer.for_padded()
        return self

    # Streams

    def new_state(self, n: int, max_windows: int = 1024) -> State:
        """Make the state of new streams, on the device of the model.

        Parameters
        ----------
        n : int
            Number of streams.
        max_windows : int, default 1024
            Windows that a stream may have, if the model attends to all of them because it has no
            ``context``; beyond it outputs are NaN.

        Returns
        -------
        dict of Tensor
        """
        device = self.embed.weight.device
        size = self.config.context or max_windows
        tokens = TokenStep(self._causal().for_padded()).shapes
        state = {
            name: torch.zeros(n, *shape, dtype=torch.float64, device=device)
            for name, shape in tokens.items()
        }
        for i in range(self.config.n_layers):
            state[f"block{i}"] = torch.zeros(n, *self.ring_shape(size), device=device)
        return state

    def step(
        self,
        state: State,
        values: Tensor,
        times: Tensor,
        lengths: Tensor | None = None,
        static: Tensor | None = None,
    ) -> tuple[State, Step]:
        """Take in new points of streams up to the end of each one's open window.

        Windows, tokens and outputs are those of the whole series so far. Only causal models with
        windows by duration or by points can do so.

        Parameters
        ----------
        state : dict
            From ``new_state``, or from the step before; it is not changed.
        values : Tensor of shape (B, P, C)
            New points.
        times : Tensor of shape (B, P)
            Their times.
        lengths : Tensor of shape (B,), optional
            How many of them are real, 0 = none. All by default.
        static : Tensor of shape (B, S), optional
            Static covariates.

        Returns
        -------
        state : dict
        step : Step
        """
        tokenizer = self._causal()
        if lengths is None:
            lengths = torch.full_like(times[:, 0], times.shape[1], dtype=torch.int64)
        if values.dim() != 3 or values.shape[1] == 0:
            raise InputError(
                "a step takes points of shape (batch, at least 1, channels), with lengths of 0 "
                f"where there are none; got {tuple(values.shape)}"
            )
        _check_shapes(values, static, len(tokenizer.channels), len(tokenizer.config.static))
        new, piece, tokens = TokenStep(tokenizer.for_padded())(state, values, times, lengths)
        if static is not None:
            static = encoded_static(tokenizer.static_encoder.columns, static.double())
        ends = (piece.now / tokenizer.time_unit).float().unsqueeze(1)
        past = [state[f"block{i}"] for i in range(self.config.n_layers)]
        kept, output = self.step_tokens(
            past, tokens.unsqueeze(1), ends, static, piece.window, piece.ended
        )
        output = output[:, 0]
        new |= {f"block{i}": ring for i, ring in enumerate(kept)}
        if self.config.context is None and past:
            # The rings are full: what came first is no longer known.
            output = per_stream(piece.window >= past[0].shape[3], torch.nan, output)
        time = torch.where(new["points"] == 0, torch.nan, new["start"] + piece.now)
        return new, Step(output, time, piece.ended, piece.taken)

    def _causal(self) -> Tokenizer:
        tokenizer = self._fitted()
        reason = why_no_step(tokenizer, self.config.causal)
        if reason is not None:
            raise InputError(f"this model cannot be run step by step: {reason}")
        return tokenizer


def why_no_step(tokenizer: Tokenizer, causal: bool) -> str | None:
    """Why a model cannot be run window by window, and what to do; None if it can."""
    config = tokenizer.config
    if not causal:
        return "this model looks at a series as a whole; train one with causal=True"
    if config.rule.rule not in ("duration", "points"):
        return (
            "windows of a stream are by duration or by points, others end where the end of the "
            "series says; train with windows=rf.Windows.by_duration(...)"
        )
    if config.lags:
        return "lags need the past itself, which a stream does not keep; train without"
    if not config.hold or config.time == "span" or config.spectrum is not None:
        return "its tokens are made of the whole series; train with causal=True"
    return None


def _unfitted(config: TokenConfig, channels: int | Sequence[str], causal: bool) -> Tokenizer:
    """A tokenizer of the right shape, whose units are still to be taken from series."""
    names = [f"x{i}" for i in range(channels)] if isinstance(channels, int) else list(channels)
    if config.spectrum is not None and (
        config.spectrum.low is None or config.spectrum.high is None
    ):
        raise InputError(
            "the range of the spectrum decides the shape of the weights: give "
            "SpectrumConfig(low=..., high=...)"
        )
    if causal and not config.hold:
        config = config.model_copy(update={"hold": True})
    columns = tuple(StaticColumn(name=name) for name in config.static)
    none = np.zeros(len(names))
    still = SeriesBatch(np.zeros(1), none[None, :], [0, 1], channels=names)
    plain = Tokenizer.fit(config.model_copy(update={"static": ()}), still)
    encoder = StaticEncoder(columns=columns)
    return plain.model_copy(update={"config": config, "static_encoder": encoder})


def _number(column: StaticColumn) -> StaticColumn:
    """The same covariate as one number."""
    if not column.levels:
        return replace(column, unknown=False)
    return StaticColumn(name=column.name, low=min(column.levels), high=max(column.levels))


def _check_shapes(values: Tensor, static: Tensor | None, n_channels: int, n_static: int) -> None:
    if values.shape[2] != n_channels:
        raise InputError(f"the model takes {n_channels} channels, got {tuple(values.shape)}")
    given = 0 if static is None else static.shape[-1]
    if given != n_static or (static is not None and static.dim() != 2):
        shape = "none" if static is None else tuple(static.shape)
        raise InputError(
            f"the model takes {n_static or 'no'} static covariates (batch, {n_static}), got {shape}"
        )


def _check_tuple(values: Tensor, times: Tensor | None = None, lengths: Any = None) -> None:
    """Short tuples of a loader may have labels where times or lengths belong."""
    hint = "; dicts with the keys 'values', 'times', 'lengths' say what is what"
    if times is not None and times.dim() == 1 and not times.is_floating_point():
        raise InputError(f"the second part of what the loader gives must be times{hint}")
    if times is None or lengths is None or times.dim() != 2 or times.shape[1] < 2:
        return
    size = times.shape[1]
    ends = (lengths > 0) & (lengths < size)
    at = lengths.clamp(1, size - 1).unsqueeze(1).to(torch.int64)
    goes_on = (times.gather(1, at) > times.gather(1, at - 1))[:, 0]
    inside = bool(((lengths > 0) & (lengths <= size)).all())
    # Times on a shared grid go on behind lengths, too; but then one series is the longest.
    if not inside or bool((goes_on & ends).any() and lengths.max() < size):
        raise InputError(
            "the third part of what the loader gives must be lengths, but times go on behind all "
            f"of them{hint}"
        )


def _iterated(data: Any) -> Iterable[Any]:
    if not isinstance(data, Iterable):
        raise InputError(
            "fit_scaling takes a SeriesBatch, a tuple or dict of tensors, or an iterable of such "
            f"(a DataLoader), got {type(data).__name__}"
        )
    return data


def _batch_of(item: Any, tokenizer: Tokenizer) -> SeriesBatch:
    """One item of a loader as series."""
    names = ("values", "times", "lengths", "static")
    if not isinstance(item, dict):
        parts = item if isinstance(item, tuple | list) else (item,)
        item = dict(zip(names, parts, strict=False))
    if "values" not in item:
        raise InputError(f"an item of the loader has no 'values', only {list(item)}")
    values, times, lengths = padded_series(item["values"], item.get("times"), item.get("lengths"))
    static = item.get("static") if tokenizer.config.static else None
    _check_shapes(values, static, len(tokenizer.channels), len(tokenizer.config.static))
    inside = inside_of(lengths, values.shape[1])
    extras: dict[str, Any] = {"channels": list(tokenizer.channels)}
    if tokenizer.config.static:
        extras |= {
            "static": item["static"].detach().double().cpu().numpy(),
            "static_names": list(tokenizer.config.static),
        }
    return SeriesBatch(
        times[inside].detach().double().cpu().numpy(),
        values[inside].detach().cpu().to(torch.promote_types(values.dtype, torch.float32)).numpy(),
        np.concatenate([[0], np.cumsum(lengths.cpu().numpy())]),
        **extras,
    )
