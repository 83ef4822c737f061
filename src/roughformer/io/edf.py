"""EDF and BDF files -> ``SeriesBatch``, one series per file."""

from collections.abc import Sequence
from math import lcm
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.util.checks import existing_file, optional, unique_names


def read_edf(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    channels: Sequence[str] | None = None,
    dtype: npt.DTypeLike = np.float64,
    **options: Any,
) -> SeriesBatch:
    """Read EDF/EDF+/BDF files in physical units, times in seconds from the start of the file.

    Channels of different rates: a series has a point at every time at which any channel was
    sampled, NaN where the others were not. Ids are the file names without suffix.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, a series each.
    channels : sequence of str, optional
        Signals to read, by label and in this order; without it all files must have the same ones.
    dtype : dtype, default float64
        Of the values.
    **options
        ``labels=``, ``static=``, ... of ``SeriesBatch``.

    Returns
    -------
    SeriesBatch
    """
    files = [paths] if isinstance(paths, str | PathLike) else list(paths)
    if not files:
        raise InputError("expected at least one file to read, got an empty list")
    names = list(channels) if channels is not None else None
    series: list[npt.NDArray[Any]] = []
    times: list[npt.NDArray[np.float64]] = []
    for path in files:
        file = existing_file(path)
        reader = _open(file)
        try:
            labels = unique_names([label.strip() for label in reader.getSignalLabels()])
            if channels is None:
                names = labels if names is None else names
                if set(labels) != set(names):
                    common = [name for name in names if name in labels]
                    raise InputError(
                        f"{file} has the channels {labels}, {files[0]} has {names}; pass channels= "
                        f"with some that all have, e.g. {common}"
                    )
            assert names is not None
            seconds, values = _read(file, reader, labels, names, dtype)
        finally:
            reader.close()
        times.append(seconds)
        series.append(values)
    options.setdefault("ids", np.array([Path(path).stem for path in files]))
    return SeriesBatch.from_arrays(series, times, channels=names, **options)


def _open(file: Path) -> Any:
    pyedflib = optional("pyedflib", "edf")
    try:
        return pyedflib.EdfReader(str(file))
    except OSError as error:
        raise InputError(f"{file} is not an EDF or BDF file that can be read: {error}") from error


def _read(
    file: Path, reader: Any, labels: list[str], names: list[str], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
    """Times (L,) and values (L, C) of the signals ``names``."""
    for name in names:
        if name not in labels:
            raise InputError(f"{file} has no channel {name!r}; it has {', '.join(labels)}")
    signals = [labels.index(name) for name in names]
    # A data record of D seconds holds rate_c samples of channel c. On the tick D / lcm(rates) all
    # sampling times are integers, so that equal times are found without rounding.
    rates = [int(reader.samples_in_datarecord(signal)) for signal in signals]
    tick = lcm(*rates)
    counts = [int(reader.getNSamples()[signal]) for signal in signals]
    ticks = [np.arange(count) * (tick // rate) for count, rate in zip(counts, rates, strict=True)]
    union = ticks[0] if len(set(rates)) == 1 else np.unique(np.concatenate(ticks))
    values = np.full((len(union), len(names)), np.nan, dtype=dtype)
    for column, signal in enumerate(signals):
        values[np.searchsorted(union, ticks[column]), column] = reader.readSignal(signal)
    return union * float(reader.datarecord_duration) / tick, values
