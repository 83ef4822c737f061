"""Memory of results is recycled, and only when nothing refers to it any more."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import roughformer as rf
from roughformer.signatures import library as buffers
from roughformer.signatures.library import new_result

SHAPE = (3, 1 << 20)  # 12 MB of float32


@pytest.fixture(autouse=True)
def empty_pool(monkeypatch):
    monkeypatch.setenv("ROUGHFORMER_BUFFER_MB", "100")
    buffers._free.clear()
    yield
    buffers._free.clear()


def address(array):
    return array.ctypes.data


def test_memory_of_a_result_that_is_gone_serves_the_next_one():
    result = new_result(SHAPE, np.float32)
    first = address(result)
    del result
    assert address(new_result(SHAPE, np.float32)) == first


def test_a_slightly_smaller_result_reuses_memory_but_a_much_smaller_one_does_not():
    first = address(new_result(SHAPE, np.float32))
    small = new_result((1, SHAPE[1]), np.float32)
    assert address(small) != first
    assert address(new_result((2, SHAPE[1]), np.float32)) == first


@pytest.mark.parametrize(
    "refer",
    [
        lambda result: result[1:, ::7],
        lambda result: result.T.view(np.uint32)[5:][:3],
        lambda result: result.base,
        lambda result: memoryview(result)[1:],
        lambda result: torch.from_numpy(result)[2].view(-1, 4),
        lambda result: torch.from_dlpack(result)[0],
    ],
    ids=["slice", "views of views", "base", "memoryview", "tensor", "dlpack"],
)
def test_memory_is_not_recycled_while_something_refers_to_it(refer):
    result = new_result(SHAPE, np.float32)
    result.fill(7)
    first = address(result)
    reference = refer(result)
    before = bytes(np.asarray(reference))
    del result
    other = new_result(SHAPE, np.float32)
    other.fill(8)
    assert address(other) != first
    assert bytes(np.asarray(reference)) == before
    del reference
    assert address(new_result(SHAPE, np.float32)) == first


def test_a_finalizer_in_a_cycle_still_reads_its_result():
    seen = []

    class Holder:
        def __init__(self):
            self.itself = self
            self.result = new_result(SHAPE, np.float32)
            self.result.fill(5)

        def __del__(self):
            new_result(SHAPE, np.float32).fill(6)
            seen.append(self.result.max())

    Holder()
    gc.collect()
    assert seen == [5]


def test_two_blocks_serve_a_loop_that_holds_the_last_result():
    addresses = set()
    for _ in range(6):
        result = new_result(SHAPE, np.float32)
        addresses.add(address(result))
    assert len(addresses) == 2


def test_zeros_are_zero_in_new_and_in_recycled_memory():
    result = new_result(SHAPE, np.float32, zero=True)
    assert not result.any()
    result.fill(3)
    first = address(result)
    del result
    result = new_result(SHAPE, np.float32, zero=True)
    assert address(result) == first
    assert not result.any()


def test_the_pool_keeps_the_youngest_blocks_within_its_limit(monkeypatch):
    monkeypatch.setenv("ROUGHFORMER_BUFFER_MB", "30")
    results = [new_result(SHAPE, np.float32) for _ in range(4)]
    while results:
        del results[0]
    assert [len(block) for block in buffers._free] == [12 << 20] * 2
    new_result((10, SHAPE[1]), np.float32)  # larger than the limit: the others stay
    assert [len(block) for block in buffers._free] == [12 << 20] * 2


def test_the_pool_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("ROUGHFORMER_BUFFER_MB", "0")
    new_result(SHAPE, np.float32)
    assert buffers._free == []


def test_the_limit_may_have_a_fraction_and_what_is_no_size_is_told():
    assert buffers._limit("1.5") == 3 << 19
    for text in ("abc", "-1", "nan", "inf"):
        buffers._limit.cache_clear()
        with pytest.warns(UserWarning, match=f"must be a number of megabytes.*got '{text}'"):
            assert buffers._limit(text) == buffers._limit("")


def test_small_results_do_not_enter_the_pool():
    new_result((1000,), np.float64)
    assert buffers._free == []


@pytest.mark.parametrize("size", [5, 1 << 18, 1 << 20])
def test_results_start_at_a_cache_line_and_can_be_written(size):
    result = new_result((size, 3), np.float64)
    assert result.shape == (size, 3)
    assert result.dtype == np.float64
    assert address(result) % 64 == 0
    assert result.flags.c_contiguous
    assert result.flags.writeable


def test_memory_that_the_system_refuses_is_a_memory_error():
    with pytest.raises(MemoryError):
        new_result((1 << 60,), np.float32)


def test_threads_never_share_a_block():
    def own(number):
        for _ in range(50):
            result = new_result(SHAPE, np.float32)
            result[:, ::4096] = number
            half = result[1]
            del result
            if not (half[::4096] == number).all():
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(own, range(8)))
    assert len(buffers._free) <= 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_writes_to_memory_of_its_own():
    code = """
import os
import numpy as np
from roughformer.signatures import library as buffers

kept = buffers.new_result((1 << 20,), np.float32)
kept.fill(1)
buffers.new_result((1 << 20,), np.float32).fill(2)
assert len(buffers._free) == 1
child = os.fork()
if child == 0:
    assert buffers._free == []
    assert (kept == 1).all()
    kept.fill(3)
    del kept
    again = buffers.new_result((1 << 20,), np.float32, zero=True)
    os._exit(int(again.any()))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (kept == 1).all()
assert len(buffers._free) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_signatures_in_recycled_memory_are_the_same(native):
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 200, size=400)
    times = [np.sort(rng.uniform(0, n, n)) for n in lengths]
    batch = rf.SeriesBatch.from_arrays([rng.normal(size=(n, 3)) for n in lengths], times)
    windows = rf.Windows.by_duration(10.0)  # as many as a series is long, then zeros
    first = rf.multiview_signature(batch, windows, depth=4, engine=native)
    right, block = first.copy(), address(first)
    first.fill(np.nan)
    del first
    again = rf.multiview_signature(batch, windows, depth=4, engine=native)
    assert address(again) == block
    np.testing.assert_array_equal(again, right)
