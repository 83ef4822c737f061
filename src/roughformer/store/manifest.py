"""``manifest.json``: what a store holds. It is written last, so its presence means complete."""

import hashlib
import json
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from roughformer.errors import InputError
from roughformer.store.places import Place
from roughformer.tokens import Tokenizer

__all__ = ["MANIFEST", "DataFile", "Manifest", "ShardInfo", "Totals", "hash_of", "shard_name"]

MANIFEST = "manifest.json"
Holding = Literal["tokens", "series"]


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataFile(_Plain):
    """A file that a store was made of; a change of it changes ``modified`` or the rest."""

    path: str
    size: int
    modified: int  # nanoseconds since 1970
    fingerprint: str  # of the Parquet footer
    keys: dict[str, str] = {}  # columns that its path tells: name -> text


class ShardInfo(_Plain):
    """One file of a store: ``series`` rows, with ``points`` observations and ``windows`` tokens."""

    file: str
    series: int
    points: int
    windows: int
    bytes: int


class Totals(_Plain):
    """Sums over the shards."""

    series: int
    points: int
    windows: int


class Manifest(_Plain):
    """All that must be known to read the shards; ``key`` is a hash of data and configuration."""

    format: Literal[1] = 1
    kind: Literal["roughformer.store"] = "roughformer.store"
    key: str
    holds: tuple[Holding, ...]
    channels: tuple[str, ...]
    static_names: tuple[str, ...] = ()
    labelled: bool = False
    time_origin: str | None = None
    tokenizer: Tokenizer | None = None
    data: tuple[DataFile, ...] = ()
    options: dict[str, Any] = {}
    totals: Totals
    shards: tuple[ShardInfo, ...]
    roughformer: str

    @property
    def origin(self) -> np.datetime64 | None:
        """The date that time 0 stands for, where the data have dates."""
        return None if self.time_origin is None else np.datetime64(self.time_origin, "ns")

    def write(self, store: Place) -> None:
        """Put it into the directory of the store."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False)
        (store / MANIFEST).put(text.encode())

    @classmethod
    def read(cls, store: Place) -> "Manifest":
        """That of the store in a directory; ``InputError`` if there is no complete one."""
        place = store / MANIFEST
        try:
            text = place.read()
        except FileNotFoundError:
            raise InputError(
                f"{store} is no complete feature store: it has no {MANIFEST}; make it, or finish "
                "it, with roughformer features DATA... --out"
            ) from None
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "its text"
            raise InputError(
                f"{place} is damaged or of another version of roughformer: {where}: "
                f"{first['msg']}; make the store again"
            ) from None


def shard_name(number: int) -> str:
    """File of shard ``number``."""
    return f"shard-{number:05d}.parquet"


def hash_of(plain: Any) -> str:
    """A hash of plain data, the same on every machine."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
