"""What one client may ask of the service."""

from dataclasses import dataclass, fields

from roughformer.util.checks import real_number, whole_number

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Everything that is bounded, with what a client gets beyond it."""

    max_body: int = 16 * 2**20  # bytes of a request: 413
    max_bodies: int = 256 * 2**20  # bytes of all requests at one time: 503
    max_series: int = 1024  # series of a request: 400
    max_length: int = 1_000_000  # points of a request in all: 400
    max_windows: int = 20_000  # windows (tokens) of one series: 400
    max_tokens: int = 200_000  # windows (tokens) of all series of a request: 400
    max_leap: int = 1000  # windows of a stream that one push may end: 400
    max_ended: int = 10_000  # windows of all its streams that one push may end: 400
    max_runs: int = 400  # with a span, runs of the model that one push may ask for: 400
    max_streams: int = 10_000  # open streams: 429
    max_rows: int = 100_000  # observations of one push: 400
    max_message: int = 4 * 2**20  # bytes of a WebSocket message: closed with 1009
    max_connections: int = 4096  # open connections: 503, but for health
    max_per_client: int = 1024  # open connections of one address: likewise
    queue: int = 256  # requests that were accepted and are not answered: 503 at once
    max_batch: int = 64  # requests that are predicted together
    batch_seconds: float = 0.002  # how long a request waits for company
    body_seconds: float = 10.0  # in which a request must have arrived: 408
    request_seconds: float = 30.0  # in which it must have been answered: 503
    outbox: int = 4 * 2**20  # bytes that wait for a slow reader: closed with 1013
    stop_seconds: float = 10.0  # from the signal to the end of the process

    def __post_init__(self) -> None:
        """Positive numbers only."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int:
                whole_number(value, field.name, 1)
            else:
                real_number(value, field.name, "a positive number of seconds", positive=True)
