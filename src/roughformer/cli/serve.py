"""``roughformer serve``."""

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import common as options
from roughformer.cli.common import option

_STREAMS = "Streams"
_TOKEN = "ROUGHFORMER_TOKEN"
_SECRET = "ROUGHFORMER_WEBHOOK_SECRET"


def serve(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Directory of a run, or of a model.")
    ] = None,
    host: Annotated[str, option("Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("Port; 0: any free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, option(f"File with a bearer token that clients must send (or {_TOKEN}).")
    ] = None,
    threads: options.Threads = None,
    workers: Annotated[
        int,
        typer.Option(min=1, help="Processes that answer for whole series; one keeps the streams."),
    ] = 1,
    demo: Annotated[
        bool, option("Without RUN: a model of heart rates, trained on first use.", "--demo")
    ] = False,
    cache: Annotated[Path | None, option("With --demo: where its model is kept.")] = None,
    span: Annotated[
        float | None,
        option(
            "Models that are not causal: how far back a stream looks, in the unit of times.",
            panel=_STREAMS,
        ),
    ] = None,
    every: Annotated[
        float | None,
        option(
            "And how often it predicts (default: a tenth of --span, or of the horizon of a "
            "forecaster).",
            panel=_STREAMS,
        ),
    ] = None,
    late: Annotated[
        str,
        option("Observations that are not after the last one: refuse, or drop.", panel=_STREAMS),
    ] = "refuse",
    alarm: Annotated[
        list[str] | None,
        option(
            "E.g. 'above 100 release 95 after 5', 'class=sick above 0.8 release 0.6'; may be "
            "given several times.",
            panel=_STREAMS,
        ),
    ] = None,
    idle_seconds: Annotated[
        float, option("Streams that nobody uses for so long expire.", panel=_STREAMS)
    ] = 3600.0,
    snapshot_dir: Annotated[
        Path | None, option("Directory of snapshots: streams survive a restart.", panel=_STREAMS)
    ] = None,
    snapshot_seconds: Annotated[
        float, option("How often changed streams are written.", panel=_STREAMS)
    ] = 10.0,
    webhook: Annotated[
        str | None,
        option(f"Address to post alarms to, signed with the secret in {_SECRET}.", panel=_STREAMS),
    ] = None,
    access_log: Annotated[
        bool, option("Log each request as a line of JSON.", "--access-log")
    ] = False,
    limit: Annotated[
        list[str] | None,
        option(
            "A limit, e.g. max_body=1000000 or request_seconds=5; may be given several times. "
            "A wrong name lists all.",
            metavar="NAME=VALUE",
        ),
    ] = None,
) -> None:
    """Answer over HTTP and WebSocket: predictions of series and live streams, with a page.

    http://HOST:PORT/ is a monitor for browsers, /docs lists the operations. Stops on Ctrl-C or
    SIGTERM when all that was accepted is answered.
    """
    from roughformer.util.checks import optional

    for package in ("fastapi", "uvicorn", "websockets", "msgspec", "prometheus_client"):
        optional(package, "serve")
    from roughformer.inference import Alarm
    from roughformer.runs import model_directory
    from roughformer.serve import Limits, Options, StreamOptions, run_workers
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
    build = partial(_service, directory, limits, settings)
    service = build(True)
    if service.streams is None:
        options.say(f"note: no streams: {service.no_streams}")
    if token is None and not is_loopback(host):
        options.say(
            f"note: {host} may be reached by others, and nobody needs a token; give --token-file"
        )
    if workers == 1:
        run_server(service, host, port, options.say)
    else:
        run_workers(build, workers, host, port, options.say)


def _service(directory: Path, limits: Any, settings: Any, keeps_streams: bool) -> Any:
    if not keeps_streams:
        settings = replace(settings, keeps_streams=False, snapshot_dir=None, webhook=None)
    from roughformer.serve import Service, load_served

    return Service(load_served(directory), limits, settings)


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
