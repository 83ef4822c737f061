"""RFormerClassifier."""

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import column_or_1d
from torch import Tensor
from torch.nn import functional as F

from roughformer.calibration import fit_temperature
from roughformer.errors import InputError
from roughformer.estimators.aims import class_counts
from roughformer.estimators.base import RFormerEstimator
from roughformer.lifts import View
from roughformer.model.outputs import OutputConfig
from roughformer.predictor import Predictor
from roughformer.targets import ClassTargets, check_all_known, known_labels, share_equal
from roughformer.train.metrics import check_metric, classification_scores
from roughformer.train.source import Inputs

__all__ = ["RFormerClassifier"]


class RFormerClassifier(ClassifierMixin, RFormerEstimator):  # type: ignore[misc]
    """Classify irregular, ragged, incomplete multichannel series with a Rough Transformer.

    >>> model = RFormerClassifier(drop=(0.0, 0.8)).fit(X, y, times=times)  # doctest: +SKIP
    >>> model.predict_proba(X_new, times=times_new)  # doctest: +SKIP

    Tokens
        ``model``: "rformer", or a baseline ("transformer", "gru", "ode-rnn", "neural-cde",
        "neural-rde", "state-space") with the same options of training, which reads the samples
        and of the options below uses ``static`` only; ``model_options``: those that only this
        model has;
        ``windows`` a count, ``rf.Windows`` or cut times; ``depth`` of the signatures; ``views``
        of the path up to each window's end and of the window; ``time``, ``lags``, ``counts``,
        ``basepoint``, ``clock``: lifts; ``observations``: words of each channel's own observations,
        for series that are mostly missing; ``spectrum``: of the whole path (``"linear"``,
        ``"log"``, options, None); ``static``: names of static covariates to use (none by default,
        because they may hold the answer); ``logsignature=True``: fewer words of the same
        knowledge. "auto" chooses by the sizes of the training series.
    Model
        ``d_model``, ``n_heads``, ``n_layers``, ``dropout``, ``input_dropout``, ``pooling``;
        ``wide``, ``wide_dropout``: small networks of that width from the last token to answers
        of their own; ``scaling``: of features, ``"standard"``, by ``"rank"`` or ``"none"``;
        ``causal=True`` predicts at every window end from the past only (``predict_windows``),
        from the last ``context`` windows (None: all since the start).
    Training
        ``epochs``, ``batch_size``, ``learning_rate``, ``weight_decay``, ``schedule``,
        ``patience``, ``max_seconds`` (stop then, the schedule compressed to it);
        ``validation``: share of the series (whole groups, if ``fit`` is given ``groups``) that
        decides by ``metric`` which weights are kept, and on which probabilities are calibrated;
        ``members`` > 1: so many models, each validated on another part, answer as one; they
        share the encoder (names, units, ranges) and the scale of a regression's targets, which
        are taken from all series, weights and scaling of features are each member's own;
        ``drop`` (a share or a range of shares of the points), ``jitter``, ``channel_dropout``,
        ``warp``: augmentation, drawn for each batch, or ``draws`` times for all;
        ``label_smoothing``, ``class_weight`` ("balanced", or label -> weight), also of the
        validation part.
    Running
        ``device``, ``n_jobs`` threads, ``precision``, ``compile``; ``readers``: processes that
        read a store (0: a thread does); ``random_state``: the same
        whole number gives the same model; ``run_dir``, ``resume``, ``tensorboard``, ``verbose``.

    After ``fit``: ``classes_``, ``history_`` (one record an epoch), ``predictor_``.
    """

    _task = "classification"
    _rate_like = False

    def __init__(
        self,
        *,
        model: str = "rformer",
        model_options: dict[str, Any] | None = None,
        windows: Any = "auto",
        depth: int | Literal["auto"] = "auto",
        views: tuple[View, ...] = ("global", "local"),
        logsignature: bool = False,
        time: Literal["unit", "span", "none"] = "unit",
        lags: float | tuple[float, ...] = (),
        counts: bool = False,
        basepoint: bool | Literal["auto"] = "auto",
        clock: int | Literal["auto"] = "auto",
        observations: bool | Literal["auto"] = "auto",
        spectrum: Any = "auto",
        static: tuple[str, ...] = (),
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 1,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        wide: int | Literal["auto"] = "auto",
        wide_dropout: float = 0.5,
        scaling: Literal["auto", "standard", "rank", "none"] = "auto",
        pooling: Literal["mean", "attention", "last"] = "mean",
        causal: bool = False,
        context: int | Literal["auto"] | None = "auto",
        epochs: int = 60,
        batch_size: int = 32,
        learning_rate: float = 2e-3,
        weight_decay: float = 0.01,
        schedule: Literal["onecycle", "cosine", "constant"] = "onecycle",
        patience: int | None = 20,
        max_seconds: float | None = None,
        validation: float = 0.2,
        members: int = 1,
        metric: str = "auto",
        drop: float | tuple[float, float] = 0.0,
        jitter: float = 0.0,
        channel_dropout: float = 0.0,
        warp: float = 0.0,
        draws: int = 0,
        label_smoothing: float = 0.0,
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        calibrate: bool = True,
        precision: Literal["float32", "bfloat16"] = "float32",
        compile: bool = False,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        n_jobs: int | None = None,
        readers: int = 0,
        random_state: Any = None,
        run_dir: Any = None,
        resume: bool = False,
        tensorboard: bool = False,
        verbose: int = 0,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self.model = model
        self.model_options = model_options
        self.windows = windows
        self.depth = depth
        self.views = views
        self.logsignature = logsignature
        self.time = time
        self.lags = lags
        self.counts = counts
        self.basepoint = basepoint
        self.clock = clock
        self.observations = observations
        self.spectrum = spectrum
        self.static = static
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_layers = n_layers
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.wide = wide
        self.wide_dropout = wide_dropout
        self.scaling = scaling
        self.pooling = pooling
        self.causal = causal
        self.context = context
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.patience = patience
        self.max_seconds = max_seconds
        self.validation = validation
        self.members = members
        self.metric = metric
        self.drop = drop
        self.jitter = jitter
        self.channel_dropout = channel_dropout
        self.warp = warp
        self.draws = draws
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.precision = precision
        self.compile = compile
        self.device = device
        self.n_jobs = n_jobs
        self.readers = readers
        self.random_state = random_state
        self.run_dir = run_dir
        self.resume = resume
        self.tensorboard = tensorboard
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        times: Any = None,
        lengths: Any = None,
        layout: str | None = None,
        columns: Mapping[str, Any] | None = None,
        groups: Any = None,
        validation_data: tuple[Any, ...] | None = None,
    ) -> Self:
        """Learn from series ``X`` (anything ``SeriesBatch.of`` takes) and labels ``y (B,)``.

        A causal model also takes ``y (B, L)``: a label for each window; NaN, None, pandas.NA and
        what a masked array masks is not known and counts nowhere: so do windows
        that shorter series do not have. ``groups (B,)``: no group is both trained on and validated
        on. ``validation_data``: ``(X, y)`` or ``(X, y, times)`` instead of a part of the training
        series. ``layout``: ``"time_first"``, arrays are ``(B, L, C)``, or ``"channels_first"``,
        ``(B, C, L)``; None is time first where that is no guess. ``columns``: what the columns of a
        table mean, by the argument names of ``SeriesBatch.from_table``; others are guessed as by
        ``SeriesBatch.of``, and ``predict`` reads tables in the same way. ``y`` and ``groups`` of
        pandas are aligned by their index with the ids of the series.
        """
        return self._fit(X, y, times, lengths, layout, columns, groups, validation_data)

    def predict_proba(
        self,
        X: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
    ) -> npt.NDArray[np.float64]:
        """Calibrated probabilities ``(B, K)``, in the order of ``classes_``."""
        found: npt.NDArray[np.float64] = self._run("probabilities", X, times, lengths, layout)
        return found

    def predict(
        self, X: Any, times: Any = None, lengths: Any = None, *, layout: str | None = None
    ) -> npt.NDArray[Any]:
        """The most probable class of each series ``(B,)``."""
        best = self.predict_proba(X, times, lengths, layout=layout).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def score(
        self,
        X: Any,
        y: Any = None,
        times: Any = None,
        lengths: Any = None,
        *,
        layout: str | None = None,
    ) -> float:
        """Share of series whose class is predicted right, for labels ``y (B,)``; None: those of
        the series themselves.
        """
        batch, y = self._labelled(X, y, times, lengths, layout)
        predicted = self.predict(batch)
        labels, known = known_labels(y)
        if labels.shape not in (predicted.shape, (len(predicted), 1)):
            raise InputError(
                f"score takes one label for each of {len(predicted)} series, got shape "
                f"{labels.shape}; labels of windows are held against predict_windows"
            )
        check_all_known(known)
        return share_equal(labels.reshape(-1), predicted)

    # What the base asks for

    def _encode_targets(self, y: Any, n: int) -> Tensor:
        y = self._shaped_labels(y, n, "series")
        labels, known = known_labels(y)
        if labels.ndim > 1:
            labels = labels[known]
            if not len(labels):
                raise InputError("there is nothing to learn from: no window has a known label")
        else:
            check_all_known(known)
        floats = [x for x in labels.ravel().tolist() if isinstance(x, float)]
        if not np.isfinite(floats).all():
            raise InputError("labels must not be NaN or infinite; leave such series out")
        if (np.array(floats) != np.round(floats)).any():
            raise InputError(
                "Unknown label type: continuous numbers are no classes; use RFormerRegressor"
            )
        self._targets = ClassTargets.fit(labels)
        self.classes_ = self._targets.labels
        return self._targets.numbers(y)

    def _aim(self, y: Any, n: int) -> Tensor:
        return self._targets.numbers(self._shaped_labels(y, n, "validation series"))

    def _shaped_labels(self, y: Any, n: int, what: str) -> Any:
        """``y`` if its shape is ``(n,)``, or ``(n, L)`` for a causal model; a column is flat."""
        labels, known = known_labels(y)
        shape = labels.shape
        if not shape or shape[0] != n:
            raise InputError(f"there are {n} {what} but labels of shape {shape}")
        if len(shape) == 2 and shape[1] == 1 and (known.all() or not self.causal):
            check_all_known(known)
            return column_or_1d(labels, warn=True)
        if len(shape) > (2 if self.causal else 1):
            raise InputError(
                f"labels must have shape ({n},), got {shape}; a label for each window, ({n}, L), "
                "needs causal=True"
            )
        return y

    def _output_options(self, target: Tensor) -> dict[str, Any]:
        return {"n_outputs": len(self.classes_)}

    def _fit_targets(self, target: Tensor, outputs: OutputConfig) -> None:
        """Classes have no scale."""

    def _to_loss(self, target: Tensor) -> Tensor:
        return target

    def _metric(self) -> str:
        return check_metric(self.metric, self._task)

    def _class_weight(self, target: Tensor) -> Tensor | None:
        wish = self.class_weight
        if wish is None:
            return None
        k = len(self.classes_)
        if wish == "balanced":
            counts = class_counts(target, k).double()
            return (counts.sum() / (k * counts.clamp(min=1))).float()
        if not isinstance(wish, dict):
            raise InputError(f"class_weight must be None, 'balanced' or a dict, got {wish!r}")
        unknown = [label for label in wish if label not in list(self.classes_)]
        if unknown:
            raise InputError(f"class_weight names {unknown}, the classes are {self.classes_}")
        return torch.tensor([float(wish.get(label, 1.0)) for label in self.classes_.tolist()])

    def _scores(
        self, predictor: Predictor, output: Tensor, aim: Tensor, valid: tuple[Inputs, Tensor] | None
    ) -> dict[str, float]:
        output, aim = self._at_targets(output, aim, valid)
        output, aim = output[aim >= 0], aim[aim >= 0]
        scores = classification_scores(output.double().softmax(dim=-1).numpy(), aim.numpy())
        if self._weight is not None:
            # Weights decide which model is kept as they decide what is learned.
            loss = F.cross_entropy(output.double(), aim, self._weight.double())
            scores["log_loss"] = float(loss)
        return scores

    def _calibrate(self, predictor: Predictor, inputs: Inputs, aim: Tensor) -> float:
        if not self.calibrate:
            return 1.0
        from roughformer.model.inference import run_model

        output = run_model(predictor.model, inputs, predictor.device)
        return fit_temperature(*self._at_targets(output, aim, (inputs, aim)), self._weight)

    def _readable(self, output: Tensor) -> npt.NDArray[np.float64]:
        found = (output / self.predictor_.calibration).double().softmax(dim=-1)
        return np.asarray(found.numpy())

    def _adopt(self, predictor: Predictor) -> None:
        super()._adopt(predictor)
        assert isinstance(predictor.targets, ClassTargets)
        self._targets = predictor.targets
        self.classes_ = predictor.targets.labels
