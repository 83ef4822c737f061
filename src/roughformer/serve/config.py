"""Options and limits of the service."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from roughformer.errors import InputError
from roughformer.inference import Alarm
from roughformer.util.checks import real_number, whole_number


@dataclass(frozen=True)
class Limits:
    """Everything that is bounded, with what a client gets beyond it."""

    max_body: int = 16 * 2**20  # bytes of a request: 413
    max_bodies: int = 256 * 2**20  # bytes of all requests at one time: 503
    max_series: int = 1024  # series of a request: 400
    max_length: int = 1_000_000  # points of a request in all: 400
    max_windows: int = 20_000  # windows (tokens) of one series: 400
    max_tokens: int = 200_000  # windows (tokens) of all series of a request: 400
    max_queries: int = 10_000  # times x channels of a forecast request: 400
    max_leap: int = 1000  # windows of a stream that one push may end: 400
    max_ended: int = 10_000  # windows of all its streams that one push may end: 400
    max_runs: int = 400  # with a span, runs of the model that one push may ask for: 400
    max_streams: int = 10_000  # open streams: 429
    max_rows: int = 100_000  # observations of one push: 400
    max_message: int = 4 * 2**20  # bytes of a WebSocket message: closed with 1009
    max_connections: int = 4096  # open connections: 503, except for health checks
    max_per_client: int = 1024  # open connections of one address: likewise
    queue: int = 256  # requests that are accepted and not yet answered: 503 at once
    max_batch: int = 64  # requests that are predicted together
    body_seconds: float = 10.0  # in which a request must have arrived: 408
    request_seconds: float = 30.0  # in which it must have been answered: 503
    send_buffer: int = 4 * 2**20  # bytes that wait for a slow reader: closed with 1013
    stop_seconds: float = 10.0  # from the signal to the end of the process

    def __post_init__(self) -> None:
        """Accept positive numbers only."""
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.type is int:
                whole_number(value, limit.name, 1)
            else:
                real_number(value, limit.name, "a positive number of seconds", positive=True)

    @classmethod
    def parse(cls, assignments: Sequence[str]) -> "Limits":
        """Read ``["max_body=1000000", ...]``; ``InputError`` for unknown names or wrong values."""
        kinds = {limit.name: limit.type for limit in fields(cls)}
        values: dict[str, Any] = {}
        for text in assignments:
            name, _, value = text.partition("=")
            if name not in kinds:
                raise InputError(
                    f"a limit is NAME=VALUE with a name of {', '.join(kinds)}; got {text!r}"
                )
            try:
                values[name] = int(value) if kinds[name] is int else float(value)
            except ValueError:
                raise InputError(f"the limit {name} must be a number, got {value!r}") from None
        return cls(**values)


class StreamOptions(NamedTuple):
    """How streams work: ``span`` and ``every`` for models that are not causal, what becomes of late
    observations, and the alarms of every stream.
    """

    span: float | None = None
    every: float | None = None
    unordered: str = "raise"
    alarms: tuple[Alarm, ...] = ()


@dataclass(frozen=True)
class Options:
    """How the service runs, beside its limits. ``keeps_streams``: of several processes only one
    does.
    """

    keeps_streams: bool = True
    streams: StreamOptions = field(default_factory=StreamOptions)
    token: str | None = None
    threads: int | None = None
    idle_seconds: float = 3600.0
    snapshot_dir: Path | None = None
    snapshot_seconds: float = 10.0
    access_log: bool = False
    webhook: str | None = None
    webhook_secret: str | None = None

    def __post_init__(self) -> None:
        """Accept positive times only."""
        for name in ("idle_seconds", "snapshot_seconds"):
            what = "a positive number of seconds"
            real_number(getattr(self, name), name, what, positive=True)
        if self.webhook is not None and not self.webhook.startswith(("http://", "https://")):
            raise InputError(f"a webhook is an address http(s)://..., got {self.webhook!r}")
