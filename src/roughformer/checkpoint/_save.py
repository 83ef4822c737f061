"""Objects -> a checkpoint directory."""

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from roughformer.atomic import read_directory, replace_directory
from roughformer.checkpoint._format import (
    CONFIG,
    FORMAT,
    MANIFEST,
    NAME,
    TENSORS,
    VERSION,
    json_bytes,
    seal,
)
from roughformer.checkpoint._load import read_manifest
from roughformer.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["save_checkpoint"]

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
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write ``config``, ``tensors`` (stem of the file -> name -> tensor) and ``files`` (name ->
    bytes) as the checkpoint ``directory``, in place of the one that may be there.

    ``config`` is JSON: tuples come back as lists; NaN and infinity, keys that are not text and
    other objects are refused. Tensors come back with the same bits, dtype and shape, contiguous,
    on the CPU, each with memory of its own even if they shared it.

    A directory with files that are not part of a checkpoint is never replaced.
    """
    where = os.fspath(directory)
    if not isinstance(config, Mapping):
        raise InputError(f"config must be a dict, got {type(config).__name__}")
    try:
        settings = json_bytes(_plain(config, "config"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"config cannot be written as JSON ({error})") from None
    files = {} if files is None else files
    _check_names(tensors, files)
    contents = _contents(settings, tensors, files)
    try:
        replace_directory(directory, contents, _check_replaceable)
    except OSError as error:
        raise CheckpointError(
            f"cannot save the checkpoint {where!r} ({error.strerror or error}); one that was "
            "there before is still whole: choose another directory or make room, and save again"
        ) from error


def _contents(
    settings: bytes, tensors: "Mapping[str, Mapping[str, Tensor]]", files: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    """The files one after the other, so that only one of them is in memory; the manifest last."""
    listed: dict[str, dict[str, Any]] = {}

    def note(name: str, data: bytes) -> tuple[str, bytes]:
        listed[name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        return name, data

    yield note(CONFIG, settings)
    for stem in sorted(tensors):
        yield note(stem + TENSORS, _pack(tensors[stem], stem))
    for name in sorted(files):
        yield note(name, bytes(files[name]))
    yield MANIFEST, seal({"files": listed, "format": FORMAT, "version": VERSION})


def _plain(value: Any, where: str) -> Any:
    """A copy of plain dicts, lists, texts and numbers, or ``InputError`` naming the place."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(
                f"{where} is {value}, which JSON does not have; give None or a text instead"
            )
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{k}]") for k, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"the keys of {where} must be texts, got {key!r}")
        return {str(key): _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise InputError(
        f"{where} must be made of dicts, lists, texts, numbers, booleans and None, got "
        f"{type(value).__name__}; arrays and their numbers have tolist()"
    )


def _pack(tensors: "Mapping[str, Tensor]", stem: str) -> bytes:
    import torch
    from safetensors.torch import save

    packed: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        where = f"tensors[{stem!r}][{name!r}]"
        if not isinstance(tensor, torch.Tensor) or not isinstance(name, str):
            raise InputError(f"{where} must be a tensor under a text, got {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_meta:
            raise InputError(f"{where} must be a dense tensor with data; see Tensor.to_dense")
        if not _DTYPES.fullmatch(str(tensor.dtype)) or name == "__metadata__":
            raise InputError(
                f"{where} ({tensor.dtype}) does not fit in a safetensors file; convert it to one "
                "of the usual dtypes, and choose another name than __metadata__"
            )
        # A copy of its own: contiguous, shared with no other tensor, conjugates worked out.
        packed[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return bytes(save(packed))


def _check_names(tensors: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    for name in [*tensors, *files]:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InputError(
                f"the file name {name!r} must be made of letters, digits and _ . - and not begin "
                "with . or -"
            )
    for name, data in files.items():
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InputError(f"files[{name!r}] must be bytes, got {type(data).__name__}")
        if name in (CONFIG, MANIFEST) or name.endswith(TENSORS):
            raise InputError(f"the file name {name!r} is taken by the checkpoint; choose another")


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
