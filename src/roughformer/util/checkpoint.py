"""Saved models: a directory of ``config.json``, ``*.safetensors`` and ``manifest.json``.

The manifest has the size and SHA-256 of every other file, and of itself, so that a flipped bit
anywhere is an error and not a slightly different model. Nothing is ever unpickled. A save killed
at any moment leaves the complete old checkpoint or the complete new one (``util.atomic``).
The same input gives the same bytes: there are no dates or names of machines inside.
"""

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from roughformer.errors import CheckpointError, InputError
from roughformer.util.atomic import read_directory, replace_directory

if TYPE_CHECKING:
    from torch import Tensor


# The format of a checkpoint: names of its files, its manifest, and text <-> bytes.

FORMAT = "roughformer-checkpoint"
VERSION = 7
CONFIG, MANIFEST, TENSORS = "config.json", "manifest.json", ".safetensors"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


def seal(body: dict[str, Any]) -> bytes:
    """The bytes of a manifest, its own SHA-256 in it; this rule holds for all versions to come."""
    own = hashlib.sha256(json_bytes(body, sort=True)).hexdigest()
    return json_bytes({**body, "sha256": own}, sort=True)


def json_bytes(value: Any, sort: bool = False) -> bytes:
    """Standard JSON, one item a line: NaN and infinity raise ``ValueError``."""
    return json.dumps(value, indent=2, sort_keys=sort, allow_nan=False).encode() + b"\n"


# Objects -> a checkpoint directory.

# What file browsers leave in any directory they show; the only foreign files a save may remove.
_CLUTTER = {".DS_Store", "Thumbs.db", "desktop.ini"}
# What safetensors both writes and reads.
_DTYPES = re.compile(
    r"torch\.(bool|u?int(8|16|32|64)|b?float16|float(32|64)|float8_(e4m3fn|e5m2)|complex64)"
)


def save_checkpoint(
    directory: str | os.PathLike[str],
    config: Mapping[str, Any],
    tensors: "Mapping[str, Mapping[str, Tensor]]",
) -> None:
    """Write ``config`` and ``tensors`` (stem of the file -> name -> tensor) as the checkpoint
    ``directory``, in place of the one that may be there.

    ``config`` is JSON: tuples come back as lists; NaN, infinity and other objects are refused.
    Tensors come back with the same bits, dtype and shape, contiguous,
    on the CPU, each with memory of its own even if they shared it.

    A directory with files that are not part of a checkpoint is never replaced.
    """
    path = os.fspath(directory)
    try:
        settings = json_bytes(config)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"config cannot be written as JSON ({error})") from None
    contents = _contents(settings, tensors)
    try:
        replace_directory(directory, contents, _check_replaceable)
    except OSError as error:
        raise CheckpointError(
            f"cannot save the checkpoint {path!r} ({error.strerror or error}); one that was "
            "there before is still whole: choose another directory or make room, and save again"
        ) from error


def _contents(
    settings: bytes, tensors: "Mapping[str, Mapping[str, Tensor]]"
) -> Iterator[tuple[str, bytes]]:
    """The files one after the other, so that only one of them is in memory; the manifest last."""
    listed: dict[str, dict[str, Any]] = {}

    def note(name: str, data: bytes) -> tuple[str, bytes]:
        listed[name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        return name, data

    yield note(CONFIG, settings)
    for stem in sorted(tensors):
        yield note(stem + TENSORS, _pack(tensors[stem], stem))
    yield MANIFEST, seal({"files": listed, "format": FORMAT, "version": VERSION})


def _pack(tensors: "Mapping[str, Tensor]", stem: str) -> bytes:
    import torch
    from safetensors.torch import save

    packed: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        what = f"tensors[{stem!r}][{name!r}]"
        if not isinstance(tensor, torch.Tensor) or not isinstance(name, str):
            raise InputError(f"{what} must be a tensor under a text, got {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_meta:
            raise InputError(f"{what} must be a dense tensor with data; see Tensor.to_dense")
        if not _DTYPES.fullmatch(str(tensor.dtype)) or name == "__metadata__":
            raise InputError(
                f"{what} ({tensor.dtype}) does not fit in a safetensors file; convert it to one "
                "of the usual dtypes, and choose another name than __metadata__"
            )
        # A copy of its own: contiguous, shared with no other tensor, conjugates worked out.
        packed[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return bytes(save(packed))


def _check_replaceable(path: str) -> None:
    """Raise unless ``path`` is empty or holds a checkpoint and nothing else."""
    if not os.path.isdir(path):
        raise CheckpointError(f"{path!r} is a file; a checkpoint is a directory: choose another")
    present = set(os.listdir(path)) - _CLUTTER
    if not present:
        return
    listed: set[str] = set()
    with contextlib.suppress(CheckpointError, FileNotFoundError):
        manifest = read_directory(path, lambda open_file: read_manifest(path, open_file))
        listed = {MANIFEST, *manifest}
    foreign = sorted(present - listed)
    if foreign:
        raise CheckpointError(
            f"{path!r} holds {foreign[0]!r}, which is not part of a sound checkpoint, and saving "
            "would remove it; choose another directory or empty this one first"
        )


# A checkpoint directory -> objects, with every byte checked.


_RESTORE = "copy the checkpoint again or save it again"
_LONGEST = 1 << 24  # bytes of a manifest that are read: a device would never end
OpenFile = Callable[[str], int]


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: ``config``, and ``tensors`` by file stem and name (on the CPU)."""

    config: dict[str, Any]
    tensors: "dict[str, dict[str, Tensor]]"


def load_checkpoint(directory: str | os.PathLike[str]) -> Checkpoint:
    """Read and check everything ``save_checkpoint`` wrote; ``CheckpointError`` on any damage.

    Files that the manifest does not list are ignored.
    """
    path = os.fspath(directory)
    try:
        return read_directory(directory, lambda open_file: _read(path, open_file))
    except FileNotFoundError:
        raise CheckpointError(
            f"there is no checkpoint {path!r}; check the path: it must be a directory that "
            "save_checkpoint wrote"
        ) from None
    except NotADirectoryError:
        raise CheckpointError(
            f"{path!r} is not a directory; a checkpoint is a directory with {MANIFEST}"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"cannot read the checkpoint {path!r} ({error.strerror or error}); check its "
            "permissions and the disk"
        ) from error


def _read(path: str, open_file: OpenFile) -> Checkpoint:
    listed = read_manifest(path, open_file)
    with contextlib.ExitStack() as stack:
        # Open all before reading any: once open, a file stays even if a save replaces it.
        handles = {n: stack.enter_context(_open(path, n, open_file)) for n in listed}
        data = {name: _read_file(path, name, handles[name], listed[name]) for name in listed}
    tensors = {
        name.removesuffix(TENSORS): _unpack(path, name, data[name])
        for name in listed
        if name.endswith(TENSORS)
    }
    return Checkpoint(_parse(path, CONFIG, data[CONFIG]), tensors)


def read_manifest(path: str, open_file: OpenFile) -> dict[str, dict[str, Any]]:
    """The entry of each file, {"sha256": ..., "size": ...}, by its name."""
    manifest = os.path.join(path, MANIFEST)
    with _open(path, MANIFEST, open_file) as file:
        raw = file.read(_LONGEST)
    head = _parse(path, MANIFEST, raw)
    if head.get("format") != FORMAT:
        raise CheckpointError(
            f"{manifest!r} is not the manifest of a roughformer checkpoint (its format is "
            f"{head.get('format')!r}, not {FORMAT!r}); check the path, or {_RESTORE}"
        )
    head.pop("sha256", None)
    try:
        sound = seal(head) == raw
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise _damaged(path, MANIFEST, "its own SHA-256 differs")
    if head.get("version") != VERSION:
        raise CheckpointError(
            f"{manifest!r} has format version {head.get('version')!r}, this roughformer reads "
            f"version {VERSION}; train again with this version, or install the roughformer that "
            "wrote it"
        )
    listed: Any = head.get("files")
    good = isinstance(listed, dict) and CONFIG in listed and MANIFEST not in listed
    if not good or not all(NAME.fullmatch(n) and _is_entry(e) for n, e in listed.items()):
        raise _damaged(path, MANIFEST, "it lists files in a wrong way")
    return dict(listed)


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("sha256"), str)
        and isinstance(entry.get("size"), int)
    )


def _open(path: str, name: str, open_file: OpenFile) -> BinaryIO:
    try:
        return open(name, "rb", opener=lambda name, _: open_file(name))
    except FileNotFoundError:
        raise CheckpointError(
            f"{os.path.join(path, name)!r} is missing; {_RESTORE}, or check the path if this is "
            "not a checkpoint"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"{os.path.join(path, name)!r} cannot be opened ({error.strerror or error}); check "
            f"its permissions and that it is a file, or {_RESTORE}"
        ) from error


def _read_file(path: str, name: str, file: BinaryIO, entry: dict[str, Any]) -> bytes:
    """The bytes of a file if they are those that were saved."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise _damaged(path, name, "it is not a file")
    if status.st_size != entry["size"]:
        why = f"it has {status.st_size} bytes, {entry['size']} were saved"
        raise _damaged(path, name, why)
    data = file.read()
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise _damaged(path, name, "its SHA-256 differs")
    return data


def _parse(path: str, name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _damaged(path, name, "it is not a JSON object")
    return value


def _unpack(path: str, name: str, data: bytes) -> "dict[str, Tensor]":
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return dict(load(data))
    except (SafetensorError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        raise _damaged(path, name, "it cannot be read as safetensors") from error


def _damaged(path: str, name: str, why: str) -> CheckpointError:
    return CheckpointError(f"{os.path.join(path, name)!r} is damaged ({why}); {_RESTORE}")
