"""A save killed at any moment leaves a whole checkpoint, and readers never see half of one.

Run as a program, this file is the writer that gets killed: it imports torch once, then forks a
child for each kill.
"""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import pytest
import torch

from roughformer.util import atomic
from roughformer.util.checkpoint import load_checkpoint, save_checkpoint

WAYS = ("exchange", "two renames")
CALLS = ("open", "mkdir", "rename", "replace", "fsync", "unlink", "rmdir", "close")


def save(path, version, size=300):
    tensors = {"model": {"w": torch.full((size,), version)}, "state": {"n": torch.tensor(version)}}
    save_checkpoint(path, {"version": version}, tensors)


def version_of(path):
    """The version of a checkpoint, all of whose parts must be of the same one."""
    back = load_checkpoint(path)
    version = back.config["version"]
    assert int(back.tensors["state"]["n"]) == version
    assert (back.tensors["model"]["w"] == version).all()
    return version


def in_child(work):
    """Fork, run ``work(report)`` in the child -> (pid, pipe on which its reports can be read)."""
    readable, writable = os.pipe()
    child = os.fork()
    if child:
        os.close(writable)
        return child, readable
    status = 0
    try:
        work(lambda version: os.write(writable, version.to_bytes(8, "little")))
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def last_report(pipe):
    with os.fdopen(pipe, "rb") as file:
        return int.from_bytes(file.read()[-8:], "little")


def kill_at_random(path, kills, size):
    """Save as fast as possible, be killed, again from where it was -> versions found."""
    start = time.perf_counter()
    save(path, 1, size)
    one_save = time.perf_counter() - start
    choose, found = random.Random(0), [1]
    for _ in range(kills):

        def work(report):
            for version in itertools.count(found[-1]):
                if version > found[-1]:
                    save(path, version, size)
                report(version)

        child, pipe = in_child(work)
        os.read(pipe, 8)  # it runs
        time.sleep(choose.uniform(0, 5 * one_save))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reported = last_report(pipe)
        found.append(version_of(path))
        assert found[-1] >= max(reported, found[-2]), (found, reported)
        if found[-1] == found[-2]:  # saves may take longer than the first one did
            one_save *= 1.5
    return found


def die_at_call(k):
    """From now on, the k-th call that changes or flushes files ends the process before it."""
    count = itertools.count(1)

    def wrap(function):
        def deadly(*args, **options):
            if next(count) == k:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return deadly

    # open(file, "xb") of the package goes through no function of os.
    atomic.open = wrap(open)
    atomic._exchange = wrap(atomic._exchange)
    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def kill_at_every_call(path, old, twice=False):
    """For k = 1, 2, ...: save, be killed at call k; read; save again -> versions read.

    ``twice``: an earlier save was killed between its two renames.
    """
    found = []
    for k in itertools.count(1):
        if old:
            save(path, 2 * k)
        if twice:
            os.rename(path, os.path.join(os.path.dirname(path), ".x.old"))

        def work(report, k=k):
            die_at_call(k)
            save(path, 2 * k + 1)

        child, pipe = in_child(work)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
        os.close(pipe)
        if old or os.path.exists(path):
            found.append(version_of(path) - 2 * k)
        if not killed:
            return found
        # The next save works and leaves nothing but the checkpoint.
        save(path, 2 * k + 1)
        assert version_of(path) == 2 * k + 1
        assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
        if not old:
            shutil.rmtree(path)


@pytest.fixture(scope="module")
def found():
    """What all tasks found, in memory where possible: they flush thousands of files."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        done = subprocess.run(
            [sys.executable, __file__, directory],
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def versions(found, task, way):
    result = found[f"{task}, {way}"]
    assert isinstance(result, list), result
    return result


@pytest.mark.parametrize("way", WAYS)
def test_a_writer_killed_at_random_times_leaves_a_whole_checkpoint(way, found):
    seen = versions(found, "random", way)
    assert len(seen) == 61
    assert seen[-1] > 10


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("task", ["calls", "twice"])
def test_a_writer_killed_at_any_call_leaves_the_old_or_the_new_checkpoint(task, way, found):
    seen = versions(found, task, way)
    assert len(seen) > 20
    assert seen == sorted(seen)  # the old one, up to some call, then the new one
    assert seen[0] == 0
    assert seen[-1] == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_first_save_killed_at_any_call_leaves_nothing_or_the_new_checkpoint(way, found):
    assert set(versions(found, "first", way)) == {1}


@pytest.mark.parametrize("way", WAYS)
def test_readers_see_whole_checkpoints_while_a_writer_saves(way, found):
    seen = versions(found, "readers", way)
    assert seen == sorted(seen)
    assert len(set(seen)) > 1


@pytest.mark.parametrize("way", WAYS)
def test_writers_of_one_directory_do_not_disturb_each_other(way, found):
    assert versions(found, "writers", way) == [20, 20, 20, 20]


def test_a_failed_rename_puts_the_old_checkpoint_back(tmp_path, monkeypatch):
    save(tmp_path / "x", 1)
    usual = os.rename

    def rename(source, target):
        if source.endswith(".new"):
            raise OSError(28, "No space left on device")
        usual(source, target)

    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(RuntimeError, match=r"No space left on device.* still whole"):
        save(tmp_path / "x", 2)
    assert os.listdir(tmp_path) == ["x"]
    assert version_of(tmp_path / "x") == 1


def test_between_two_renames_the_old_checkpoint_is_read(tmp_path):
    save(tmp_path / "x", 1)
    os.rename(tmp_path / "x", tmp_path / ".x.old")
    assert version_of(tmp_path / "x") == 1
    save(tmp_path / "x", 2)
    assert version_of(tmp_path / "x") == 2
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_is_replaced_at_once_and_nothing_is_left(tmp_path, monkeypatch):
    atomic.write_file(tmp_path / "a", b"1")
    atomic.write_file(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"2"

    def fails(source, target):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no"):
        atomic.write_file(tmp_path / "a", b"3")
    assert (tmp_path / "a").read_bytes() == b"2"
    assert os.listdir(tmp_path) == ["a"]


def read_while_saving(path, number):
    save(path, 1)

    def work(report):
        for version in itertools.count(2):
            save(path, version)

    child, pipe = in_child(work)
    try:
        return [version_of(path) for _ in range(number)]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(pipe)


def save_side_by_side(path, number):
    def work(report):
        for version in range(1, 21):
            save(path, version)
            version_of(path)
            report(version)

    children = [in_child(work) for _ in range(number)]
    for child, _ in children:
        os.waitpid(child, 0)
    return [last_report(pipe) for _, pipe in children]


TASKS = {
    "random": lambda path: kill_at_random(path, 60, 20_000),
    "calls": lambda path: kill_at_every_call(path, True),
    "twice": lambda path: kill_at_every_call(path, True, twice=True),
    "first": lambda path: kill_at_every_call(path, False),
    "readers": lambda path: read_while_saving(path, 400),
    "writers": lambda path: save_side_by_side(path, 4),
}


def main(directory):
    """Print {"task, way": what it found, or the traceback of its failure}."""
    torch.set_num_threads(1)
    exchange, found = atomic._exchange, {}
    for task, way in itertools.product(TASKS, WAYS):
        atomic._exchange = exchange if way == "exchange" else lambda one, other: False
        place = os.path.join(directory, f"{task} {way}")
        try:
            found[f"{task}, {way}"] = TASKS[task](os.path.join(place, "x"))
            assert os.listdir(place) == ["x"] or task in ("random", "readers")
        except Exception:
            found[f"{task}, {way}"] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
