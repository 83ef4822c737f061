"""Regular series that come with aeon: single ones, and the yearly ones of the M1 competition."""

import csv
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Known", "known_series", "mase"]

Array = npt.NDArray[Any]


class Known(NamedTuple):
    """Values of regular series, when the first one was, the length of a season, and how forecasts
    are asked for: so many ahead, from so many origins, the last of them ``ahead`` before the end.
    """

    name: str
    values: list[Array]
    times: list[Array]
    season: int
    ahead: int
    origins: int


def known_series() -> Iterator[Known]:
    """Read them."""
    spec = find_spec("aeon")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "datasets" / "data"

    def column(name: str) -> Array:
        with (folder / name / f"{name}.csv").open() as file:
            return np.array([float(row[1]) for row in list(csv.reader(file))[1:]])

    def months(start: str, n: int) -> Array:
        return (np.datetime64(start, "M") + np.arange(n)).astype("datetime64[s]")

    for name, file, start, origins in (
        ("airline passengers", "Airline", "1949-01", 4),
        ("prescriptions", "PBS_dataset", "1991-07", 4),
    ):
        x = column(file)
        yield Known(name, [x], [months(start, len(x))], 12, 12, origins)
    x = column("ShampooSales")
    yield Known("shampoo", [x], [months("1991-01", len(x))], 12, 4, 2)
    x = column("Lynx")
    yield Known("lynx", [x], [np.arange(float(len(x)))], 10, 10, 3)
    x = column("solar")
    half_hours = np.datetime64("2021-05-01", "m") + 30 * np.arange(len(x))
    yield Known("solar power", [x], [half_hours], 48, 48, 2)
    text = (folder / "m1_yearly_dataset" / "m1_yearly_dataset.tsf").read_text()
    lines = [line.split(":")[2] for line in text.splitlines() if line.count(":") == 2]
    many = [np.array(line.split(","), dtype=float) for line in lines]
    many = [x for x in many if len(x) >= 16]
    yield Known(f"M1, {len(many)} yearly", many, [np.arange(float(len(x))) for x in many], 1, 6, 1)


def mase(forecast: Array, true: Array, past: Array, season: int) -> float:
    """Mean absolute error, over that of the value a season before within the past."""
    scale = np.abs(past[season:] - past[:-season]).mean()
    return float(np.abs(forecast - true).mean() / scale)
