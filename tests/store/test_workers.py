"""How units are shared out, and that nothing of it is left behind in the calling process."""

import gc
import os
from collections.abc import Iterator

import pytest

from roughformer.store import storage
from roughformer.store.workers import run_units

ALLOCATOR = "MIMALLOC_PURGE_DELAY"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


def frozen(unit: int) -> tuple[int, bool, str | None]:
    return unit, gc.get_freeze_count() > 0, os.environ.get(ALLOCATOR)


def who(unit: int) -> tuple[int, bool]:
    return os.getpid(), storage._mapping


def failing(unit: int) -> int:
    raise ValueError(f"unit {unit}")


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_old_objects_are_left_alone_by_the_garbage_collector_only_while_units_are_made(
    workers: int,
) -> None:
    made = run_units([0, 1, 2], frozen, workers=workers)
    assert [unit for unit, *_ in made] == [0, 1, 2]
    assert all(at_rest for _, at_rest, _ in made)
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_an_error_leaves_the_garbage_collector_as_it_was(workers: int) -> None:
    with pytest.raises(ValueError, match="unit"):
        run_units([0, 1], failing, workers=workers)
    assert gc.get_freeze_count() == 0
    assert ALLOCATOR not in os.environ


def test_what_a_caller_has_frozen_stays_frozen() -> None:
    gc.freeze()
    run_units([0], frozen, workers=1)
    assert gc.get_freeze_count() > 0


def test_workers_keep_memory_and_the_caller_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOCATOR, raising=False)
    assert {kept for *_, kept in run_units([0, 1], frozen, workers=2)} == {"-1"}
    assert ALLOCATOR not in os.environ


def test_what_the_user_says_of_the_allocator_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOCATOR, "7")
    assert {kept for *_, kept in run_units([0, 1], frozen, workers=2)} == {"7"}
    assert os.environ[ALLOCATOR] == "7"


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
