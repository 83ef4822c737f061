"""Fit an estimator: targets, splits, encoder and configurations, training, calibration."""

import inspect
import os
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError
from sklearn.utils import check_random_state
from torch import Tensor

from roughformer.errors import InputError
from roughformer.estimators.base import FittedEstimator
from roughformer.estimators.defaults import token_config
from roughformer.estimators.inputs import aligned, as_series, series_to_fit
from roughformer.inference import (
    ModelSpec,
    Predictor,
    check_weights,
    committee_of,
    get_model,
    least_scale_of,
)
from roughformer.model import OutputConfig
from roughformer.series import SeriesBatch, is_table
from roughformer.store import StoredSeries
from roughformer.tokens import TokenConfig, Tokenizer
from roughformer.train import (
    Callback,
    Inputs,
    TrainConfig,
    TrainingData,
    check_metric,
    current_process_group,
    fold_validation,
    join,
    run_fingerprint,
    source_of,
    split_validation,
    tensors,
    train,
)
from roughformer.util.checks import real_number
from roughformer.util.groups import one_line
from roughformer.util.threads import using_threads

__all__ = ["TrainedEstimator", "TrainingSet", "class_counts", "held_series"]


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


Series = SeriesBatch | StoredSeries
Part = tuple[Series, Tensor, Tensor | None]  # series, their targets and their weights
_MOST_HELD = 4096  # series of a store that validate: they are in memory


def held_series(
    validation_data: Any, n_estimators: int, known: dict[str, Any]
) -> tuple[Series, Any]:
    """The series of ``validation_data`` and their targets as given; ``known``: the columns of the
    training table, or the layout of the training arrays.
    """
    if not isinstance(validation_data, tuple | list) or not 2 <= len(validation_data) <= 3:
        raise InputError("validation_data must be (X, y), (X, y, times) or None")
    if n_estimators != 1:
        raise InputError("several estimators hold out a part each: leave validation_data out")
    held_x, held_y, *rest = validation_data
    held = held_x if isinstance(held_x, StoredSeries) else as_series(held_x, *rest, known=known)
    held_y = held.labels if held_y is None else aligned(held_y, held)
    if held_y is None:
        raise InputError("validation_data needs targets: (X, y), or series with labels")
    return held, held_y


_PLANNED_ON = 2048  # series of a store that options and units are chosen from
_LEVELS = OutputConfig.model_fields["quantiles"].default


@dataclass(frozen=True)
class Plan:
    """What the models of one fit share."""

    spec: ModelSpec
    encoder: Any
    model: Any  # configuration of the module
    train: TrainConfig


_FOR_SCALING = 4096  # series that statistics are taken from
# torch draws from one generator for the whole process: fits in several threads take turns.
_ONE_GENERATOR = threading.RLock()


class TrainingSet(NamedTuple):
    """Series with their targets, weights and groups; ``used`` are their numbers among those that
    the user gave.
    """

    batch: Series
    target: Tensor
    weight: Tensor | None
    groups: Any
    used: npt.NDArray[np.int64]


class TrainedEstimator(FittedEstimator):
    """An estimator that the training loop fits, whatever its model and its task."""

    # Parameters; an estimator that does not have one of the first two has this value.
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

    # What a kind of estimator may change.

    def _at_targets(self, output: Tensor, target: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Outputs ``(N, ...)`` and their targets: of the last real window where a causal model has
        one target for a series, of all windows where each has its own.
        """
        if not self.causal:
            return output, target
        real = inputs.get("mask", torch.ones(output.shape[:2], dtype=torch.bool))
        if target.dim() > self._axes_per_series:
            return output[real], target[:, : output.shape[1]][real]
        last = (real.sum(dim=1) - 1).clamp(min=0)
        return output[torch.arange(len(output)), last], target

    def _weights_at(self, target: Tensor, inputs: Inputs) -> Tensor | None:
        """Weights of what ``_at_targets`` gives."""
        weight = self._held_weight
        if weight is None or not self.causal or target.dim() == self._axes_per_series:
            return weight
        counts = inputs["mask"].sum(dim=1) if "mask" in inputs else target.shape[1]
        return weight.repeat_interleave(counts)

    def _any_known(self, inputs: Inputs, target: Tensor) -> bool:
        """Whether some target is known: of a series, or of a window that is there."""
        known = is_known(target)
        if target.dim() > self._axes_per_series and "mask" in inputs:
            real = inputs["mask"].view(*inputs["mask"].shape, *[1] * (target.dim() - 2))
            known = known[:, : real.shape[1]] & real
        return bool(known.any())

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

    def _rate_unit(self) -> float | None:
        """Turns per unit of time of a target of 1, if targets are rates."""
        return None

    # Fitting

    def _fit(
        self,
        x: Any,
        y: Any,
        times: Any,
        lengths: Any,
        layout: str | None,
        columns: Mapping[str, Any] | None,
        groups: Any,
        validation_data: Any,
        sample_weight: Any = None,
    ) -> Self:
        if not isinstance(self.causal, bool | np.bool_):
            raise InputError(f"causal must be True or False, got {self.causal!r}")
        if is_table(x) and self.static:
            columns = {"static": self.static} | dict(columns or {})
        batch: Series
        about: dict[str, Any] = {}
        if isinstance(x, StoredSeries):
            if columns is not None or layout is not None:
                raise InputError("columns= and layout= are for tables and arrays, not for a store")
            batch = x
        else:
            batch, about = series_to_fit(x, y, times, lengths, layout, columns)
        if len(batch) == 0:
            raise InputError("there is nothing to learn from: no series were given")
        if y is None:
            if batch.labels is None:
                raise InputError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None; "
                    "give y, or series with labels"
                )
            y = batch.labels
        y, groups = aligned(y, batch), aligned(groups, batch, "groups")
        target = self._encode_targets(y, len(batch))
        n = len(batch)
        weight, used = None, np.arange(n)
        if sample_weight is not None:
            weight = check_weights(aligned(sample_weight, batch, "sample_weight"), n)
            # A series of weight 0 is as good as not there.
            used = np.flatnonzero(weight > 0)
            batch = batch.part(used) if isinstance(batch, StoredSeries) else batch[used]
            target, weight = target[torch.from_numpy(used)], weight[torch.from_numpy(used)]
            groups = None if groups is None else _some(groups, used, n)
        self._warn_of_little(batch)
        seed = current_process_group().same(
            int(check_random_state(self.random_state).randint(2**31 - 1))
        )
        data = TrainingSet(batch, target, weight, groups, used)
        with using_threads(self.n_jobs):
            self._learn(data, None if validation_data is None else (validation_data, about), seed)
        if about:
            self.predictor_.metadata["data"] = about
        self.n_features_in_ = batch.n_channels
        run_dir = self._run_directory()
        if run_dir is not None:
            current_process_group().once(lambda: self.save(run_dir / "model"))
        return self

    def _learn(
        self, data: TrainingSet, validation: tuple[Any, dict[str, Any]] | None, seed: int
    ) -> None:
        """Train the network, or several; ``validation``: series of the user's, and what is known
        of the training data.
        """
        batch, target, weight, _, _ = data
        run_dir = self._run_directory()
        if validation is None:
            parts = self._split(data, seed)
        else:
            outside, outside_y = held_series(
                validation[0], self._train_config.n_estimators, validation[1]
            )
            aim = self._aim(outside_y, len(outside))
            parts = [((batch, target, weight), (outside, aim, None))]
            self.validation_index_ = np.zeros(0, dtype=np.int64)
        # Members answer as one, so they share what goes in and the scale of what comes out.
        shared = parts[0][0] if len(parts) == 1 else (batch, target, weight)
        plan = self._plan(*shared[:2])
        self._check_windows(plan, batch, target)
        if validation is not None:
            self._check_windows(plan, *parts[0][1][:2])
        self._fit_targets(shared[1], plan.model)
        found = []
        for number, (part, held) in enumerate(parts):
            where, config = run_dir, plan.train
            if len(parts) > 1:
                where = None if run_dir is None else run_dir / f"member-{number + 1}"
                callbacks = tuple(_of_member(number + 1, call) for call in config.callbacks)
                config = config.model_copy(update={"callbacks": callbacks})
            config = config.model_copy(update={"seed": seed + number})
            with _ONE_GENERATOR, torch.random.fork_rng():
                torch.manual_seed(seed + number)
                found.append(self._train(plan, config, part, held, where))
        self.member_histories_ = [history for _, history in found]
        self.history_ = self.member_histories_[0]
        self.predictor_ = committee_of([predictor for predictor, _ in found])
        if len(parts) == 1 and plan.train.baselines:
            self._compare(*parts[0], seed)

    def _compare(self, part: Part, held: Part, seed: int) -> None:
        """Hold the network against simple models on the same parts."""

    def _run_directory(self) -> Path | None:
        if self.run_dir is None:
            return None
        if not isinstance(self.run_dir, str | os.PathLike):
            raise InputError(f"run_dir must be the path of a directory, got {self.run_dir!r}")
        return Path(self.run_dir)

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
        count, fraction = self._train_config.n_estimators, self.validation
        if isinstance(batch, StoredSeries):
            if count > 1:
                raise InputError(
                    "several estimators hold out a part each, which must fit into memory: "
                    "n_estimators of a store is 1"
                )
            if real_number(fraction, "validation", "a number in [0, 1)") > 0:
                # What does not fit is better trained on than left out.
                fraction = min(fraction, _MOST_HELD / len(batch))
        n = len(batch)
        if count > 1:
            splits = fold_validation(n, count, seed, classes=classes, groups=groups)
        else:
            splits = [split_validation(n, fraction, seed, classes=classes, groups=groups)]
        self.validation_index_ = used[np.concatenate([held for _, held in splits])]

        def part(which: npt.NDArray[np.int64]) -> Part:
            series = batch.part(which) if isinstance(batch, StoredSeries) else batch[which]
            return series, target[which], None if weight is None else weight[which]

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
                if isinstance(batch, StoredSeries):
                    batch = batch.sample(_PLANNED_ON)[:]
                tokens = (
                    token_config(batch, self._token_options(), causal)
                    if self.kind == "rformer"
                    else TokenConfig(**self._token_options())
                )
                rates = None if rate_unit is None else rate_unit * target.numpy().ravel()
                encoder = spec.fit_encoder(tokens, batch, rates, model)
            if self.kind == "rformer" and encoder.config.observations:
                model = model | {"wide": 256, "scaling": "rank"} | group.given
            return Plan(
                spec, encoder, spec.configure(encoder, model, output, rate_unit or 1.0), train
            )
        except ValidationError as error:
            raise one_line(error) from None

    def _stored_tokenizer(self, batch: Series) -> Any:
        """The tokenizer of a store whose tokens can be used: those of an RFormer, unless options of
        the tokens were changed.
        """
        if not isinstance(batch, StoredSeries):
            return None
        changed = self._changed_tokens()
        if batch.tokenizer is not None and self.kind == "rformer" and not changed:
            return batch.tokenizer
        if batch.holds_series:
            return None
        place = batch.cache.place
        if self.kind != "rformer":
            raise InputError(
                f"the model {self.kind!r} reads the samples, and the store {place} holds tokens "
                "only; make it with roughformer features --series"
            )
        raise InputError(
            f"the tokens of the store {place} are made already, so {', '.join(changed)} cannot be "
            "chosen; leave that out, or make the store with roughformer features --series"
        )

    @property
    def _train_config(self) -> TrainConfig:
        return TrainConfig(**self._options("training"), device=self.device)

    def _token_options(self) -> dict[str, Any]:
        """Options of the tokens, "auto" where the series decide."""
        found = {"static": self.static}
        if "tokens" not in self.groups:
            return found
        usual = {name: self._usual("tokens", name) for name in TokenConfig.options()}
        return usual | found | self._options("tokens")

    def _changed_tokens(self) -> list[str]:
        """Options of the tokens that are not as usual."""
        found = self._changed("tokens") if "tokens" in self.groups else []
        usual = inspect.signature(type(self)).parameters
        others = [name for name in ("static", "causal") if name in usual]
        return found + [n for n in others if repr(getattr(self, n)) != repr(usual[n].default)]

    def _warn_of_little(self, batch: Series) -> None:
        """Say in words what goes through but can hardly be meant."""
        classes = getattr(self, "classes_", None) if self.task == "classification" else None
        text = ""
        if len(batch) == 1:
            text = "there is one series only: a model can do little more than learn it by heart"
        elif classes is not None and len(classes) == 1:
            text = f"all labels are {classes.tolist()[0]!r}: the model will always answer that"
        if text:
            warnings.warn(text, UserWarning, stacklevel=4)

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
        model.fit_scaling(inputs | least_scale_of(encoder, inputs))
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
        data = TrainingData(
            source,
            plan.model,
            valid,
            lambda output, aim: self._scores(predictor, output, aim, valid[0] if valid else {}),
            metric,
            self._weight,
            run_fingerprint(
                series, target, held_series, held_target, config, encoder, plan.model,
                *(part for part in (weight, held_weight) if part is not None),
                repr((metric, getattr(self, "class_weight", None))),
            ),
            self._held_weight,
        )  # fmt: skip
        processes = current_process_group()
        if run_dir is not None:
            processes.once(lambda: run_dir.mkdir(parents=True, exist_ok=True))
        try:
            history = train(
                model, data, config, run_dir=run_dir, resume=config.resume,
                verbose=bool(self.verbose), tensorboard=config.tensorboard,
            )  # fmt: skip
        finally:
            source.close()
        if valid is not None:
            predictor.calibration = processes.once(lambda: self._calibrate(predictor, *valid))
        return predictor, history

    def _validation_inputs(
        self,
        encoder: Any,
        held: Series,
        target: Tensor,
        config: TrainConfig,
    ) -> tuple[Inputs, Tensor]:
        """The validation part as the model will meet it: at several rates of dropping if it is
        trained with dropping, each with a fixed seed.
        """
        if isinstance(held, StoredSeries):
            if held.tokenizer == encoder and config.drop[1] == 0:
                return tensors(held.inputs(slice(None))), self._to_loss(target)
            held = held[:]
        low, high = config.drop
        rates = [0.0] if high == 0 else [low, (low + high) / 2, high]
        found = [
            encoder.encode(held, drop=r, seed=config.seed + 1 + i) for i, r in enumerate(rates)
        ]
        inputs = join(found)
        return inputs, self._to_loss(target).repeat(len(rates), *[1] * (target.dim() - 1))

    def _metadata(self, part: Series) -> dict[str, Any]:
        return {"roughformer": version("roughformer"), "trained_on": len(part), "task": self.task}


def _of_member(number: int, callback: Callback) -> Callback:
    """A callback that also gets the number of the member."""
    return lambda record: callback(record | {"member": number})


def _some(groups: Any, used: npt.NDArray[np.int64], n: int) -> Any:
    """The groups of the series that are used; what has another length is refused later."""
    groups = np.asarray(groups)
    return groups[used] if groups.shape == (n,) else groups
