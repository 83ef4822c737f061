"""The model that is served: its metadata, its predictions and its explanations."""

import asyncio
import contextlib
import copy
import hashlib
import threading
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.explain import explain
from roughformer.inference import (
    ClassTargets,
    ForecastPredictor,
    Predictor,
    n_observed,
)
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.serve.config import Limits, StreamOptions
from roughformer.serve.errors import APIError, invalid
from roughformer.stream import (
    COVERAGE,
    ForecastStreamBatch,
    StreamBatch,
    answers_of,
)
from roughformer.tokens import Tokenizer
from roughformer.util.checkpoint import load_checkpoint

_MAX_PADDED_TOKENS = 65_536  # of series that are predicted together
_MAX_EXPLANATIONS = 2  # in progress or waiting; the page asks again anyway
_MAX_EXPLAINED_POINTS = 20_000
_STREAM_QUANTILES = (0.05, 0.95)
_STEPS = 20  # of a stream's forecast, up to the horizon
_FORECASTS = 10  # of a stream while a horizon passes
_MAX_EXPLAINED_WINDOWS = 200  # each is hidden once: the work grows with the square of their number


class ServedModel:
    """A predictor and the metadata that clients ask for. Only the worker calls ``predict``."""

    def __init__(self, predictor: Predictor, directory: Path | None = None) -> None:
        """``directory``: of the saved model, for its fingerprint."""
        self.predictor = predictor
        self.channels: tuple[str, ...] = tuple(predictor.encoder.channels)
        self.static_names = predictor.static_names
        self.fingerprint = _fingerprint(directory)
        targets = predictor.targets
        self.classes = targets.labels.tolist() if isinstance(targets, ClassTargets) else None
        self.causal = predictor.outputs.causal

    @property
    def columns(self) -> dict[str, Any]:
        """Names of the columns of the training data, by role."""
        about = self.predictor.metadata.get("data", {})  # of fit, or of the command train
        return dict(about.get("columns", about))

    @property
    def targets(self) -> list[str]:
        """Names of the targets of a regression; their numbers where they have no names."""
        if self.classes is not None:
            return []
        n = self.predictor.outputs.n_outputs
        target = str(self.predictor.metadata.get("data", {}).get("target", ""))
        names = [name.strip() for name in target.split(",")]
        return names if len(names) == n and all(names) else [str(k) for k in range(n)]

    def about(self) -> dict[str, Any]:
        """What ``GET /v1/model`` tells about the model itself."""
        outputs, windows = self.predictor.outputs, None
        conformal = self.predictor.promises(COVERAGE)
        if isinstance(self.predictor.encoder, Tokenizer):
            rule = self.predictor.encoder.config.rule
            amount = rule.amount if rule.rule != "explicit" else None
            windows = {"rule": rule.rule, "amount": amount}
        return {
            "task": outputs.task,
            "channels": list(self.channels),
            "static": list(self.static_names),
            "classes": self.classes,
            "targets": self.targets if self.classes is None else None,
            "uncertainty": outputs.uncertainty,
            "quantiles": list(outputs.quantiles) if outputs.uncertainty == "quantile" else None,
            "coverage": COVERAGE if outputs.task == "regression" and conformal else None,
            "causal": outputs.causal,
            "windows": windows,
            "fingerprint": self.fingerprint,
            "version": version("roughformer"),
        }

    def stream_options(self, options: StreamOptions) -> StreamOptions:
        """The options of its streams, as they were given."""
        return options

    def stream_batch(self, n: int, options: StreamOptions) -> StreamBatch:
        """``n`` new streams."""
        return StreamBatch(
            self.predictor,
            n,
            span=options.span,
            every=options.every,
            unordered=options.unordered,  # type: ignore[arg-type]
        )

    def check_size(self, batch: SeriesBatch, limits: Limits) -> None:
        """Refuse too many windows before they are made: two points far apart can be a million."""
        encoder = self.predictor.encoder
        if not isinstance(encoder, Tokenizer):
            return
        rule = encoder.rule
        if rule.rule == "duration":
            start, end = batch.span
            counts = np.ceil((end - start) / rule.amount)
        elif rule.rule == "points":
            counts = np.ceil(batch.lengths / rule.amount)
        else:
            return
        if counts.max(initial=0) > limits.max_windows:
            number = int(np.argmax(counts))
            raise invalid(
                f"it would have {counts[number]:.0f} windows of {rule.amount:g}, the limit is "
                f"max_windows = {limits.max_windows}; are the times in the unit of the training "
                "series?",
                {"series": number},
            )
        if counts.sum() > limits.max_tokens:
            raise invalid(
                f"the series would have {counts.sum():.0f} windows of {rule.amount:g} in all, the "
                f"limit is max_tokens = {limits.max_tokens}; send fewer series at once"
            )

    def group_by_size(self, batches: list[SeriesBatch]) -> list[list[int]]:
        """Group batches to predict together: of similar length, and of few padded tokens."""
        if len(batches) == 1:
            return [[0]]
        count = getattr(self.predictor.encoder, "n_positions", None)
        sizes = [
            int(batch.lengths.max(initial=1)) if count is None else max(int(count(batch)), 1)
            for batch in batches
        ]
        groups: list[list[int]] = []
        series = 0
        for i in sorted(range(len(batches)), key=sizes.__getitem__):
            series += len(batches[i])
            if not groups or series * sizes[i] > _MAX_PADDED_TOKENS:
                groups.append([])
                series = len(batches[i])
            groups[-1].append(i)
        return groups

    def predict(self, batch: SeriesBatch) -> list[dict[str, Any]]:
        """Predict each series, in JSON types only."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnobservedWarning)  # the client's business
            output, mask = self.predictor.forward(batch)
        last = self.predictor.at_last_window(output, mask)
        observed = None if self.predictor.conformal is None else n_observed(batch)
        return answers_of(self.predictor, last, observed).plain()


class ForecastQuery(NamedTuple):
    """Series, the times asked for of each, numbers of the channels, and the coverage."""

    batch: SeriesBatch
    at: list[npt.NDArray[np.float64]]
    targets: npt.NDArray[np.int64]
    coverage: float


class ServedForecaster:
    """A forecaster and its metadata. Only the worker calls ``forecast``."""

    classes = None
    causal = False

    def __init__(self, predictor: ForecastPredictor, directory: Path | None = None) -> None:
        """``directory``: of the saved model, for its fingerprint."""
        self.predictor, self.channels = predictor, predictor.channels
        self.fingerprint = _fingerprint(directory)
        self.columns: dict[str, Any] = dict(predictor.metadata.get("data", {}))
        n, names = predictor.n_static, tuple(self.columns.get("static", ()))
        self.static_names = names if len(names) == n else tuple(map(str, range(n)))

    @property
    def targets(self) -> list[str]:
        """What alarms may watch: the forecast of a channel, furthest ahead."""
        return list(self.channels)

    def stream_options(self, options: StreamOptions) -> StreamOptions:
        """The options of its streams; not given, a forecast every tenth of the horizon."""
        if options.span is not None:
            raise InputError("a forecaster looks back as far as it needs; leave --span out")
        every = self.predictor.horizon / _FORECASTS if options.every is None else options.every
        return options._replace(every=every)

    def stream_batch(self, n: int, options: StreamOptions) -> ForecastStreamBatch:
        """``n`` new streams."""
        assert options.every is not None
        return ForecastStreamBatch(
            self.predictor,
            n,
            every=options.every,
            unordered=options.unordered,  # type: ignore[arg-type]
            ahead=np.linspace(0, self.predictor.horizon, _STEPS + 1)[1:],
            static_names=self.static_names,
        )

    def about(self) -> dict[str, Any]:
        """What ``GET /v1/model`` tells about the model itself."""
        network = self.predictor.networks[0]
        return {
            "task": "forecasting",
            "channels": list(self.channels),
            "targets": self.targets,
            "uncertainty": "quantile",  # of streams: the ends of intervals
            "quantiles": list(_STREAM_QUANTILES),
            "centre": network.usual.tolist(),  # of the values of each channel
            "spread": network.spread.tolist(),
            "static": list(self.static_names),
            "horizon": self.predictor.horizon,
            "interpolation": self.predictor.interpolation,
            "dated": self.predictor.dated,
            "fingerprint": self.fingerprint,
            "version": version("roughformer"),
        }

    def warnings_of(self, query: ForecastQuery) -> list[str]:
        """What an answer can promise less of than it seems."""
        ends = self.predictor.ends(query.batch)
        ahead = np.array([np.max(at, initial=-np.inf) for at in query.at]) - ends
        notes = (self.predictor.horizon_note(ahead), self.predictor.coverage_note(query.coverage))
        return [note for note in notes if note is not None]

    def forecast(self, query: ForecastQuery) -> list[dict[str, Any]]:
        """Values with intervals at the times asked for, in JSON types."""
        predictor, batch = self.predictor, query.batch
        static = np.zeros((len(batch), 0)) if batch.static is None else batch.static
        answers = predictor.ask(batch, static, query.at, query.targets, warn=False)
        tails = (1 - query.coverage) / 2
        columns = {
            "value": answers.point,
            "lower": predictor.quantile(answers, tails),
            "upper": predictor.quantile(answers, 1 - tails),
        }
        # Answers are flat, in no particular order: to a table (M, n) for each series.
        forecasts: list[dict[str, Any]] = []
        of_channel = np.zeros(len(self.channels), dtype=np.int64)
        of_channel[query.targets] = np.arange(len(query.targets))
        for b, at in enumerate(query.at):
            mine = answers.series == b
            entry: dict[str, Any] = {"times": at.tolist()}
            for name, column in columns.items():
                table = np.full((len(at), len(query.targets)), np.nan)
                table[answers.place[mine], of_channel[answers.channel[mine]]] = column[mine]
                entry[name] = table.tolist()
            forecasts.append(entry)
        return forecasts


def load_served(directory: Path) -> ServedModel | ServedForecaster:
    """Load a saved model, whatever it is."""
    if load_checkpoint(directory).config.get("kind") == "forecaster":
        return ServedForecaster(ForecastPredictor.load(directory), directory)
    return ServedModel(Predictor.load(directory), directory)


def _fingerprint(directory: Path | None) -> str:
    """The beginning of the SHA-256 of the manifest, which has those of all other files."""
    if directory is None or not (directory / "manifest.json").exists():
        return "unsaved"
    return hashlib.sha256((directory / "manifest.json").read_bytes()).hexdigest()[:16]


class Explainer:
    """Explanations, one at a time, on a copy of the model: explaining sets hooks on it, which the
    thread that predicts must not meet.
    """

    def __init__(self, predictor: Predictor) -> None:
        """Copy the model."""
        self._predictor = replace(predictor, model=copy.deepcopy(predictor.model).eval())
        self._lock = threading.Lock()
        self._n_waiting = 0

    def check_size(self, batch: SeriesBatch) -> None:
        """Refuse what would take too long."""
        count = getattr(self._predictor.encoder, "n_positions", None)
        windows = 0 if count is None else int(count(batch))
        for what, n, most in (
            ("observations", batch.n_points, _MAX_EXPLAINED_POINTS),
            ("windows", windows, _MAX_EXPLAINED_WINDOWS),
        ):
            if n > most:
                raise APIError(
                    400,
                    f"a series of at most {most} {what} can be explained, got {n}; send the end",
                )

    async def explain(self, batch: SeriesBatch, target: Any, seconds: float) -> dict[str, Any]:
        """Explain a prediction, in JSON types; 503 if others wait already or it takes too long."""
        if self._n_waiting >= _MAX_EXPLANATIONS:
            raise APIError(503, "other explanations are in progress; ask again", retry_after=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[str, Any]] = loop.create_future()

        def settle(result: Any) -> None:
            self._n_waiting -= 1
            if future.done():  # given up meanwhile
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def work() -> None:
            result: Any
            try:
                with self._lock:
                    (explanation,) = explain(self._predictor, batch, n_words=0, target=target)
                result = _to_json(explanation)
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop has ended, nobody waits
                loop.call_soon_threadsafe(settle, result)

        self._n_waiting += 1
        # A daemon: the service can stop without waiting for the end of an explanation.
        threading.Thread(target=work, name="explain", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise APIError(503, f"there was no explanation within {seconds:g} s") from None


def _to_json(explanation: Any) -> dict[str, Any]:
    """``share``: of the sum of all sizes; 0 if nothing changes anything."""

    def shares(importance: list[float]) -> list[dict[str, float]]:
        total = sum(map(abs, importance)) or 1.0
        return [{"importance": x, "share": abs(x) / total} for x in importance]

    target, edges = explanation.target, explanation.window_edges
    by_channel = shares([*explanation.channels.values()])
    return {
        "prediction": explanation.prediction,
        "target": target.item() if isinstance(target, np.generic) else target,
        "value": explanation.value,
        "channels": [
            {"name": name} | part
            for name, part in zip(explanation.channels, by_channel, strict=True)
        ],
        "windows": [
            {"start": edges[k], "end": edges[k + 1]} | part
            for k, part in enumerate(shares(explanation.windows.tolist()))
        ],
    }
