"""Fit an estimator: targets, splits, encoder and configurations, training, calibration."""

import inspect
import os
import threading
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.baselines import beside_baselines, out_of_fold, summary_of
from roughformer.estimators.ensemble import fit_ensemble
from roughformer.estimators.inputs import aligned, as_series, series_to_fit
from roughformer.estimators.parameters import (
    GroupedParameters,
    documented,
    preset,
    to_plain,
    token_config,
    with_saved_parameters,
)
from roughformer.explain import Explanation, explain
from roughformer.inference import (
    ModelSpec,
    Predictor,
    check_weights,
    committee_of,
    get_model,
    model_name,
)
from roughformer.model import OutputConfig, run_model
from roughformer.series import SeriesBatch, is_table
from roughformer.tokens import CellEncoder, TokenConfig, Tokenizer
from roughformer.train import (
    Inputs,
    LazySeries,
    TrainConfig,
    TrainingData,
    check_device,
    check_metric,
    fold_validation,
    join,
    run_fingerprint,
    source_of,
    split_validation,
    tensors,
    train,
)
from roughformer.util.checks import real_number, using_threads
from roughformer.util.groups import one_line

Series = SeriesBatch | LazySeries
Part = tuple[Series, Tensor, Tensor | None]  # series, their targets and their weights

_RECIPES = ("auto", "ensemble", "attention")
# Options of the training that an ensemble takes as well, or has no use for.
_BESIDE_THE_MODEL = ("metric", "resume", "save_seconds", "baselines")
_MOST_SERIES = 50_000  # that an ensemble is fitted to
_MOST_HELD = 4096  # series of a store that validate: they are in memory
_PLANNED_ON = 2048  # series of a store that options and units are chosen from
_FOR_SCALING = 4096  # series that statistics are taken from
_LEVELS = OutputConfig.model_fields["quantiles"].default
# torch draws from one generator for the whole process: fits in several threads take turns.
_ONE_GENERATOR = threading.RLock()


def warn_of_sparser(sparser: npt.NDArray[np.bool_]) -> None:
    """Warn of series whose intervals or sets tell nothing."""
    if sparser.any():
        warnings.warn(
            f"{sparser.sum()} of {len(sparser)} series have far fewer values than those that the "
            "model was calibrated on: call calibrate(X, y) with held-out series, which are thinned",
            UserWarning, stacklevel=3,
        )  # fmt: skip


class TrainingSet(NamedTuple):
    """Series with their targets, weights and groups; ``used`` are their numbers among those that
    the user gave.
    """

    batch: Series
    target: Tensor
    weight: Tensor | None
    groups: Any
    used: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What the models of one fit share."""

    spec: ModelSpec
    encoder: Any
    model: Any  # configuration of the module
    train: TrainConfig


def is_known(target: Tensor) -> Tensor:
    """Which targets (any shape) are known: class numbers from 0 on, numbers that are not NaN."""
    return ~target.isnan() if target.is_floating_point() else target >= 0


def class_counts(target: Tensor, n_classes: int, sample_weight: Tensor | None = None) -> Tensor:
    """How often each class is in ``target (B, ...)``, ``(K,)``; -1 = not known. With weights of the
    series ``(B,)``: their sums.
    """
    known = target >= 0
    weight = None
    if sample_weight is not None:
        weight = sample_weight.reshape(-1, *[1] * (target.dim() - 1)).expand(target.shape)[known]
    return torch.bincount(target[known], weights=weight, minlength=n_classes)


def _take(series: Series, which: npt.NDArray[np.int64]) -> Series:
    return series.part(which) if isinstance(series, LazySeries) else series[which]


@documented
class TrainedEstimator(GroupedParameters):
    """An estimator around a ``predictor_``, which fitting or loading gives it; the training loop or
    the ensemble fits it, whatever its model and its task.
    """

    kind: ClassVar[str]  # of the model, as ``roughformer.inference.predictor`` names it
    other_kinds: ClassVar[tuple[str, ...]] = ()  # that the estimator may choose instead
    task: Literal["classification", "regression"]
    n_jobs: Any
    predictor_: Predictor
    history_: list[dict[str, Any]]  # one record an epoch; empty when loaded

    # Parameters; an estimator that does not have one of the first three has this value.
    recipe: Any = "attention"
    causal: Any = False
    static: Any = ()
    validation: Any
    random_state: Any
    device: Any
    run_dir: Any
    verbose: Any
    _rate_like = False  # whether targets are rates, per unit of time

    # For the member that is being trained:
    _weight: Tensor | None  # of the classes (K,)
    _held_weight: Tensor | None  # of the series of its validation part
    validation_index_: npt.NDArray[np.int64]  # numbers of the series held out of those given
    member_histories_: list[list[dict[str, Any]]]

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """Make an estimator with the parameters of a preset.

        Parameters
        ----------
        name : {"default", "paper"}
            "paper" has the paper's own choices, for its sine task (classifier) or for heart rate
            (regressor): 75 windows, learning rate 1e-3, time as the only lift; depth 2 and both
            views for sines, depth 4 and the local view for heart rate.
        **changes
            Parameters that differ from the preset. Options of groups may be given by their own
            names: ``clock=8`` is ``tokens__clock=8``.

        Returns
        -------
        estimator
            Not fitted.
        """
        return cls.from_settings(cls.preset_settings(name) | cls.settings(changes))

    @classmethod
    def preset_settings(cls, name: str) -> dict[str, Any]:
        """Look up the settings of a preset that differ from the defaults.

        Parameters
        ----------
        name : str
            Name of the preset.

        Returns
        -------
        dict
        """
        settings = preset(name, cls.task)
        if settings and cls.kind != "rformer":
            raise InputError(
                f"the preset {name!r} is RFormer's; {cls.__name__} has its defaults only"
            )
        return cls.settings(settings)

    @abstractmethod
    def _truth(self, y: Any, n: int) -> npt.NDArray[Any]:
        """Known targets of n series, ``(n, m)``, or which class is the true one, ``(n, K)``."""

    @abstractmethod
    def _readable(self, output: Tensor) -> Any:
        """Outputs of the model as its user reads them."""

    def _series(
        self, x: Any, times: Any, lengths: Any, layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> SeriesBatch:  # fmt: skip
        check_is_fitted(self, "predictor_")
        predictor = self.predictor_
        known = {"channels": predictor.encoder.channels, "static": predictor.static_names}
        known |= predictor.metadata.get("data", {})
        return as_series(
            x, times, lengths, layout=layout, columns=columns, n_channels=self.n_features_in_,
            known=known,
        )  # fmt: skip

    def _labelled(
        self, x: Any, y: Any, times: Any, lengths: Any, layout: str | None,
        columns: Mapping[str, Any] | None,
    ) -> tuple[SeriesBatch, Any]:  # fmt: skip
        """Series and their targets; ``y=None``: those that the series have as labels."""
        batch = self._series(x, times, lengths, layout, columns)
        if y is None and batch.labels is None:
            raise InputError("score needs y, or series with labels")
        return batch, batch.labels if y is None else aligned(y, batch)

    def _run(
        self, what: str, x: Any, times: Any, lengths: Any, layout: str | None = None,
        columns: Mapping[str, Any] | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        batch = self._series(x, times, lengths, layout, columns)
        with using_threads(self.n_jobs):
            return getattr(self.predictor_, what)(batch, **options)

    def predict_windows(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Predict at the end of each window, with a causal model.

        Parameters
        ----------
        {series}

        Returns
        -------
        list of (ndarray (L,), ndarray (L, ...))
            For each series the times of the window ends and the predictions there.
        """
        batch = self._series(X, times, lengths, layout, columns)
        if not self.predictor_.outputs.causal:
            raise InputError("only a causal model predicts at every window: fit with causal=True")
        with using_threads(self.n_jobs):
            output, _ = self.predictor_.forward(batch)
        readable = self._readable(output)
        ends = [edges[1:] for edges in self.predictor_.window_edges(batch)]
        return [(end, readable[b, : len(end)]) for b, end in enumerate(ends)]

    def embed(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Represent each series by one vector, for search, clustering or another model.

        Parameters
        ----------
        {series}

        Returns
        -------
        ndarray (B, E)
            Principal components of the functionals (at most 64) for an ensemble; what the head
            sees, at the last window, for a network.
        """
        return self._run("embed", X, times, lengths, layout, columns).numpy()

    def explain(
        self, X: Any, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
        n_words: int | None = 20, target: Any = None,
    ) -> list[Explanation]:  # fmt: skip
        """Explain which windows, channels and words drove each prediction.

        Parameters
        ----------
        {series}
        n_words : int or None, default 20
            Number of words to tell; None: all.
        target : label or int, optional
            The class to explain (not given: the predicted one), or the index of a target of a
            regression with several.

        Returns
        -------
        list of Explanation
            One for each series; see ``roughformer.explain``.
        """
        batch = self._series(X, times, lengths, layout, columns)
        with using_threads(self.n_jobs):
            return explain(self.predictor_, batch, n_words=n_words, target=target)

    def calibrate(
        self, X: Any, y: Any = None, times: Any = None, lengths: Any = None, *,
        layout: str | None = None, columns: Mapping[str, Any] | None = None,
    ) -> Self:  # fmt: skip
        """Learn from held-out series how wide intervals, or how large sets of classes, must be.

        Split conformal prediction: the scores are errors in units of the predicted deviation (if
        the model has one), or one minus the probability of the true class. Series are predicted
        whole and with 50 to 90 % of their points left out, and bounds are kept by the number of
        values observed: intervals and sets grow where much is missing.

        Parameters
        ----------
        X : SeriesBatch, array or list of arrays
            Series that the model was not fitted to.
        y : array-like (B,) or (B, m), optional
            Their labels, or targets, NaN where unknown. Not given: the labels of ``X``.
        {reading}

        Returns
        -------
        self
        """
        batch, y = self._labelled(X, y, times, lengths, layout, columns)
        self._run("calibrate", batch, None, None, true=self._truth(y, len(batch)))
        return self

    def summary(self) -> str:
        """Describe the fitted model, and what it reached beside simple yardsticks.

        Returns
        -------
        str
            Several lines: what the model is made of and, of an ensemble, out-of-fold scores of the
            model, of its parts alone and of the majority class or the mean.
        """
        check_is_fitted(self, "predictor_")
        return summary_of(self.predictor_)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Save the trained model; ``load`` reads it, no pickle is involved.

        Parameters
        ----------
        directory : path-like
            Directory to write.
        """
        check_is_fitted(self, "predictor_")
        _check_directory(directory)
        given = self.get_params(deep=False)
        del given["run_dir"]  # where a run was made is not the model's business
        self.predictor_.metadata["parameters"] = to_plain(given)
        self.predictor_.save(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], device: str = "cpu") -> Self:
        """Load a fitted estimator.

        Parameters
        ----------
        directory : path-like
            Directory that ``save`` or a training run wrote.
        device : str, default "cpu"
            Where the model is to run.

        Returns
        -------
        estimator
            Fitted, with the parameters that it was saved with.
        """
        _check_directory(directory)
        predictor = Predictor.load(directory, device)
        if predictor.metadata.get("task") != cls.task:
            raise InputError(
                f"{os.fspath(directory)} holds a model for {predictor.metadata.get('task')}, "
                f"not for {cls.task}"
            )
        kind = model_name(predictor.model)
        if kind not in (cls.kind, *cls.other_kinds):
            raise InputError(
                f"{os.fspath(directory)} holds a model of the kind {kind!r}, and {cls.__name__} is "
                f"for the kind {cls.kind!r}; load it with the estimator that saved it"
            )
        estimator = with_saved_parameters(cls, predictor.metadata, directory)
        estimator._adopt(predictor)
        return estimator

    def _adopt(self, predictor: Predictor) -> None:
        self.predictor_ = predictor
        self.n_features_in_ = len(predictor.encoder.channels)
        self.history_ = []

    def fit(
        self, X: Any, y: Any = None, *,
        times: Any = None, lengths: Any = None, layout: str | None = None,
        columns: Mapping[str, Any] | None = None, groups: Any = None,
        validation_data: tuple[Any, ...] | None = None, sample_weight: Any = None,
    ) -> Self:  # fmt: skip
        """Learn from series and their labels or targets.

        Parameters
        ----------
        {X}
        y : array-like (B,) or (B, m), optional
            Labels, or m targets. A causal model also takes those of each window: ``(B, L)`` or
            ``(B, L, m)``. NaN, None, pandas.NA and masked entries are unknown and count nowhere;
            only the label of a whole series must be known. Not given: the labels of ``X``.
        {times}
        {fit}
        sample_weight : array-like (B,), optional
            Weights of the series in the loss, the class prior and the validation scores. A series
            of weight 0 is left out.

        Returns
        -------
        self
        """
        if not isinstance(self.causal, bool | np.bool_):
            raise InputError(f"causal must be True or False, got {self.causal!r}")
        if is_table(X) and self.static:
            columns = {"static": self.static} | dict(columns or {})
        batch: Series
        about: dict[str, Any] = {}
        if isinstance(X, LazySeries):
            if columns is not None or layout is not None:
                raise InputError("columns= and layout= are for tables and arrays, not for a store")
            batch = X
        else:
            batch, about = series_to_fit(X, y, times, lengths, layout, columns)
        n = len(batch)
        if n == 0:
            raise InputError("there is nothing to learn from: no series were given")
        if y is None and batch.labels is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; "
                "give y, or series with labels"
            )
        y = aligned(batch.labels if y is None else y, batch)
        groups = aligned(groups, batch, "groups")
        target, weight, used = self._encode_targets(y, n), None, np.arange(n)
        if sample_weight is not None:
            weight = check_weights(aligned(sample_weight, batch, "sample_weight"), n)
            # A series of weight 0 is as good as not there.
            used = np.flatnonzero(weight > 0)
            batch, target, weight = _take(batch, used), target[used], weight[used]
            # Groups of another length are refused when they are used.
            if groups is not None and np.shape(groups) == (n,):
                groups = np.asarray(groups)[used]
        self._warn_of_one_answer(len(batch))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held = None
        if validation_data is not None:
            held = self._validation_part(validation_data, about)
        data = TrainingSet(batch, target, weight, groups, used)
        with using_threads(self.n_jobs):
            if self._takes_ensemble(data):
                self._fit_ensemble(data, seed)
            else:
                self._fit_networks(data, held, seed)
        if about:
            self.predictor_.metadata["data"] = about
        self.n_features_in_ = batch.n_channels
        run_dir = self._run_directory()
        if run_dir is not None:
            self.save(run_dir / "model")
        return self

    def _warn_of_one_answer(self, n: int) -> None:
        """Warn about series that are valid, but probably a mistake."""
        classes = getattr(self, "classes_", None) if self.task == "classification" else None
        text = ""
        if n == 1:
            text = "there is one series only, so the model can only memorise it"
        elif classes is not None and len(classes) == 1:
            text = f"all labels are {classes.tolist()[0]!r}: the model will always answer that"
        elif classes is not None and len(classes) == n:
            text = "each series has a label of its own: no class can be learned from one series"
        if text:
            warnings.warn(text, UserWarning, stacklevel=3)

    def _validation_part(self, validation_data: Any, known: dict[str, Any]) -> Part:
        """``validation_data`` as series and targets; ``known``: the columns of the training table,
        or the layout of the training arrays.
        """
        if not isinstance(validation_data, tuple | list) or not 2 <= len(validation_data) <= 3:
            raise InputError("validation_data must be (X, y), (X, y, times) or None")
        if self._train_config.n_estimators != 1:
            raise InputError("several estimators hold out a part each: leave validation_data out")
        x, y, *times = validation_data
        series = x if isinstance(x, LazySeries) else as_series(x, *times, known=known)
        y = series.labels if y is None else aligned(y, series)
        if y is None:
            raise InputError("validation_data needs targets: (X, y), or series with labels")
        return series, self._validation_targets(y, len(series)), None

    def _run_directory(self) -> Path | None:
        if self.run_dir is None:
            return None
        if not isinstance(self.run_dir, str | os.PathLike):
            raise InputError(f"run_dir must be the path of a directory, got {self.run_dir!r}")
        return Path(self.run_dir)

    def _metadata(self, part: Series) -> dict[str, Any]:
        return {"roughformer": version("roughformer"), "trained_on": len(part), "task": self.task}

    # An ensemble on functionals of signatures

    def _takes_ensemble(self, data: TrainingSet) -> bool:
        """Whether the recipe is the ensemble, or "auto" and nothing speaks against it."""
        if self.recipe not in _RECIPES:
            raise InputError(f"recipe must be one of {', '.join(_RECIPES)}; got {self.recipe!r}")
        if self.recipe == "attention":
            return False
        reasons = [
            f"{group}.{name}"
            for group in self.groups
            for name in self._changed(group)
            if name not in _BESIDE_THE_MODEL
        ]
        if self.causal:
            reasons.append("causal=True")
        if getattr(self, "uncertainty", "none") != "none":
            reasons.append("uncertainty")
        if isinstance(data.batch, LazySeries):
            reasons.append("a store")
        if self.task == "regression" and bool(data.target.isnan().any()):
            reasons.append("unknown targets")
        if self.recipe == "ensemble" and reasons:
            raise InputError(f"recipe='ensemble' does not go with {reasons[0]}")
        return not reasons

    def _fit_ensemble(self, data: TrainingSet, seed: int) -> None:
        batch, target, weight, groups, _ = data
        assert not isinstance(batch, LazySeries)
        self.checked_metric(self._train_config.metric)
        check_device(self._train_config.device)
        self._fit_targets(target)
        of_class = self._class_weight(target, weight)
        if of_class is not None:
            weight = of_class[target] if weight is None else weight * of_class[target]
        if len(batch) > _MOST_SERIES:
            rng = np.random.default_rng(seed)
            chosen = np.sort(rng.permutation(len(batch))[:_MOST_SERIES])
            batch, target = batch[chosen], target[chosen]
            weight = None if weight is None else weight[chosen]
            groups = None if groups is None else np.asarray(groups)[chosen]
        encoder = CellEncoder.fit(batch, tuple(self.static))
        fitted = fit_ensemble(
            encoder, encoder.encode(batch), self._to_loss(target),
            n_outputs=self._output_options(target)["n_outputs"], task=self.task, weight=weight,
            groups=groups, seed=seed,
        )  # fmt: skip
        metadata = self._metadata(batch)
        metadata["out_of_fold"] = out_of_fold(fitted, target, self._targets)
        self.predictor_ = Predictor(encoder, fitted.model, self._targets, metadata=metadata)
        outputs, true = fitted.blend, target.double().numpy()
        if self.task == "classification":
            outputs = np.log(np.maximum(outputs, np.finfo(float).tiny))
            true = np.eye(outputs.shape[1])[target.numpy()]
        self.predictor_.calibrate_out_of_fold(batch, outputs, true, groups)
        self.history_, self.member_histories_ = [], [[]]
        self.validation_index_ = np.zeros(0, dtype=np.int64)

    # Networks

    def _fit_networks(self, data: TrainingSet, held: Part | None, seed: int) -> None:
        """Train the network, or several; ``held``: the validation part, if the user gave one."""
        whole = (data.batch, data.target, data.weight)
        if held is None:
            parts = self._split(data, seed)
        else:
            parts = [(whole, held)]
            self.validation_index_ = np.zeros(0, dtype=np.int64)
        # Members answer as one, so they share what goes in and the scale of what comes out.
        shared = parts[0][0] if len(parts) == 1 else whole
        plan = self._plan(*shared[:2])
        self._check_windows(plan, *whole[:2])
        if held is not None:
            self._check_windows(plan, *held[:2])
        self._fit_targets(shared[1])
        run_dir, trained = self._run_directory(), []
        for number, part in enumerate(parts, start=1):
            place, config = run_dir, plan.train
            if len(parts) > 1:
                place = None if run_dir is None else run_dir / f"member-{number}"
                calls = [
                    lambda record, call=call, member=number: call(record | {"member": member})
                    for call in config.callbacks
                ]
                config = config.model_copy(update={"callbacks": tuple(calls)})
            config = config.model_copy(update={"seed": seed + number - 1})
            with _ONE_GENERATOR, torch.random.fork_rng():
                torch.manual_seed(config.seed)
                trained.append(self._train(plan, config, *part, place))
        self.member_histories_ = [history for _, history in trained]
        self.history_ = self.member_histories_[0]
        self.predictor_ = committee_of([predictor for predictor, _ in trained])
        if len(parts) == 1 and plan.train.baselines:
            self._compare(*parts[0], seed)

    def _compare(self, part: Part, held: Part, seed: int) -> None:
        """Compare an RFormer with simple models on the same parts, where they can be fitted."""
        if self.kind != "rformer":
            return
        if part[1].dim() > self._axes_per_series:
            return
        if isinstance(part[0], LazySeries) or isinstance(held[0], LazySeries):
            return
        scores = beside_baselines(self.predictor_, part, held, tuple(self.static), seed)
        metadata = self.predictor_.metadata
        metadata["beside_baselines"], metadata["training_scores"] = scores

    def _split(self, data: TrainingSet, seed: int) -> list[tuple[Part, Part]]:
        """Training and validation part of each model: one holds out a share of the series, several
        hold out a fold each. Sets ``validation_index_``.
        """
        batch, target, weight, groups, used = data
        classes: npt.NDArray[np.int64] | None = target.numpy()
        if self.task != "classification" or target.dim() > 1:
            # Series of which something is known give their share, as a class would.
            known = is_known(target).flatten(1).any(dim=1).long()
            classes = known.numpy() if 0 < int(known.sum()) < len(known) else None
        n, count, fraction = len(batch), self._train_config.n_estimators, self.validation
        if isinstance(batch, LazySeries):
            if count > 1:
                raise InputError(
                    "several estimators hold out a part each, which must fit into memory: "
                    "n_estimators of a store is 1"
                )
            if real_number(fraction, "validation", "a number in [0, 1)") > 0:
                # What does not fit is better trained on than left out.
                fraction = min(fraction, _MOST_HELD / n)
        if count > 1:
            splits = fold_validation(n, count, seed, classes=classes, groups=groups)
        else:
            splits = [split_validation(n, fraction, seed, classes=classes, groups=groups)]
        self.validation_index_ = used[np.concatenate([held for _, held in splits])]

        def part(which: npt.NDArray[np.int64]) -> Part:
            return _take(batch, which), target[which], None if weight is None else weight[which]

        return [(part(inside), part(held)) for inside, held in splits]

    def _check_windows(self, plan: Plan, batch: Series, target: Tensor) -> None:
        """Targets of each window must be as many as the windows, and stay with them."""
        if target.dim() == self._axes_per_series:
            return
        most = plan.encoder.n_positions(batch)
        if target.shape[1] != most:
            raise InputError(
                f"there are targets for {target.shape[1]} windows, but the series with most "
                f"windows has {most}"
            )
        if getattr(plan.encoder, "tokens_are_samples", False) and plan.train.drop[1] > 0:
            raise InputError(
                "targets of each sample cannot be used while samples are dropped; set drop=0"
            )
        rule = plan.encoder.config.rule.rule if isinstance(plan.encoder, Tokenizer) else "points"
        if plan.train.warp > 0 and rule not in ("count", "points"):
            how = "a duration" if rule == "duration" else "cut times"
            raise InputError(
                f"warp moves the series but not windows by {how}, so targets of each window would "
                "be those of other times; set warp=0, or give windows by count"
            )

    def _plan(self, batch: Series, target: Tensor) -> Plan:
        """Check the options, and fit the encoder to the training series."""
        group = self.groups["model"](**self._options("model"))
        model = {name: getattr(group, name) for name in type(group).options()}
        train, causal, rate_unit = self._train_config, bool(self.causal), self._rate_unit()
        output = {"task": self.task, "causal": causal} | self._output_options(target)
        if self.task == "regression" and train.label_smoothing:
            raise InputError("label_smoothing is for classification; leave it out")
        if model.get("quantiles", _LEVELS) != _LEVELS and output.get("uncertainty") != "quantile":
            raise InputError("quantiles are levels of uncertainty='quantile'; set that, too")
        spec = get_model(self.kind)
        try:
            encoder = self._stored_tokenizer(batch)
            if encoder is None:
                if isinstance(batch, LazySeries):
                    batch = batch.sample(_PLANNED_ON)[:]
                options = self._token_options()
                tokens = (
                    token_config(batch, options, causal)
                    if self.kind == "rformer"
                    else TokenConfig(**options)
                )
                rates = None if rate_unit is None else rate_unit * target.numpy().ravel()
                encoder = spec.fit_encoder(tokens, batch, rates, model)
            if self.kind == "rformer" and encoder.config.observations:
                model = model | {"wide": 256, "scaling": "rank"} | group.given
            config = spec.configure(encoder, model, output, rate_unit or 1.0)
            return Plan(spec, encoder, config, train)
        except ValidationError as error:
            raise one_line(error) from None

    def _stored_tokenizer(self, batch: Series) -> Any:
        """The tokenizer of a store whose tokens can be used: those of an RFormer, unless options of
        the tokens were changed.
        """
        if not isinstance(batch, LazySeries):
            return None
        changed = self._changed("tokens") if "tokens" in self.groups else []
        usual = inspect.signature(type(self)).parameters
        changed += [
            name
            for name in ("static", "causal")
            if name in usual and repr(getattr(self, name)) != repr(usual[name].default)
        ]
        if batch.tokenizer is not None and self.kind == "rformer" and not changed:
            return batch.tokenizer
        if batch.holds_series:
            return None
        if self.kind != "rformer":
            raise InputError(
                f"the model {self.kind!r} reads the samples, and the store {batch.place} holds "
                "tokens only; make it with roughformer features --series"
            )
        raise InputError(
            f"the tokens of the store {batch.place} are made already, so {', '.join(changed)} "
            "cannot be chosen; leave that out, or make the store with roughformer features --series"
        )

    @property
    def _train_config(self) -> TrainConfig:
        return TrainConfig(**self._options("training"), device=self.device)

    def _token_options(self) -> dict[str, Any]:
        """Options of the tokens, "auto" where the series decide."""
        options = {"static": self.static}
        if "tokens" not in self.groups:
            return options
        usual = {name: self._usual("tokens", name) for name in TokenConfig.options()}
        return usual | options | self._options("tokens")

    def _train(
        self, plan: Plan, config: TrainConfig, part: Part, held: Part, run_dir: Path | None
    ) -> tuple[Predictor, list[dict[str, Any]]]:
        """One model, trained and calibrated, and the record of its training."""
        (series, target, weight), (held_series, held_target, held_weight) = part, held
        encoder = plan.encoder
        model = plan.spec.model(plan.model)
        metric = self.checked_metric(config.metric)
        source = source_of(
            encoder, series, target, config, num_workers=config.num_workers, weight=weight,
            rate_like=self._rate_like, to_target=self._to_loss, threads=1,
        )  # fmt: skip
        inputs = source.sample(_FOR_SCALING)
        if hasattr(encoder, "least_scale"):
            inputs = inputs | {"least_scale": encoder.least_scale(inputs)}
        model.fit_scaling(inputs)
        self._weight, self._held_weight = self._class_weight(target, weight), None
        if self.task == "classification":
            counts = class_counts(target, plan.model.n_outputs, weight)
            frequency = counts if self._weight is None else counts * self._weight
            if frequency.sum() > 0:
                model.fit_prior(frequency / frequency.sum())
        valid = None
        if len(held_series):
            valid = self._validation_inputs(encoder, held_series, held_target, config)
            if held_weight is not None:
                self._held_weight = held_weight.repeat(len(valid[1]) // len(held_series))
            if not self._any_known(*valid):
                valid = None
                warnings.warn(
                    "no target of the validation part is known, so nothing can be validated: the "
                    "weights of the last epoch are kept, without calibration; give "
                    "validation_data with targets, or set validation=0",
                    UserWarning,
                    stacklevel=4,
                )
        predictor = Predictor(encoder, model, self._targets, metadata=self._metadata(series))

        def scores(output: Tensor, target: Tensor) -> dict[str, float]:
            shown = self._at_targets(output, target, valid[0] if valid else {})
            return self._scores(predictor, *shown)

        data = TrainingData(
            source, plan.model, valid, scores, metric, self._weight,
            run_fingerprint(
                series, target, held_series, held_target, config, encoder, plan.model,
                *(part for part in (weight, held_weight) if part is not None),
                repr((metric, getattr(self, "class_weight", None))),
            ),
            self._held_weight,
        )  # fmt: skip
        if run_dir is not None:
            run_dir.mkdir(parents=True, exist_ok=True)
        try:
            history = train(
                model, data, config, run_dir=run_dir, resume=config.resume,
                verbose=bool(self.verbose), tensorboard=config.tensorboard,
            )  # fmt: skip
        finally:
            source.close()
        if valid is not None and config.calibrate:
            inputs, target = valid
            output = self._at_targets(run_model(model, inputs, predictor.device), target, inputs)
            predictor.calibration = self._calibration(predictor, *output)
        return predictor, history

    def _validation_inputs(
        self, encoder: Any, held: Series, target: Tensor, config: TrainConfig
    ) -> tuple[Inputs, Tensor]:
        """The validation part as the model will meet it: at several rates of dropping if it is
        trained with dropping, each with a fixed seed.
        """
        if isinstance(held, LazySeries):
            if held.tokenizer == encoder and config.drop[1] == 0:
                return tensors(held.inputs(slice(None))), self._to_loss(target)
            held = held[:]
        low, high = config.drop
        rates = [0.0] if high == 0 else [low, (low + high) / 2, high]
        inputs = join(
            [encoder.encode(held, drop=r, seed=config.seed + i) for i, r in enumerate(rates, 1)]
        )
        return inputs, self._to_loss(target).repeat(len(rates), *[1] * (target.dim() - 1))

    def _at_targets(
        self, output: Tensor, target: Tensor, inputs: Inputs
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Outputs ``(N, ...)`` with their targets and weights: of the last real window where a
        causal model has one target for a series, of all windows where each has its own.
        """
        weight = self._held_weight
        if not self.causal:
            return output, target, weight
        real = inputs.get("mask", torch.ones(output.shape[:2], dtype=torch.bool))
        if target.dim() > self._axes_per_series:
            weight = None if weight is None else weight.repeat_interleave(real.sum(dim=1))
            return output[real], target[:, : output.shape[1]][real], weight
        last = (real.sum(dim=1) - 1).clamp(min=0)
        return output[torch.arange(len(output)), last], target, weight

    def _any_known(self, inputs: Inputs, target: Tensor) -> bool:
        """Whether some target is known: of a series, or of a window that is there."""
        known = is_known(target)
        if target.dim() > self._axes_per_series and "mask" in inputs:
            real = inputs["mask"].view(*inputs["mask"].shape, *[1] * (target.dim() - 2))
            known = known[:, : real.shape[1]] & real
        return bool(known.any())

    # What a task or a kind of model may change

    @property
    def _axes_per_series(self) -> int:
        """Axes of targets of which each series has one; those of each window have one more."""
        return 1 if self.task == "classification" else 2

    @classmethod
    def checked_metric(cls, name: str) -> str:
        """Check the name of a metric.

        Parameters
        ----------
        name : str
            A metric, or "auto".

        Returns
        -------
        str
            With "auto" resolved.
        """
        return check_metric(name, cls.task)

    @abstractmethod
    def _encode_targets(self, y: Any, n: int) -> Tensor:
        """Check the targets of ``n`` training series, and learn what they mean."""

    @abstractmethod
    def _validation_targets(self, y: Any, n: int) -> Tensor:
        """Check the targets of ``n`` other series."""

    @abstractmethod
    def _output_options(self, target: Tensor) -> dict[str, Any]:
        """Options of the model that the targets decide."""

    @abstractmethod
    def _scores(
        self, predictor: Predictor, output: Tensor, target: Tensor, weight: Tensor | None
    ) -> dict[str, float]:
        """Scores on the validation part, in units of the targets."""

    @abstractmethod
    def _calibration(
        self, predictor: Predictor, output: Tensor, target: Tensor, weight: Tensor | None
    ) -> float:
        """Temperature or factor on deviations that suits the validation part."""

    def _fit_targets(self, target: Tensor) -> None:
        """Learn the scale of the targets, if they have one."""

    def _to_loss(self, target: Tensor) -> Tensor:
        """Targets as the loss takes them."""
        return target

    def _class_weight(self, target: Tensor, sample_weight: Tensor | None = None) -> Tensor | None:
        """Weights of the classes ``(K,)``, if there are any."""
        return None

    def _rate_unit(self) -> float | None:
        """Turns per unit of time of a target of 1, if targets are rates."""
        return None


def _check_directory(directory: Any) -> None:
    if not isinstance(directory, str | os.PathLike):
        raise InputError(f"the directory of a model must be a path, got {directory!r}")
