"""The heart-rate task of the paper (BIDMC32HR), rebuilt from PhysioNet's BIDMC recordings.

Windows of 32 s = 4,000 samples at 125 Hz of (PPG, ECG lead II), every 3 s, from 53 recordings of
8 minutes; label = mean over the window's 32 one-per-second numerics, missing ones left out. The
numerics are whole numbers, which WFDB's scaling blurs by up to 3e-4: they are rounded back. Those
of recording 23 start one second before its waveforms. In all 7,949 windows.

Two protocols that must never be mixed: "patient" (the archive's: 16 recordings are the test part,
5,550 / 2,399 windows) and "random" (the paper's: all windows, 70 / 15 / 15, so that test windows
overlap training windows of the same patient).
"""

import hashlib
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from roughformer import InputError, SeriesBatch
from roughformer.io import read_wfdb
from roughformer_paper.datasets.folders import data_root

__all__ = [
    "heart_rate_recording",
    "heart_rate_split",
    "heart_rate_test_recordings",
    "load_heart_rate",
]

_RECORDINGS = 53
_RATE = 125  # samples per second
_SECONDS = 32  # a window
STRIDE = 3  # seconds between starts
_LAST = 447  # start of the last window, in seconds of the numerics
_NUMERICS_START = {23: -1}  # seconds from the first waveform sample, 0 elsewhere
_NUMERIC = {"HR": "HR", "Pulse": "PULSE", "RR": "RESP", "SpO2": "SpO2"}
_SUMS_SHA256 = "e28756681318a18d9c682a68cdff65efcaccb3ece40cfccd380540b77a3fdd6d"

# SHA-256 over the little-endian int64 indices of train, validation and test, seed 0.
_SPLIT_SHA256 = {
    "patient": "d470c8ce45d7d44d7263389f8bfa07e3c88292b4dd7e1fca0833b4e633a3f06c",
    "random": "d76b103c74ced287cd9a129b25336576e96ff45cfb3742260056b4b19f42a642",
}
_VALIDATION_RECORDINGS = (2, 13, 16, 25, 34, 47)

Target = Literal["HR", "Pulse", "RR", "SpO2"]
Protocol = Literal["patient", "random"]


def load_heart_rate(
    root: str | PathLike[str] | None = None, *, target: Target = "HR", verify: bool = True
) -> SeriesBatch:
    """Build the windows of the heart-rate task from PhysioNet's WFDB files.

    Values are float32: the recordings have 16 bits a sample, float32 resolves 24, and the windows
    overlap tenfold, so float64 would cost 254 MB more for nothing.

    Parameters
    ----------
    root : path, optional
        Where the files are; see ``data_root``.
    target : {"HR", "Pulse", "RR", "SpO2"}, default "HR"
        The label. The monitor takes HR from the ECG and Pulse from the PPG.
    verify : bool, default True
        Check every file that is read against PhysioNet's own SHA256SUMS.txt.

    Returns
    -------
    SeriesBatch
        B series of 4,000 points on the shared grid k / 125 s; channels ("PPG", "ECG"); labels (B,)
        float64 in beats, breaths per minute or percent; ids "bidmc07:0123" = recording and start in
        seconds; static covariate "recording" (1 ... 53), for grouping and not as an input. B is
        7,949 for HR and Pulse. RR leaves out the 79 windows whose mean is 0 (7,870 stay); SpO2
        leaves out the 150 of recording 19 (7,799 stay), whose constant SpO2 was lost when the WFDB
        file was made.
    """
    if target not in _NUMERIC:
        raise InputError(f"target must be one of {', '.join(_NUMERIC)}, got {target!r}")
    folder = data_root("bidmc", root)
    if verify:
        _verify(folder)
    layout = _layout()
    labels = np.concatenate(
        [
            _labels(folder, recording, starts, target)
            for recording, starts in enumerate(layout, start=1)
        ]
    )
    usable = np.isfinite(labels) & ((labels != 0) | (target != "RR"))
    recordings = np.repeat(np.arange(1, _RECORDINGS + 1), [len(starts) for starts in layout])
    starts_of = np.concatenate(layout)
    values = np.empty((int(usable.sum()), _SECONDS * _RATE, 2), dtype=np.float32)
    filled = 0
    for recording in range(1, _RECORDINGS + 1):
        starts = starts_of[usable & (recordings == recording)]
        if len(starts):
            _cut(folder, recording, starts, values[filled : filled + len(starts)])
            filled += len(starts)
    recordings, starts_of = recordings[usable], starts_of[usable]
    return SeriesBatch.from_tensor(
        values,
        t=np.arange(_SECONDS * _RATE) / _RATE,
        channels=["PPG", "ECG"],
        labels=labels[usable],
        ids=np.array([f"bidmc{r:02d}:{s:04d}" for r, s in zip(recordings, starts_of, strict=True)]),
        static=recordings[:, None].astype(np.float64),
        static_names=["recording"],
    )


def heart_rate_split(
    protocol: Protocol, *, seed: int = 0, recordings: npt.ArrayLike | None = None
) -> dict[str, npt.NDArray[np.int64]]:
    """Split the windows of the heart-rate task. The HR splits of seed 0 are checked by a hash.

    Parameters
    ----------
    protocol : {"patient", "random"}
        "patient": the archive's test recordings, and 6 whole training recordings for validation
        (seed 0: 2, 13, 16, 25, 34, 47; another seed draws another six). "random": a permutation of
        all windows by ``RandomState(seed)``, cut at 70 % and 85 %.
    seed : int, default 0
        Of the split.
    recordings : array-like of int (B,), optional
        The recording of each window, by default those of the HR target; for RR and SpO2 give
        ``batch.static[:, 0]``.

    Returns
    -------
    dict of ndarray
        Indices of the windows in "train", "validation" and "test", each in increasing order.
    """
    if protocol not in _SPLIT_SHA256:
        raise InputError(f"protocol must be 'patient' or 'random', got {protocol!r}")
    if recordings is None:
        counts = [len(starts) for starts in _layout()]
        owner = np.repeat(np.arange(1, _RECORDINGS + 1), counts)
    else:
        owner = np.asarray(recordings).astype(np.int64)
    if protocol == "patient":
        training = np.setdiff1d(np.arange(1, _RECORDINGS + 1), heart_rate_test_recordings())
        held_out = np.array(_VALIDATION_RECORDINGS)
        if seed != 0:
            held_out = np.random.RandomState(seed).permutation(training)[: len(held_out)]
        test = np.isin(owner, heart_rate_test_recordings())
        validation = np.isin(owner, held_out)
        split = {
            "train": np.flatnonzero(~test & ~validation),
            "validation": np.flatnonzero(validation),
            "test": np.flatnonzero(test),
        }
    else:
        order = np.random.RandomState(seed).permutation(len(owner))
        cuts = [len(owner) * 70 // 100, len(owner) * 85 // 100]
        parts = np.split(order, cuts)
        split = {
            name: np.sort(part)
            for name, part in zip(("train", "validation", "test"), parts, strict=True)
        }
    split = {name: part.astype(np.int64) for name, part in split.items()}
    if recordings is None and seed == 0 and _digest(split) != _SPLIT_SHA256[protocol]:
        raise RuntimeError(
            f"the {protocol} split differs from the fixed one: this numpy's RandomState draws "
            "other numbers; results would not be comparable"
        )
    return split


def heart_rate_test_recordings() -> npt.NDArray[np.int64]:
    """The 16 recordings that are the archive's test part, in the order of their numbers."""
    drawn = np.random.RandomState(1234).permutation(_RECORDINGS)[:16] + 1
    return np.sort(drawn).astype(np.int64)


def heart_rate_recording(
    recording: int, root: str | PathLike[str] | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """One whole recording, 1 ... 53: times ``(L,)`` in seconds, (PPG, ECG) ``(L, 2)``, and the
    heart rate ``(S,)`` over each second k - 1 ... k, k = 1 ... S; NaN where the monitor had none.
    """
    if not 1 <= recording <= _RECORDINGS:
        raise InputError(f"recordings are 1 ... {_RECORDINGS}, got {recording}")
    folder = data_root("bidmc", root)
    times, values = _read(folder / f"bidmc{recording:02d}", "PLETH", "II").series(0)
    numeric = _read(folder / f"bidmc{recording:02d}n", _NUMERIC["HR"]).values[:, 0]
    beats = np.rint(numeric[-_NUMERICS_START.get(recording, 0) :])
    return times, values.astype(np.float32), beats[: int(times[-1])]


def _read(record: Path, *channels: str) -> SeriesBatch:
    return read_wfdb(record, channels=channels)


def _digest(split: dict[str, npt.NDArray[np.int64]]) -> str:
    joined = np.concatenate([split["train"], split["validation"], split["test"]])
    sizes = np.array([len(split[name]) for name in ("train", "validation", "test")])
    return hashlib.sha256(np.concatenate([sizes, joined]).astype("<i8").tobytes()).hexdigest()


def _layout() -> list[npt.NDArray[np.int64]]:
    """Start of each window in seconds of the waveform, for recordings 1 ... 53."""
    starts = np.arange(0, _LAST + 1, STRIDE)
    shifted = [starts + _NUMERICS_START.get(r, 0) for r in range(1, _RECORDINGS + 1)]
    return [start[start >= 0] for start in shifted]


def _labels(
    folder: Path, recording: int, starts: npt.NDArray[np.int64], target: Target
) -> npt.NDArray[np.float64]:
    """Mean of the observed numerics in [s, s + 32) for each start; NaN if there are none."""
    # Recording 19's SpO2 is constant, so the writer's gain = range / 0 became "NaN" in the header:
    # the value cannot be recovered from the file.
    if target == "SpO2" and recording == 19:
        return np.full(len(starts), np.nan)
    numeric = np.rint(_read(folder / f"bidmc{recording:02d}n", _NUMERIC[target]).values[:, 0])
    first = starts - _NUMERICS_START.get(recording, 0)
    windows = np.lib.stride_tricks.sliding_window_view(numeric, _SECONDS)[first]  # (n, 32)
    seen = np.isfinite(windows)
    count = seen.sum(axis=1)
    total = np.where(seen, windows, 0.0).sum(axis=1)
    means: npt.NDArray[np.float64] = np.full(len(starts), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means


def _cut(
    folder: Path,
    recording: int,
    starts: npt.NDArray[np.int64],
    out: npt.NDArray[np.float32],
) -> None:
    """Write the windows of one recording into ``out (n, 4000, 2)``."""
    signal = _read(folder / f"bidmc{recording:02d}", "PLETH", "II").values.astype(np.float32)
    for row, start in enumerate(starts.tolist()):
        out[row] = signal[start * _RATE : (start + _SECONDS) * _RATE]


def _verify(folder: Path) -> None:
    """Compare the files that are read with PhysioNet's checksums."""
    sums = folder / "SHA256SUMS.txt"
    advice = "download it again from https://physionet.org/content/bidmc/1.0.0/"
    if not sums.is_file():
        raise InputError(f"expected PhysioNet's {sums} for the check, found none; {advice}")
    text = sums.read_bytes()
    if hashlib.sha256(text).hexdigest() != _SUMS_SHA256:
        raise InputError(f"{sums} is not the list of version 1.0.0 of the set; {advice}")
    expected = {name: digest for digest, name in map(str.split, text.decode().splitlines())}
    for recording in range(1, _RECORDINGS + 1):
        for end in (".hea", ".dat", "n.hea", "n.dat"):
            file = folder / f"bidmc{recording:02d}{end}"
            if not file.is_file():
                raise InputError(f"expected {file}, found nothing; {advice}")
            if hashlib.sha256(file.read_bytes()).hexdigest() != expected[file.name]:
                raise InputError(f"{file} is damaged: its SHA-256 is not PhysioNet's; {advice}")
