"""The ``.ts`` format of the UEA & UCR archive -> ``SeriesBatch``."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.util.checks import existing_file

_PAIR = re.compile(r"\(([^(),]*),([^(),]*)\)")

Label = Literal["class", "target", "none"]


def _to_floats(texts: list[str]) -> npt.NDArray[np.float64]:
    """Numbers as the file spells them; ``?`` (and any spelling of nan) is NaN."""
    tokens = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))
    try:
        numbers = pc.if_else(pc.equal(tokens, "?"), "nan", tokens).cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise InputError(
            f"expected decimal numbers, NaN or ? between the commas: {error}; correct that entry"
        ) from None
    return np.asarray(numbers)


@dataclass(frozen=True)
class _Header:
    """What the reader needs of the header."""

    timestamps: bool
    equal_length: bool
    label: Label


def read_ts(
    path: str | PathLike[str], *, dtype: npt.DTypeLike = np.float64, **options: Any
) -> SeriesBatch:
    """Read a ``.ts`` file: equal or unequal lengths, time stamps, missing values, any label.

    Times are 0, 1, 2, ... unless the file has stamps; channels of one series may have different
    stamps: the series then has a point at each of them, with NaN where a channel has none. Class
    labels are strings as the file spells them, targets float64.

    Parameters
    ----------
    path : path
        The file.
    dtype : dtype, default float64
        Of the values.
    **options
        ``channels=``, ``ids=``, ``static=``, ... of ``SeriesBatch``.

    Returns
    -------
    SeriesBatch
    """
    file = existing_file(path)
    with file.open(encoding="utf-8", errors="replace") as stream:
        header = _read_header(file, stream)
        lines = (line for line in map(str.strip, stream) if line and line[0] not in "#%")
        if header.timestamps:
            return _read_stamped(file, header, lines, dtype, options)
        return _read_plain(file, header, lines, dtype, options)


def _read_header(file: Path, stream: Iterable[str]) -> _Header:
    """Consume the lines up to ``@data``."""
    flags = {"timestamps": False, "equallength": True, "targetlabel": False, "classlabel": True}
    for raw in stream:
        words = raw.split()
        if not words or not words[0].startswith("@"):
            continue  # comments start with # or %; aeon skips anything else here too
        key = words[0][1:].lower()
        if key == "data":
            target = flags["targetlabel"]
            label: Label = "target" if target else "class" if flags["classlabel"] else "none"
            return _Header(flags["timestamps"], flags["equallength"], label)
        if key in flags:
            word = words[1].lower() if len(words) > 1 else ""
            if word not in ("true", "false"):
                raise InputError(
                    f"{file}: {words[0]} must be followed by true or false, got {word!r}; "
                    "correct the header"
                )
            flags[key] = word == "true"
    raise InputError(
        f"{file}: expected a line @data after the header, found none; is it a .ts file?"
    )


def _split_label(file: Path, number: int, line: str, label: Label) -> tuple[str, str | None]:
    """Split a data line into its channels and its label."""
    if label == "none":
        return line, None
    body, colon, text = line.rpartition(":")
    if not colon or not text.strip():
        raise InputError(
            f"{file}: series {number} has no {label} after its last ':'; add it, or write "
            f"@{label}Label false in the header"
        )
    return body, text.strip()


def _labels(file: Path, header: _Header, texts: list[str | None]) -> npt.NDArray[Any] | None:
    """Label texts -> (B,) strings or float64, None if the file has none."""
    if header.label == "none":
        return None
    given = [text for text in texts if text is not None]
    if header.label == "class":
        return np.array(given, dtype=np.str_)
    try:
        return _to_floats(given)
    except InputError as error:
        raise InputError(f"{file}: targets: {error}") from None


def _read_plain(
    file: Path, header: _Header, lines: Iterator[str], dtype: npt.DTypeLike, options: Any
) -> SeriesBatch:
    """Series without stamps: ``1.5,?,3:4,5,6`` are two channels of three points."""
    texts: list[str | None] = []
    series: list[npt.NDArray[Any]] = []  # (L_i, C)
    for number, line in enumerate(lines):
        body, text = _split_label(file, number, line, header.label)
        counts = [channel.count(",") + 1 for channel in body.split(":")]
        if series and len(counts) != series[0].shape[1]:
            raise InputError(
                f"{file}: series {number} has {len(counts)} channels, expected "
                f"{series[0].shape[1]} as in the series before; every series needs the same ones"
            )
        if len(set(counts)) > 1:
            raise InputError(
                f"{file}: the channels of series {number} have {counts} values; expected equal "
                "numbers: write ? where a channel has no value, or use time stamps"
            )
        try:
            numbers = _to_floats(body.replace(":", ",").split(","))
        except InputError as error:
            raise InputError(f"{file}: series {number}: {error}") from None
        series.append(numbers.reshape(len(counts), -1).T.astype(dtype))
        texts.append(text)
        if header.equal_length and len(series[-1]) != len(series[0]):
            raise InputError(
                f"{file}: series {number} has {len(series[-1])} points, series 0 has "
                f"{len(series[0])}, but the header says @equalLength true; write @equalLength "
                "false if that is meant"
            )
    if not series:
        raise InputError(f"{file}: expected at least one series after @data, found none")
    options.setdefault("labels", _labels(file, header, texts))
    length = len(series[0])
    if all(len(values) == length for values in series):  # one grid, not a time per point
        return SeriesBatch.from_tensor(np.stack(series), t=np.arange(float(length)), **options)
    return SeriesBatch.from_arrays(series, layout="time_first", **options)


def _read_stamped(
    file: Path, header: _Header, lines: Iterator[str], dtype: npt.DTypeLike, options: Any
) -> SeriesBatch:
    """Series of (time,value) pairs: the points of a series are the union of its channels' times."""
    texts: list[str | None] = []
    stamps: list[str] = []
    numbers: list[str] = []
    counts: list[list[int]] = []  # pairs in each channel of each series
    for line in lines:
        body, text = _split_label(file, len(texts), line, header.label)
        counts.append([])
        for channel in re.split(r"(?<=\))\s*:\s*(?=\()", body):
            pairs = _PAIR.findall(channel)
            if not pairs or re.sub(r"[\s,]", "", _PAIR.sub("", channel)):
                raise InputError(
                    f"{file}: series {len(texts)}, channel {len(counts[-1])}: expected "
                    f"(time,value) pairs as the header says @timeStamps true, got {channel[:40]!r}"
                )
            stamps += [pair[0].strip() for pair in pairs]
            numbers += [pair[1].strip() for pair in pairs]
            counts[-1].append(len(pairs))
        texts.append(text)
        if len(counts[-1]) != len(counts[0]):
            raise InputError(
                f"{file}: series {len(texts) - 1} has {len(counts[-1])} channels, expected "
                f"{len(counts[0])} as in series 0; every series needs the same channels"
            )
    if not counts:
        raise InputError(f"{file}: expected at least one series after @data, found none")
    times = _stamp_times(file, stamps)
    try:
        values = _to_floats(numbers)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    count = np.array(counts)  # (B, C)
    n_series, n_channels = count.shape
    series = np.repeat(np.repeat(np.arange(n_series), n_channels), count.ravel())
    channel_of = np.repeat(np.tile(np.arange(n_channels), n_series), count.ravel())
    _refuse_unsorted(file, times, series, channel_of)
    order = np.lexsort((times, series))
    moved = (np.diff(series[order]) != 0) | (times[order][1:] != times[order][:-1])
    point_in_order = np.concatenate([[0], np.cumsum(moved)])
    first = np.concatenate([[True], moved])
    dense = np.full((int(point_in_order[-1]) + 1, n_channels), np.nan, dtype=dtype)
    dense[point_in_order, channel_of[order]] = values[order]
    length = np.bincount(series[order][first], minlength=n_series)
    offsets = np.concatenate([[0], np.cumsum(length)])
    options.setdefault("labels", _labels(file, header, texts))
    return SeriesBatch(times[order][first], dense, offsets, **options)


def _stamp_times(file: Path, stamps: list[str]) -> npt.NDArray[Any]:
    """Stamps as text -> float64, or datetime64[ns] if they are dates."""
    texts = [stamp.strip("\"'") for stamp in stamps]
    try:
        numbers: npt.NDArray[Any] = pa.array(texts).cast(pa.float64()).to_numpy()
        return numbers
    except pa.ArrowInvalid:
        pass
    try:
        return np.array(texts, dtype="datetime64[ns]")
    except ValueError as error:
        raise InputError(
            f"{file}: expected all time stamps to be numbers, or all dates such as "
            f"2007-01-31 23:59:00: {error}"
        ) from None


def _refuse_unsorted(
    file: Path,
    times: npt.NDArray[Any],
    series: npt.NDArray[np.int64],
    channel: npt.NDArray[np.int64],
) -> None:
    """Merging the channels sorts the stamps, so that SeriesBatch could no longer see disorder."""
    same = (np.diff(series) == 0) & (np.diff(channel) == 0)
    bad = np.flatnonzero(same & ~(times[1:] > times[:-1]))
    if len(bad):
        i = int(bad[0])
        raise InputError(
            f"{file}: series {series[i]}, channel {channel[i]}: expected increasing time stamps, "
            f"got {times[i]} and then {times[i + 1]}; sort them and remove duplicates"
        )
