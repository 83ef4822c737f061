"""JSON of clients -> series and observations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from roughformer.series import SeriesBatch
from roughformer.serve.limits import Limits
from roughformer.serve.numbers import Place, bad, times_of, values_of
from roughformer.serve.refusal import Refusal

__all__ = ["LONGEST_ID", "Rows", "loads", "object_of", "rows_of", "series_of", "static_of"]

Floats = npt.NDArray[np.float64]
LONGEST_ID = 256  # characters


class Rows(NamedTuple):
    """Observations of one or many streams.

    ``names``: ids of the streams; ``codes (m,)``: which of them each row is of, None = all of the
    only one; ``times (m,)``; ``values (m, C)``.
    """

    names: list[str]
    codes: npt.NDArray[np.int64] | None
    times: Floats
    values: Floats


def loads(data: bytes | str) -> Any:
    """JSON as the standard has it: NaN, Infinity and what is nested too deep are refused."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        place = {"line": error.lineno, "column": error.colno}
        raise Refusal(400, f"this is no JSON: {error}", place) from None


def object_of(parsed: Any, known: Sequence[str], what: str, place: Place) -> dict[str, Any]:
    """An object with no other keys than ``known``: a misspelt key must not pass in silence."""
    if type(parsed) is not dict:
        raise bad(f"{what} must be an object with {', '.join(known)}", place)
    for key in parsed:
        if key not in known:
            raise bad(f"{what} has no key {key[:40]!r}; known are {', '.join(known)}", place)
    return parsed


def series_of(
    parsed: Any,
    channels: tuple[str, ...],
    static_names: tuple[str, ...],
    limits: Limits,
    also: Sequence[str] = (),
) -> tuple[SeriesBatch, list[Any]]:
    """``{"series": [{"times", "values", "static"?, "id"?}], "channels"?}`` -> a batch in the order
    of the model's ``channels``, and the ids (None where there is none).
    """
    body = object_of(parsed, ("series", "channels", *also), "the body", {})
    order = _order(body.get("channels"), channels)
    listed = body.get("series")
    if type(listed) is not list or not listed:
        raise bad("the body needs 'series': a list of at least one series", {})
    if len(listed) > limits.max_series:
        raise bad(f"a request may have {limits.max_series} series, got {len(listed)}", {})
    given = channels if order is None else tuple(body["channels"])
    times, values, static, ids = [], [], [], []
    left = limits.max_length
    for number, raw in enumerate(listed):
        place = {"series": number}
        one = object_of(raw, ("times", "values", "static", "id"), "a series", place)
        if type(one.get("times")) is list:
            left -= len(one["times"])
            if left < 0:
                raise bad(f"a request may have {limits.max_length} points in all", place)
        times.append(times_of(one.get("times"), place))
        if not len(times[-1]):
            raise bad("a series needs at least one observation", place)
        values.append(values_of(one.get("values"), len(times[-1]), given, place))
        static.append(static_of(one.get("static"), static_names, place))
        ids.append(_id(one.get("id"), place))
    table = np.concatenate(values)
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in times])])
    extras: dict[str, Any] = {}
    if static_names:
        rows = [[known[name] for name in static_names] for known in static]
        extras = {"static": np.array(rows), "static_names": static_names}
    batch = SeriesBatch(
        np.concatenate(times),
        table if order is None else table[:, order],
        offsets,
        channels=channels,
        **extras,
    )
    return batch, ids


def rows_of(message: dict[str, Any], name: str, channels: tuple[str, ...], limits: Limits) -> Rows:
    """``{"times": [...], "values": [[...]]}`` -> observations of the stream ``name``."""
    raw = message.get("times")
    if type(raw) is list and len(raw) > limits.max_rows:
        raise bad(f"a push may have {limits.max_rows} observations, got {len(raw)}", {})
    times = times_of(raw, {}, ordered=False)  # what is late is refused or dropped by the streams
    values = values_of(message.get("values"), len(times), channels, {})
    return Rows([name], None, times, values)


def static_of(raw: Any, names: tuple[str, ...], place: Place) -> dict[str, float]:
    """``{"age": 63, ...}``; what is null or not there is NaN: not known."""
    if raw is None:
        return dict.fromkeys(names, np.nan)
    if type(raw) is not dict:
        raise bad("static must be an object of name -> number", place)
    for name, value in raw.items():
        if name not in names:
            known = f"it knows {', '.join(names)}" if names else "it takes none"
            raise bad(f"the model has no static covariate {name[:40]!r}; {known}", place)
        if type(value) not in (int, float, type(None)):
            raise bad(f"static {name!r} must be a number or null", place)
    return {n: np.nan if raw.get(n) is None else float(raw[n]) for n in names}


def _order(given: Any, channels: tuple[str, ...]) -> npt.NDArray[np.int64] | None:
    """Columns of the request in the order of the model; None: they are so."""
    if given is None or given == list(channels):
        return None
    if type(given) is not list or not all(type(name) is str for name in given):
        raise bad("channels must be a list of names", {})
    for name in given:
        if name not in channels:
            raise bad(
                f"the model has no channel {name[:40]!r}; its channels are {', '.join(channels)}",
                {"channel": given.index(name)},
            )
    if len(given) != len(channels) or set(given) != set(channels):
        raise bad(
            f"channels must name each of {', '.join(channels)} once; what is not observed is null "
            "in its column",
            {},
        )
    return np.array([given.index(name) for name in channels])


def _id(raw: Any, place: Place) -> str | int | None:
    if raw is None or type(raw) is int or (type(raw) is str and len(raw) <= LONGEST_ID):
        return raw
    raise bad(f"an id must be a whole number or a text of at most {LONGEST_ID} characters", place)
