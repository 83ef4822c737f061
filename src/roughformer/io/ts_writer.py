"""``SeriesBatch`` -> the ``.ts`` text format of aeon and sktime."""

import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roughformer.errors import InputError
from roughformer.series import SeriesBatch

__all__ = ["write_ts"]


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
