"""``roughformer serve``."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import common as options

__all__ = ["serve"]

_STREAMS = "Streams"
_TOKEN = "ROUGHFORMER_TOKEN"
_SECRET = "ROUGHFORMER_WEBHOOK_SECRET"


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
    webhook: Annotated[
        str | None,
        typer.Option(
            help=f"Address to post alarms to, signed with the secret in {_SECRET}.",
            rich_help_panel=_STREAMS,
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log each request as a line of JSON.")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A limit, e.g. max_body=1000000 or request_seconds=5; may be given several times. "
            "A wrong name lists all.",
        ),
    ] = None,
) -> None:
    """Answer over HTTP and WebSocket: predictions of series and live streams, with a page.

    http://HOST:PORT/ is a monitor for browsers, /docs lists the operations. Stops on Ctrl-C or
    SIGTERM when all that was accepted is answered.
    """
    from roughformer.util.checks import optional

    for package in ("fastapi", "uvicorn", "websockets", "orjson", "prometheus_client"):
        optional(package, "serve")
    from roughformer.inference import Alarm
    from roughformer.runs import model_directory
    from roughformer.serve import Limits, Options, Service, StreamOptions, load_served
    from roughformer.serve import run as run_server
    from roughformer.serve.middleware import is_loopback

    if demo == (run is not None):
        raise typer.BadParameter("give either RUN or --demo", param_hint="RUN")
    if late not in ("refuse", "drop"):
        raise typer.BadParameter(f"refuse or drop, got {late!r}", param_hint="--late")
    limits = Limits.parse(limit or [])
    alarms = list(alarm or [])
    token = _token(token_file)
    if run is None:
        from roughformer.serve.demo import DEMO_ALARM, DEMO_EVERY, DEMO_SPAN, demo_model

        directory = demo_model(cache, threads=threads, say=options.say)
        span, every = span or DEMO_SPAN, every or DEMO_EVERY
        alarms = alarms or [DEMO_ALARM]
    else:
        directory = model_directory(run)
    if span is not None and every is None:
        every = span / 10
    streams = StreamOptions(
        span=span,
        every=every,
        unordered="raise" if late == "refuse" else "drop",
        alarms=tuple(Alarm.parse(text) for text in alarms),
    )
    settings = Options(
        streams=streams, token=token, threads=threads, idle_seconds=idle_seconds,
        snapshot_dir=snapshot_dir, snapshot_seconds=snapshot_seconds, access_log=access_log,
        webhook=webhook, webhook_secret=os.environ.get(_SECRET) or None,
    )  # fmt: skip
    service = Service(load_served(directory), limits, settings)
    if service.streams is None:
        options.say(f"note: no streams: {service.no_streams}")
    if token is None and not is_loopback(host):
        options.say(
            f"note: {host} may be reached by others, and nobody needs a token; give --token-file"
        )
    run_server(service, host, port, options.say)


def _token(file: Path | None) -> str | None:
    from roughformer.errors import InputError

    # Bytes that are not UTF-8 become characters that no token may have.
    text: Any = os.environ.get(_TOKEN) if file is None else file.read_text(errors="replace").strip()
    if file is None and not text:
        return None
    if not re.fullmatch(r"[A-Za-z0-9._~-]{8,512}", text):
        raise InputError(
            f"the token in {file or _TOKEN} must be 8 to 512 letters, digits or . _ ~ -; make one "
            "with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return str(text)
