"""Routes for the page: recordings to play, and what drove an answer."""

from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response

from roughformer.inference.predictor import Predictor
from roughformer.series import SeriesBatch
from roughformer.serve.bodies import read_body
from roughformer.serve.explaining import Explainer, check_size
from roughformer.serve.recordings import Samples, recordings, samples_of
from roughformer.serve.refusal import Refusal
from roughformer.serve.series import loads, series_of
from roughformer.serve.service import Service

__all__ = ["demo_routes"]

_LONGEST = 120.0  # seconds of one request
_TRUTH = {"name": "heart rate", "unit": "beats/min"}


def demo_routes(predictor: Predictor) -> APIRouter:
    """``/v1/demo``, ``/v1/demo/{name}`` and ``/v1/explain`` for the model that is served."""
    router = APIRouter(tags=["page"])
    explainer = Explainer(predictor)

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
        data = await read_body(request, service.limits)
        batch, target = await service.parse(_asked, data, service)
        return _json(await explainer.explain(batch, target, service.limits.request_seconds))

    return router


def _asked(data: bytes, service: Service) -> tuple[SeriesBatch, Any]:
    """The series to explain, and the target if one is named."""
    parsed, model = loads(data), service.model
    batch, _ = series_of(
        parsed, model.channels, model.static_names, service.limits, also=("target",)
    )
    if len(batch) != 1:
        raise Refusal(400, f"one series is explained at a time, got {len(batch)}")
    model.check_size(batch, service.limits)
    check_size(model.predictor, batch)
    return batch, parsed.get("target")


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
