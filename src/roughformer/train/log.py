"""The record of a training: one JSON object a line, and TensorBoard where it is installed."""

import json
import os
from pathlib import Path
from typing import Any

from roughformer.errors import InputError

__all__ = ["TrainingLog", "read_log"]


class TrainingLog:
    """``log.jsonl`` in a run's directory; ``tensorboard=True`` writes events beside it."""

    def __init__(self, directory: Path | None, tensorboard: bool = False) -> None:
        """``directory=None`` writes nothing."""
        self.path = None if directory is None else directory / "log.jsonl"
        self._writer: Any = None
        if tensorboard:
            if directory is None:
                raise InputError("TensorBoard needs a directory: give run_dir=")
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise InputError(
                    "TensorBoard is not installed: pip install 'roughformer[tensorboard]'"
                ) from None
            self._writer = SummaryWriter(str(directory / "tensorboard"))

    def restart(self, records: list[dict[str, Any]]) -> None:
        """Begin with these records: what a killed process wrote after its last save is dropped."""
        if self.path is not None:
            aside = self.path.with_suffix(".tmp")
            aside.write_text("".join(json.dumps(r) + "\n" for r in records))
            os.replace(aside, self.path)

    def write(self, record: dict[str, Any]) -> None:
        """Add a record."""
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(record) + "\n")
        if self._writer is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "epoch":
                    self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        """Flush what TensorBoard holds."""
        if self._writer is not None:
            self._writer.close()


def read_log(directory: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a run."""
    lines = (Path(directory) / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line]
