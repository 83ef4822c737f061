"""``roughformer serve``."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import common as options

__all__ = ["serve"]

_STREAMS = "Streams"
_LIMITS = "Limits"
_TOKEN = "ROUGHFORMER_TOKEN"


def serve(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Directory of a run, or of a model."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"File with a bearer token that clients must send (or {_TOKEN})."),
    ] = None,
    threads: options.Threads = None,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Without RUN: a model of heart rates, trained on first use."),
    ] = False,
    cache: Annotated[
        Path | None, typer.Option(help="With --demo: where its model is kept.")
    ] = None,
    span: Annotated[
        float | None,
        typer.Option(
            help="Models that are not causal: how far back a stream looks, in the unit of times.",
            rich_help_panel=_STREAMS,
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            help="And how often it predicts (default: a tenth of --span).",
            rich_help_panel=_STREAMS,
        ),
    ] = None,
    late: Annotated[
        str,
        typer.Option(
            help="Observations that are not after the last one: refuse, or drop.",
            rich_help_panel=_STREAMS,
        ),
    ] = "refuse",
    alarm: Annotated[
        list[str] | None,
        typer.Option(
            help="E.g. 'above 100 release 95 after 5', 'class=sick above 0.8 release 0.6'; may be "
            "given several times.",
            rich_help_panel=_STREAMS,
        ),
    ] = None,
    idle_seconds: Annotated[
        float,
        typer.Option(help="Streams that nobody uses for so long expire.", rich_help_panel=_STREAMS),
    ] = 3600.0,
    snapshot_dir: Annotated[
        Path | None,
        typer.Option(
            help="Directory of snapshots: streams survive a restart.", rich_help_panel=_STREAMS
        ),
    ] = None,
    snapshot_seconds: Annotated[
        float,
        typer.Option(help="How often changed streams are written.", rich_help_panel=_STREAMS),
    ] = 10.0,
    max_streams: Annotated[
        int, typer.Option(min=1, help="Open streams.", rich_help_panel=_LIMITS)
    ] = 10_000,
    max_body: Annotated[
        int, typer.Option(min=1, help="Bytes of a request.", rich_help_panel=_LIMITS)
    ] = 16 * 2**20,
    max_series: Annotated[
        int, typer.Option(min=1, help="Series of a request.", rich_help_panel=_LIMITS)
    ] = 1024,
    max_length: Annotated[
        int, typer.Option(min=1, help="Points of a request in all.", rich_help_panel=_LIMITS)
    ] = 1_000_000,
    queue: Annotated[
        int, typer.Option(min=1, help="Requests that may wait.", rich_help_panel=_LIMITS)
    ] = 256,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Requests predicted together.", rich_help_panel=_LIMITS)
    ] = 64,
    body_seconds: Annotated[
        float,
        typer.Option(help="In which a body must have arrived.", rich_help_panel=_LIMITS),
    ] = 10.0,
    request_seconds: Annotated[
        float,
        typer.Option(help="In which a request must be answered.", rich_help_panel=_LIMITS),
    ] = 30.0,
) -> None:
    """Answer over HTTP and WebSocket: predictions of series and live streams, with a page.

    http://HOST:PORT/ is a monitor for browsers, /docs lists the operations. Stops on Ctrl-C or
    SIGTERM when all that was accepted is answered.
    """
    from roughformer.util.checks import optional

    for package in ("fastapi", "uvicorn", "websockets", "orjson", "prometheus_client"):
        optional(package, "serve")
    from roughformer.inference.alarms import Alarm
    from roughformer.inference.predictor import Predictor
    from roughformer.runs import model_directory
    from roughformer.serve.limits import Limits
    from roughformer.serve.model import ServedModel
    from roughformer.serve.server import run as run_server
    from roughformer.serve.service import Options, Service
    from roughformer.serve.streams import StreamOptions

    if demo == (run is not None):
        raise typer.BadParameter("give either RUN or --demo", param_hint="RUN")
    if late not in ("refuse", "drop"):
        raise typer.BadParameter(f"refuse or drop, got {late!r}", param_hint="--late")
    limits = Limits(
        max_body=max_body, max_series=max_series, max_length=max_length, max_streams=max_streams,
        queue=queue, max_batch=max_batch, body_seconds=body_seconds,
        request_seconds=request_seconds,
    )  # fmt: skip
    wishes = list(alarm or [])
    token = _token(token_file)
    if run is None:
        from roughformer.serve.demo_model import DEMO_ALARM, DEMO_EVERY, DEMO_SPAN, demo_model

        directory = demo_model(cache, threads=threads, say=options.say)
        span, every = span or DEMO_SPAN, every or DEMO_EVERY
        wishes = wishes or [DEMO_ALARM]
    else:
        directory = model_directory(run)
    if span is not None and every is None:
        every = span / 10
    streams = StreamOptions(
        span=span,
        every=every,
        unordered="raise" if late == "refuse" else "drop",
        alarms=tuple(Alarm.parse(text) for text in wishes),
    )
    chosen = Options(
        streams=streams, token=token, threads=threads, idle_seconds=idle_seconds,
        snapshot_dir=snapshot_dir, snapshot_seconds=snapshot_seconds,
    )  # fmt: skip
    service = Service(ServedModel(Predictor.load(directory), directory), limits, chosen)
    if service.streams is None:
        options.say(f"note: no streams: {service.no_streams}")
    if token is None and not _is_loopback(host):
        options.say(
            f"note: {host} may be reached by others, and nobody needs a token; give --token-file"
        )
    run_server(service, host, port, options.say)


def _token(file: Path | None) -> str | None:
    from roughformer.errors import InputError

    # Bytes that are no text become signs that no token may have.
    text: Any = os.environ.get(_TOKEN) if file is None else file.read_text(errors="replace").strip()
    if file is None and not text:
        return None
    if not re.fullmatch(r"[A-Za-z0-9._~-]{8,512}", text):
        raise InputError(
            f"the token in {file or _TOKEN} must be 8 to 512 letters, digits or . _ ~ -; make one "
            "with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return str(text)


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
