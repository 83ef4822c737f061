"""WFDB records (PhysioNet's waveform format) -> ``SeriesBatch``, one series per record."""

from collections.abc import Sequence
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch
from roughformer.util.checks import optional, unique_names


def read_wfdb(
    records: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    channels: Sequence[str] | None = None,
    start: float | None = None,
    stop: float | None = None,
    dtype: npt.DTypeLike = np.float64,
    **options: Any,
) -> SeriesBatch:
    """Read WFDB records in physical units, times k / fs in seconds from the start of the record.

    The record's name is the id. NaN where WFDB marks a sample as invalid. Channels sampled several
    times per frame are averaged over the frame.

    Parameters
    ----------
    records : path or sequence of paths
        Records (with or without ``.hea``/``.dat``), or a directory of them, where the file RECORDS
        says which, else every header does.
    channels : sequence of str, optional
        Channels to read, by name (PhysioNet's trailing commas removed) and in this order; without
        it all records must have the same ones.
    start : float, optional
        Take samples with ``start <= time``, in seconds.
    stop : float, optional
        Take samples with ``time < stop``.
    dtype : dtype, default float64
        Of the values.
    **options
        ``labels=``, ``static=``, ... of ``SeriesBatch``.

    Returns
    -------
    SeriesBatch
    """
    paths = _record_paths(records)
    first = list(channels) if channels is not None else None
    series: list[npt.NDArray[Any]] = []
    times: list[npt.NDArray[np.float64]] = []
    for path in paths:
        if channels is None:
            own = channel_names(_header(path))
            first = own if first is None else first
            if set(own) != set(first):
                common = [name for name in first if name in own]
                raise InputError(
                    f"record {path.name} has the channels {own}, record {paths[0].name} has "
                    f"{first}; pass channels= with some that all have, e.g. {common}"
                )
        assert first is not None
        sampled, fs, begin = read_record(path, first, start, stop)
        if not len(sampled):
            raise InputError(
                f"record {path.name} has no sample in [{start}, {stop}) s; choose other bounds"
            )
        series.append(sampled.astype(dtype, copy=False))
        times.append((begin + np.arange(len(sampled))) / fs)
    options.setdefault("ids", np.array([path.name for path in paths]))
    return SeriesBatch.from_arrays(series, times, channels=first, **options)


def read_record(
    path: Path, channels: Sequence[str], start: float | None = None, stop: float | None = None
) -> tuple[npt.NDArray[np.float64], float, int]:
    """One record's ``(values (L, C) in physical units, samples per second, first sample)``."""
    wfdb = optional("wfdb", "wfdb")
    header = _header(path)
    names = channel_names(header)
    for channel in channels:
        if channel not in names:
            raise InputError(
                f"record {path.name} has no channel {channel!r}; it has {', '.join(names)}"
            )
    if not (header.fs and 0 < header.fs < np.inf) or header.sig_len is None:
        raise InputError(
            f"the header of record {path} must give a sampling rate and a number of samples, got "
            f"{header.fs} and {header.sig_len}"
        )
    fs, length = float(header.fs), int(header.sig_len)
    begin = 0 if start is None else min(max(ceil(start * fs), 0), length)
    end = length if stop is None else min(max(ceil(stop * fs), 0), length)
    if end <= begin:
        return np.empty((0, len(channels))), fs, begin
    picked = [names.index(channel) for channel in channels]
    try:
        record = wfdb.rdrecord(str(path), sampfrom=begin, sampto=end, channels=picked)
    except FileNotFoundError as error:
        raise InputError(f"record {path} has no file {error.filename}") from error
    except Exception as error:  # wfdb trusts headers: a damaged one ends in any kind of error
        raise InputError(f"record {path} cannot be read by wfdb: {_words(error)}") from error
    if record.p_signal is None or len(record.p_signal) != end - begin:
        raise InputError(f"record {path} has fewer samples than its header says")
    return record.p_signal, fs, begin


def channel_names(header: Any) -> list[str]:
    """Names without the trailing commas that some PhysioNet sets carry; a repeated one gets #2."""
    raw = header.sig_name or ()
    return unique_names([(name or "").strip().rstrip(",").strip() for name in raw])


def _header(path: Path) -> Any:
    wfdb = optional("wfdb", "wfdb")
    file = path.with_name(path.name + ".hea")
    if not file.is_file():
        raise InputError(f"expected a WFDB header at {file}, found none; check the record's path")
    try:
        return wfdb.rdheader(str(path))
    except Exception as error:  # wfdb parses with little care: any kind of error may come
        raise InputError(
            f"{file} is not a WFDB header that wfdb can read: {_words(error)}"
        ) from error


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, OSError | ValueError) else repr(error)


def _record_paths(
    records: str | PathLike[str] | Sequence[str | PathLike[str]],
) -> list[Path]:
    """Paths without suffix."""
    if isinstance(records, str | PathLike):
        folder = Path(records)
        if folder.is_dir():
            listed = folder / "RECORDS"
            if listed.is_file():
                names = listed.read_text().split()
            else:
                names = sorted(header.stem for header in folder.glob("*.hea"))
            if not names:
                raise InputError(f"expected WFDB headers (*.hea) in {folder}, found none")
            return [folder / name for name in names]
        records = [records]
    paths = [Path(record) for record in records]
    if not paths:
        raise InputError("expected at least one record to read, got an empty list")
    return [
        path.with_name(path.stem) if path.suffix in (".hea", ".dat", ".mat") else path
        for path in paths
    ]
