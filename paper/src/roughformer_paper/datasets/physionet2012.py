"""PhysioNet/Computing in Cardiology Challenge 2012: 12,000 ICU stays of 48 hours.

Read either from the official text files (``set-a/132539.txt``, ..., ``Outcomes-a.txt``) or from
one ``physionet2012.npz`` with the same events. A stay becomes a series with a point at each
distinct minute at which anything was recorded and NaN for all that was not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer import InputError, SeriesBatch
from roughformer_paper.datasets.folders import data_root

__all__ = ["load_physionet2012", "physionet2012_subset"]

_VARIABLES = [
    "Weight",
    "GCS",
    "HR",
    "NIDiasABP",
    "NIMAP",
    "NISysABP",
    "RespRate",
    "Temp",
    "Urine",
    "HCT",
    "BUN",
    "Creatinine",
    "Glucose",
    "HCO3",
    "Mg",
    "Platelets",
    "K",
    "Na",
    "WBC",
    "pH",
    "PaCO2",
    "PaO2",
    "DiasABP",
    "FiO2",
    "MAP",
    "MechVent",
    "SysABP",
    "SaO2",
    "Albumin",
    "ALP",
    "ALT",
    "AST",
    "Bilirubin",
    "Lactate",
    "Cholesterol",
    "TroponinI",
    "TroponinT",
]
_STATIC = ["Age", "Gender", "Height", "ICUType"]
_DEATH = "In-hospital_death"
_SUBSETS = ("a", "b", "c")
_FIRST_IDS = (132539, 142675, 152871)  # of sets a, b, c; the sets follow one another


@dataclass(frozen=True)
class _Events:
    """Flat events in the order of the files, and what is known per stay."""

    stay: npt.NDArray[np.int64]
    minute: npt.NDArray[np.int64]
    variable: npt.NDArray[np.int64]
    value: npt.NDArray[np.float32]
    record_id: npt.NDArray[np.int64]
    static: npt.NDArray[np.float64]
    death: npt.NDArray[np.int64]


def load_physionet2012(
    root: str | PathLike[str] | None = None, *, subsets: Sequence[str] = _SUBSETS
) -> SeriesBatch:
    """Load the ICU stays of the PhysioNet Challenge 2012.

    Weight -1 is NaN; other odd values (a pH of 735, say) stay as they are. If a variable is given
    twice in one minute the last one in the file counts. Every stay has a point at 0 h, even the
    few for which nothing was ever measured.

    Parameters
    ----------
    root : path, optional
        Where the files are; see ``data_root``.
    subsets : sequence of {"a", "b", "c"}, default ("a", "b", "c")
        Sets to load.

    Returns
    -------
    SeriesBatch
        Times are hours since admission (minute / 60), channels the 37 variables in float32, labels
        (B,) int64: death in hospital. Ids are the record numbers;
        ``physionet2012_subset(batch.ids)`` tells the sets. Static covariates: Age, Gender, Height,
        ICUType (NaN where the file has -1).
    """
    wanted = list(dict.fromkeys(subsets))
    unknown = [subset for subset in wanted if subset not in _SUBSETS]
    if unknown or not wanted:
        raise InputError(f"subsets must be some of 'a', 'b', 'c', got {list(subsets)}")
    folder = data_root("physionet2012", root)
    archive = folder / "physionet2012.npz"
    events = _from_npz(archive, wanted) if archive.is_file() else _from_text(folder, wanted)
    return _to_batch(events)


def physionet2012_subset(ids: npt.ArrayLike) -> npt.NDArray[np.str_]:
    """Find the set that each record belongs to.

    Parameters
    ----------
    ids : array-like of int (B,)
        Record numbers.

    Returns
    -------
    ndarray of str (B,)
        'a', 'b' or 'c'.
    """
    number = np.asarray(ids).astype(np.int64)
    which = np.searchsorted(_FIRST_IDS, number, side="right") - 1
    if (which < 0).any():
        raise InputError(
            f"record numbers start at {_FIRST_IDS[0]}, got {number[which < 0][0]}; pass batch.ids"
        )
    return np.array(_SUBSETS)[which]


def _to_batch(events: _Events) -> SeriesBatch:
    """Merge the events of one minute of one stay into one point."""
    n_stays, n_variables = len(events.record_id), len(_VARIABLES)
    value = events.value.copy()
    value[(events.variable == _VARIABLES.index("Weight")) & (value == -1)] = np.nan
    minutes = 1 + int(events.minute.max(initial=0))
    slot = events.stay * minutes + events.minute
    key = slot * n_variables + events.variable
    order = np.argsort(key, kind="stable")  # stable: of equal keys the last stays the last
    last = np.append(key[order][1:] != key[order][:-1], True)
    chosen = order[last]
    # Admission is a point of every stay, so that no series is empty.
    points, owner = np.unique(
        np.concatenate([slot[chosen], np.arange(n_stays) * minutes]), return_inverse=True
    )
    dense = np.full((len(points), n_variables), np.nan, dtype=np.float32)
    dense[owner[: len(chosen)], events.variable[chosen]] = value[chosen]
    lengths = np.bincount(points // minutes, minlength=n_stays)
    return SeriesBatch(
        (points % minutes) / 60.0,
        dense,
        np.concatenate([[0], np.cumsum(lengths)]),
        channels=_VARIABLES,
        ids=events.record_id,
        static=np.where(events.static == -1, np.nan, events.static),
        static_names=_STATIC,
        labels=events.death,
    )


def _from_npz(archive: Path, subsets: list[str]) -> _Events:
    try:
        with np.load(archive, allow_pickle=False) as data:
            arrays: dict[str, npt.NDArray[Any]] = {name: data[name] for name in data.files}
        names = [str(name) for name in arrays["param_names"]]
        statics = [str(name) for name in arrays["static_names"]]
        outcomes = [str(name) for name in arrays["outcome_names"]]
        keep = np.isin(arrays["subset"], subsets)
        stay = np.repeat(np.arange(len(keep)), np.diff(arrays["offsets"]))
        number = np.cumsum(keep) - 1  # of a stay among those kept
        picked = keep[stay]
        position = np.array([_VARIABLES.index(name) for name in names])
        return _Events(
            stay=number[stay[picked]],
            minute=arrays["event_minute"][picked].astype(np.int64),
            variable=position[arrays["event_param"][picked]],
            value=arrays["event_value"][picked].astype(np.float32),
            record_id=arrays["record_id"][keep].astype(np.int64),
            static=arrays["static"][keep][:, [statics.index(s) for s in _STATIC]].astype(float),
            death=arrays["outcomes"][keep][:, outcomes.index(_DEATH)].astype(np.int64),
        )
    except (KeyError, ValueError) as error:
        raise InputError(f"{archive} has not the expected arrays: {error}") from error


def _from_text(folder: Path, subsets: list[str]) -> _Events:
    """Read all files into one text, so that Arrow parses once instead of 12,000 times."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pv

    files: list[Path] = []
    deaths: list[npt.NDArray[np.int64]] = []
    for subset in subsets:
        found = sorted((folder / f"set-{subset}").glob("*.txt"))
        if not found:
            raise InputError(
                f"expected text files in {folder / f'set-{subset}'}, found none; download set "
                f"{subset}, or pass subsets= without it"
            )
        files += found
        deaths.append(_deaths(folder / f"Outcomes-{subset}.txt", [file.stem for file in found]))
    texts = [file.read_bytes().partition(b"\n")[2].rstrip() + b"\n" for file in files]
    stay = np.repeat(np.arange(len(files)), [text.count(b"\n") for text in texts])
    table = pv.read_csv(
        pa.BufferReader(b"".join(texts)),
        read_options=pv.ReadOptions(column_names=["time", "variable", "value"]),
        parse_options=pv.ParseOptions(ignore_empty_lines=False),
        convert_options=pv.ConvertOptions(
            column_types={"time": pa.string(), "variable": pa.string(), "value": pa.float64()}
        ),
    )
    hours = pc.cast(pc.utf8_slice_codeunits(table["time"], 0, 2), pa.int64()).to_numpy()
    rest = pc.cast(pc.utf8_slice_codeunits(table["time"], 3, 5), pa.int64()).to_numpy()
    value = table["value"].to_numpy()
    encoded = table["variable"].combine_chunks().dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    code = encoded.indices.to_numpy()
    known = {*_VARIABLES, *_STATIC, "RecordID", ""}
    strange = [name for name in names if name not in known]
    if strange:
        raise InputError(
            f"unknown variable {strange[0]!r} in {folder}; expected the official files"
        )
    position = np.array([_VARIABLES.index(n) if n in _VARIABLES else -1 for n in names])[code]
    event = position >= 0
    static = np.full((len(files), len(_STATIC)), -1.0)
    for column, name in enumerate(_STATIC):
        if name in names:
            rows = code == names.index(name)
            static[stay[rows], column] = value[rows]
    return _Events(
        stay=stay[event],
        minute=(hours * 60 + rest)[event],
        variable=position[event],
        value=value[event].astype(np.float32),
        record_id=np.array([int(file.stem) for file in files]),
        static=static.astype(np.float32).astype(np.float64),
        death=np.concatenate(deaths),
    )


def _deaths(file: Path, record_ids: list[str]) -> npt.NDArray[np.int64]:
    """In-hospital death of each record, from an official outcomes file."""
    import pyarrow.csv as pv

    if not file.is_file():
        raise InputError(f"expected the outcomes at {file}, found nothing; download them too")
    table = pv.read_csv(file)
    if "RecordID" not in table.column_names or _DEATH not in table.column_names:
        raise InputError(
            f"{file} must have the columns RecordID and {_DEATH}, got {table.column_names}"
        )
    by_id = dict(zip(table["RecordID"].to_pylist(), table[_DEATH].to_pylist(), strict=True))
    missing = [record for record in record_ids if int(record) not in by_id]
    if missing:
        raise InputError(f"{file} has no outcome for record {missing[0]}")
    return np.array([by_id[int(record)] for record in record_ids], dtype=np.int64)
