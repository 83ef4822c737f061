"""Arrays are used again, never while somebody has them."""

import pickle

import numpy as np
import pytest

from roughformer.store.ingest import BufferPool

F4 = np.dtype(np.float32)


def address(pair):
    return pair[0].ctypes.data, pair[1].ctypes.data


@pytest.mark.parametrize("held", [lambda t, v: t[3:], lambda t, v: v[:2, :1], lambda t, v: (t, v)])
def test_what_is_known_is_left_alone(held):
    rooms = BufferPool()
    kept = held(*rooms.take(10, 2, F4))
    first = address(rooms._held[0])
    assert address(rooms.take(10, 2, F4)) != first
    del kept
    # The newer one is free as well, but the first that is free is taken.
    assert address(rooms.take(10, 2, F4)) == first


def test_arrays_of_another_shape_make_room_for_new_ones():
    rooms = BufferPool()
    rooms.take(10, 2, F4)
    assert rooms.take(8, 2, F4)[0].shape == (10,)
    for wish in ((11, 2, F4), (5, 3, F4), (5, 3, np.dtype(np.float64))):
        times, values = rooms.take(*wish)
        assert (len(times), values.shape, values.dtype) == (wish[0], wish[:2], wish[2])
        del times, values
        assert len(rooms._held) == 1


def test_few_are_held_and_none_in_another_process():
    rooms = BufferPool()
    kept = [rooms.take(4, 1, F4) for _ in range(5)]
    assert len({address(pair) for pair in kept}) == 5
    assert len(rooms._held) == 2
    assert pickle.loads(pickle.dumps(rooms))._held == []
