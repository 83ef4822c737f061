"""A checkpoint directory -> objects, with every byte checked."""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from roughformer.atomic import read_directory
from roughformer.checkpoint._format import CONFIG, FORMAT, MANIFEST, NAME, TENSORS, VERSION, seal
from roughformer.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Checkpoint", "load_checkpoint", "read_manifest"]

_RESTORE = "copy the checkpoint again or save it anew"
_LONGEST = 1 << 24  # bytes of a manifest that are read: a device would never end
OpenFile = Callable[[str], int]


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: ``config``, ``tensors`` by file stem and name (on the CPU), other files."""

    config: dict[str, Any]
    tensors: "dict[str, dict[str, Tensor]]"
    files: dict[str, bytes] = field(default_factory=dict)


def load_checkpoint(directory: str | os.PathLike[str]) -> Checkpoint:
    """Read and check everything ``save_checkpoint`` wrote; ``CheckpointError`` on any damage.

    Files that the manifest does not list are ignored.
    """
    where = os.fspath(directory)
    try:
        return read_directory(directory, lambda open_file: _read(where, open_file))
    except FileNotFoundError:
        raise CheckpointError(
            f"there is no checkpoint {where!r}; check the path: it must be a directory that "
            "save_checkpoint wrote"
        ) from None
    except NotADirectoryError:
        raise CheckpointError(
            f"{where!r} is not a directory; a checkpoint is a directory with {MANIFEST}"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"cannot read the checkpoint {where!r} ({error.strerror or error}); check its "
            "permissions and the disk"
        ) from error


def _read(where: str, open_file: OpenFile) -> Checkpoint:
    listed = read_manifest(where, open_file)
    with contextlib.ExitStack() as stack:
        # Open all before reading any: once open, a file stays even if a save replaces it.
        handles = {n: stack.enter_context(_open(where, n, open_file)) for n in listed}
        data = {name: _read_file(where, name, handles[name], listed[name]) for name in listed}
    tensors = {
        name.removesuffix(TENSORS): _unpack(where, name, data.pop(name))
        for name in listed
        if name.endswith(TENSORS)
    }
    return Checkpoint(_parse(where, CONFIG, data.pop(CONFIG)), tensors, data)


def read_manifest(where: str, open_file: OpenFile) -> dict[str, dict[str, Any]]:
    """The entry of each file, {"sha256": ..., "size": ...}, by its name."""
    path = os.path.join(where, MANIFEST)
    with _open(where, MANIFEST, open_file) as file:
        raw = file.read(_LONGEST)
    head = _parse(where, MANIFEST, raw)
    if head.get("format") != FORMAT:
        raise CheckpointError(
            f"{path!r} is not the manifest of a roughformer checkpoint (its format is "
            f"{head.get('format')!r}, not {FORMAT!r}); check the path, or {_RESTORE}"
        )
    head.pop("sha256", None)
    try:
        sound = seal(head) == raw
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise _damaged(where, MANIFEST, "its own SHA-256 differs")
    if head.get("version") != VERSION:
        raise CheckpointError(
            f"{path!r} has format version {head.get('version')!r}, this roughformer reads version "
            f"{VERSION}; train again with this version, or install the roughformer that wrote it"
        )
    listed: Any = head.get("files")
    good = isinstance(listed, dict) and CONFIG in listed and MANIFEST not in listed
    if not good or not all(NAME.fullmatch(n) and _is_entry(e) for n, e in listed.items()):
        raise _damaged(where, MANIFEST, "it lists files in a wrong way")
    return dict(listed)


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("sha256"), str)
        and isinstance(entry.get("size"), int)
    )


def _open(where: str, name: str, open_file: OpenFile) -> BinaryIO:
    try:
        return open(name, "rb", opener=lambda name, _: open_file(name))
    except FileNotFoundError:
        raise CheckpointError(
            f"{os.path.join(where, name)!r} is missing; {_RESTORE}, or check the path if this is "
            "not a checkpoint"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"{os.path.join(where, name)!r} cannot be opened ({error.strerror or error}); check "
            f"its permissions and that it is a file, or {_RESTORE}"
        ) from error


def _read_file(where: str, name: str, file: BinaryIO, entry: dict[str, Any]) -> bytes:
    """The bytes of a file if they are those that were saved."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise _damaged(where, name, "it is not a file")
    if status.st_size != entry["size"]:
        why = f"it has {status.st_size} bytes, {entry['size']} were saved"
        raise _damaged(where, name, why)
    data = file.read()
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise _damaged(where, name, "its SHA-256 differs")
    return data


def _parse(where: str, name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _damaged(where, name, "it is not a JSON object")
    return value


def _unpack(where: str, name: str, data: bytes) -> "dict[str, Tensor]":
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return dict(load(data))
    except (SafetensorError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        raise _damaged(where, name, "it cannot be read as safetensors") from error


def _damaged(where: str, name: str, why: str) -> CheckpointError:
    return CheckpointError(f"{os.path.join(where, name)!r} is damaged ({why}); {_RESTORE}")
