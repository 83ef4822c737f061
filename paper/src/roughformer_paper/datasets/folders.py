"""Find data sets on this machine: in the caller's folder, else in ROUGHFORMER_DATA."""

import os
from os import PathLike
from pathlib import Path

from roughformer import InputError, MissingDataError

__all__ = ["data_root"]

# name: (patterns of which one must match inside the folder, where to download, what to call it)
_KNOWN = {
    "bidmc": (
        ("bidmc01.hea",),
        "https://physionet.org/content/bidmc/1.0.0/ (the WFDB files, 33 MB)",
        "BIDMC PPG and Respiration Dataset 1.0.0",
    ),
    "physionet2012": (
        ("physionet2012.npz", "set-[abc]"),
        "https://physionet.org/content/challenge-2012/1.0.0/ (set-a, set-b, set-c and Outcomes)",
        "PhysioNet/Computing in Cardiology Challenge 2012",
    ),
}


def data_root(name: str, root: str | PathLike[str] | None = None) -> Path:
    """Find the folder of a data set: ``root/name`` or ``root``, whichever holds its files.

    Parameters
    ----------
    name : {"bidmc", "physionet2012"}
        The data set.
    root : path, optional
        By default the environment variable ROUGHFORMER_DATA.

    Returns
    -------
    Path

    Raises
    ------
    MissingDataError
        If it is not there; the message says where to download it.
    """
    if name not in _KNOWN:
        raise InputError(f"unknown data set {name!r}; known are {', '.join(sorted(_KNOWN))}")
    patterns, address, title = _KNOWN[name]
    named = os.environ.get("ROUGHFORMER_DATA") if root is None else os.fspath(root)
    looked = [Path(named) / name, Path(named)] if named else []
    for folder in looked:
        if any(next(folder.glob(pattern), None) for pattern in patterns):
            return folder
    searched = " and ".join(map(str, looked)) if looked else "nowhere: no directory was named"
    raise MissingDataError(
        f"{title} was not found (looked in {searched}; expected {' or '.join(patterns)}). "
        f"Download it from {address} into a folder {name}, then pass root=FOLDER (roughformer "
        "reproduce: --data FOLDER) or set the environment variable ROUGHFORMER_DATA to that folder "
        "or the one above it."
    )
