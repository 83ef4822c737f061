"""What the columns of the tables mean, and tables of whole series as batches."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from roughformer.errors import InputError
from roughformer.series import SeriesBatch

__all__ = ["TableColumns"]


@dataclass(frozen=True)
class TableColumns:
    """Names of columns. A wide table has a column for each of ``channels``; a long one the columns
    ``channel`` and ``value``, and ``channels`` are the names to look for.
    """

    series_id: str
    time: str
    channels: tuple[str, ...]
    channel: str | None = None
    value: str | None = None
    static: tuple[str, ...] = ()
    label: str | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns to read, the id first."""
        long = (self.channel, self.value) if self.channel is not None else self.channels
        names = (self.series_id, self.time, *long, *self.static, self.label)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def wide_alone(self) -> bool:
        """Whether there is a column for each channel, and nothing beside times and ids."""
        return self.channel is None and not self.static and self.label is None

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        found = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}

    def check(self, schema: pa.Schema) -> None:
        """``InputError`` where a column cannot be what it is said to be; says so before hours of
        work, not after.
        """
        kind = _decoded(schema.field(self.series_id).type)
        if not (pt.is_integer(kind) or pt.is_string(kind) or pt.is_large_string(kind)):
            raise InputError(
                f"column {self.series_id!r} must hold whole numbers or texts to name series, got "
                f"{kind}; convert it, or name another one with --series-id"
            )
        self.batch(schema.empty_table(), None)

    def batch(self, table: pa.Table, origin: np.datetime64 | None) -> SeriesBatch:
        """The series of a table, all of whose rows are in it; dates count from ``origin``."""
        return SeriesBatch.from_table(
            table,
            series_id=self.series_id,
            time=self.time,
            channel=self.channel,
            value=self.value,
            channels=self.channels,
            static=self.static,
            label=self.label,
            time_origin=origin,
            absent=True,  # here; somewhere in the data each channel is
        )


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind
