"""What tokens are made of, as plain data: it goes into config.json, TOML files and reports."""

from dataclasses import replace
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from roughformer.errors import InputError
from roughformer.signatures import View, Windows
from roughformer.util.groups import FrozenDict, Group

WindowRule = int | dict[Literal["duration", "points"], float] | tuple[float, ...]


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
