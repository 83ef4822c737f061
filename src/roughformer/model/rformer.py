"""RFormer: series -> multi-view signature tokens -> attention blocks -> pooling -> head."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.model.blocks import Block, TimeEncoding, attention_mask
from roughformer.model.config import RFormerConfig
from roughformer.model.heads import Head, Pooling, Wide, prior_logits
from roughformer.model.scaling import Standardize, scale_of
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


class TokenTransformer(nn.Module):
    """Attention on tokens ``(B, L, n_features)``: scaling, embedding, blocks, pooling, head.

    ``causal=False`` has one output per series, ``causal=True`` one per token that depends on that
    token and the ones before it.
    """

    def __init__(self, config: RFormerConfig) -> None:
        """Weights are drawn from torch's current random state."""
        super().__init__()
        self.config = config
        width = config.d_model
        self.standardize = scale_of(config.scaling, config.n_features, config.clip)
        self.embed = nn.Linear(config.n_features, width)
        self.time = None if config.context else TimeEncoding(width, config.n_time_waves)
        hidden = config.d_feedforward or 2 * width
        drop = config.dropout
        of_weights = drop if config.attention_dropout is None else config.attention_dropout
        self.blocks = nn.ModuleList(
            Block(width, config.n_heads, hidden, drop, of_weights, config.context)
            for _ in range(config.n_layers)
        )
        self.pool = None if config.causal else Pooling(width, config.pooling)
        self.standardize_static = Standardize(config.n_static, config.clip)
        self.embed_static = nn.Linear(config.n_static, width) if config.n_static else None
        self.standardize_spectrum = Standardize(config.n_spectrum, config.clip)
        self.embed_spectrum = (
            nn.Sequential(
                nn.Linear(config.n_spectrum, 2 * width),
                nn.GELU(),
                nn.Dropout(config.dropout),
                nn.Linear(2 * width, width),
            )
            if config.n_spectrum
            else None
        )
        self.input_drop = nn.Dropout(config.input_dropout)
        seen = config.n_wide_features or config.n_features
        self.wide = (
            Wide(
                seen + config.n_static,
                config.wide,
                config.n_wide,
                config.wide_dropout,
                config.input_dropout,
                config,
            )
            if config.wide
            else None
        )
        # Of last tokens only: what stands at the end of a series is spread otherwise.
        self.standardize_last = scale_of(config.scaling, seen, config.clip) if config.wide else None
        self.head = Head(width, config)

    def from_tokens(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
        spectrum: Tensor | None = None,
        separate: bool = False,
    ) -> Tensor:
        """Compute outputs from tokens.

        Parameters
        ----------
        tokens : Tensor (B, L, n_features)
            Features of each window.
        times : Tensor (B, L)
            Ends of the windows, in units of about the span.
        mask : Tensor (B, L), optional
            True where a window is real; by default all are.
        static : Tensor (B, n_static), optional
            Static covariates; NaN = not known.
        spectrum : Tensor (B, C, J), optional
            Of whole paths.
        separate : bool, default False
            Return the outputs of attention and of each network beside it, along a new first axis,
            instead of their weighted sum; without such networks it changes nothing.

        Returns
        -------
        Tensor (B, n_outputs[, k])
            Or ``(B, L, n_outputs[, k])`` if causal; see ``Head``.
        """
        x, known = self._read(tokens, times, mask, static, spectrum)
        return self._answer(x, self._last(tokens, mask), known, separate)

    def represent(self, **inputs: Any) -> Tensor:
        """Compute what the head sees.

        Parameters
        ----------
        **inputs : Tensor
            As for ``from_tokens``.

        Returns
        -------
        Tensor (B, d_model)
            Or ``(B, L, d_model)`` if causal.
        """
        return self._read(**inputs)[0]

    def _read(
        self,
        tokens: Tensor,
        times: Tensor,
        mask: Tensor | None = None,
        static: Tensor | None = None,
        spectrum: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """What the head sees, and the standardised covariates."""
        x, known = self._embedded(tokens, times, static)
        config = self.config
        allowed = attention_mask(mask, x.shape[1], config.causal, x.device, config.context)
        for block in self.blocks:
            x = block(x, allowed)
        if self.pool is not None:
            x = self.pool(x, mask)
        if self.embed_spectrum is not None:
            if spectrum is None:
                raise ValueError("this model takes the spectrum of the paths")
            powers = self.input_drop(self.standardize_spectrum(spectrum.flatten(-2)))
            x = x + self.embed_spectrum(powers)
        return x, known

    def forward(self, **inputs: Any) -> Tensor:
        """``from_tokens``."""
        return self.from_tokens(**inputs)

    def step_tokens(
        self,
        past: list[Tensor],
        tokens: Tensor,
        times: Tensor,
        static: Tensor | None,
        window: Tensor,
        ended: Tensor | None,
    ) -> tuple[list[Tensor], Tensor]:
        """Compute outputs for the newest tokens of each stream; see ``Attention.step``.

        Parameters
        ----------
        past : list of Tensor
            What each block remembers.
        tokens : Tensor (B, K, n_features)
            The newest tokens; several only if all of their windows have ended.
        times : Tensor (B, K)
            Ends of their windows.
        static : Tensor (B, n_static) or None
            Static covariates.
        window : Tensor (B,)
            Numbers of the first of these windows.
        ended : Tensor (B,) or None
            Whether they have ended: only those are remembered. None: all have, and
            ``past`` is overwritten.

        Returns
        -------
        past : list of Tensor
            What each block remembers now.
        output : Tensor (B, K, n_outputs[, k])
        """
        x, known = self._embedded(tokens, times, static)
        kept = []
        for block, ring in zip(self.blocks, past, strict=True):
            x, new = block.step(x, ring, window, ended)  # type: ignore[operator]
            kept.append(new)
        return kept, self._answer(x, self._last(tokens, None), known)

    def ring_shape(self, size: int) -> tuple[int, ...]:
        """Tell the shape of what one block remembers of a stream: keys and values.

        Parameters
        ----------
        size : int
            Number of windows.

        Returns
        -------
        tuple of int
        """
        config = self.config
        return (2, config.n_heads, size, config.d_model // config.n_heads)

    def _embedded(
        self, tokens: Tensor, times: Tensor, static: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """``(B, L, d_model)``: scaled and embedded tokens; and the standardised covariates."""
        kind = self.embed.weight.dtype
        x = self.embed(self.input_drop(self.standardize(tokens).to(kind)))
        if self.time is not None:
            x = x + self.time(times.to(kind))
        if self.embed_static is None:
            return x, None
        if static is None:
            raise ValueError(f"this model takes {self.config.n_static} static covariates")
        # Not known = the mean of the training part, which standardises to 0.
        known = self.standardize_static(static).to(kind)
        return x + self.embed_static(known).unsqueeze(1), known

    def _answer(
        self, x: Tensor, seen: Tensor, known: Tensor | None, separate: bool = False
    ) -> Tensor:
        """Outputs ``(B, [L,] n_outputs[, k])`` from ``x (B, [L,] d_model)``, which the blocks give,
        and the tokens ``seen`` and covariates ``known`` that the networks beside them see.
        """
        output: Tensor = self.head(x)
        if self.wide is None:
            return output
        assert self.standardize_last is not None
        last = self.standardize_last(seen)
        if known is not None:
            if self.config.causal:
                known = known.unsqueeze(1).expand(-1, last.shape[1], -1)
            last = torch.cat([last, known], dim=-1)
        direct: Tensor = self.wide(last)  # (n_wide, ...)
        if separate:
            return torch.cat([output.unsqueeze(0), direct])
        share = self.config.wide_share
        return share * direct.mean(dim=0) + (1 - share) * output

    @property
    def answers_apart(self) -> bool:
        """Whether ``forward(..., separate=True)`` gives several answers, to be trained each by
        itself: trained as a sum, they would learn to correct each other on the training part.
        """
        return self.wide is not None

    def _last(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """What ``wide`` sees of the last real token, or of each token if causal."""
        seen = tokens[..., : self.config.n_wide_features]
        if self.config.causal:
            return seen
        if mask is None:
            return seen[:, -1]
        at = (mask.sum(dim=1) - 1).clamp(min=0)
        return seen[torch.arange(seen.shape[0], device=seen.device), at]

    @torch.no_grad()
    def fit_scaling(self, inputs: dict[str, Tensor]) -> None:
        """Take the statistics of the training part: those of ``from_tokens``'s inputs."""
        least = inputs.get("least_scale")
        self.standardize.fit(inputs["tokens"], inputs.get("mask"), least)
        if self.standardize_last is not None:
            mask = inputs.get("mask") if self.config.causal else None
            last = self._last(inputs["tokens"], inputs.get("mask"))
            self.standardize_last.fit(
                last, mask, None if least is None else least[: last.shape[-1]]
            )
        if self.embed_spectrum is not None:
            powers = inputs["spectrum"].flatten(-2)
            # Logarithms of shares of power, in float32: what varies by less is mostly rounding.
            self.standardize_spectrum.fit(powers, least=powers.new_full(powers.shape[-1:], 1e-3))
        if self.embed_static is not None:
            self.standardize_static.fit(inputs["static"])

    @torch.no_grad()
    def fit_prior(self, frequency: Tensor) -> None:
        """Let answers begin at the frequencies of the classes in the training part.

        Parameters
        ----------
        frequency : Tensor (K,)
            Shares of the classes.
        """
        self.head.fit_prior(frequency)
        if self.wide is not None:
            self.wide.out.bias.copy_(prior_logits(frequency))


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
        tokens = TokenStep(self._causal()).shapes
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
        new, piece, tokens = TokenStep(tokenizer)(state, values, times, lengths)
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
