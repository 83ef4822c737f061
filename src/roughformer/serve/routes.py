"""HTTP: predictions of whole series, the model, health."""

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from roughformer.series import SeriesBatch
from roughformer.serve.bodies import read_body
from roughformer.serve.own_data import read_own_data
from roughformer.serve.refusal import Refusal
from roughformer.serve.schemas import ERRORS, PREDICT
from roughformer.serve.series import loads, series_of
from roughformer.serve.service import Service
from roughformer.serve.table_bytes import ARROW, PARQUET, read_arrow, read_parquet
from roughformer.serve.tables import series_of_table

__all__ = ["answer", "media_type", "routes", "service_of"]

_JSON = ("application/json", "application/x-www-form-urlencoded")  # curl -d says the second
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def answer(body: Any, status: int = 200) -> Response:
    """JSON; numbers that are not finite are null."""
    return Response(orjson.dumps(body), status, media_type="application/json")


def service_of(request: Request) -> Service:
    """The service that an app serves."""
    service: Service = request.app.state.service
    return service


def media_type(request: Request) -> str:
    """Content-Type without its parameters; JSON if it is not told."""
    told = request.headers.get("content-type", "application/json")
    return told.partition(";")[0].strip().lower()


def routes() -> APIRouter:
    """``/v1/predict``, ``/v1/model``, ``/healthz``, ``/readyz``, ``/metrics``."""
    router = APIRouter()

    @router.post("/v1/predict", tags=["series"], openapi_extra=PREDICT, responses=ERRORS)
    async def predict(request: Request) -> Response:
        """Predict whole series: JSON, an Arrow stream or a Parquet file."""
        service = service_of(request)
        data = await read_body(request, service.limits)
        with service.accepting():
            batch, ids = await service.parse(_series, data, service, media_type(request))
            found = await service.predict(batch)
        told = [
            entry if name is None else {"id": name, **entry}
            for name, entry in zip(ids, found, strict=True)
        ]
        model = service.model
        about = {"fingerprint": model.fingerprint, "task": model.predictor.outputs.task}
        return answer({"predictions": told, "model": about})

    @router.post("/v1/read", tags=["page"], responses=ERRORS)
    async def read(request: Request) -> Response:
        """Read a table, CSV or Parquet, as training does: series to be predicted."""
        service = service_of(request)
        data = await read_body(request, service.limits)
        with service.accepting():
            found = await service.parse(read_own_data, data, service.model, service.limits)
        return answer({"series": found})

    @router.get("/v1/model", tags=["model"], responses=ERRORS)
    async def model(request: Request) -> Response:
        """What the model is: task, channels, classes or targets, windows, streams, alarms."""
        service = service_of(request)
        options = service.options.streams
        stream = {
            "span": options.span,
            "every": options.every,
            "causal": service.model.causal,
            "available": service.streams is not None,
        }
        alarms = [
            {
                "name": str(alarm),
                "of": alarm.of,
                "above": alarm.above,
                "threshold": alarm.threshold,
                "release": alarm.threshold if alarm.release is None else alarm.release,
                "after": alarm.after,
            }
            for alarm in options.alarms
        ]
        return answer(service.model.about() | {"stream": stream, "alarms": alarms})

    @router.get("/healthz", tags=["health"])
    async def healthz() -> Response:
        """The process lives."""
        return answer({"status": "alive"})

    @router.get("/readyz", tags=["health"])
    async def readyz(request: Request) -> Response:
        """New work is taken (200) or not (503)."""
        ready = service_of(request).ready
        return answer({"ready": ready}, 200 if ready else 503)

    @router.get("/metrics", tags=["health"])
    async def metrics(request: Request) -> Response:
        """For Prometheus."""
        return Response(service_of(request).metrics.text(), media_type=_METRICS)

    return router


def _series(data: bytes, service: Service, kind: str) -> tuple[SeriesBatch, list[Any]]:
    model, limits = service.model, service.limits
    names = (model.channels, model.static_names)
    if kind in _JSON:
        return series_of(loads(data), *names, limits)
    if kind == ARROW:
        return series_of_table(read_arrow(data, limits.max_length), *names, limits)
    if kind == PARQUET:
        known = ("series", "time", "channel", "value", *names[0], *names[1])
        return series_of_table(read_parquet(data, known, limits), *names, limits)
    raise Refusal(415, f"Content-Type must be application/json, {ARROW} or {PARQUET}, got {kind!r}")
