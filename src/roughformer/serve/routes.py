"""HTTP routes: predictions, explanations, streams, the model, health."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np
from fastapi import APIRouter, Request, Response
from msgspec.json import Decoder
from starlette.requests import ClientDisconnect

from roughformer.series import SeriesBatch
from roughformer.serve.config import Limits
from roughformer.serve.errors import APIError, invalid
from roughformer.serve.json_bodies import (
    ExplainBody,
    ForecastBody,
    Observations,
    OpenBody,
    PushBody,
    SeriesBody,
    check_times,
    decode,
    encode,
    observations_of,
    series_of,
    static_of,
)
from roughformer.serve.model import ForecastQuery, ServedForecaster
from roughformer.serve.service import Service, check_name
from roughformer.serve.streams import Streams
from roughformer.serve.tables import (
    ARROW,
    PARQUET,
    read_arrow,
    read_file,
    read_parquet,
    series_of_table,
)

__all__ = ["SCHEMAS", "json_response", "routes"]

T = TypeVar("T")
_JSON = ("application/json", "application/x-www-form-urlencoded")  # curl -d says the second
_MAX_LISTED = 1000  # streams
_STEPS_AHEAD = 20  # by default, up to the horizon
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

# What /openapi.json tells about bodies, which FastAPI does not read.
_EXAMPLE = {"series": [{"times": [0, 0.5, 1.25], "values": [[1.0], [None], [1.5]]}]}
_BODIES: dict[str, tuple[Any, Any]] = {
    "predict": (SeriesBody, _EXAMPLE),
    "forecast": (ForecastBody, _EXAMPLE | {"at": [1.5, 2.0], "coverage": 0.9}),
    "explain": (ExplainBody, _EXAMPLE),
    "open": (OpenBody, {"id": "bed-7"}),
    "push": (PushBody, {"times": [0.0, 0.008], "values": [[0.1], [0.12]]}),
}
_DECODERS: dict[str, Any] = {name: Decoder(kind) for name, (kind, _) in _BODIES.items()}
_SCHEMAS, SCHEMAS = msgspec.json.schema_components(
    [kind for kind, _ in _BODIES.values()], ref_template="#/components/schemas/{name}"
)
_SCHEMA = dict(zip(_BODIES, _SCHEMAS, strict=True))
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


def _body(name: str | None, *binary: str) -> dict[str, Any]:
    content: dict[str, Any] = dict.fromkeys(binary, _BINARY)
    if name is not None:
        content["application/json"] = {"schema": _SCHEMA[name], "example": _BODIES[name][1]}
    return {"requestBody": {"required": name != "open", "content": content}}


_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is wrong; the message says where."},
    503: {"description": "Overloaded, or stopping; try again."},
}


def json_response(body: Any, status: int = 200) -> Response:
    """Encode JSON; numbers that are not finite become null."""
    return Response(encode(body), status, media_type="application/json")


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _read_body(request: Request, limits: Limits) -> bytes:
    """Read all of the body: 413 as soon as it is known to be too large, 408 if it does not arrive
    in time. No more than the limit is ever kept.
    """

    def too_large(size: str) -> APIError:
        return APIError(
            413,
            f"a body may have {limits.max_body} bytes, got {size}; send fewer series in a request",
        )

    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise APIError(415, f"bodies must not be compressed, got {encoding[:20]!r}")
    length = request.headers.get("content-length")
    # h11 has refused lengths that are no numbers before.
    if length is not None and length.isdecimal() and int(length) > limits.max_body:
        raise too_large(length)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.max_body:
                    raise too_large("more")
                parts.append(part)
    except TimeoutError:
        raise APIError(
            408,
            f"the body did not arrive within {limits.body_seconds:g} s ({size} bytes did); send it "
            "faster or in smaller requests",
        ) from None
    except ClientDisconnect:
        raise APIError(400, "the connection was closed before the body was complete") from None
    return b"".join(parts)


def routes() -> APIRouter:
    """All routes for HTTP but for those of the demo and the pages."""
    router = APIRouter(responses=_ERRORS)
    _add_series_routes(router)
    _add_stream_routes(router)

    @router.get("/v1/model", tags=["model"])
    async def model(request: Request) -> Response:
        """What the model is: task, channels, classes or targets, windows, streams, alarms."""
        service = _service(request)
        streams = service.streams
        options = service.options.streams if streams is None else streams.options
        stream = {
            "span": options.span,
            "every": options.every,
            "causal": getattr(service.model, "causal", False),
            "available": streams is not None,
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
        return json_response(service.model.about() | {"stream": stream, "alarms": alarms})

    @router.get("/healthz", tags=["health"])
    async def healthz() -> Response:
        """The process lives."""
        return json_response({"status": "alive"})

    @router.get("/readyz", tags=["health"])
    async def readyz(request: Request) -> Response:
        """New work is accepted (200) or not (503)."""
        ready = _service(request).ready
        return json_response({"ready": ready}, 200 if ready else 503)

    @router.get("/metrics", tags=["health"])
    async def metrics(request: Request) -> Response:
        """Metrics for Prometheus."""
        return Response(_service(request).metrics.text(), media_type=_METRICS)

    return router


def _add_series_routes(router: APIRouter) -> None:
    async def predict(request: Request) -> Response:
        """Predict whole series: JSON, an Arrow stream or a Parquet file."""
        service = _service(request)
        model = service.predicting_model
        data = await _read_body(request, service.limits)
        kind = request.headers.get("content-type", _JSON[0]).partition(";")[0].strip().lower()
        with service.accepting():
            batch, ids = await service.parse(_parse_batch, data, service, kind)
            predictions = await service.predict(batch)
        entries = [
            entry if name is None else {"id": name, **entry}
            for name, entry in zip(ids, predictions, strict=True)
        ]
        about = {"fingerprint": model.fingerprint, "task": model.predictor.outputs.task}
        return json_response({"predictions": entries, "model": about})

    # The first is what answers: FastAPI would look for parameters, a tenth of a request's time.
    # The second is for the description of the API.
    router.add_route("/v1/predict", predict, methods=["POST"])
    described = _body("predict", ARROW, PARQUET)
    router.post("/v1/predict", tags=["series"], openapi_extra=described)(predict)

    @router.post("/v1/forecast", tags=["series"], openapi_extra=_body("forecast"))
    async def forecast(request: Request) -> Response:
        """Forecast or interpolate series at the times asked for, with intervals."""
        service = _service(request)
        model = service.forecaster
        data = await _read_body(request, service.limits)
        with service.accepting():
            query, ids = await service.parse(_parse_forecast, data, model, service.limits)
            forecasts = await service.forecast(query)
        entries = [
            entry if name is None else {"id": name, **entry}
            for name, entry in zip(ids, forecasts, strict=True)
        ]
        targets = [model.channels[c] for c in query.targets]
        about = {"fingerprint": model.fingerprint, "task": "forecasting"}
        answer = {"forecasts": entries, "channels": targets, "coverage": query.coverage}
        return json_response(answer | {"warnings": model.warnings_of(query), "model": about})

    @router.post("/v1/explain", tags=["series"], openapi_extra=_body("explain"))
    async def explain(request: Request) -> Response:
        """Channels and windows that drove the prediction of one series."""
        service = _service(request)
        model, explainer = service.predicting_model, service.explainer
        assert explainer is not None
        data = await _read_body(request, service.limits)

        def parse(data: bytes) -> tuple[SeriesBatch, Any]:
            body = decode(_DECODERS["explain"], data)
            batch, _ = series_of(body, model.channels, model.static_names, service.limits)
            if len(batch) != 1:
                raise APIError(400, f"one series is explained at a time, got {len(batch)}")
            model.check_size(batch, service.limits)
            explainer.check_size(batch)
            return batch, body.target

        batch, target = await service.parse(parse, data)
        seconds = service.limits.request_seconds
        return json_response(await explainer.explain(batch, target, seconds))

    @router.post("/v1/read", tags=["page"])
    async def read(request: Request) -> Response:
        """Read a table, CSV or Parquet, as training does: series to be predicted."""
        service, model = _service(request), _service(request).model
        data = await _read_body(request, service.limits)
        with service.accepting():
            series = await service.parse(
                read_file, data, model.channels, model.static_names, model.columns, service.limits
            )
        return json_response({"series": series})


def _parse_batch(data: bytes, service: Service, kind: str) -> tuple[SeriesBatch, list[Any]]:
    limits, channels, static = service.limits, service.model.channels, service.model.static_names
    if kind in _JSON:
        return series_of(decode(_DECODERS["predict"], data), channels, static, limits)
    if kind == ARROW:
        table = read_arrow(data, limits.max_length)
    elif kind == PARQUET:
        table = read_parquet(
            data, ("series", "time", "channel", "value", *channels, *static), limits
        )
    else:
        raise APIError(
            415, f"Content-Type must be application/json, {ARROW} or {PARQUET}, got {kind!r}"
        )
    return series_of_table(table, channels, static, limits)


def _parse_forecast(
    data: bytes, model: ServedForecaster, limits: Limits
) -> tuple[ForecastQuery, list[Any]]:
    body = decode(_DECODERS["forecast"], data)
    dated, channels = model.predictor.dated, model.channels
    batch, ids = series_of(body, channels, model.static_names, limits, dated=dated)
    own = [series.at is not None for series in body.series]
    if (body.at is not None) + (body.ahead is not None) + any(own) > 1:
        raise invalid("give 'at' or 'ahead', not both; 'at' for all series, or each its own")
    if any(own) and not all(own):
        raise invalid(
            "others have an 'at' of their own: give each one", {"series": own.index(False)}
        )
    if any(own):
        at = [
            check_times(series.at or [], {"series": b}, what="at")
            for b, series in enumerate(body.series)
        ]
    elif body.at is not None:
        at = [check_times(body.at, {}, what="at")] * len(batch)
    else:
        ahead = np.linspace(0, model.predictor.horizon, _STEPS_AHEAD + 1)[1:]
        if body.ahead is not None:
            ahead = check_times(body.ahead, {}, what="ahead")
        at = [end + ahead for end in model.predictor.ends(batch)]
    targets = list(channels) if body.targets is None else body.targets
    if not set(targets) <= set(channels):
        raise invalid(f"'targets' must be a list of channels, of {', '.join(channels)}")
    n_queries = sum(map(len, at)) * len(targets)
    if n_queries > limits.max_queries:
        raise invalid(
            f"this asks for {n_queries} values (series x times x channels), the limit is "
            f"max_queries = {limits.max_queries}; ask for fewer at once"
        )
    numbers = np.array([channels.index(name) for name in dict.fromkeys(targets)], dtype=np.int64)
    return ForecastQuery(batch, at, numbers, body.coverage), ids


def _add_stream_routes(router: APIRouter) -> None:
    streams = "/v1/streams"
    tags: list[Any] = ["streams"]

    async def ask(request: Request, work: Callable[[Streams], T]) -> T:
        """Call ``work(streams)``; it waits in the queue as all requests do."""
        service = _service(request)
        with service.accepting():
            return await service.on_streams(work)

    @router.post(streams, tags=tags, openapi_extra=_body("open"), status_code=201)
    async def open_stream(request: Request) -> Response:
        """Open a stream; without an id it gets one."""
        service = _service(request)
        data = await _read_body(request, service.limits)
        body = decode(_DECODERS["open"], data or b"{}")
        name = secrets.token_hex(8) if body.id is None else check_name(body.id)
        static = static_of(body.static, service.model.static_names)
        return json_response(await ask(request, lambda s: s.open(name, static)), 201)

    @router.get(streams, tags=tags)
    async def overview(request: Request) -> Response:
        """The open streams with their last predictions and alarms, the alarming ones first."""
        listed = await ask(request, lambda s: (s.overview(_MAX_LISTED), len(s.entries)))
        return json_response({"streams": listed[0], "count": listed[1]})

    @router.get(streams + "/{name}", tags=tags)
    async def state(request: Request, name: str) -> Response:
        """The state of a stream: from where to send, how much was accepted."""
        return json_response(await ask(request, lambda s: s.state(check_name(name))))

    @router.delete(streams + "/{name}", tags=tags, status_code=204)
    async def close(request: Request, name: str) -> Response:
        """End a stream."""
        with _service(request).accepting():
            await _service(request).close_stream(check_name(name))
        return Response(status_code=204)

    @router.post(streams + "/{name}/push", tags=tags, openapi_extra=_body("push"))
    async def push(request: Request, name: str) -> Response:
        """Send observations; the answer has the windows that ended with them."""
        service = _service(request)
        data = await _read_body(request, service.limits)

        def parse(data: bytes) -> Observations:
            body = decode(_DECODERS["push"], data)
            return observations_of(body, check_name(name), service.model.channels, service.limits)

        with service.accepting():
            rows = await service.parse(parse, data)
            result = await service.push(rows)
        service.broadcaster.show(rows)
        service.publish(result.events)
        return json_response({"id": name, "events": result.events, **result.state})

    @router.get(streams + "/{name}/prediction", tags=tags)
    async def predict(request: Request, name: str) -> Response:
        """What the model predicts now."""
        return json_response(await ask(request, lambda s: s.predict(check_name(name))))

    @router.get(streams + "/{name}/snapshot", tags=tags)
    async def snapshot(request: Request, name: str) -> Response:
        """The stream as bytes, to continue elsewhere."""
        data = await ask(request, lambda s: s.snapshot(check_name(name)))
        return Response(data, media_type="application/octet-stream")

    @router.put(
        streams + "/{name}/snapshot",
        tags=tags,
        openapi_extra=_body(None, "application/octet-stream"),
    )
    async def restore(request: Request, name: str) -> Response:
        """Continue from a snapshot; the stream is opened if it is not there."""
        data = await _read_body(request, _service(request).limits)
        return json_response(await ask(request, lambda s: s.restore(check_name(name), data)))
