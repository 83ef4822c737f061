"""JSON from clients -> series and observations: msgspec checks types; then sizes and sense."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from roughformer.series import SeriesBatch
from roughformer.serve.config import Limits
from roughformer.serve.errors import APIError, Position, invalid

T = TypeVar("T")
Floats = npt.NDArray[np.float64]
MAX_ID_LENGTH = 256  # characters
MAX_VALUE = 3e38  # the model computes in float32
_MAX_TIME = 1e30  # likewise

Times = Annotated[list[float], Meta(description="Strictly increasing.")]
Values = Annotated[
    list[list[float | None]],
    Meta(description="A row for each time, a number or null (not observed) for each channel."),
]
Static = Annotated[
    dict[str, float | None], Meta(description="Static covariates of the model by name.")
]
Id = (
    Annotated[str, Meta(max_length=MAX_ID_LENGTH)] | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
)


class Series(Struct, forbid_unknown_fields=True):
    """A series of a request."""

    times: Times
    values: Values
    static: Static | None = None
    id: Id | None = None


class SeriesBody(Struct, forbid_unknown_fields=True):
    """``channels``: the order of the columns of ``values``, if not the model's."""

    series: Annotated[list[Series], Meta(min_length=1)]
    channels: list[str] | None = None


class ForecastSeries(Series):
    """A series that may have its own times to answer for."""

    at: Annotated[Times, Meta(description="Times to answer for, past or future.")] | None = None


class ForecastBody(SeriesBody):
    """Answers are for the times ``at``, or so long ``ahead`` of the end of each series."""

    series: Annotated[list[ForecastSeries], Meta(min_length=1)]  # type: ignore[assignment]
    at: Annotated[Times, Meta(description="Times of all series that have none.")] | None = None
    ahead: list[Annotated[float, Meta(gt=0)]] | None = None
    targets: Annotated[list[str], Meta(min_length=1)] | None = None
    coverage: Annotated[float, Meta(gt=0, lt=1)] = 0.9


class ExplainBody(SeriesBody):
    """``target``: a class, or the number of a target."""

    target: Any = None


class OpenBody(Struct, forbid_unknown_fields=True):
    """A stream to open; without an id it gets one."""

    id: str | None = None
    static: Static | None = None


class PushBody(Struct, forbid_unknown_fields=True):
    """Observations of a stream."""

    times: list[float]
    values: Values


class Message(Struct, tag_field="type", tag=str.lower, kw_only=True, forbid_unknown_fields=True):
    """A message over a WebSocket; ``id`` of a stream where the socket is not of one."""

    id: str | None = None


class Push(Message):
    """Observations."""

    times: list[float]
    values: Values


class Advance(Message):
    """No observation up to ``time`` will come any more."""

    time: float


class Predict(Message):
    """What does the model predict now?"""


class State(Message):
    """From where to send on?"""


class Open(Message):
    """Open one stream or many."""

    ids: list[str] | None = None
    static: Static | None = None


class Close(Message):
    """Delete a stream."""


class Observations(NamedTuple):
    """Observations of one or many streams.

    ``names``: ids of the streams; ``codes (m,)``: which of them each row belongs to, None = all to
    the only one; ``times (m,)``; ``values (m, C)``.
    """

    names: list[str]
    codes: npt.NDArray[np.int64] | None
    times: Floats
    values: Floats


# NaN and infinite numbers become null.
encode = msgspec.json.Encoder(enc_hook=lambda x: x.tolist()).encode
_WORDS = {"float": "number", "int": "integer", "str": "string", "array": "list", "bool": "boolean"}


def decode(decoder: msgspec.json.Decoder[T], data: bytes | str) -> T:
    """Decode standard JSON of the type of the decoder, or raise 400 with the position."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        for name, word in _WORDS.items():
            what = re.sub(rf"\b{name}\b", word, what)
        position = {
            name: int(match[1])
            for name, keys in (("series", "series"), ("row", "times|values|at|ahead"))
            if (match := re.search(rf"\.(?:{keys})\[(\d+)\]", path))
        }
        where = f" at {path.strip('.`')}" if path else ""
        raise invalid(f"{what[:1].lower()}{what[1:]}{where}", position) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise APIError(400, f"this is not valid JSON: {error}") from None


def series_of(
    body: SeriesBody,
    channels: tuple[str, ...],
    static_names: tuple[str, ...],
    limits: Limits,
    *,
    dated: bool = False,
) -> tuple[SeriesBatch, list[Any]]:
    """A batch in the order of the model's ``channels``, and the ids (None where there is none).

    ``dated``: times are seconds since 1970.
    """
    order = _channel_order(body.channels, channels)
    if len(body.series) > limits.max_series:
        raise invalid(f"a request may have {limits.max_series} series, got {len(body.series)}")
    given = channels if body.channels is None else tuple(body.channels)
    times, values, static = [], [], []
    room = limits.max_length
    for number, one in enumerate(body.series):
        position = {"series": number}
        room -= len(one.times)
        if room < 0:
            raise invalid(f"a request may have {limits.max_length} points in all", position)
        times.append(check_times(one.times, position))
        if not one.times:
            raise invalid("a series needs at least one observation", position)
        values.append(_check_values(one.values, len(one.times), given, position))
        static.append(static_of(one.static, static_names, position))
    table = np.concatenate(values)
    extras: dict[str, Any] = {"time_origin": np.datetime64(0, "s")} if dated else {}
    if static_names:
        rows = [list(known.values()) for known in static]
        extras |= {"static": np.array(rows), "static_names": static_names}
    batch = SeriesBatch(
        np.concatenate(times),
        table if order is None else table[:, order],
        np.cumsum([0, *map(len, times)]),
        channels=channels,
        **extras,
    )
    return batch, [one.id for one in body.series]


def observations_of(
    message: PushBody | Push, name: str, channels: tuple[str, ...], limits: Limits
) -> Observations:
    """Observations of the stream ``name``."""
    n = len(message.times)
    if n > limits.max_rows:
        raise invalid(f"a push may have {limits.max_rows} observations, got {n}")
    times = check_times(message.times, {}, ordered=False)  # streams refuse or drop late ones
    return Observations([name], None, times, _check_values(message.values, n, channels, {}))


def static_of(
    given: dict[str, float | None] | None, names: tuple[str, ...], position: Position | None = None
) -> dict[str, float]:
    """All covariates; null or absent means unknown (NaN)."""
    given = given or {}
    for name in given:
        if name not in names:
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise invalid(f"the model has no static covariate {name[:40]!r}; {known}", position)
    return {name: np.nan if (x := given.get(name)) is None else x for name in names}


def check_times(
    given: list[float], position: Position, *, ordered: bool = True, what: str = "times"
) -> Floats:
    """Finite and, if ``ordered``, strictly increasing numbers ``(n,)``."""
    times = np.array(given, dtype=np.float64)
    finite = np.abs(times) <= _MAX_TIME
    if not finite.all():
        row = int(np.argmin(finite))
        raise invalid(
            f"a time must be finite and at most {_MAX_TIME:g}, got {times[row]}",
            position | {"row": row},
        )
    increases = times[1:] > times[:-1]
    if ordered and not increases.all():
        row = int(np.argmin(increases)) + 1
        now, before = float(times[row]), float(times[row - 1])
        got = f"got {now!r} twice" if now == before else f"got {now!r} after {before!r}"
        raise invalid(f"{what} must strictly increase, {got}", position | {"row": row})
    return times


def _check_values(
    given: list[list[float | None]], n: int, channels: tuple[str, ...], position: Position
) -> Floats:
    """``n`` rows of a number or None for each channel -> ``(n, C)``, NaN = not observed."""
    c = len(channels)
    if len(given) != n:
        raise invalid(f"there are {n} times but {len(given)} rows of values", position)
    if not set(map(len, given)) <= {c}:
        row = next(i for i, x in enumerate(given) if len(x) != c)
        names = ", ".join(map(repr, channels[:8])) + (", ..." if c > 8 else "")
        raise invalid(
            f"a row must have {c} values, one for each of the channels {names}, got "
            f"{len(given[row])}",
            position | {"row": row},
        )
    values = np.array(list(chain.from_iterable(given)), dtype=np.float64).reshape(n, c)
    large = np.abs(values) > MAX_VALUE  # False for NaN
    if large.any():
        row, channel = (int(k[0]) for k in np.nonzero(large))
        raise invalid(
            f"a value must be at most {MAX_VALUE:g} in size, got {values[row, channel]:g} for "
            f"{channels[channel]!r}",
            position | {"row": row},
        )
    return values


def _channel_order(
    given: Sequence[str] | None, channels: tuple[str, ...]
) -> npt.NDArray[np.int64] | None:
    """Columns of the request in the model's order; None if they are in it already."""
    if given is None or list(given) == list(channels):
        return None
    for number, name in enumerate(given):
        if name not in channels:
            raise invalid(
                f"the model has no channel {name[:40]!r}; its channels are {', '.join(channels)}",
                {"channel": number},
            )
    if len(given) != len(channels) or set(given) != set(channels):
        raise invalid(
            f"channels must name each of {', '.join(channels)} once; what is not observed is null "
            "in its column"
        )
    return np.array([given.index(name) for name in channels])
