"""The app: routes, pages, and how errors are told."""

import contextlib
from collections.abc import AsyncIterator
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import roughformer
from roughformer.errors import CapacityError, InputError
from roughformer.serve.docs_page import DOCS_PAGE, DOCS_POLICY
from roughformer.serve.guard import Guard, unexpected
from roughformer.serve.refusal import Refusal, error_body
from roughformer.serve.routes import answer, routes
from roughformer.serve.service import Service
from roughformer.serve.sockets import socket_routes
from roughformer.serve.stream_routes import stream_routes

__all__ = ["create_app"]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_ABOUT = (
    "Predictions of a trained model for whole series and for live streams. WebSockets: "
    "/v1/streams/{id} for one stream, /v1/streams for many."
)


def create_app(service: Service) -> FastAPI:
    """All routes around a service, which starts and stops with the app."""

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            service.refuse_new_work()
            await service.stop()

    app = FastAPI(
        title="roughformer",
        version=roughformer.__version__,
        description=_ABOUT,
        docs_url=None,  # FastAPI's pages load scripts of other hosts
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
    )
    app.state.service = service
    for router in (routes(), stream_routes(), socket_routes(), _pages()):
        app.include_router(router)
    if find_spec("roughformer.serve.demo") is not None:
        from roughformer.serve.demo import demo_routes

        app.include_router(demo_routes(service.model.predictor))
    _tell_errors(app, service)
    app.add_middleware(Guard, service=service)
    return app


def _tell_errors(app: FastAPI, service: Service) -> None:
    async def refused(request: Request, error: Any) -> Response:
        told = answer(error_body(error.message, error.position), error.status)
        told.headers.update(error.headers)
        return told

    async def wrong(request: Request, error: Any) -> Response:
        return answer(error_body(str(error)), 400)

    async def of_http(request: Request, error: Any) -> Response:
        told = answer(error_body(str(error.detail)), error.status_code)
        told.headers.update(error.headers or {})
        return told

    async def of_query(request: Request, error: Any) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return answer(error_body(f"{place}: {first['msg']}"), 400)

    async def of_us(request: Request, error: Any) -> Response:
        return answer(unexpected(service, error), 500)

    for kind, handler in (
        (Refusal, refused),
        (InputError, wrong),
        (CapacityError, wrong),
        (HTTPException, of_http),
        (RequestValidationError, of_query),
        (Exception, of_us),
    ):
        app.add_exception_handler(kind, handler)


def _pages() -> APIRouter:
    """``/`` and ``/page/*``: files of the package; and the page of the API."""
    router = APIRouter(include_in_schema=False)
    folder = files("roughformer.serve") / "page"

    def page(name: str) -> Response:
        ending = name[name.rfind(".") :]
        if ending not in _KINDS or name not in {entry.name for entry in folder.iterdir()}:
            raise HTTPException(404, "there is no such page")
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        data = (folder / name).read_bytes()
        return Response(data, media_type=_KINDS[ending], headers=headers)

    @router.get("/")
    async def index(request: Request) -> Response:
        streams = request.app.state.service.streams
        return page("series.html" if streams is None else "index.html")

    @router.get("/series")
    async def series() -> Response:
        return page("series.html")

    @router.get("/page/{name}")
    async def part(name: str) -> Response:
        return page(name)

    @router.get("/docs")
    async def docs() -> Response:
        headers = {"Content-Security-Policy": DOCS_POLICY}
        return Response(DOCS_PAGE, media_type="text/html; charset=utf-8", headers=headers)

    return router
