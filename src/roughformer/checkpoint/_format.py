"""The format of a checkpoint: names of its files, its manifest, and text <-> bytes."""

import hashlib
import json
import re
from typing import Any

__all__ = ["CONFIG", "FORMAT", "MANIFEST", "NAME", "TENSORS", "VERSION", "json_bytes", "seal"]

FORMAT = "roughformer-checkpoint"
VERSION = 4
CONFIG, MANIFEST, TENSORS = "config.json", "manifest.json", ".safetensors"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


def seal(body: dict[str, Any]) -> bytes:
    """The bytes of a manifest, its own SHA-256 in it; this rule holds for all versions to come."""
    own = hashlib.sha256(json_bytes(body, sort=True)).hexdigest()
    return json_bytes({**body, "sha256": own}, sort=True)


def json_bytes(value: Any, sort: bool = False) -> bytes:
    """Standard JSON, one item a line: NaN and infinity raise ``ValueError``."""
    return json.dumps(value, indent=2, sort_keys=sort, allow_nan=False).encode() + b"\n"
