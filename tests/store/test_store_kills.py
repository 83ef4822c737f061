"""A build killed at any moment keeps what is finished, and shows nothing that is not.

Run as a program, this file is the builder that gets killed: it imports once, then forks a child for
each kill.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from store_data import digests, make, shuffled, table, write

KILLS = 8


def build_and_kill(data, outs, kills):
    """Kill ``kills`` builds at random moments; a store that gets finished is followed by another.
    Prints, for each store, what was there after each build.
    """
    rng = random.Random(0)
    for _ in range(2):  # the second time everything is loaded
        started = time.perf_counter()
        make(data, outs, afresh=True)
        usual = time.perf_counter() - started
    seen, stores = 0, [[]]
    while seen < kills or stores[-1]:
        out = outs.with_name(f"out{len(stores)}")
        child = os.fork()
        if child == 0:
            make(data, out)
            os._exit(0)
        if seen < kills:
            time.sleep(rng.uniform(0.0, 0.9) * usual)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        seen += os.WIFSIGNALED(status)
        done = (out / "manifest.json").exists()
        stores[-1].append({"shards": digests(out), "done": done})
        assert done or os.WIFSIGNALED(status)
        if done:
            stores.append([])
    print(json.dumps({"kills": seen, "stores": stores[:-1]}))


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_killed_builds_lose_no_finished_shard_and_end_with_the_same_bytes(tmp_path, order):
    whole = table(60)
    data = write(whole if order == "sorted" else shuffled(whole), tmp_path / "data", group=100)
    make(data, tmp_path / "undisturbed")
    expected = digests(tmp_path / "undisturbed")
    command = [sys.executable, __file__, data, tmp_path / "timing", str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    told = json.loads(done.stdout)
    assert told["kills"] == KILLS
    for number, steps in enumerate(told["stores"], 1):
        before = {}
        for step in steps:
            # Whatever can be seen is whole, and of this build; nothing that was there is gone.
            assert step["shards"].items() <= expected.items()
            assert before.items() <= step["shards"].items()
            before = step["shards"]
        out = tmp_path / f"out{number}"
        assert digests(out) == expected
        # A kill between the manifest and the end leaves the marker, until the next run.
        again = make(data, out)
        assert (again.made, again.kept) == (0, len(expected))
        assert digests(out) == expected
        assert {file.name for file in out.iterdir()} - set(expected) == {"manifest.json"}


def test_workers_die_with_their_parent(tmp_path):
    data = write(table(400), tmp_path / "data", group=100)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from store_data import make\n"
        "if __name__ == '__main__':\n"
        "    make(sys.argv[2], sys.argv[3], workers=2)\n"
    )
    (tmp_path / "builder.py").write_text(program)
    here = str(Path(__file__).parent)
    command = [sys.executable, tmp_path / "builder.py", here, data, tmp_path / "out"]
    builder = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").glob("shard-*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(builder.pid, signal.SIGKILL)
    builder.wait()
    while _members(builder.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _members(builder.pid) == []
    built = make(data, tmp_path / "out")
    assert built.kept > 0


def _members(session):
    """Processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    build_and_kill(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
