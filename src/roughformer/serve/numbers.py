"""Lists of JSON -> arrays. Checked at the speed of C; a fault is then looked for and named."""

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.serve.refusal import Refusal

__all__ = ["LARGEST", "Place", "bad", "check_times", "times_of", "values_of"]

Floats = npt.NDArray[np.float64]
Place = dict[str, Any]  # where in the request: {"series": 3, "row": 17}

LARGEST = 3e38  # of a value: the model computes with float32
_LARGEST_TIME = 1e30  # likewise
_NUMBERS = {int, float}  # bool is a type of its own here: true is no number
_OR_NOTHING = {int, float, type(None)}


def bad(message: str, place: Place) -> Refusal:
    """400, with the place before the words."""
    where = ", ".join(f"{name} {number}" for name, number in place.items())
    return Refusal(400, f"{where}: {message}" if where else message, place or None)


def times_of(raw: Any, place: Place, *, ordered: bool = True) -> Floats:
    """A list of finite and, if ``ordered``, strictly increasing numbers -> ``(n,)``."""
    if type(raw) is not list:
        raise bad(f"times must be a list of numbers, got {_kind(raw)}", place)
    if not set(map(type, raw)) <= _NUMBERS:
        row = next(i for i, x in enumerate(raw) if type(x) not in _NUMBERS)
        raise bad(f"a time must be a number, got {_kind(raw[row])}", place | {"row": row})
    times = np.array(raw, dtype=np.float64)
    check_times(times, place, ordered=ordered)
    return times


def check_times(times: Floats, place: Place, *, ordered: bool = True) -> None:
    """Finite and, if ``ordered``, strictly increasing ``(n,)``."""
    finite = np.abs(times) <= _LARGEST_TIME  # False for NaN
    if not finite.all():
        row = int(np.argmin(finite))
        raise bad(
            f"a time must be finite and at most {_LARGEST_TIME:g}, got {times[row]}",
            place | {"row": row},
        )
    up = times[1:] > times[:-1]
    if ordered and not up.all():
        row = int(np.argmin(up)) + 1
        now, before = float(times[row]), float(times[row - 1])
        said = f"got {now!r} twice" if now == before else f"got {now!r} after {before!r}"
        raise bad(f"times must strictly increase, {said}", place | {"row": row})


def values_of(raw: Any, n: int, channels: tuple[str, ...], place: Place) -> Floats:
    """``n`` lists of one number or null for each channel -> ``(n, C)``, NaN = not observed."""
    c = len(channels)
    if type(raw) is not list:
        raise bad(f"values must be a list of rows, got {_kind(raw)}", place)
    if len(raw) != n:
        raise bad(f"there are {n} times but {len(raw)} rows of values", place)
    if not set(map(type, raw)) <= {list}:
        row = next(i for i, x in enumerate(raw) if type(x) is not list)
        raise bad(
            f"a row must be a list with a number or null for each of the {c} channels "
            f"{_listing(channels)}, got {_kind(raw[row])}",
            place | {"row": row},
        )
    if not set(map(len, raw)) <= {c}:
        row = next(i for i, x in enumerate(raw) if len(x) != c)
        raise bad(
            f"a row must have {c} values, one for each of the channels {_listing(channels)}, got "
            f"{len(raw[row])}",
            place | {"row": row},
        )
    flat = list(chain.from_iterable(raw))
    if not set(map(type, flat)) <= _OR_NOTHING:
        at = next(i for i, x in enumerate(flat) if type(x) not in _OR_NOTHING)
        raise bad(
            f"a value must be a number or null, got {_kind(flat[at])} for {channels[at % c]!r}",
            place | {"row": at // c},
        )
    values = np.array(flat, dtype=np.float64).reshape(n, c)
    large = np.abs(values) > LARGEST  # False for NaN
    if large.any():
        row, channel = (int(k[0]) for k in np.nonzero(large))
        raise bad(
            f"a value must be at most {LARGEST:g} in size, got {values[row, channel]:g} for "
            f"{channels[channel]!r}",
            place | {"row": row},
        )
    return values


def _kind(x: Any) -> str:
    """What JSON calls it; of a text its beginning."""
    if isinstance(x, str):
        return f"the text {x[:20]!r}"
    names = {bool: "true/false", type(None): "null", dict: "an object", list: "a list"}
    return names.get(type(x), f"{x!r}")


def _listing(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
