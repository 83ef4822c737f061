"""What the streams of a service are described by."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from roughformer.inference.alarms import Alarm

__all__ = ["Entry", "Pushed", "StreamOptions"]


class StreamOptions(NamedTuple):
    """How streams work: ``span`` and ``every`` for models that are not causal, what becomes of late
    observations, and the alarms of every stream.
    """

    span: float | None = None
    every: float | None = None
    unordered: str = "raise"
    alarms: tuple[Alarm, ...] = ()


@dataclass
class Entry:
    """An open stream. ``used``: when it was last asked for; ``changed``: since its snapshot."""

    name: str
    slot: int
    used: float
    changed: bool = True


@dataclass
class Pushed:
    """What a push did: windows that ended, each a dict with ``id``; rows, and how many of them were
    late; of a push to one stream its state afterwards.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    dropped: int = 0
    last_time: float | None = None
    accepted: int = 0
