"""The ASGI app: routes, pages and error handlers."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from roughformer.errors import CapacityError, InputError
from roughformer.serve.demo import Samples, load_recording, recordings
from roughformer.serve.errors import APIError
from roughformer.serve.middleware import Middleware
from roughformer.serve.routes import SCHEMAS, json_response, routes
from roughformer.serve.service import Service
from roughformer.serve.websocket_session import websocket_routes

_ABOUT = (
    "Predictions of a trained model for whole series and for live streams. WebSockets: "
    "/v1/streams/{id} for one stream, /v1/streams for many."
)
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_TRUTH = {"name": "heart rate", "unit": "beats/min"}  # of the demo's recordings
_MAX_SECONDS = 120.0  # of a recording, in one request
_POLICY = (  # scripts, styles and requests: of this host only
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def create_app(service: Service) -> FastAPI:
    """Build the app of a service, which starts and stops with it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            service.refuse_new_work()
            await service.stop()

    app = FastAPI(
        title="roughformer",
        version=version("roughformer"),
        description=_ABOUT,
        docs_url=None,  # FastAPI's own pages load scripts of other hosts
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        schema.setdefault("components", {}).setdefault("schemas", {}).update(SCHEMAS)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
    for router in (routes(), websocket_routes(), _demo_routes(), _page_routes()):
        app.include_router(router)

    async def handle(request: Request, error: Any) -> Response:
        if isinstance(error, HTTPException):
            failure = APIError(error.status_code, str(error.detail))
        elif isinstance(error, RequestValidationError):
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            failure = APIError(400, f"{place}: {first['msg']}")
        elif isinstance(error, InputError | CapacityError):
            failure = APIError(400, str(error))
        else:
            failure = error if isinstance(error, APIError) else service.log_unexpected(error)
        response = json_response(failure.body, failure.status)
        response.headers.update(failure.headers | dict(getattr(error, "headers", None) or {}))
        return response

    for kind in (APIError, InputError, CapacityError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(Exception, handle)
    app.add_middleware(Middleware, service=service)
    return app


def _page_routes() -> APIRouter:
    """``/`` and ``/page/*``: files of the package; and the page of the API."""
    router = APIRouter(include_in_schema=False)
    folder = files("roughformer.serve") / "page"

    def page(name: str) -> Response:
        ending = name[name.rfind(".") :]
        if ending not in _MEDIA_TYPES or name not in {entry.name for entry in folder.iterdir()}:
            raise HTTPException(404, "there is no such page")
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        data = (folder / name).read_bytes()
        return Response(data, media_type=_MEDIA_TYPES[ending], headers=headers)

    @router.get("/")
    async def index(request: Request) -> Response:
        streams = request.app.state.service.streams
        return page("series.html" if streams is None else "index.html")

    @router.get("/series")
    async def series() -> Response:
        return page("series.html")

    @router.get("/ward")
    async def ward() -> Response:
        return page("ward.html")

    @router.get("/page/{name}")
    async def part(name: str) -> Response:
        return page(name)

    @router.get("/docs")
    async def docs() -> Response:
        return page("docs.html")

    return router


def _demo_routes() -> APIRouter:
    """``/v1/demo`` and ``/v1/demo/{name}``."""
    router = APIRouter(tags=["page"])

    @router.get("/v1/demo", summary="Recordings that the page can play")
    def listed() -> Response:
        entries = [asdict(recording) | {"truth": _TRUTH} for recording in recordings().values()]
        return json_response({"recordings": entries})

    @router.get("/v1/demo/{name}", summary="Observations of one of them")
    def part(
        name: str,
        start: Annotated[float, Query(alias="from", ge=0, allow_inf_nan=False)] = 0.0,
        end: Annotated[float | None, Query(alias="to", ge=0, allow_inf_nan=False)] = None,
    ) -> Response:
        known = recordings()
        if name not in known:
            raise APIError(404, f"there is no recording {name!r}; there are {', '.join(known)}")
        end = start + _MAX_SECONDS if end is None else end
        if not start <= end <= start + _MAX_SECONDS:
            raise APIError(
                400,
                f"from <= to <= from + {_MAX_SECONDS:g} seconds must hold, got from={start:g} and "
                f"to={end:g}",
            )
        return json_response(_part(load_recording(name), start, end))

    return router


def _part(samples: Samples, start: float, end: float) -> dict[str, Any]:
    """Observations at ``start <= t < end``; the last part has the last one too."""
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
