"""What the classifier and the regressor share: parameters, fitting, saving."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from roughformer.checks import whole_number
from roughformer.errors import InputError
from roughformer.estimators.aims import at_targets
from roughformer.estimators.automatic import token_config
from roughformer.estimators.inputs import as_series
from roughformer.estimators.stored import from_plain, to_plain
from roughformer.explain import Explanation, explain
from roughformer.kinds import ModelKind, kind_of
from roughformer.predictor import Predictor, committee_of
from roughformer.series import SeriesBatch
from roughformer.threads import using_threads
from roughformer.train import TrainConfig, TrainingData, split_validation, train
from roughformer.train.config import Augmentation
from roughformer.train.source import Inputs, Source, join
from roughformer.train.split import fold_validation

__all__ = ["RFormerEstimator"]

_TOKENS = (
    "windows", "depth", "views", "time", "lags", "counts", "basepoint", "clock",
    "observations", "spectrum", "static",
)  # fmt: skip
_MODEL = (
    "d_model", "n_heads", "n_layers", "dropout", "input_dropout", "wide",
    "wide_dropout", "scaling", "pooling", "causal",
)  # fmt: skip
_TRAIN = (
    "epochs", "batch_size", "learning_rate", "weight_decay", "schedule", "patience",
    "precision", "compile", "device", "max_seconds",
)  # fmt: skip
_AUGMENT = ("drop", "jitter", "channel_dropout", "warp", "draws")
_FOR_SCALING = 4096  # series that statistics are taken from


_Part = tuple[SeriesBatch, Tensor]


@dataclass(frozen=True)
class _Plan:
    """What the members of a fit share."""

    kind: ModelKind
    encoder: Any
    model: Any
    train: TrainConfig


def one_line(error: ValidationError) -> InputError:
    """What pydantic found wrong with an option, in one sentence."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function"))
    message = first["msg"].removeprefix("Value error, ")
    told = isinstance(first.get("input"), dict) or ", got " in message
    given = "" if told else f", got {first.get('input')!r}"
    return InputError(f"{name + ': ' if name else ''}{message}{given}")


class RFormerEstimator(BaseEstimator):  # type: ignore[misc]
    """Parameters of both estimators; see ``RFormerClassifier`` and ``RFormerRegressor``."""

    _task: Literal["classification", "regression"]
    predictor_: Predictor
    history_: list[dict[str, Any]]
    validation_index_: npt.NDArray[np.int64]  # numbers of the series held out of those given

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may expect: missing values, and arrays ``(B, L)`` and ``(B, C, L)``."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = True
        tags.input_tags.three_d_array = True
        return tags

    # What a kind of estimator may change.

    def _at_targets(
        self, output: Tensor, aim: Tensor, valid: tuple[Inputs, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        inputs = {} if valid is None else valid[0]
        per_series = 1 if self._task == "classification" else 2
        return at_targets(output, aim, inputs, causal=bool(self.causal), per_series=per_series)

    def _kind_name(self) -> str:
        return str(self.model)

    def _rate_unit(self) -> float | None:
        """Turns per unit of time of a target of 1, if targets are rates."""
        return None

    # Fitting

    def _options(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def _fit(
        self,
        x: Any,
        y: Any,
        times: Any,
        lengths: Any,
        groups: Any,
        validation_data: Any,
    ) -> Self:
        batch = as_series(x, times, lengths)
        if len(batch) == 0:
            raise InputError("there is nothing to learn from: no series were given")
        if y is None:
            if batch.labels is None:
                raise InputError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None; "
                    "give y, or series with labels"
                )
            y = batch.labels
        target = self._encode_targets(y, len(batch))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        run_dir = None if self.run_dir is None else Path(self.run_dir)
        with using_threads(self.n_jobs):
            parts = self._parts(batch, target, groups, validation_data, seed)
            plan = self._plan(*(parts[0][0] if len(parts) == 1 else (batch, target)))
            self._check_windows(plan, batch, target)
            self._fit_targets(target if len(parts) > 1 else parts[0][0][1], plan.model)
            found = []
            for number, (part, held) in enumerate(parts):
                where = run_dir
                if run_dir is not None and len(parts) > 1:
                    where = run_dir / f"member-{number + 1}"
                with torch.random.fork_rng():
                    torch.manual_seed(seed + number)
                    found.append(self._train(plan, part, held, seed + number, where))
        self.member_histories_ = [history for _, history in found]
        self.history_ = self.member_histories_[0]
        self.predictor_ = committee_of([predictor for predictor, _ in found])
        self.n_features_in_ = batch.n_channels
        if run_dir is not None:
            self.save(run_dir / "model")
        return self

    def _parts(
        self, batch: SeriesBatch, target: Tensor, groups: Any, validation_data: Any, seed: int
    ) -> list[tuple[_Part, _Part]]:
        """Training and validation part of each member."""
        members = whole_number(self.members, "members", 1)
        if validation_data is not None:
            if not isinstance(validation_data, tuple | list) or len(validation_data) < 2:
                raise InputError("validation_data must be (X, y), (X, y, times) or None")
            if members > 1:
                raise InputError("members hold out a part each: leave validation_data out")
            held_x, held_y, *rest = validation_data
            held = as_series(held_x, *rest)
            if held_y is None:
                held_y = held.labels
            if held_y is None:
                raise InputError("validation_data needs targets: (X, y), or series with labels")
            self.validation_index_ = np.zeros(0, dtype=np.int64)
            return [((batch, target), (held, self._aim(held_y, len(held))))]
        classes = target.numpy() if self._task == "classification" else None
        of_series = None if classes is None or classes.ndim > 1 else classes
        options: dict[str, Any] = {"classes": of_series, "groups": groups}
        if members > 1:
            splits = fold_validation(len(batch), members, seed, **options)
        else:
            splits = [split_validation(len(batch), self.validation, seed, **options)]
        self.validation_index_ = np.concatenate([outside for _, outside in splits])

        def part(which: npt.NDArray[np.int64]) -> _Part:
            return batch[which], target[torch.from_numpy(which)]

        return [(part(inside), part(outside)) for inside, outside in splits]

    def _check_windows(self, plan: _Plan, batch: SeriesBatch, target: Tensor) -> None:
        """Targets of each window must be as many as the windows, and stay with them."""
        if target.dim() == (1 if self._task == "classification" else 2):
            return
        most = plan.encoder.n_positions(batch)
        if target.shape[1] != most:
            raise InputError(
                f"there are targets for {target.shape[1]} windows, but the series with most "
                f"windows has {most}"
            )
        if self._kind_name() == "transformer" and plan.train.augment.drop[1] > 0:
            raise InputError(
                "targets of each sample cannot be used while samples are dropped; set drop=0"
            )

    def _plan(self, batch: SeriesBatch, target: Tensor) -> _Plan:
        """Encoder and configurations, from the options and the training series."""
        kind = kind_of(self._kind_name())
        try:
            config = TrainConfig(
                **self._options(_TRAIN),
                label_smoothing=getattr(self, "label_smoothing", 0.0),
                augment=Augmentation(**self._options(_AUGMENT)),
            )
            # Not called transform: to scikit-learn, what has that attribute is a transformer.
            options = self._options(_TOKENS)
            options["transform"] = "logsignature" if self.logsignature else "signature"
            tokens = token_config(batch, options, bool(self.causal))
            unit = self._rate_unit()
            rates = None if unit is None else unit * target.numpy().ravel()
            own = dict(self.model_options or {})
            encoder = kind.fit_encoder(tokens, batch, rates, own)
            output = {"task": self._task} | self._output_options(target)
            shape = self._options(_MODEL)
            counted = tokens.observations and self._kind_name() == "rformer"
            if shape["wide"] == "auto":
                shape["wide"] = 256 if counted else 0
            if shape["scaling"] == "auto":
                shape["scaling"] = "rank" if counted else "standard"
            model = kind.configure(encoder, shape, output, unit or 1.0, own)
            return _Plan(kind, encoder, model, config)
        except ValidationError as error:
            raise one_line(error) from None

    def _train(
        self, plan: _Plan, part: _Part, held: _Part, seed: int, run_dir: Path | None
    ) -> tuple[Predictor, list[dict[str, Any]]]:
        """One model, trained and calibrated, and the record of its training."""
        (series, target), (held_series, held_target) = part, held
        encoder = plan.encoder
        config = plan.train.model_copy(update={"seed": seed})
        model = plan.kind.model(plan.model)
        source = Source(
            encoder, series, target, config,
            rate_like=self._rate_like, to_target=self._to_loss, threads=1,
        )  # fmt: skip
        model.fit_scaling(source.sample(_FOR_SCALING))
        if self._task == "classification":
            counts = torch.bincount(target.flatten(), minlength=plan.model.n_outputs)
            weight = self._class_weight(target)
            frequency = counts if weight is None else counts * weight
            model.fit_prior(frequency / frequency.sum())
        valid = None
        if len(held_series):
            valid = self._validation_inputs(encoder, held_series, held_target, config, seed)
        predictor = Predictor(encoder, model, self._targets, facts=self._facts(series))
        data = TrainingData(
            source,
            plan.model,
            valid,
            lambda output, aim: self._scores(predictor, output, aim, valid),
            self._metric(),
            self._class_weight(target),
            _key(
                series, target, held_series, held_target, config, encoder, plan.model,
                repr((self._metric(), getattr(self, "class_weight", None))),
            ),
        )  # fmt: skip
        if run_dir is not None:
            run_dir.mkdir(parents=True, exist_ok=True)
        history = train(
            model, data, config, run_dir=run_dir, resume=bool(self.resume),
            verbose=bool(self.verbose), tensorboard=bool(self.tensorboard),
        )  # fmt: skip
        if valid is not None:
            predictor.calibration = self._calibrate(predictor, *valid)
        return predictor, history

    def _validation_inputs(
        self,
        encoder: Any,
        held: SeriesBatch,
        target: Tensor,
        config: TrainConfig,
        seed: int,
    ) -> tuple[Inputs, Tensor]:
        """The validation part as the model will meet it: at several rates of dropping if it is
        trained with dropping, each with a fixed seed.
        """
        low, high = config.augment.drop
        rates = [0.0] if high == 0 else [low, (low + high) / 2, high]
        found = [encoder.encode(held, drop=r, seed=seed + 1 + i) for i, r in enumerate(rates)]
        inputs = join(found)
        return inputs, self._to_loss(target).repeat(len(rates), *[1] * (target.dim() - 1))

    def _facts(self, part: SeriesBatch) -> dict[str, Any]:
        from roughformer import __version__

        return {"roughformer": __version__, "trained_on": len(part), "task": self._task}

    # After fitting

    def _series(self, x: Any, times: Any, lengths: Any) -> SeriesBatch:
        check_is_fitted(self, "predictor_")
        return as_series(x, times, lengths)

    def _run(self, what: str, x: Any, times: Any, lengths: Any) -> Any:
        batch = self._series(x, times, lengths)
        with using_threads(self.n_jobs):
            return getattr(self.predictor_, what)(batch)

    def predict_windows(self, X: Any, times: Any = None, lengths: Any = None) -> Any:
        """A causal model's prediction at the end of each window: a list with, for each series,
        (times of the window ends ``(L,)``, predictions ``(L, ...)``).
        """
        batch = self._series(X, times, lengths)
        if not self.predictor_.outputs.causal:
            raise InputError("only a causal model predicts at every window: fit with causal=True")
        with using_threads(self.n_jobs):
            output, _ = self.predictor_.raw(batch)
        readable = self._readable(output)
        ends = [edges[1:] for edges in self.predictor_.window_edges(batch)]
        return [(end, readable[b, : len(end)]) for b, end in enumerate(ends)]

    def explain(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        n_words: int | None = 20,
        target: Any = None,
    ) -> list[Explanation]:
        """Which windows, channels and words drove each prediction; see ``roughformer.explain``.

        ``target``: the class to explain (None: the predicted one), or the number of a target of a
        regression with several. ``n_words``: how many words are told, None: all.
        """
        batch = self._series(X, times, lengths)
        with using_threads(self.n_jobs):
            return explain(self.predictor_, batch, n_words=n_words, target=target)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """A directory with the trained model; ``load`` reads it, no pickle is involved."""
        check_is_fitted(self, "predictor_")
        self.predictor_.facts["parameters"] = to_plain(self.get_params())
        self.predictor_.save(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], device: str = "cpu") -> Self:
        """A fitted estimator from a directory that ``save`` or a training run wrote."""
        predictor = Predictor.load(directory, device)
        if predictor.facts.get("task") != cls._task:
            raise InputError(
                f"{os.fspath(directory)} holds a model for {predictor.facts.get('task')}, "
                f"not for {cls._task}"
            )
        given = from_plain(predictor.facts.get("parameters", {}), cls().get_params())
        estimator = cls(**given)
        estimator._adopt(predictor)
        return estimator

    def _adopt(self, predictor: Predictor) -> None:
        self.predictor_ = predictor
        self.n_features_in_ = len(predictor.encoder.channels)
        self.history_ = []


def _key(*parts: Any) -> str:
    """A hash of data and configuration: a training resumes only with the same ones."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, SeriesBatch):
            for array in (part.times, part.values, part.offsets, part.static):
                if array is not None:
                    digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        elif isinstance(part, str):
            digest.update(part.encode())
        elif isinstance(part, Tensor):
            digest.update(part.contiguous().numpy().tobytes())
        else:
            # How often the state is saved changes nothing in it.
            digest.update(part.model_dump_json(exclude={"save_seconds"}).encode())
    return digest.hexdigest()
