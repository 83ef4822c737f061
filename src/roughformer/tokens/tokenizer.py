"""Tokenizer: series to the inputs of a model, with what it took from the training part.

It takes ragged batches; ``padded`` has the same tokens of padded tensors. torch is imported where
it is used: processes that make plain tokens for a store start without it.
"""

import math
from dataclasses import replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.signatures import (
    Basepoint,
    Clock,
    Counts,
    Cuts,
    Dropping,
    Lag,
    Layout,
    Lift,
    Time,
    View,
    Windows,
    all_words,
    check_dropping,
    compute_tokens,
    layout_of,
    locate,
    lyndon_words,
    pad,
    series_numbers,
)
from roughformer.tokens.fitted import (
    USUAL,
    WORDS,
    Ranges,
    StaticEncoder,
    ValueRange,
    check_series,
)
from roughformer.util.groups import FrozenDict, Group, describe

WindowRule = int | dict[Literal["duration", "points"], float] | tuple[float, ...]

# What tokens are made of, as plain data: it goes into config.json, TOML files and reports.


def plain_windows(windows: Any) -> Any:
    """A ``Windows`` (or what ``Windows.of`` takes) as plain data.

    A count is a number, ``{"duration": 60.0}`` and ``{"points": 100}`` say what they are, a tuple
    is shared cut times.
    """
    rule = Windows.of(windows)
    if rule.rule == "count":
        return int(rule.amount)
    if rule.rule in ("duration", "points"):
        return {rule.rule: rule.amount}
    if not rule.shared or rule.cuts[0].dtype.kind == "M":
        raise InputError(
            "a model needs one rule for all series, also those to come: windows by count, "
            "duration or points, or one row of cut times as numbers shared by all series"
        )
    return tuple(float(t) for t in rule.cuts[0])


def _frozen(windows: Any) -> Any:
    """Windows that nobody can change: groups are shared."""
    return FrozenDict(windows) if isinstance(windows, dict) else windows


def _as_lags(lags: Any) -> Any:
    """One number is one lag; arrays of numpy are tuples."""
    if isinstance(lags, Real) and lags is not True and lags is not False:
        return (float(lags),)
    return tuple(lags.tolist()) if isinstance(lags, np.ndarray) and lags.ndim == 1 else lags


class SpectrumConfig(Group):
    """The spectrum of a path: log power ``|∫ e^{iωu} dx(u)|²`` for each channel and frequency ω.

    These are signature words of the path lifted by harmonic clocks, exact for irregular samples.
    """

    axis: Literal["linear", "log"] = Field(
        "linear",
        description="How frequencies are spaced. On the log axis a change of tempo is a shift.",
    )
    count: int = Field(
        1024,
        ge=2,
        description="Number of frequencies. If it is not given, an estimator takes fewer on the "
        "log axis, and for many channels.",
    )
    low: float | None = Field(
        None, gt=0, description="Lowest, in turns per unit of time; None: from the training part."
    )
    high: float | None = Field(None, gt=0, description="Highest; None: from the training part.")
    floor: float = Field(
        1.0,
        gt=0,
        description="Power below this share of the channel's mean power hardly counts. 1: only "
        "peaks speak, which sampling and noise leave alone; small: valleys speak too.",
    )

    @model_validator(mode="after")
    def _increases(self) -> Self:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(
                f"the spectrum's low must be below its high, got {self.low:g}, {self.high:g}"
            )
        return self


class TokenConfig(Group):
    """Windows, depth, views and lifts of the tokens of a model.

    In an estimator, what is not given (or "auto") of ``windows``, ``depth``, ``basepoint``,
    ``clock``, ``context``, ``observations`` and ``spectrum`` is chosen from the training series;
    ``hold`` and ``static`` are set by its parameters ``causal`` and ``static``. For a ``Tokenizer``
    the defaults below hold.
    """

    set_by: ClassVar[dict[str, str]] = {"hold": "causal", "static": "static"}

    windows: Annotated[WindowRule, BeforeValidator(plain_windows), AfterValidator(_frozen)] = Field(
        75, description="A count, {'duration': d}, {'points': n}, or cut times."
    )
    depth: int = Field(
        2, ge=0, description="Truncation level of the signatures; 0 for none, with observations."
    )
    views: Annotated[
        tuple[View, ...],
        BeforeValidator(lambda views: (views,) if isinstance(views, str) else views),
    ] = Field(
        ("global", "local"),
        min_length=1,
        description="Signatures since the start of the series, of each window, or both.",
    )
    transform: Literal["signature", "logsignature"] = Field(
        "signature", description="logsignature: the same information in fewer coordinates."
    )
    time: Literal["unit", "span", "none"] = Field(
        "unit",
        description="Time as a channel: in one unit for all series (kept with the model), as a "
        "fraction of each series' own span, or not at all.",
    )
    lags: Annotated[tuple[float, ...], BeforeValidator(_as_lags)] = Field(
        (), description="Delays, in units of time, of lag channels; one number is one."
    )
    counts: bool = Field(False, description="Numbers of observations as channels.")
    basepoint: bool = Field(False, description="Windows start at the origin: levels are kept.")
    clock: int = Field(0, ge=0, description="Harmonic clocks of each local window.")
    hold: bool = Field(
        False,
        description="Gaps are filled with the last value, which is held up to each window's end, "
        "so that a window tells nothing of what comes after it.",
    )
    context: int | None = Field(
        None,
        ge=1,
        description="Number of windows that a causal model looks back: in attention, and in its "
        "global view. None: all since the start.",
    )
    observations: bool = Field(
        False,
        description="Words of each channel on the clock of its own observations: for series that "
        "are mostly missing.",
    )
    spectrum: Annotated[
        SpectrumConfig | None,
        BeforeValidator(lambda x: {"axis": x} if x in ("linear", "log") else x),
    ] = Field(None, description="A SpectrumConfig, the name of its axis, or None.")
    static: tuple[str, ...] = Field((), description="Static covariates that the model takes.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(set(self.views)) != len(self.views):
            raise ValueError(f"views must be one or both of global and local, got {self.views}")
        if self.clock and "local" not in self.views:
            raise ValueError("clock words belong to the local view; add it, or set clock to 0")
        if self.hold and self.counts:
            raise ValueError("held paths have no gaps to count between; use observations=True")
        if self.depth == 0 and not self.observations:
            raise ValueError("depth 0 leaves no tokens; it is for observations=True only")
        if any(not np.isfinite(lag) or lag <= 0 for lag in self.lags):
            raise ValueError(f"lags are positive delays in time, got {self.lags}")
        return self

    @property
    def rule(self) -> Windows:
        """The windows as the engine takes them."""
        rule = Windows.of(self.windows)
        return replace(rule, exact=self.hold and rule.rule == "duration")


if TYPE_CHECKING:
    from torch import Tensor

    from roughformer.signatures.torch_backend import Observed
    from roughformer.tokens.padded import PaddedInputs, PaddedTokens


# The spectrum of whole paths: log power of their clock words on an ordered frequency axis.


def spectrum_range(config: SpectrumConfig, batch: SeriesBatch) -> SpectrumConfig:
    """Fill in the lowest and highest frequency from the median span T and step of the series.

    Linear axis: spacing 1 / 2T, finer than a peak is wide, up to half a turn a step. Log axis:
    from two turns over T to a quarter turn a step.
    """
    start, end = batch.span
    span = float(np.median(end - start)) or 1.0
    step = span / max(float(np.median(batch.lengths)) - 1.0, 1.0)
    count = config.count
    if config.axis == "linear":
        low = config.low or 0.5 / span
        limit = max(0.5 / step, 2 * low)
        if config.high is None:
            count = max(min(count, int(np.floor(limit / low + 1e-9))), 2)
        high = config.high or low * count
    else:
        low = config.low or 2.0 / span
        high = config.high or max(0.25 / step, 2 * low)
    return config.model_copy(update={"count": count, "low": low, "high": max(high, low * 1.001)})


def frequencies(config: SpectrumConfig) -> npt.NDArray[np.float64]:
    """The angular frequencies ``(J,)`` of a fitted configuration."""
    assert config.low is not None
    assert config.high is not None
    if config.axis == "linear":
        turns = np.linspace(config.low, config.high, config.count)
    else:
        turns = np.geomspace(config.low, config.high, config.count)
    return np.asarray(2 * np.pi * turns)


# Ranges of values, which tell features that hold nothing but rounding apart (``padded``).


def usual_ranges(batch: SeriesBatch, cuts: Cuts) -> Ranges:
    """For each channel, how far apart its values usually are in a series and in a window.

    Quantiles of 90 %, over the series and windows in which the channel moves; 0 if there is none.
    """
    since = cuts.since(batch.span[0])
    series = np.repeat(np.arange(len(batch)), batch.lengths)
    edges, size = since.ravel(), since.shape[1]
    first = series * size
    window = locate(
        edges, first, np.full(len(series), size),
        batch.times - batch.span[0][series] - since[series, 0],
    )  # fmt: skip
    begins = np.flatnonzero(np.diff(first + window, prepend=-1))
    return {
        "global": _usual_range(batch.values, batch.offsets[:-1]),
        "local": _usual_range(batch.values, begins),
    }


def _usual_range(
    values: npt.NDArray[np.floating], begins: npt.NDArray[np.int64]
) -> tuple[float, ...]:
    spans = np.fmax.reduceat(values, begins) - np.fmin.reduceat(values, begins)
    columns = (column[column > 0] for column in spans.T.astype(np.float64))
    return tuple(float(np.quantile(x, USUAL)) if len(x) else 0.0 for x in columns)


_NUMBERS_AT_ONCE = 1 << 20  # values of a block of series that are looked at together


@describe
class Tokenizer(BaseModel):
    """Series -> inputs of a model. Plain data: ``model_dump`` and ``model_validate`` store it.

    Usually made by ``fit``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: TokenConfig = Field(description="Windows, depth, views and lifts.")
    channels: tuple[str, ...] = Field(min_length=1, description="Channels of the series.")
    time_unit: float = Field(gt=0, description="Median span of the training series.")
    static_encoder: StaticEncoder = Field(
        StaticEncoder(), description="Turns static covariates into numbers."
    )
    recent: int = Field(
        1, ge=1, description="Windows that count as recent: half of the median number of windows."
    )
    value_range: ValueRange | None = Field(
        None, description="Of the channels; only with ``observations``."
    )
    window_duration: float | None = Field(
        None, gt=0, description="Usual duration of a window, where paths hold: that of its clocks."
    )
    ranges: Ranges = Field(
        {},
        description="How far apart the values of each channel usually are, in a series "
        '(``"global"``) and in a window (``"local"``): words that are far smaller are rounding. '
        "Not known if empty.",
    )

    def __eq__(self, other: object) -> bool:
        """Whether they make the same tokens, whichever options were given and whichever usual."""
        return isinstance(other, Tokenizer) and self.model_dump() == other.model_dump()

    def __hash__(self) -> int:
        """Equal tokenizers have equal hashes."""
        return hash(self.model_dump_json())

    @classmethod
    def fit(cls, config: TokenConfig, batch: SeriesBatch) -> Self:
        """Take channel names, the unit of time and the range of the spectrum from training series.

        Parameters
        ----------
        config : TokenConfig
            Windows, depth, views and lifts.
        batch : SeriesBatch
            Training series.

        Returns
        -------
        Tokenizer
        """
        if len(batch) == 0:
            raise InputError("a model needs at least one series to be fitted to, got none")
        check_series(batch, batch.channels, config.static)
        if config.context is not None and not config.hold:
            raise InputError("a context of windows is for causal models; set hold=True as well")
        start, end = batch.span
        span = end - start
        unit = float(np.median(span[span > 0])) if (span > 0).any() else 1.0
        if config.spectrum is not None:
            fitted = spectrum_range(config.spectrum, batch)
            config = config.model_copy(update={"spectrum": fitted})
        cuts = config.rule.place(batch)
        return cls(
            config=config,
            channels=batch.channels,
            time_unit=unit,
            static_encoder=StaticEncoder.fit(batch, config.static),
            recent=max(int(np.median(cuts.n_windows)) // 2, 1),
            value_range=ValueRange.fit(batch) if config.observations else None,
            window_duration=_usual_duration(config, cuts, unit) if config.hold else None,
            ranges=usual_ranges(batch, cuts) if config.depth else {},
        )

    @property
    def lifts(self) -> dict[View, tuple[Lift, ...]]:
        """The lifts of each view, with the fitted unit of time."""
        config = self.config
        shared: list[Lift] = []
        if config.time != "none":
            shared.append(Time(self.time_unit if config.time == "unit" else None))
        shared += [Lag(delay) for delay in config.lags]
        if config.counts:
            shared.append(Counts())
        if config.basepoint:
            shared.append(Basepoint())
        local = [*shared, self._clock] if config.clock else shared
        every: dict[View, tuple[Lift, ...]] = {"global": tuple(shared), "local": tuple(local)}
        return {view: every[view] for view in config.views}

    @property
    def _clock(self) -> Clock:
        """Clocks turn with the window; where the end of a window is not known before it comes, with
        the usual one.
        """
        count = self.config.clock
        if self.window_duration is None:
            return Clock(count)
        base = 2 * math.pi / self.window_duration
        return Clock(frequencies=tuple(base * j for j in range(1, count + 1)))

    def n_positions(self, batch: SeriesBatch) -> int:
        """Count the windows of the series that has most.

        Parameters
        ----------
        batch : SeriesBatch
            Series to be cut.

        Returns
        -------
        int
        """
        return self.rule.place(batch).most

    @property
    def n_features(self) -> int:
        """Number of features of a token."""
        config = self.config
        words = sum(len(WORDS[view]) for view in config.views) * len(self.channels)
        count = words if config.observations else 0
        return count + (self.layout.size if config.depth else 0)

    @property
    def names(self) -> list[str]:
        """A name for each feature of a token, by its word."""
        config = self.config
        listed = self.layout.names() if config.depth else []
        if config.observations:
            listed += [
                f"{view}:{word} of {channel}"
                for view in config.views
                for channel in self.channels
                for word in WORDS[view]
            ]
        return listed

    def __copy__(self) -> Self:
        """For ``model_copy``, which may change anything: nothing that was worked out is kept."""
        copied = super().__copy__()
        for name in ("rule", "layout", "frequencies"):
            copied.__dict__.pop(name, None)
        return copied

    @cached_property
    def rule(self) -> Windows:
        """How series are cut."""
        return self.config.rule

    @cached_property
    def frequencies(self) -> npt.NDArray[np.float64]:
        """Angular frequencies of the spectrum; none without one."""
        spectrum = self.config.spectrum
        return np.zeros(0) if spectrum is None else frequencies(spectrum)

    @cached_property
    def layout(self) -> Layout:
        """Positions of the parts of a token's signatures; there are none at depth 0."""
        config = self.config
        return layout_of(self.channels, config.depth, config.views, self.lifts, config.transform)

    @property
    def static(self) -> tuple[str, ...]:
        """Names of the numbers that static covariates become."""
        return tuple(self.static_encoder.names)

    def feature_channels(self) -> list[tuple[int, ...]]:
        """For each feature, in the order of ``names``, list the numbers of its word's channels.

        Lagged and counted channels belong to their channel. Time is no channel: (time,) has ().
        """
        config, c = self.config, len(self.channels)
        used_by: list[tuple[int, ...]] = []
        counted = [(k,) for view in config.views for k in range(c) for _ in WORDS[view]]
        if config.depth == 0:
            return list(counted)
        layout = self.layout
        listed = all_words if config.transform == "signature" else lyndon_words
        for view in layout.views:
            first = int(layout.lifts[view].time is not None)  # time is the first letter
            for word in listed(layout.dim(view), config.depth):
                # Channels, then their lags, then their counts: each a block of all channels.
                used = {(letter - first) % c for letter in word if letter >= first}
                used_by.append(tuple(sorted(used)))
        for view in layout.views:
            words_each = layout.clock_size(view) // c
            used_by += [(channel,) for channel in range(c) for _ in range(words_each)]
        return used_by + (list(counted) if config.observations else [])

    @property
    def n_summary(self) -> int | None:
        """Number of leading features that summarise the past; None if they do not lead."""
        config = self.config
        if config.observations and config.depth == 0 and config.views[0] == "global":
            return len(self.channels) * len(WORDS["global"])
        return None

    @property
    def n_spectrum(self) -> int:
        """Number of powers of the spectrum: channels x frequencies."""
        spectrum = self.config.spectrum
        return 0 if spectrum is None else len(self.channels) * spectrum.count

    def encode(self, batch: SeriesBatch, **options: Any) -> "dict[str, Tensor]":
        """Compute ``arrays`` as tensors, which share their memory.

        Parameters
        ----------
        batch : SeriesBatch
            Series with the fitted channels.
        **options
            Of ``arrays``.

        Returns
        -------
        dict of Tensor
        """
        import torch

        return {name: torch.from_numpy(a) for name, a in self.arrays(batch, **options).items()}

    def arrays(
        self,
        batch: SeriesBatch,
        *,
        drop: float = 0.0,
        seed: int = 0,
        series: Any = None,
        threads: int | None = None,
    ) -> dict[str, npt.NDArray[Any]]:
        """Compute the inputs of a model.

        Parameters
        ----------
        batch : SeriesBatch
            Series with the fitted channels.
        drop : float, default 0.0
            Share of each series' points to leave out.
        seed : int, default 0
            Chooses, with ``series``, which points are left out.
        series : array-like (B,), optional
            Numbers of the series; 0 ... B-1 if None.
        threads : int, optional
            Threads for the signatures.

        Returns
        -------
        dict of ndarray
            ``tokens (B, L, F)``, their ``times (B, L)``, and where they apply ``mask (B, L)``,
            ``spectrum (B, C, J)`` and ``static (B, S)``.
        """
        check_series(batch, self.channels, self.config.static)
        config = self.config
        cuts = self.rule.place(batch)
        dropping = Dropping(None, drop, seed, series_numbers(series, len(batch)))
        if not config.hold:
            check_dropping(dropping, self.rule)
        parts = []
        if config.depth:
            signatures = compute_tokens(
                batch,
                cuts,
                self.layout,
                dropping=dropping,
                dtype=np.float32,
                compute=np.float64 if config.hold else batch.values.dtype.type,
                threads=threads,
                hold=config.hold,
                context=config.context,
            )
            parts.append(signatures)
        if self.value_range is not None:
            parts.append(self._observation_words(dropping.thinned(batch), cuts))
        tokens = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        since = cuts.since(cuts.origin)
        times = (since[:, 1:] - since[:, :1]) / self.time_unit
        inputs = {"tokens": tokens, "times": times.astype(np.float32, order="C")}
        if not cuts.equal:
            inputs["mask"] = np.arange(cuts.most)[None, :] < cuts.n_windows[:, None]
        if config.spectrum is not None:
            import torch

            from roughformer.signatures import spectrum_words
            from roughformer.tokens.padded import log_power

            words = spectrum_words(
                batch, self.frequencies, drop=drop, seed=seed, series=series,
                threads=threads,
            )  # fmt: skip
            inputs["spectrum"] = log_power(torch.from_numpy(words), config.spectrum.floor).numpy()
        if config.static:
            inputs["static"] = self.static_encoder.encode(batch)
        return inputs

    def least_scale(self, inputs: "dict[str, Tensor]") -> "Tensor":
        """Compute for each feature the size below which differences are taken for none.

        Some features are rounding and nothing else: all words of a channel that returns to where it
        was in every window, log-signatures and clock words of straight pieces. Scaled by their own
        deviation, they would be noise of size 1.

        Parameters
        ----------
        inputs : dict of Tensor
            Tokens of the training part, from ``encode``.

        Returns
        -------
        Tensor (n_features,)
        """
        import torch

        from roughformer.tokens.padded import least_scale

        tokens, mask = inputs["tokens"], inputs.get("mask")
        # Words of observations are in deviations of their channel and units of time.
        scale = torch.full((self.n_features,), 1e-6, dtype=torch.float64, device=tokens.device)
        if self.config.depth:
            rows = tokens.flatten(0, 1) if mask is None else tokens[mask]
            # Held paths are always computed in float64.
            rounding = 1e-12 if self.config.hold else 64 * torch.finfo(torch.float32).eps
            scale[: self.layout.size] = least_scale(rows, self.layout, rounding, self.ranges)
        return scale

    def padded(self, data: "Observed", static: "Tensor | None" = None) -> "PaddedInputs":
        """Encode padded series in torch.

        Parameters
        ----------
        data : Observed
            The series.
        static : Tensor (B, S), optional
            Static covariates.

        Returns
        -------
        PaddedInputs
            Inputs as in ``encode``, and the ends of the windows.
        """
        return self.for_padded()(data, static)

    def for_padded(self) -> "PaddedTokens":
        """Make the function behind ``padded``, which ``torch.compile`` can look through.

        Returns
        -------
        PaddedTokens
        """
        from roughformer.tokens.padded import PaddedTokens

        config, spectrum = self.config, self.config.spectrum
        return PaddedTokens(
            n_channels=len(self.channels),
            rule=config.rule,
            layout=self.layout if config.depth else None,
            hold=config.hold,
            context=config.context,
            views=config.views,
            values=self.value_range,
            recent=self.recent,
            unit=self.time_unit,
            turns=self.frequencies.tolist(),
            floor=1.0 if spectrum is None else spectrum.floor,
            static=self.static_encoder.columns,
        )

    def _observation_words(self, batch: SeriesBatch, cuts: Cuts) -> npt.NDArray[np.float32]:
        """``(B, L, Σ_views C · words)``, a block of series at a time."""
        from roughformer.signatures.torch_backend import Placed, observed, real_only
        from roughformer.tokens.padded import observation_words

        assert self.value_range is not None
        placed = Placed.of(cuts, batch.span[0])
        size = sum(len(WORDS[view]) for view in self.config.views) * len(self.channels)
        out = np.zeros((len(batch), cuts.most, size), dtype=np.float32)
        longest = int(batch.lengths.max(initial=1)) + cuts.most
        count = max(1, _NUMBERS_AT_ONCE // (longest * len(self.channels)))
        for i in range(0, len(batch), count):
            part = slice(i, i + count)
            here = placed.rows(part)
            words = observation_words(
                observed(*pad(batch[part])), here, self.config.views, self.value_range,
                self.recent, self.time_unit,
            )  # fmt: skip
            out[part] = real_only(words, here.mask).numpy()
        return out


def _usual_duration(config: TokenConfig, cuts: Cuts, unit: float) -> float:
    """Of windows by duration their own, else the median of the training part's."""
    if config.rule.rule == "duration":
        return config.rule.amount
    since = cuts.since(cuts.origin)
    durations = np.diff(since, axis=1)
    durations = durations[durations > 0]
    return float(np.median(durations)) if len(durations) else unit
