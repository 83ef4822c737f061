"""The ``.ts`` format of the UEA & UCR archive: series -> ``SeriesBatch``, and back."""

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

_COMMA, _COLON, _NEWLINE = b",:\n"
_DELIMITERS, _BLANKS = b",:\n", b" \t\r"


@dataclass(frozen=True)
class NumberBlock:
    """Numbers of a block of lines ``a,b,c:d,e,f``: rows are lines, runs are the parts between ":".

    ``numbers (n,)``; ``run_lengths (r,)`` numbers in each run; ``runs_per_line (lines,)``.
    """

    numbers: npt.NDArray[np.float64]
    run_lengths: npt.NDArray[np.int64]
    runs_per_line: npt.NDArray[np.int64]


def to_floats(tokens: pa.Array) -> npt.NDArray[np.float64]:
    """An Arrow string array -> float64; ``?`` (and any spelling of nan) is NaN."""
    missing = pc.equal(tokens, "?")
    if pc.any(missing).as_py():
        tokens = pc.if_else(missing, "nan", tokens)
    try:
        numbers = tokens.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise InputError(
            f"expected decimal numbers, NaN or ? between the commas: {error}; correct that entry"
        ) from None
    result: npt.NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False)
    return result


def parse_block(lines: list[bytes]) -> NumberBlock:
    """Parse lines such as ``1.5,?,3:4,5,6`` (no line ends, at least one line)."""
    text = _without_blanks(b"\n".join(lines) + b"\n")
    characters = np.frombuffer(text, dtype=np.uint8)
    at = np.flatnonzero(_is_delimiter(characters))
    kind = characters[at]
    # Bytes before delimiter k that are no delimiters: where token k ends in the compacted text.
    ends = np.zeros(len(at) + 1, dtype=np.int32)
    np.subtract(at, np.arange(len(at)), out=ends[1:], casting="unsafe")
    data = text.translate(None, delete=_DELIMITERS)
    tokens = pa.StringArray.from_buffers(len(at), pa.py_buffer(ends), pa.py_buffer(data))
    run_end = np.flatnonzero(kind != _COMMA)
    line_end = np.flatnonzero(kind[run_end] == _NEWLINE)
    return NumberBlock(
        to_floats(tokens), np.diff(run_end, prepend=-1), np.diff(line_end, prepend=-1)
    )


def _is_delimiter(characters: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    # Comparisons vectorise; a table look-up is five times slower.
    delimiter: npt.NDArray[np.bool_] = characters == _COMMA
    delimiter |= characters == _COLON
    delimiter |= characters == _NEWLINE
    return delimiter


def _without_blanks(text: bytes) -> bytes:
    """Remove blanks next to delimiters; a blank inside a number ("1 2") is refused, not joined."""
    if not any(blank in text for blank in (b" ", b"\t", b"\r")):
        return text
    characters = np.frombuffer(text, dtype=np.uint8)
    kept = np.flatnonzero(~np.isin(characters, list(_BLANKS)))
    gap = np.flatnonzero(np.diff(kept) > 1)
    ends_token = _is_delimiter(characters[kept[gap]])
    starts_token = _is_delimiter(characters[kept[gap + 1]])
    inside = ~ends_token & ~starts_token
    if inside.any():
        start = int(kept[gap[inside.argmax()]])
        shown = text[max(0, start - 10) : start + 15].decode("utf-8", "replace")
        raise InputError(
            f"expected a comma between numbers, got a blank in {shown!r}; put a comma there"
        )
    return text.translate(None, delete=_BLANKS)


# The ``.ts`` text format of aeon and sktime -> ``SeriesBatch`` (and back: ``ts_writer``).

_BLOCK_BYTES = 1 << 22  # text parsed at once: large enough for numpy, small enough for the cache
_PAIR = re.compile(rb"\(([^(),]*),([^(),]*)\)")

Label = Literal["class", "target", "none"]


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
    with file.open("rb") as stream:
        header = _read_header(file, stream)
        lines = (line for line in map(bytes.strip, stream) if line and line[:1] not in b"#%")
        if header.timestamps:
            return _read_stamped(file, header, lines, dtype, options)
        return _read_plain(file, header, lines, dtype, options)


def _read_header(file: Path, stream: Iterable[bytes]) -> _Header:
    """Consume the lines up to ``@data``."""
    flags = {"timestamps": False, "equallength": True, "targetlabel": False, "classlabel": True}
    for raw in stream:
        words = raw.decode("utf-8", "replace").split()
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


def _split_label(file: Path, number: int, line: bytes, label: Label) -> tuple[bytes, str | None]:
    """Split a data line into its channels and its label."""
    if label == "none":
        return line, None
    body, colon, text = line.rpartition(b":")
    if not colon or not text.strip():
        raise InputError(
            f"{file}: series {number} has no {label} after its last ':'; add it, or write "
            f"@{label}Label false in the header"
        )
    return body, text.strip().decode("utf-8", "replace")


def _labels(file: Path, header: _Header, texts: list[str | None]) -> npt.NDArray[Any] | None:
    """Label texts -> (B,) strings or float64, None if the file has none."""
    if header.label == "none":
        return None
    given = [text for text in texts if text is not None]
    if header.label == "class":
        return np.array(given, dtype=np.str_)
    try:
        return to_floats(pa.array(given, pa.string()))
    except InputError as error:
        raise InputError(f"{file}: targets: {error}") from None


def _read_plain(
    file: Path, header: _Header, lines: Iterator[bytes], dtype: npt.DTypeLike, options: Any
) -> SeriesBatch:
    """Series without stamps, parsed in blocks of lines."""
    texts: list[str | None] = []
    lengths: list[npt.NDArray[np.int64]] = []
    n_channels = 0
    rows: _Rows | None = None
    size, done = file.stat().st_size, 0
    for first, block in _blocks(file, header, lines, texts):
        try:
            parsed = parse_block(block)
        except InputError as error:
            raise InputError(
                f"{file}: series {first} to {first + len(block) - 1}: {error}"
            ) from None
        if rows is None:
            n_channels = int(parsed.runs_per_line[0])
            rows = _Rows(n_channels, dtype)
        bad = np.flatnonzero(parsed.runs_per_line != n_channels)
        if len(bad):
            raise InputError(
                f"{file}: series {first + bad[0]} has {parsed.runs_per_line[bad[0]]} channels, "
                f"expected {n_channels} as in the series before; every series needs the same ones"
            )
        runs = parsed.run_lengths.reshape(-1, n_channels)  # (lines, C)
        bad = np.flatnonzero((runs != runs[:, :1]).any(axis=1))
        if len(bad):
            raise InputError(
                f"{file}: the channels of series {first + bad[0]} have "
                f"{runs[bad[0]].tolist()} values; expected equal numbers: write ? where a channel "
                "has no value, or use time stamps"
            )
        done += sum(map(len, block))
        into = rows.append(int(runs[:, 0].sum()), min(1.0, done / size))
        _write_time_first(parsed.numbers, runs[:, 0], into)
        lengths.append(runs[:, 0])
    if rows is None:
        raise InputError(f"{file}: expected at least one series after @data, found none")
    length = np.concatenate(lengths)
    if header.equal_length and (length != length[0]).any():
        bad = np.flatnonzero(length != length[0])
        raise InputError(
            f"{file}: series {bad[0]} has {length[bad[0]]} points, series 0 has {length[0]}, but "
            "the header says @equalLength true; write @equalLength false if that is meant"
        )
    values = rows.finish()
    labels = _labels(file, header, texts)
    options.setdefault("labels", labels)
    if (length == length[0]).all():  # one shared grid instead of a time per point
        grid = np.arange(length[0], dtype=np.float64)
        cube = values.reshape(len(length), int(length[0]), n_channels)  # (B, L, C)
        return SeriesBatch.from_tensor(cube, t=grid, **options)
    offsets = np.concatenate([[0], np.cumsum(length)])
    times = (np.arange(offsets[-1]) - np.repeat(offsets[:-1], length)).astype(np.float64)
    return SeriesBatch(times, values, offsets, **options)


def _blocks(
    file: Path, header: _Header, lines: Iterator[bytes], texts: list[str | None]
) -> Iterator[tuple[int, list[bytes]]]:
    """Group data lines into blocks of about ``_BLOCK_BYTES``; their labels go to ``texts``."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        body, text = _split_label(file, len(texts), line, header.label)
        block.append(body)
        texts.append(text)
        size += len(body)
        if size >= _BLOCK_BYTES:
            yield len(texts) - len(block), block
            block, size = [], 0
    if block:
        yield len(texts) - len(block), block


def _write_time_first(
    numbers: npt.NDArray[np.float64],
    lengths: npt.NDArray[np.int64],
    values: npt.NDArray[Any],
) -> None:
    """Numbers in file order (series, channel, time) -> ``values (points, C)``."""
    n_channels = values.shape[1]
    if (lengths == lengths[0]).all():
        shape = len(lengths), int(lengths[0]), n_channels
        cube = numbers.reshape(shape[0], n_channels, shape[1])  # (B, C, L)
        values.reshape(shape)[...] = cube.transpose(0, 2, 1)
        return
    start = 0
    for length in lengths.tolist():
        piece = numbers[start * n_channels : (start + length) * n_channels]
        values[start : start + length] = piece.reshape(n_channels, length).T
        start += length


class _Rows:
    """A growing (points, C) array: the size is guessed from the part of the file read so far."""

    def __init__(self, n_channels: int, dtype: npt.DTypeLike) -> None:
        self._array = np.empty((0, n_channels), dtype=dtype)
        self._used = 0

    def append(self, n_points: int, share: float) -> npt.NDArray[Any]:
        """The next ``n_points`` rows, to be written; ``share`` of the file is read with them."""
        end = self._used + n_points
        if end > len(self._array):
            guess = max(end, int(end / share * 1.02))
            # In place: the system moves pages instead of copying, and old and new never coexist.
            self._array.resize((guess, self._array.shape[1]), refcheck=False)
        rows = self._array[self._used : end]
        self._used = end
        return rows

    def finish(self) -> npt.NDArray[Any]:
        self._array.resize((self._used, self._array.shape[1]), refcheck=False)
        return self._array


def _read_stamped(
    file: Path, header: _Header, lines: Iterator[bytes], dtype: npt.DTypeLike, options: Any
) -> SeriesBatch:
    """Series of (time,value) pairs: the points of a series are the union of its channels' times."""
    texts: list[str | None] = []
    stamps: list[bytes] = []
    numbers: list[bytes] = []
    counts: list[list[int]] = []  # pairs in each channel of each series
    for line in lines:
        body, text = _split_label(file, len(texts), line, header.label)
        counts.append([])
        for channel in re.split(rb"(?<=\))\s*:\s*(?=\()", body):
            pairs = _PAIR.findall(channel)
            if not pairs or re.sub(rb"[\s,]", b"", _PAIR.sub(b"", channel)):
                shown = channel[:40].decode("utf-8", "replace")
                raise InputError(
                    f"{file}: series {len(texts)}, channel {len(counts[-1])}: expected "
                    f"(time,value) pairs as the header says @timeStamps true, got {shown!r}"
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
        values = to_floats(pa.array(numbers, pa.binary()).cast(pa.string()))
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


def _stamp_times(file: Path, stamps: list[bytes]) -> npt.NDArray[Any]:
    """Stamps as text -> float64, or datetime64[ns] if they are dates."""
    texts = [stamp.strip(b"\"'").decode("utf-8", "replace") for stamp in stamps]
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


# ``SeriesBatch`` -> the ``.ts`` text format of aeon and sktime.


def write_ts(
    batch: SeriesBatch,
    path: str | PathLike[str],
    *,
    name: str | None = None,
    timestamps: bool | None = None,
) -> None:
    """Write a batch so that ``read_ts`` (and aeon) reads it back exactly.

    Numbers are written with the fewest digits that give the same bits in their own dtype.
    Labels: floats become targets, anything else classes. The format has no place for channel
    names, ids and static covariates: they are not written.

    Parameters
    ----------
    batch : SeriesBatch
        The series.
    path : path
        File to write.
    name : str, optional
        Name of the problem; by default that of the file.
    timestamps : bool, optional
        Write ``(time,value)`` pairs; by default only if the times are not 0, 1, 2, ...
    """
    if len(batch) == 0:
        raise InputError("a .ts file needs at least one series, got an empty batch")
    position = np.arange(batch.n_points) - np.repeat(batch.offsets[:-1], batch.lengths)
    counted = batch.time_origin is None and np.array_equal(batch.times, position)
    stamped = not counted if timestamps is None else timestamps
    if not stamped and not counted:
        raise InputError(
            "timestamps=False would lose the times of this batch (they are not 0, 1, 2, ...); "
            "leave timestamps out"
        )
    label_line, labels = _label_texts(batch.labels)
    flag = {True: "true", False: "false"}
    head = [
        "@problemName " + "_".join((name or Path(path).stem).split()),
        f"@timeStamps {flag[stamped]}",
        f"@missing {flag[bool(batch.missing)]}",
        f"@univariate {flag[batch.n_channels == 1]}",
        f"@dimension {batch.n_channels}",
        f"@equalLength {flag[bool((batch.lengths == batch.lengths[0]).all())]}",
        label_line,
        "@data",
    ]
    with Path(path).open("w", encoding="utf-8", newline="\n") as stream:
        stream.write("\n".join(head) + "\n")
        for i in range(len(batch)):
            line = ":".join(_channel_texts(batch, i, stamped))
            stream.write(line + (f":{labels[i]}" if labels is not None else "") + "\n")


def _channel_texts(batch: SeriesBatch, i: int, stamped: bool) -> list[str]:
    """The channels of series i as ``v,v,v`` or ``(t,v),(t,v)``."""
    times, values = batch.series(i)
    stamp_texts: list[str] = []
    if stamped and batch.time_origin is not None:
        nanoseconds = np.rint(times * 1e9).astype("timedelta64[ns]")
        dates = np.datetime_as_string(batch.time_origin + nanoseconds)
        stamp_texts = [date.replace("T", " ") for date in dates.tolist()]
    elif stamped:
        stamp_texts = pa.array(times).cast(pa.string()).to_pylist()
    channels = []
    for column in values.T:
        numbers = pa.array(np.ascontiguousarray(column))
        texts = pc.if_else(pc.is_nan(numbers), "?", numbers.cast(pa.string())).to_pylist()
        if stamped:
            texts = [f"({t},{v})" for t, v in zip(stamp_texts, texts, strict=True)]
        channels.append(",".join(texts))
    return channels


def _label_texts(labels: npt.NDArray[Any] | None) -> tuple[str, list[str] | None]:
    """The header line about labels, and each series' label as text."""
    if labels is None:
        return "@classLabel false", None
    if labels.ndim != 1:
        raise InputError(
            f"a .ts file has one label per series, got labels of shape {labels.shape}; write one "
            "file per label: write_ts(batch.with_labels(labels[:, 0]), ...)"
        )
    if labels.dtype.kind == "f":
        return "@targetLabel true", pa.array(labels).cast(pa.string()).to_pylist()
    texts = [str(label) for label in labels.tolist()]
    for text in texts:
        if not text or re.search(r"[\s:]", text):
            raise InputError(
                f"a class in a .ts file may not be empty or hold blanks or ':', got {text!r}; "
                "rename it, for instance with underscores"
            )
    classes = sorted(set(labels.tolist()))
    return "@classLabel true " + " ".join(map(str, classes)), texts
