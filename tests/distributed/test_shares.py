"""Shares of batches: together they are the batch that one process sees, whatever is drawn."""

import pytest
import torch
from distributed_cases import classes, series

from roughformer.estimators.parameters import token_config
from roughformer.tokens import Tokenizer
from roughformer.train.data import Source, TrainConfig, share_of
from roughformer.train.distributed import ProcessGroup
from roughformer.train.loop import TrainStep, shares

CHANGES = {
    "nothing": {},
    "drop": {"drop": (0.2, 0.7)},
    "everything": {"drop": 0.5, "jitter": 0.1, "channel_dropout": 0.3, "warp": 0.2},
    "copies": {"drop": (0.0, 0.5), "jitter": 0.1, "draws": 2},
}


def source(n=23, size=5, **changes):
    batch = series(n)
    options = {
        "windows": {"duration": 6.0}, "depth": 2, "views": ("global", "local"), "time": "unit",
        "lags": (), "counts": False, "basepoint": "auto", "clock": 0, "observations": False,
        "spectrum": None, "static": (), "context": None, "transform": "signature",
    }  # fmt: skip
    encoder = Tokenizer.fit(token_config(batch, options, False), batch)
    config = TrainConfig(batch_size=size, seed=7, **changes)
    target = torch.from_numpy(classes(n))
    return Source(encoder, batch, target, config, threads=1)


@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("change", CHANGES)
def test_shares_are_parts_of_the_batch_as_one_process_sees_it(change, world):
    one = source(**CHANGES[change])
    parts = [source(**CHANGES[change]) for _ in range(world)]
    for epoch, first in ((0, 0), (1, 3)):
        batches = list(one.epoch(epoch, first))
        assert len(batches) == one.n_steps - first
        found = [list(p.epoch(epoch, first, r, world)) for r, p in enumerate(parts)]
        for k, (inputs, target) in enumerate(batches):
            for rank in range(world):
                some, aim = found[rank][k]
                ours = share_of(rank, world, len(target))
                assert torch.equal(aim, target[ours])
                if len(aim) == 0:
                    continue
                # A share is padded to its own longest series.
                length = some["times"].shape[1]
                full = inputs.get("mask", torch.ones(inputs["times"].shape, dtype=torch.bool))
                mask = some.get("mask", torch.ones(some["times"].shape, dtype=torch.bool))
                assert torch.equal(mask, full[ours, :length])
                assert not full[ours, length:].any()
                tokens = inputs["tokens"][ours, :length]
                torch.testing.assert_close(some["tokens"][mask], tokens[mask])


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [0, 1, 5, 32])
def test_shares_are_the_whole_and_equal_as_can_be(size, world):
    places = [list(range(size))[share_of(rank, world, size)] for rank in range(world)]
    assert [place for some in places for place in some] == list(range(size))
    assert {len(some) for some in places} <= {size // world, -(-size // world)}


def test_more_processes_than_series_leave_some_without_any():
    one = source(n=1, size=5, drop=0.5)
    assert [len(target) for _, target in one.epoch(0, 0, 0, 2)] == [1]
    assert [len(target) for _, target in one.epoch(0, 0, 1, 2)] == [0]


def test_an_error_in_making_a_share_is_handed_over_only_where_others_wait():
    class Broken:
        def epoch(self, epoch, first=0, rank=0, world=1):
            yield {}, torch.zeros(2)
            raise OSError("gone")

    found = list(shares(Broken(), 0, 0, ProcessGroup(1, 2)))
    assert [share.problem is None for share in found] == [True, False]
    assert str(found[1].problem) == "gone"
    with pytest.raises(OSError, match="gone"):
        list(shares(Broken(), 0, 0, ProcessGroup()))


def test_noise_differs_between_processes_and_steps_and_is_repeatable():
    def drawn(rank, step):
        TrainStep(None, None, None, 0.0, ProcessGroup(rank, 2), {}).noise(3, 1, step)
        return torch.rand(4)

    with torch.random.fork_rng():
        assert torch.equal(drawn(0, 5), drawn(0, 5))
        assert not torch.equal(drawn(0, 5), drawn(1, 5))
        assert not torch.equal(drawn(0, 5), drawn(0, 6))
        before = torch.get_rng_state()
        TrainStep(None, None, None, 0.0, ProcessGroup(), {}).noise(3, 1, 5)  # alone: as it was
        assert torch.equal(before, torch.get_rng_state())


def test_a_team_of_one_exchanges_nothing():
    processes = ProcessGroup()
    assert processes.first
    assert processes.alone
    assert processes.sums(1.5, 2) == [1.5, 2]
    assert processes.gathered("x") == ["x"]
    assert processes.same("x") == "x"
    assert processes.once(lambda: "x") == "x"
    with pytest.raises(ZeroDivisionError):
        processes.agreed(lambda: 1 / 0)


def test_words_about_sockets_become_words_about_processes():
    from roughformer.train.distributed import ProcessLost, report_lost_process

    with pytest.raises(ProcessLost, match="killed or failed"), report_lost_process():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")
    with pytest.raises(RuntimeError, match="shape"), report_lost_process():
        raise RuntimeError("a wrong shape")
