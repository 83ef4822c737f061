"""How units are shared out."""

import os

import pytest

from roughformer.store import storage
from roughformer.store.workers import run_units


def who(unit: int) -> tuple[int, bool]:
    return os.getpid(), storage._mapping


def failing(unit: int) -> int:
    raise ValueError(f"unit {unit}")


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_an_error_ends_the_work(workers: int) -> None:
    with pytest.raises(ValueError, match="unit"):
        run_units([0, 1], failing, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_are_other_processes_which_map_files(workers: int) -> None:
    made = run_units([0, 1, 2], who, workers=workers)
    assert os.getpid() not in {process for process, _ in made}
    assert all(maps for _, maps in made)


@pytest.mark.parametrize(("units", "workers"), [([0, 1], None), ([0], 1), ([0], 2), ([0], None)])
def test_a_single_unit_and_all_without_workers_are_made_here_where_no_file_is_mapped(
    units: list[int], workers: int | None
) -> None:
    assert run_units(units, who, workers=workers) == [(os.getpid(), False)] * len(units)
