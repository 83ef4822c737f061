"""Functionals of local signatures: cells, pooling, and the kernel against the definition."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import roughformer as rf
from roughformer.signatures import library
from roughformer.signatures.functionals import (
    COMPETING,
    Functionals,
    padded_cells,
    path_cells,
)
from roughformer.signatures.points import pad
from roughformer.signatures.torch_backend import observed


def ragged(rng, n=12, channels=2, missing=0.3, longest=40):
    lengths = rng.integers(1, longest, n)
    values = rng.normal(size=(lengths.sum(), channels))
    values[rng.random(values.shape) < missing] = np.nan
    times = np.concatenate([rng.normal() + np.cumsum(rng.random(m) + 0.01) for m in lengths])
    return rf.SeriesBatch(times, values, np.concatenate([[0], np.cumsum(lengths)]))


@pytest.fixture
def isa():
    """Every instruction set of this processor, one after the other."""
    native = library.load()
    if native is None:
        pytest.skip("no native kernel")
    names = [native.rf_isa_name(i) for i in range(native.rf_isa_count())]
    yield lambda name: native.rf_set_isa(name), names
    native.rf_set_isa(names[-1])


def test_cells_are_the_means_and_increments_of_the_linear_path():
    # x(t) = t on [0, 4] but for one sample that is missing; two cells.
    batch = rf.SeriesBatch([0.0, 1.0, 3.0, 4.0], [[0.0], [np.nan], [3.0], [4.0]], [0, 4])
    levels, increments = path_cells(batch, 2)[0]
    np.testing.assert_allclose(levels, [1.0, 3.0])
    np.testing.assert_allclose(increments, [2.0, 2.0])


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(seed=st.integers(0, 10_000), n_cells=st.sampled_from([1, 2, 7, 32]))
def test_cells_of_the_kernel_and_of_torch_agree(seed, n_cells):
    batch = ragged(np.random.default_rng(seed))
    ours = padded_cells(observed(*pad(batch)), n_cells).numpy()
    np.testing.assert_allclose(path_cells(batch, n_cells), ours, atol=1e-10)


def test_cells_do_not_depend_on_extra_samples_on_the_path():
    rng = np.random.default_rng(0)
    times, values = np.arange(9.0), rng.normal(size=(9, 1))
    more = np.sort(np.concatenate([times, rng.uniform(0, 8, 30)]))
    dense = np.interp(more, times, values[:, 0])[:, None]
    a = path_cells(rf.SeriesBatch(times, values, [0, 9]), 16)
    b = path_cells(rf.SeriesBatch(more, dense, [0, len(more)]), 16)
    np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize(
    ("rows", "n_cells", "batch"),
    [(2, 4096, 1), (2, 500, 3), (6, 64, 5), (4, 16, 2), (2, 3, 2), (2, 1, 1)],
)
def test_the_kernel_answers_every_comparison_as_the_definition_does(isa, rows, n_cells, batch):
    choose, names = isa
    cells = torch.from_numpy(np.random.default_rng(1).normal(size=(batch, rows, n_cells)))
    functionals = Functionals(rows, n_cells, 96, 500).draw(cells, seed=0)
    expected = functionals.definition(cells)
    for name in names:
        assert choose(name)
        found = functionals(cells)
        assert torch.equal(found.ppv, expected.ppv)
        assert torch.equal(found.mipv, expected.mipv)
        torch.testing.assert_close(found.mpv, expected.mpv, rtol=1e-5, atol=1e-3)
        torch.testing.assert_close(found.wins, expected.wins, rtol=1e-5, atol=1e-3)


def test_every_functional_is_a_whole_number_that_single_precision_holds():
    cells = torch.from_numpy(1e6 * np.random.default_rng(2).standard_cauchy((4, 2, 64)))
    functionals = Functionals(2, 64).draw(cells, seed=0)
    for scale in range(len(functionals.widths)):
        v = functionals.values(cells, scale)
        assert torch.equal(v, v.round())
        assert float(v.abs().max()) < 2**24
        # A threshold lies between two whole numbers: nothing is ever equal to it.
        assert torch.equal(
            functionals.thresholds[scale] % 1,
            torch.full_like(v[0, :, :, :1], 0.5).expand_as(functionals.thresholds[scale]),
        )


def test_every_second_functional_is_blind_to_the_level():
    cells = torch.zeros(1, 2, 64, dtype=torch.float64)
    cells[0, 0] = 5.0
    noise = torch.from_numpy(np.random.default_rng(3).normal(size=(8, 2, 64)))
    functionals = Functionals(2, 64).draw(noise, seed=0)
    scale = next(s for s in range(len(functionals.widths)) if not functionals.padded(s))
    assert not functionals.values(cells, scale)[:, :, ::2].any()


def test_pooling_counts_measures_and_places_what_is_above_a_threshold():
    functionals = Functionals(2, 8, 16, 16)
    functionals.mix[0, 0, 0] = 1.0
    functionals.taps[0, 0, 0, 4] = 1.0  # the middle tap: v(i) = x(i) on a padded path
    functionals.thresholds[0, 0, 0] = 0.5
    cells = torch.zeros(1, 2, 8, dtype=torch.float64)
    cells[0, 0, 2], cells[0, 0, 5] = 1.0, 3.0
    for found in (functionals(cells), functionals.definition(cells)):
        assert float(found.ppv[0, 0]) == 2 / 8
        assert float(found.mpv[0, 0]) == pytest.approx((0.5 + 2.5) / 2)
        assert float(found.mipv[0, 0]) == pytest.approx(2 * (2 + 5) / 2 / 8 - 1)


def test_wins_share_out_the_path_among_those_that_compete():
    cells = torch.from_numpy(np.random.default_rng(4).normal(size=(3, 2, 50)))
    functionals = Functionals(2, 50, 96, 200).draw(cells, seed=0)
    smallest = functionals(cells).wins[:, functionals.n_functionals :]
    shares = smallest.reshape(3, -1, COMPETING).sum(dim=-1)
    torch.testing.assert_close(shares, torch.ones_like(shares))


def test_the_same_seed_draws_the_same_functionals():
    cells = torch.from_numpy(np.random.default_rng(5).normal(size=(3, 2, 20)))
    one, two, other = (Functionals(2, 20, 96, 200).draw(cells, seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.buffers(), two.buffers(), strict=True))
    assert not torch.equal(one.taps, other.taps)


def test_the_operator_is_what_torch_expects():
    cells = torch.from_numpy(np.random.default_rng(6).normal(size=(2, 2, 20)))
    f = Functionals(2, 20, 96, 200).draw(cells, seed=0)
    padded = [f.padded(scale) for scale in range(len(f.widths))]
    arguments = (cells, f.mix, f.taps, f.thresholds, list(f.widths), padded)
    torch.library.opcheck(torch.ops.roughformer.functionals.default, arguments)


def test_no_series_have_no_features():
    functionals = Functionals(2, 20, 96, 200)
    assert functionals(torch.zeros(0, 2, 20, dtype=torch.float64)).ppv.shape[0] == 0
