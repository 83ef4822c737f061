"""How units are shared out, and that nothing of it is left behind in the calling process."""

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

from roughformer import ray_tasks
from roughformer.store import places
from roughformer.store.engines import run_units
from roughformer.store.ray_engine import _at_a_time
from roughformer.store.worker import begin_units

ALLOCATOR = "MIMALLOC_PURGE_DELAY"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


def frozen(unit: int) -> tuple[int, bool, str | None]:
    return unit, gc.get_freeze_count() > 0, os.environ.get(ALLOCATOR)


def who(unit: int) -> tuple[int, bool]:
    return os.getpid(), places._mapping


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


class Cluster:
    """As much of ray as is asked: its processors."""

    def __init__(self, processors: float) -> None:
        self.processors = processors

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.processors} if self.processors else {}


@pytest.mark.parametrize(
    ("processors", "workers", "most"),
    [(2, 2, 4), (2, 64, 64), (3, 2, 2), (64, 1, 1), (0, 1, 1), (1, 0, 1)],
)
def test_tasks_wait_on_ray_only_where_it_cannot_run_more_than_were_asked_for(
    processors: float, workers: int, most: int
) -> None:
    assert _at_a_time(Cluster(processors), workers) == most


def test_a_worker_of_ray_can_be_made_ready_before_pyarrow_is_loaded() -> None:
    code = "import sys, roughformer.ray_tasks; print({'pyarrow', 'numpy'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


class Shelf:
    """As much of ray as a task asks for: what was put under a reference."""

    def __init__(self, **held: bytes) -> None:
        self.held = held

    def get(self, reference: str) -> bytes:
        return self.held[reference]


def test_a_task_of_ray_begins_once_and_packs_results_and_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "_mapping", False)
    monkeypatch.setattr(ray_tasks, "_known", {})
    monkeypatch.setenv(ALLOCATOR, "7")  # what the user says holds
    shelf = Shelf(
        good=ray_tasks.packed_work(begin_units, frozen), bad=ray_tasks.packed_work(int, failing)
    )
    monkeypatch.setattr(ray_tasks, "roughformer_ray", lambda: shelf)
    made = [pickle.loads(ray_tasks.outcome("a", ["good"], pickle.dumps(k))) for k in (1, 2)]
    assert made == [(1, True, "7"), (2, True, "7")]
    assert places._mapping
    shelf.held.clear()  # fetched once
    assert pickle.loads(ray_tasks.outcome("a", ["good"], pickle.dumps(3)))[0] == 3
    shelf.held["bad"] = ray_tasks.packed_work(int, failing)
    wrong = pickle.loads(ray_tasks.outcome("b", ["bad"], pickle.dumps(4)))
    assert isinstance(wrong, ray_tasks.Failed)
    assert str(wrong.error) == "unit 4"
