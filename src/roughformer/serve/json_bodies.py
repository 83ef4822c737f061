"""JSON from clients -> series and observations.

Types are checked at the speed of C; only when a check fails is the faulty entry looked for.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from roughformer.series import SeriesBatch
from roughformer.serve.config import Limits
from roughformer.serve.errors import APIError, Position, invalid

__all__ = [
    "MAX_ID_LENGTH",
    "MAX_VALUE",
    "Observations",
    "check_object",
    "loads",
    "parse_observations",
    "parse_series",
    "parse_static",
    "parse_times",
]

Floats = npt.NDArray[np.float64]
MAX_ID_LENGTH = 256  # characters
MAX_VALUE = 3e38  # the model computes in float32
_MAX_TIME = 1e30  # likewise
_NUMBER = {int, float}  # not bool: true is no number
_NUMBER_OR_NULL = {int, float, type(None)}


class Observations(NamedTuple):
    """Observations of one or many streams.

    ``names``: ids of the streams; ``codes (m,)``: which of them each row belongs to, None = all to
    the only one; ``times (m,)``; ``values (m, C)``.
    """

    names: list[str]
    codes: npt.NDArray[np.int64] | None
    times: Floats
    values: Floats


def loads(data: bytes | str) -> Any:
    """Decode standard JSON: NaN, Infinity and what is nested too deeply are refused."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        position = {"line": error.lineno, "column": error.colno}
        raise APIError(400, f"this is not valid JSON: {error}", position) from None


def check_object(
    parsed: Any, known: Sequence[str], what: str, position: Position | None = None
) -> dict[str, Any]:
    """Require an object with no other keys than ``known``: a misspelt key must not pass."""
    if type(parsed) is not dict:
        raise invalid(f"{what} must be an object with {', '.join(known)}", position)
    for key in parsed:
        if key not in known:
            raise invalid(f"{what} has no key {key[:40]!r}; known are {', '.join(known)}", position)
    return parsed


def parse_series(
    body: dict[str, Any],
    channels: tuple[str, ...],
    static_names: tuple[str, ...],
    limits: Limits,
    *,
    dated: bool = False,
) -> tuple[SeriesBatch, list[Any]]:
    """Read ``{"series": [{"times", "values", "static"?, "id"?}], "channels"?}``.

    Returns a batch in the order of the model's ``channels``, and the ids (None where there is
    none). ``dated``: times are seconds since 1970.
    """
    order = _channel_order(body.get("channels"), channels)
    listed = body.get("series")
    if type(listed) is not list or not listed:
        raise invalid("the body needs 'series': a list of at least one series")
    if len(listed) > limits.max_series:
        raise invalid(f"a request may have {limits.max_series} series, got {len(listed)}")
    given = channels if order is None else tuple(body["channels"])
    times, values, static, ids = [], [], [], []
    room = limits.max_length
    for number, raw in enumerate(listed):
        position = {"series": number}
        entry = check_object(raw, ("times", "values", "static", "id"), "a series", position)
        if type(entry.get("times")) is list:
            room -= len(entry["times"])
            if room < 0:
                raise invalid(f"a request may have {limits.max_length} points in all", position)
        times.append(parse_times(entry.get("times"), position))
        if not len(times[-1]):
            raise invalid("a series needs at least one observation", position)
        values.append(_parse_values(entry.get("values"), len(times[-1]), given, position))
        static.append(parse_static(entry.get("static"), static_names, position))
        name = entry.get("id")
        if type(name) not in (int, str, type(None)) or len(str(name)) > MAX_ID_LENGTH:
            raise invalid(
                f"an id must be an integer or a string of at most {MAX_ID_LENGTH} characters",
                position,
            )
        ids.append(name)
    table = np.concatenate(values)
    extras: dict[str, Any] = {"time_origin": np.datetime64(0, "s")} if dated else {}
    if static_names:
        rows = [[known[name] for name in static_names] for known in static]
        extras |= {"static": np.array(rows), "static_names": static_names}
    batch = SeriesBatch(
        np.concatenate(times),
        table if order is None else table[:, order],
        np.concatenate([[0], np.cumsum([len(t) for t in times])]),
        channels=channels,
        **extras,
    )
    return batch, ids


def parse_observations(
    message: dict[str, Any], name: str, channels: tuple[str, ...], limits: Limits
) -> Observations:
    """Read ``{"times": [...], "values": [[...]]}`` of the stream ``name``."""
    raw = message.get("times")
    if type(raw) is list and len(raw) > limits.max_rows:
        raise invalid(f"a push may have {limits.max_rows} observations, got {len(raw)}")
    times = parse_times(raw, {}, ordered=False)  # the streams refuse or drop late observations
    values = _parse_values(message.get("values"), len(times), channels, {})
    return Observations([name], None, times, values)


def parse_static(
    raw: Any, names: tuple[str, ...], position: Position | None = None
) -> dict[str, float]:
    """Read ``{"age": 63, ...}``; null or absent means unknown (NaN)."""
    if raw is None:
        return dict.fromkeys(names, np.nan)
    if type(raw) is not dict:
        raise invalid("static must be an object of name -> number", position)
    for name, value in raw.items():
        if name not in names:
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise invalid(f"the model has no static covariate {name[:40]!r}; {known}", position)
        if type(value) not in _NUMBER_OR_NULL:
            raise invalid(f"static {name!r} must be a number or null", position)
    return {n: np.nan if raw.get(n) is None else float(raw[n]) for n in names}


def parse_times(
    raw: Any, position: Position, *, ordered: bool = True, what: str = "times"
) -> Floats:
    """Read a list of finite and, if ``ordered``, strictly increasing numbers -> ``(n,)``."""
    if type(raw) is not list:
        raise invalid(f"{what} must be a list of numbers, got {_json_type(raw)}", position)
    if not set(map(type, raw)) <= _NUMBER:
        row = next(i for i, x in enumerate(raw) if type(x) not in _NUMBER)
        raise invalid(
            f"a time must be a number, got {_json_type(raw[row])}", position | {"row": row}
        )
    times = np.array(raw, dtype=np.float64)
    finite = np.abs(times) <= _MAX_TIME  # False for NaN
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


def _parse_values(raw: Any, n: int, channels: tuple[str, ...], position: Position) -> Floats:
    """Read ``n`` lists of a number or null for each channel -> ``(n, C)``, NaN = not observed."""
    c = len(channels)
    names = ", ".join(map(repr, channels[:8])) + (", ..." if c > 8 else "")
    if type(raw) is not list:
        raise invalid(f"values must be a list of rows, got {_json_type(raw)}", position)
    if len(raw) != n:
        raise invalid(f"there are {n} times but {len(raw)} rows of values", position)
    if not set(map(type, raw)) <= {list}:
        row = next(i for i, x in enumerate(raw) if type(x) is not list)
        raise invalid(
            f"a row must be a list with a number or null for each of the {c} channels {names}, got "
            f"{_json_type(raw[row])}",
            position | {"row": row},
        )
    if not set(map(len, raw)) <= {c}:
        row = next(i for i, x in enumerate(raw) if len(x) != c)
        raise invalid(
            f"a row must have {c} values, one for each of the channels {names}, got "
            f"{len(raw[row])}",
            position | {"row": row},
        )
    flat = list(chain.from_iterable(raw))
    if not set(map(type, flat)) <= _NUMBER_OR_NULL:
        at = next(i for i, x in enumerate(flat) if type(x) not in _NUMBER_OR_NULL)
        raise invalid(
            f"a value must be a number or null, got {_json_type(flat[at])} for "
            f"{channels[at % c]!r}",
            position | {"row": at // c},
        )
    values = np.array(flat, dtype=np.float64).reshape(n, c)
    large = np.abs(values) > MAX_VALUE  # False for NaN
    if large.any():
        row, channel = (int(k[0]) for k in np.nonzero(large))
        raise invalid(
            f"a value must be at most {MAX_VALUE:g} in size, got {values[row, channel]:g} for "
            f"{channels[channel]!r}",
            position | {"row": row},
        )
    return values


def _json_type(x: Any) -> str:
    """Name what JSON calls it; of a string its beginning."""
    if isinstance(x, str):
        return f"the string {x[:20]!r}"
    names = {bool: "true/false", type(None): "null", dict: "an object", list: "a list"}
    return names.get(type(x), f"{x!r}")


def _channel_order(given: Any, channels: tuple[str, ...]) -> npt.NDArray[np.int64] | None:
    """Columns of the request in the model's order; None if they are in it already."""
    if given is None or given == list(channels):
        return None
    if type(given) is not list or not all(type(name) is str for name in given):
        raise invalid("channels must be a list of names")
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
