"""Where data sets live on this machine: the caller's option, else ROUGHFORMER_DATA."""

import os
from os import PathLike
from pathlib import Path

from roughformer.errors import InputError, MissingDataError

__all__ = ["data_root", "existing_file"]

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
    where = " and ".join(map(str, looked)) if looked else "nowhere: no directory was named"
    raise MissingDataError(
        f"{title} was not found (looked in {where}; expected {' or '.join(patterns)}). Download it "
        f"from {address} into a folder {name}, then pass root=FOLDER (roughformer reproduce: "
        "--data FOLDER) or set the environment variable ROUGHFORMER_DATA to that folder or the "
        "one above it."
    )


def existing_file(path: str | PathLike[str]) -> Path:
    """``path`` as a ``Path`` if it is a file, else ``InputError``."""
    file = Path(path)
    if not os.path.isfile(file):  # unlike Path.is_file, also for names that are too long
        kind = "a directory" if os.path.isdir(file) else "nothing"
        raise InputError(f"expected a file at {file}, found {kind}; check the path")
    return file
