"""Parameters of an estimator: a few flat ones, groups that hold the others, presets, JSON."""

import difflib
import inspect
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from roughformer.errors import CheckpointError, InputError
from roughformer.estimators.inputs import SeriesEstimator
from roughformer.model import RFormerConfig, TempoConfig
from roughformer.series import SeriesBatch
from roughformer.signatures import Windows, word_count
from roughformer.tokens import SpectrumConfig, TokenConfig
from roughformer.train import TrainConfig
from roughformer.util.groups import Group

_DATA = (
    "n_features", "n_static", "n_spectrum", "n_wide_features", "n_channels", "n_spectra",
    "n_frequencies", "harmonics", "stride", "n_outputs", "task", "n_bins", "bin_low", "bin_step",
)  # fmt: skip


T = TypeVar("T")


class ModelGroup(Group):
    """Options of a model that the data and other parameters of its estimator do not decide."""

    set_by: ClassVar[dict[str, str]] = dict.fromkeys(_DATA, "the data") | {
        "uncertainty": "uncertainty",
        "causal": "causal",
        "context": "tokens__context",
    }


class ModelConfig(ModelGroup, RFormerConfig):
    """Shape of an RFormer.

    Unless they are given, ``wide`` is 256 and ``scaling`` "rank" with ``observations``.
    """

    n_outputs: int = 1
    n_features: int = 1


class RateModelConfig(ModelGroup, TempoConfig):
    """Shape of a TempoFormer, the model of ``RateRegressor``."""

    set_by: ClassVar[dict[str, str]] = ModelGroup.set_by | {"quantiles": "the histogram of rates"}

    n_outputs: int = 1
    n_channels: int = 1
    n_spectra: int = 1
    n_frequencies: int = 2


RFORMER_GROUPS: dict[str, type[Group]] = {
    "tokens": TokenConfig,
    "model": ModelConfig,
    "training": TrainConfig,
}
RFORMER_SHORTCUTS = dict.fromkeys(("windows", "depth", "views"), "tokens") | dict.fromkeys(
    ("epochs", "learning_rate", "drop"), "training"
)

_PAPER: dict[str, Any] = {
    "windows": 75, "time": "span", "clock": 0, "spectrum": None, "basepoint": False,
    "learning_rate": 1e-3, "schedule": "constant", "epochs": 100,
    "patience": None,
}  # fmt: skip
_PAPER_TASKS: dict[str, dict[str, Any]] = {
    "classification": {"depth": 2, "views": ("global", "local")},
    "regression": {"depth": 4, "views": ("local",)},
}


def preset(name: str, task: str) -> dict[str, Any]:
    """Parameters of an estimator of ``task`` that differ from its defaults."""
    presets: dict[str, dict[str, Any]] = {"default": {}, "paper": _PAPER | _PAPER_TASKS[task]}
    if name not in presets:
        raise InputError(f"presets are {', '.join(presets)}; got {name!r}")
    return presets[name]


# Options whose value is chosen from the training series unless it is given.
_AUTO = {
    "tokens": ("windows", "depth", "basepoint", "clock", "context", "observations", "spectrum"),
    "model": ("wide", "scaling"),
}


class GroupedParameters(SeriesEstimator):
    """An estimator whose parameters are in ``groups``, with ``shortcuts`` to those used most.

    ``get_params`` and ``set_params`` know the options of a group as ``group__option``.
    """

    groups: ClassVar[dict[str, type[Group]]]
    shortcuts: ClassVar[dict[str, str]]  # flat parameter -> the group that has it as well

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Say where an option is that is in a group and not among the parameters."""
        cls._check_flat(params)
        made: Self = super().__new__(cls)
        return made

    @classmethod
    def _check_flat(cls, params: Iterable[str]) -> None:
        for name in [name for name in params if name not in inspect.signature(cls).parameters]:
            homes = [home for home, group in cls.groups.items() if name in group.options()]
            if homes:
                places = " or ".join(f"{h}={cls.groups[h].__name__}({name}=...)" for h in homes)
                grids = " or ".join(f"{home}__{name}" for home in homes)
                raise InputError(
                    f"{name!r} is an option of a group: give {places}, or set {grids} in "
                    "set_params and grids"
                )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name.

        Parameters
        ----------
        deep : bool, default True
            Also the options of the groups, as ``group__option``.

        Returns
        -------
        dict
            Parameter -> value.
        """
        params: dict[str, Any] = super().get_params(deep=False)
        for name, group in self.groups.items() if deep else ():
            if isinstance(params[name], group | dict | None):
                given = self._given(name)
                for option in group.options():
                    if option in given or option not in self.shortcuts:
                        params[f"{name}__{option}"] = given.get(option, self._usual(name, option))
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters: all of those given, or none if one is refused.

        Parameters
        ----------
        **params
            Parameters by name; ``group__option`` changes one option of a group.

        Returns
        -------
        self
        """
        flat, options = self._by_group(params)
        self._check_flat(flat)
        before = vars(self).copy()
        try:
            super().set_params(**flat)
            for name, changes in options.items():
                setattr(self, name, self.groups[name](**(self._given(name) | changes)))
        except ValueError:
            self.__dict__ = before
            raise
        return self

    @classmethod
    def settings(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Bring options under the one name that each has.

        Parameters
        ----------
        options : mapping from str
            ``clock`` and ``tokens.clock`` become ``tokens__clock``, ``tokens.depth`` becomes
            ``depth``; groups are taken apart.

        Returns
        -------
        dict
        """
        settings: dict[str, Any] = {}
        names_given: dict[str, str] = {}
        for given, value in options.items():
            parts = {given: value}
            if given in cls.groups:
                if not isinstance(value, Mapping | Group | None):
                    raise InputError(f"{given} must be a group of options, got {value!r}")
                inside = value.given if isinstance(value, Group) else value or {}
                parts = {f"{given}.{option}": chosen for option, chosen in inside.items()}
            for part, chosen in parts.items():
                name = cls.setting_name(part)
                if name in settings and repr(settings[name]) != repr(chosen):
                    raise InputError(_twice(names_given[name], settings[name], part, chosen))
                settings[name], names_given[name] = chosen, part
        return settings

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Make an estimator.

        Parameters
        ----------
        settings : mapping from str
            Parameters by their one name; see ``settings``.

        Returns
        -------
        estimator
        """
        flat, options = cls._by_group(settings)
        return cls(**flat, **{name: cls.groups[name](**given) for name, given in options.items()})

    @classmethod
    def _by_group(
        cls, params: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Flat parameters, and the options of each group."""
        flat: dict[str, Any] = {}
        options: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            group, nested, option = name.partition("__")
            if nested and group in cls.groups:
                options.setdefault(group, {})[option] = value
            else:
                flat[name] = value
        return flat, options

    @classmethod
    def usual_settings(cls) -> dict[str, Any]:
        """Every parameter under its one name, as it is if nothing is given."""
        flat = {
            name: cls._usual(cls.shortcuts[name], name) if name in cls.shortcuts else p.default
            for name, p in inspect.signature(cls).parameters.items()
            if name not in cls.groups
        }
        return flat | {
            f"{name}__{option}": cls._usual(name, option)
            for name, group in cls.groups.items()
            for option in group.options()
            if option not in cls.shortcuts
        }

    @classmethod
    def setting_name(cls, name: str) -> str:
        """Find the one name of a parameter.

        Parameters
        ----------
        name : str
            Any of its names; see ``settings``.

        Returns
        -------
        str
        """
        group, nested, option = name.replace(".", "__").partition("__")
        if nested and group in cls.groups:
            if option not in cls.groups[group].options():
                raise InputError(_unknown(cls, name))
            return option if cls.shortcuts.get(option) == group else f"{group}__{option}"
        if name in inspect.signature(cls).parameters:
            return name
        homes = [home for home, group in cls.groups.items() if name in group.options()]
        if len(homes) == 1:
            return f"{homes[0]}__{name}"
        if homes:
            both = " and ".join(f"{home}.{name}" for home in homes)
            raise InputError(f"{name!r} may be {both}; say which")
        raise InputError(_unknown(cls, name))

    @classmethod
    def _usual(cls, group: str, option: str) -> Any:
        """The value of an option that is not given."""
        if option in _AUTO.get(group, ()):
            return "auto"
        return cls.groups[group].model_fields[option].default

    def _given(self, name: str) -> dict[str, Any]:
        """The options that the group of that name was given."""
        group, value = self.groups[name], getattr(self, name)
        if value is None:
            return {}
        if isinstance(value, dict) and all(isinstance(option, str) for option in value):
            value = group(**value)
        if not isinstance(value, group):
            raise InputError(
                f"{name} must be a {group.__name__} or a dict of its options, got {value!r}"
            )
        for option in value.given:
            if option in group.set_by:
                raise InputError(
                    f"{name}: {option} is set by {group.set_by[option]}; leave it out of the group"
                )
        return value.given

    def _options(self, name: str) -> dict[str, Any]:
        """The options of a group, with those of the flat parameters that are shortcuts to it."""
        options = self._given(name)
        for option, group in self.shortcuts.items():
            flat = getattr(self, option)
            if group != name or flat is None:
                continue
            if option in options and options[option] != self._checked(name, option, flat):
                raise InputError(_twice(option, flat, f"{name}.{option}", options[option]))
            options[option] = flat
        return options

    def _checked(self, group: str, option: str, value: Any) -> Any:
        """``value`` as the group has it, if the group takes it."""
        if isinstance(value, str) and value == "auto":
            return value
        try:
            return getattr(self.groups[group](**{option: value}), option)
        except InputError:
            return value

    def _changed(self, name: str) -> list[str]:
        """Options of a group that are not as usual."""
        return [
            option
            for option, value in self._options(name).items()
            if repr(self._checked(name, option, value)) != repr(self._usual(name, option))
        ]


def _twice(one: str, value: Any, other: str, another: Any) -> str:
    return f"{one}={value!r} and {other}={another!r} are the same parameter; give it once"


def _unknown(cls: type[GroupedParameters], name: str) -> str:
    group, _, option = name.replace("__", ".").rpartition(".")
    known = {s.rpartition("__")[2]: s.replace("__", ".") for s in cls.usual_settings()}
    owner = cls.__name__
    if "tokens" not in cls.groups and (
        "tokens" in (group, option) or option in TokenConfig.options()
    ):
        return f"unknown parameter {name!r}: {owner} has no tokens; leave it out, or use an RFormer"
    if group in cls.groups:
        known = {option: f"{group}.{option}" for option in cls.groups[group].options()}
        owner = group
    near = difflib.get_close_matches(option, known, n=1)
    if near:
        return f"unknown parameter {name!r}; did you mean {known[near[0]]!r}?"
    listed = known if group in cls.groups else inspect.signature(cls).parameters
    return f"unknown parameter {name!r}; {owner} has {', '.join(listed)}"


# What "auto" means: token options chosen from the sizes of the training series.

_MOST_WORDS = 600  # features of one view's signature; more are slow to learn from little data
_MOST_POWERS = 4096  # channels x frequencies of a spectrum
_MOST_CLOCKS = 512  # clock words of a token
_NEVER_AUTO = ("views", "time", "lags", "counts", "static")
_LEVELS_TELL = 0.05  # share of a channel's variance between series above which levels are kept
_SPARSE = 0.5  # share of missing values above which frequencies mean little


def token_config(batch: SeriesBatch, options: dict[str, Any], causal: bool) -> TokenConfig:
    """``options`` of an estimator with every "auto" replaced.

    Series whose values are mostly missing get 12 windows and words of their observations, and no
    signature of the path between them. For others, windows: 75, but at least two points in each.
    A causal model gets windows of the duration that cuts the median span into as many: windows by
    count end where the end of the series says, which is the future.
    depth: 2, or 1 where that would be more than 600 words a view. clock: up to 16 per window, as
    many as its points can tell apart. spectrum: 1024 frequencies; none for series of fewer than
    16 points, and none for causal models, because it is of the whole path. basepoint: a signature
    forgets the level that a path starts from; it is kept if in some channel both the means of the
    series and their first values have 5 % of the variance. Series that have been centred
    or that all start from one level have no level to keep. context: of a causal model the windows
    of a usual series, if windows are such that a series may go on: by duration or points.
    """
    chosen = dict(options)
    # What is never "auto" is checked before it is used.
    plain = TokenConfig(**{name: options[name] for name in _NEVER_AUTO})
    chosen |= {name: getattr(plain, name) for name in _NEVER_AUTO}
    channels = max(batch.n_channels, 1)
    median = float(np.median(batch.lengths)) if len(batch) else 0.0
    missing = float(np.isnan(batch.values).mean()) if batch.values.size else 0.0
    sparse = missing > _SPARSE
    if chosen["observations"] == "auto":
        chosen["observations"] = sparse
    if isinstance(chosen["windows"], str):
        if chosen["windows"] != "auto":
            raise InputError(
                "windows must be 'auto', a number of windows, cut times or a rf.Windows; got "
                f"{chosen['windows']!r}"
            )
        count = int(np.clip(median // 2, 2, 12 if sparse else 75))
        chosen["windows"] = {"duration": _median_span(batch) / count} if causal else count
    dimension = channels * (1 + len(chosen["lags"]) + bool(chosen["counts"]))
    dimension += chosen["time"] != "none"
    if chosen["depth"] == "auto":
        chosen["depth"] = 2 if word_count(dimension, 2) <= _MOST_WORDS else 1
        if sparse and chosen["observations"]:
            chosen["depth"] = 0
    if chosen["basepoint"] == "auto":
        chosen["basepoint"] = bool((_between_series(batch) > _LEVELS_TELL).any())
    if chosen["clock"] == "auto":
        clocks = 0
        if "local" in chosen["views"] and not sparse:
            points = median / _n_windows(chosen["windows"], batch)
            clocks = min(16, int(points // 2), _MOST_CLOCKS // (2 * channels))
        chosen["clock"] = clocks
    if chosen["spectrum"] == "auto":
        none = sparse or causal or median < 16
        chosen["spectrum"] = None if none else SpectrumConfig()
    spectrum = chosen["spectrum"]
    if spectrum is not None and "count" not in spectrum.given:
        most = 1024 if spectrum.axis == "linear" else 256
        count = min(most, max(_MOST_POWERS // channels, 16))
        chosen["spectrum"] = SpectrumConfig(**spectrum.given, count=count)
    chosen["hold"] = causal
    chosen["context"] = _context(chosen["context"], chosen["windows"], batch, causal)
    if causal and chosen["time"] == "span":
        raise InputError(
            "a causal model cannot tell time as a share of the series' span, which is not known "
            "before its end; use time='unit'"
        )
    if causal and chosen["spectrum"] is not None:
        raise InputError(
            "a causal model cannot use the spectrum of the whole path, which sees the future; "
            "leave spectrum= out"
        )
    return TokenConfig(**chosen)


def _context(context: Any, windows: Any, batch: SeriesBatch, causal: bool) -> int | None:
    if not causal:
        if context not in ("auto", None):
            raise InputError("context is for causal models; set causal=True, or leave it out")
        return None
    if context == "auto":
        goes_on = TokenConfig(windows=windows).rule.rule in ("duration", "points")
        return round(_n_windows(windows, batch)) if goes_on else None
    return None if context is None else int(context)


def _median_span(batch: SeriesBatch) -> float:
    """Of the series that have one; 1 if none has."""
    start, end = batch.span
    span = end - start
    return float(np.median(span[span > 0])) if (span > 0).any() else 1.0


def _n_windows(windows: Any, batch: SeriesBatch) -> float:
    counts = TokenConfig(windows=windows).rule.place(batch).n_windows
    return max(float(np.median(counts)), 1.0) if len(counts) else 1.0


def _between_series(batch: SeriesBatch) -> npt.NDArray[np.float64]:
    """``(C,)``: the variance of the means of the series, or that of their first observations if it
    is less, as a share of the channel's variance.
    """
    shares = np.zeros(batch.n_channels)
    for c in range(batch.n_channels):
        seen = np.flatnonzero(~np.isnan(batch.values[:, c]))
        x = batch.values[seen, c].astype(np.float64)
        owner, first, count = np.unique(
            np.searchsorted(batch.offsets, seen, side="right"),
            return_index=True,
            return_counts=True,
        )
        if len(owner) < 2 or x.var() == 0:
            continue
        means = np.add.reduceat(x - x.mean(), first) / count
        shares[c] = min(float(means.var()), float(x[first].var())) / float(x.var())
    return shares


# What JSON does not know is a dict of one key, which says what it was.
_TUPLE, _PAIRS, _ARRAY, _PATH = "$tuple", "$pairs", "$array", "$path"
_WINDOWS, _GROUP = "$windows", "$group"


def to_plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Those that JSON can hold; the others (random generators) were for fitting only.

    ``from_plain`` gives back equal values of the same kind; numbers of numpy become Python's.
    """
    plain = {}
    for name, value in parameters.items():
        with suppress(TypeError):
            plain[name] = _plain(value)
    return plain


def from_plain(
    stored: dict[str, Any], known: Collection[str], groups: Mapping[str, type[Group]] = {}
) -> dict[str, Any]:
    """The way back; ``ValueError`` if a name is not ``known``. ``groups``: the classes of
    parameters that are groups of options.
    """
    unknown = [name for name in stored if name not in known]
    if unknown:
        raise ValueError(f"there is no parameter {', '.join(unknown)} any more")
    parameters = {name: _python(value) for name, value in stored.items()}
    for name, group in groups.items():
        plain = stored.get(name)
        if isinstance(plain, dict) and _GROUP in plain:
            parameters[name] = group(**plain[_GROUP])
    return parameters


def with_saved_parameters(cls: type[T], metadata: Mapping[str, Any], directory: Any) -> T:
    """An estimator with the parameters in the metadata of a model; ``directory`` is for errors."""
    try:
        known = cls().get_params(deep=False)  # type: ignore[attr-defined]
        groups = getattr(cls, "groups", {})
        return cls(**from_plain(metadata.get("parameters", {}), known, groups))
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{os.fspath(directory)} holds parameters that this version of roughformer cannot "
            f"read: {error}"
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return float(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(item) for item in value]}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _plain(item) for key, item in value.items()}
        # JSON would make texts of the keys.
        return {_PAIRS: [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufUM":
        if value.dtype.kind == "M":
            return {_ARRAY: [value.dtype.str, value.astype(np.int64).tolist()]}
        return {_ARRAY: [value.dtype.str, _plain(value.tolist())]}
    if isinstance(value, Path):
        return {_PATH: str(value)}
    if isinstance(value, Windows):
        cuts = [_plain(row) for row in value.cuts]
        return {_WINDOWS: [value.rule, value.amount, cuts, value.shared]}
    if isinstance(value, Group):
        return {_GROUP: value.model_dump(mode="json", exclude_unset=True)}
    raise TypeError(f"no plain form of {type(value).__name__}")


def _python(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_python(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) != 1 or not next(iter(plain)).startswith("$"):
        return {key: _python(item) for key, item in plain.items()}
    ((kind, inside),) = plain.items()
    if kind == _TUPLE:
        return tuple(_python(item) for item in inside)
    if kind == _PAIRS:
        return {_python(key): _python(item) for key, item in inside}
    if kind == _ARRAY:
        return np.array(inside[1], dtype=inside[0])
    if kind == _PATH:
        return Path(inside)
    if kind == _WINDOWS:
        rule, amount, cuts, shared = inside
        return Windows(rule, amount, tuple(_python(row) for row in cuts), shared)
    if kind == _GROUP:
        return inside  # the parameter knows its class
    raise ValueError(f"parameters of an unknown kind {kind!r}")


# Descriptions of parameters that several estimators and methods have, for their docstrings.
_TEXTS = {
    "recipe": """\
recipe : {"auto", "ensemble", "attention"}, default "auto"
    "ensemble": functionals of local signatures read by ridge regression, and trees on
    quantiles and summaries, blended by their out-of-fold predictions. "attention": the Rough
    Transformer on windows. "auto": the ensemble, unless the model is to be causal or an option
    of the network (windows, epochs, tokens, ...) is changed. An ensemble validates itself on
    series that are left out in turn, and uses no ``validation`` part.""",
    "tokens": """\
windows : int, dict, Windows or array-like, optional
    Number of windows over each series' span, ``{"duration": d}``, ``{"points": n}``, an
    ``rf.Windows``, or cut times shared by all series. Not given: 75, with at least two points
    in each; 12 if values are mostly missing.
depth : int, optional
    Truncation level of the signatures. Not given: 2, or 1 where a view would have more than
    600 words.
views : {"global", "local"} or tuple of them, optional
    Signatures since the start of the series, of each window, or both (the default).""",
    "training": """\
epochs : int, optional
    Maximum number of passes over the training part. Not given: 60.
learning_rate : float, optional
    Highest learning rate of the schedule. Not given: 2e-3.
drop : float or (float, float), optional
    Share of the points that is dropped while training, or a range of shares.
validation : float, default 0.2
    Share of the series (of the groups, if ``fit`` gets them) that is held out to choose the
    best epoch and to calibrate.""",
    "running": """\
random_state : int, RandomState or None, default None
    The same integer gives the same model.
device : {"auto", "cpu", "cuda", "mps"}, default "auto"
    Where the model is trained.
n_jobs : int or None, default None
    Threads of torch; None: as torch is set, -1: all.
run_dir : path-like, optional
    Directory for the log, the state to resume from and the model.
verbose : int, default 0
    1 shows progress.""",
    "classes": """\
class_weight : "balanced", dict or None, default None
    Weights of the classes in the loss and in the validation scores: label -> weight.""",
    "numbers": """\
uncertainty : {"none", "gaussian", "quantile"}, default "none"
    "gaussian" for ``predict(return_std=True)``, "quantile" for ``predict_quantiles``.""",
    "token_group": """\
tokens : TokenConfig or dict, optional
    Other options of the tokens.""",
    "train_group": """\
training : TrainConfig or dict, optional
    Other options of the training: batch size, metric, number of models, optimiser,
    augmentation, calibration, resuming, callbacks.""",
    "fitted": """\
predictor_ : Predictor
    The trained model with its encoder.
history_ : list of dict
    One record per epoch; empty if loaded.
validation_index_ : ndarray of int
    Indices of the series held out for validation.
n_features_in_ : int
    Number of channels.""",
    "X": """\
X : SeriesBatch, array, list of arrays or table
    Series: anything ``SeriesBatch.of`` takes.""",
    "times": """\
times : array-like, optional
    Times of the samples; one unit apart if not given.
lengths : array-like of int, optional
    Lengths of padded series.""",
    "layout": """\
layout : {"time_first", "channels_first"}, optional
    Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, as in ``fit``, or time
    first where that is no guess.
columns : mapping, optional
    What the columns of a table mean, as in ``fit``; not given: what they meant there.""",
    "static": """\
static : array-like (B, S), optional
    Static covariates, as in ``fit``.""",
    "channels": """\
channels : sequence of str or int, optional
    Names or numbers of channels; not given: all.""",
    "at": """\
at : array-like (M,), (B, M) or list of B arrays
    Times to predict at, as in ``predict``.""",
    "fit_layout": """\
layout : {"time_first", "channels_first"}, optional
    Whether arrays are ``(B, L, C)`` or ``(B, C, L)``; if not given, time first where that
    is no guess.
columns : mapping, optional
    What the columns of a table mean, by the argument names of ``SeriesBatch.from_table``;
    others are guessed. New series are read in the same way.""",
    "held_out": """\
groups : array-like (B,), optional
    No group is both trained on and validated on.
validation_data : tuple, optional
    ``(X, y)`` or ``(X, y, times)`` instead of a part of the training series.""",
    "parameters_of_series": """\
static : tuple of str, default ()
    Names of the static covariates to use. None by default, because they may leak the target.
causal : bool, default False
    Predict at every window (a model of samples: at every sample) from the past only.""",
}
_TEXTS["fit"] = "\n".join(_TEXTS[part] for part in ("fit_layout", "held_out"))
_TEXTS["timed"] = "\n".join(_TEXTS[part] for part in ("X", "times"))
_TEXTS["reading"] = "\n".join(_TEXTS[part] for part in ("times", "layout"))
_TEXTS["series"] = "\n".join(_TEXTS[part] for part in ("X", "times", "layout"))


def documented(cls: type[T]) -> type[T]:
    """Put the shared descriptions into the docstrings of a class and its methods: each stands for
    a line with its name in braces.
    """

    def filled(doc: str) -> str:
        return re.sub(
            r"^( *)\{(\w+)\}$", lambda m: indent(_TEXTS[m[2]], m[1]), doc, flags=re.MULTILINE
        )

    cls.__doc__ = filled(cls.__doc__ or "")
    for member in vars(cls).values():
        if inspect.isfunction(member) and member.__doc__:
            member.__doc__ = filled(member.__doc__)
    return cls
