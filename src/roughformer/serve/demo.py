"""Routes for the page: recordings to play, and what drove an answer."""

import copy
from dataclasses import replace
from typing import Annotated, Any

import anyio.to_thread
import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response

from roughformer.explain import Explanation, explain
from roughformer.predictor import Predictor
from roughformer.series import SeriesBatch
from roughformer.serve.bodies import read_body
from roughformer.serve.recordings import Samples, recordings, samples_of
from roughformer.serve.refusal import Refusal
from roughformer.serve.series import loads, series_of

__all__ = ["demo_routes"]

_LONGEST = 120.0  # seconds of one request
_WAITING = 2  # explanations that are made or wait; the page asks again anyhow
_MOST_POINTS = 50_000  # of a series that is explained
_MOST_WINDOWS = 1_000
_TRUTH = {"name": "heart rate", "unit": "beats/min"}


def demo_routes(predictor: Predictor) -> APIRouter:
    """``/v1/demo``, ``/v1/demo/{name}`` and ``/v1/explain`` for the model that is served."""
    router = APIRouter(tags=["page"])
    explainer = _Explainer(predictor)

    @router.get("/v1/demo", summary="Recordings that the page can play")
    def listed() -> Response:
        found = [
            {
                "name": facts.name,
                "title": facts.title,
                "about": facts.about,
                "channels": facts.channels,
                "seconds": facts.seconds,
                "truth": _TRUTH,
            }
            for facts in recordings().values()
        ]
        return _json({"recordings": found})

    @router.get("/v1/demo/{name}", summary="Observations of one of them")
    def part(
        name: str,
        start: Annotated[float, Query(alias="from", ge=0, allow_inf_nan=False)] = 0.0,
        end: Annotated[float | None, Query(alias="to", ge=0, allow_inf_nan=False)] = None,
    ) -> Response:
        known = recordings()
        if name not in known:
            raise Refusal(404, f"there is no recording {name!r}; there are {', '.join(known)}")
        end = start + _LONGEST if end is None else end
        if not start <= end <= start + _LONGEST:
            raise Refusal(
                400,
                f"from <= to <= from + {_LONGEST:g} seconds must hold, got from={start:g} and "
                f"to={end:g}",
            )
        return _json(_part(samples_of(name), start, end))

    @router.post("/v1/explain", summary="Channels and windows that drove the answer for a series")
    async def explained(request: Request) -> Response:
        service = request.app.state.service
        parsed = loads(await read_body(request, service.limits))
        model = service.model
        batch, _ = series_of(
            parsed, model.channels, model.static_names, service.limits, also=("target",)
        )
        if len(batch) != 1:
            raise Refusal(400, f"one series is explained at a time, got {len(batch)}")
        model.check_size(batch, service.limits)
        _check_size(predictor, batch)
        return _json(await explainer.explain(batch, parsed.get("target")))

    return router


def _check_size(predictor: Predictor, batch: SeriesBatch) -> None:
    """Every window is hidden once, so the work grows with the square of their number."""
    count = getattr(predictor.encoder, "n_positions", None)
    windows = 0 if count is None else int(count(batch))
    for what, found, most in (
        ("observations", batch.n_points, _MOST_POINTS),
        ("windows", windows, _MOST_WINDOWS),
    ):
        if found > most:
            raise Refusal(
                400, f"a series of at most {most} {what} is explained, got {found}; send its end"
            )


def _json(content: Any) -> Response:
    data = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)  # NaN becomes null
    return Response(data, media_type="application/json")


def _part(samples: Samples, start: float, end: float) -> dict[str, Any]:
    """Observations at ``start <= t < end``; the last piece has the last one too."""
    if end >= samples.times[-1]:
        end = np.inf
    rows = slice(*np.searchsorted(samples.times, [start, end]).tolist())
    seconds = slice(*np.searchsorted(samples.truth_times, [start, end]).tolist())
    return {
        "times": samples.times[rows],
        "values": np.round(samples.values[rows], 4),
        "truth": {
            "times": samples.truth_times[seconds],
            "values": np.round(samples.truth[seconds], 2),
        },
    }


class _Explainer:
    """Explanations, one after the other, on a copy of the model: explaining sets hooks on it, and
    the thread that predicts must not meet them.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = replace(predictor, model=copy.deepcopy(predictor.model).eval())
        self.limiter: anyio.CapacityLimiter | None = None
        self.waiting = 0

    async def explain(self, batch: SeriesBatch, target: Any) -> dict[str, Any]:
        """Plain data for JSON; a refusal if others wait already."""
        if self.waiting >= _WAITING:
            raise Refusal(503, "other explanations are being made; ask again", retry_after=1)
        if self.limiter is None:
            self.limiter = anyio.CapacityLimiter(1)
        self.waiting += 1
        try:
            return await anyio.to_thread.run_sync(self._made, batch, target, limiter=self.limiter)
        finally:
            self.waiting -= 1

    def _made(self, batch: SeriesBatch, target: Any) -> dict[str, Any]:
        (found,) = explain(self.predictor, batch, n_words=0, target=target)
        return _plain(found)


def _plain(found: Explanation) -> dict[str, Any]:
    """``share``: of the sum of all sizes, 0 if nothing changes anything."""
    target = found.target.item() if isinstance(found.target, np.generic) else found.target
    edges = found.window_edges
    windows = [
        {"start": edges[k], "end": edges[k + 1]} | part
        for k, part in enumerate(_shares(found.windows.tolist()))
    ]
    channels = [
        {"name": name} | part
        for name, part in zip(found.channels, _shares([*found.channels.values()]), strict=True)
    ]
    return {
        "prediction": found.prediction,
        "target": target,
        "value": found.value,
        "channels": channels,
        "windows": windows,
    }


def _shares(importance: list[float]) -> list[dict[str, float]]:
    total = sum(map(abs, importance)) or 1.0
    return [{"importance": x, "share": abs(x) / total} for x in importance]
