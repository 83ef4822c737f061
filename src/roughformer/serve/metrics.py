"""Metrics for Prometheus; each service has its own."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """All metrics; ``text()`` is the page that Prometheus reads."""

    def __init__(self) -> None:
        """Start from zero."""
        own = self.registry = CollectorRegistry()
        self.requests = Counter(
            "roughformer_requests", "Requests answered.", ["route", "code"], registry=own
        )
        self.latency = Histogram(
            "roughformer_request_seconds", "Time to the answer.", ["route"],
            buckets=_SECONDS, registry=own,
        )  # fmt: skip
        self.batch_size = Histogram(
            "roughformer_batch_requests", "Requests predicted together.",
            buckets=_SIZES, registry=own,
        )  # fmt: skip
        self.push_size = Histogram(
            "roughformer_push_together", "Pushes of streams done together.",
            buckets=_SIZES, registry=own,
        )  # fmt: skip
        self.shed = Counter(
            "roughformer_shed", "Requests refused because of load.", ["reason"], registry=own
        )
        self.series = Counter("roughformer_series", "Series predicted.", registry=own)
        self.observations = Counter(
            "roughformer_observations", "Observations accepted from streams.", registry=own
        )
        self.windows = Counter("roughformer_windows", "Windows of streams ended.", registry=own)
        self.errors = Counter("roughformer_errors", "Unexpected errors.", registry=own)
        self.alarms = Counter(
            "roughformer_alarms", "Changes of alarms.", ["alarm", "change"], registry=own
        )
        self.webhooks = Counter(
            "roughformer_webhooks", "Messages to the webhook.", ["result"], registry=own
        )
        self.expired = Counter("roughformer_expired", "Idle streams given up.", registry=own)
        self.snapshots = Counter("roughformer_snapshots", "Snapshots written.", registry=own)

    def watch(
        self, queue: Callable[[], float], streams: Callable[[], float], sockets: Callable[[], float]
    ) -> None:
        """Register gauges that are read when the page is."""
        for name, what, source in (
            ("roughformer_queue_length", "Requests that wait for the model.", queue),
            ("roughformer_streams", "Open streams.", streams),
            ("roughformer_sockets", "Open WebSockets.", sockets),
        ):
            Gauge(name, what, registry=self.registry).set_function(source)

    def text(self) -> bytes:
        """Write the exposition format."""
        return generate_latest(self.registry)
