"""Tokenizer: a token configuration with what it took from the training part."""

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from roughformer.errors import InputError
from roughformer.lifts import Basepoint, Clock, Counts, Lag, Lift, Time, View
from roughformer.series import SeriesBatch
from roughformer.signatures.api import multiview_signature
from roughformer.signatures.features import Layout, feature_count, feature_names, layout_of
from roughformer.tokens.config import TokenConfig
from roughformer.tokens.holding import PlacedWindows, held_at_cuts, values_at_cuts
from roughformer.tokens.observations import WORDS, ValueRange, observation_words
from roughformer.tokens.spectrum import log_power, spectrum_range
from roughformer.tokens.static import StaticEncoder
from roughformer.tokens.thinning import thinned
from roughformer.windows import Cuts
from roughformer.words import all_words, lyndon_words

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Tokenizer", "check_series"]


class Tokenizer(BaseModel):
    """Series -> inputs of a model. Plain data: ``model_dump`` and ``model_validate`` store it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: TokenConfig
    channels: tuple[str, ...] = Field(min_length=1)
    time_unit: float = Field(gt=0, description="Median span of the training series.")
    static_encoder: StaticEncoder = StaticEncoder()
    recent: int = Field(1, ge=1, description="Windows that count as recent: half of the median.")
    value_range: ValueRange | None = Field(None, description="Of the channels, with observations.")
    window_duration: float | None = Field(
        None, gt=0, description="Usual duration of a window, where paths hold: that of its clocks."
    )

    @classmethod
    def fit(cls, config: TokenConfig, batch: SeriesBatch) -> Self:
        """Take channel names, the unit of time and the range of the spectrum from ``batch``."""
        if len(batch) == 0:
            raise InputError("a model needs at least one series to be fitted to, got none")
        check_series(batch, batch.channels, config.static)
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
        """Windows of the series that has most."""
        return self.config.rule.place(batch).most

    @property
    def n_features(self) -> int:
        """Features of a token."""
        config = self.config
        words = sum(len(WORDS[view]) for view in config.views) * len(self.channels)
        found = words if config.observations else 0
        if config.depth:
            found += feature_count(
                self.channels, config.depth, config.views, self.lifts, config.transform
            )
        return found

    @property
    def names(self) -> list[str]:
        """A name for each feature of a token, by its word."""
        config = self.config
        found: list[str] = []
        if config.depth:
            found = feature_names(
                self.channels, config.depth, config.views, self.lifts, config.transform
            )
        if config.observations:
            found += [
                f"{view}:{word} of {channel}"
                for view in config.views
                for channel in self.channels
                for word in WORDS[view]
            ]
        return found

    @property
    def layout(self) -> Layout:
        """Where the parts of a token's signatures stand; there are none at depth 0."""
        config = self.config
        return layout_of(self.channels, config.depth, config.views, self.lifts, config.transform)

    def _over_context(
        self, path: SeriesBatch, where: Any, threads: int | None
    ) -> npt.NDArray[np.float32]:
        """The global view ``(B, L, size)`` over the last ``context`` windows up to each."""
        import torch

        from roughformer.signatures.twin import multiply
        from roughformer.tokens.context import as_levels, as_words, jump, sliding_products

        config, lifts = self.config, self.layout.lifts["global"]
        assert config.context is not None
        local = multiview_signature(
            path, where, config.depth, "local", lifts=_of_path(self.lifts["global"]),
            dtype=np.float64, precise=True, threads=threads,
        )  # fmt: skip
        dim = self.layout.dim("global")
        levels = as_levels(torch.from_numpy(local), dim, config.depth)
        levels = sliding_products(levels, config.context)
        if lifts.basepoint:
            first = values_at_cuts(path, where.place(path))[:, :-1]  # where each window begins
            back = np.maximum(np.arange(local.shape[1]) - config.context + 1, 0)
            start = torch.from_numpy(first[:, back].astype(np.float64))
            levels = multiply(jump(start, lifts.time is not None, config.depth), levels)
        return self.in_transform(as_words(levels), dim).float().numpy()

    def in_transform(self, words: "Tensor", dim: int) -> "Tensor":
        """Signatures ``(..., words)`` as the tokens have them: as they are, or their logarithms."""
        if self.config.transform == "signature":
            return words
        from roughformer.signatures.twin import lyndon_logarithm

        return lyndon_logarithm(words, dim, self.config.depth, self.layout.basis == "brackets")

    @property
    def static(self) -> tuple[str, ...]:
        """Names of the numbers that static covariates become."""
        return tuple(self.static_encoder.names)

    def feature_channels(self) -> list[tuple[int, ...]]:
        """For each feature of a token, in the order of ``names``: the numbers of the channels that
        its word has letters of (also lagged and counted ones). Time is no channel: (time,) has ().
        """
        config, c = self.config, len(self.channels)
        found: list[tuple[int, ...]] = []
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
                found.append(tuple(sorted(used)))
        for view in layout.views:
            words_each = layout.clock_size(view) // c
            found += [(channel,) for channel in range(c) for _ in range(words_each)]
        return found + (list(counted) if config.observations else [])

    @property
    def n_summary(self) -> int | None:
        """Leading features that sum up all that was observed so far; None if they do not lead."""
        config = self.config
        if config.observations and config.depth == 0 and config.views[0] == "global":
            return len(self.channels) * len(WORDS["global"])
        return None

    @property
    def n_spectrum(self) -> int:
        """Powers of the spectrum: channels x frequencies."""
        spectrum = self.config.spectrum
        return 0 if spectrum is None else len(self.channels) * spectrum.count

    def encode(self, batch: SeriesBatch, **options: Any) -> "dict[str, Tensor]":
        """``arrays`` as tensors, with the same options; they share memory."""
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
        """``tokens (B, L, F)``, their ``times (B, L)``, and where they apply ``mask (B, L)``,
        ``spectrum (B, C, J)`` and ``static (B, S)``.

        ``drop`` of each series' points are left out, chosen by ``seed`` and the numbers ``series``
        ``(B,)`` of the series, 0 ... B-1 if None. Only a spectrum and a context import torch, and
        the twin where there is no native engine.
        """
        check_series(batch, self.channels, self.config.static)
        config = self.config
        rule = config.rule
        options: dict[str, Any] = {
            "drop": drop, "seed": seed, "series": series, "threads": threads
        }  # fmt: skip
        cuts = rule.place(batch)
        parts = []
        if config.depth:
            path, where, thin = batch, rule, options
            if config.hold and len(batch):
                # What is dropped must not be held, so it goes first.
                path, held_cuts = held_at_cuts(thinned(batch, drop, seed, series), cuts)
                where = PlacedWindows("explicit", placed=held_cuts)
                # Sums since the start may be long; a stream takes them in float64.
                thin = {"threads": threads, "precise": True}
            found = multiview_signature(
                path,
                where,
                config.depth,
                config.views,
                lifts=self.lifts,
                transform=config.transform,
                dtype=np.float32,
                **thin,
            )
            if config.context is not None and "global" in config.views:
                at = self.layout.at("global")
                whole = self._over_context(path, where, threads)
                found[..., at : at + whole.shape[-1]] = whole
            parts.append(found)
        if self.value_range is not None:
            kept = thinned(batch, drop, seed, series)
            parts.append(
                observation_words(
                    kept, cuts, config.views, self.value_range, self.recent, self.time_unit
                )
            )
        tokens = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        since = cuts.since(cuts.origin)
        times = (since[:, 1:] - since[:, :1]) / self.time_unit
        inputs = {"tokens": tokens, "times": times.astype(np.float32, order="C")}
        if not cuts.equal:
            inputs["mask"] = np.arange(cuts.most)[None, :] < cuts.n_windows[:, None]
        if config.spectrum is not None:
            inputs["spectrum"] = log_power(batch, config.spectrum, **options).numpy()
        if config.static:
            inputs["static"] = self.static_encoder.encode(batch)
        return inputs


def _of_path(lifts: tuple[Lift, ...]) -> tuple[Lift, ...]:
    """Without what is not of the path itself."""
    return tuple(lift for lift in lifts if not isinstance(lift, Basepoint | Clock))


def _usual_duration(config: TokenConfig, cuts: Cuts, unit: float) -> float:
    """Of windows by duration their own, else the median of the training part's."""
    if config.rule.rule == "duration":
        return config.rule.amount
    since = cuts.since(cuts.origin)
    durations = np.diff(since, axis=1)
    durations = durations[durations > 0]
    return float(np.median(durations)) if len(durations) else unit


def check_series(batch: SeriesBatch, channels: tuple[str, ...], static: tuple[str, ...]) -> None:
    """``InputError`` if the series are not of the kind that a model was fitted to."""
    if batch.channels != channels:
        raise InputError(
            f"the model was fitted to the channels {list(channels)}, these series have "
            f"{list(batch.channels)}"
        )
    missing = [name for name in static if name not in batch.static_names]
    if missing:
        raise InputError(
            f"the model takes the static covariates {list(static)}; {missing} are not in these "
            f"series, which have {list(batch.static_names)}"
        )
