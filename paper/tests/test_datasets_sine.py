"""The synthetic frequency task."""

import numpy as np
import pytest

from roughformer.errors import InputError
from roughformer_paper.datasets import make_sine


def test_the_default_is_the_task_of_the_paper():
    batch = make_sine()
    assert len(batch) == 1000
    assert batch.lengths.tolist() == [2000] * 1000
    assert batch.values.dtype == np.float32
    assert (batch.grid[0], batch.grid[-1], len(batch.grid)) == (0.0, 6.0, 2000)
    assert np.bincount(batch.labels).tolist() == [10] * 100
    omega = batch.static[:, 0]
    assert batch.static_names == ("omega",)
    np.testing.assert_allclose(omega, 10 + 490 * batch.labels / 99)


def test_the_same_seed_gives_the_same_data_and_another_seed_other_data():
    first, again, other = (make_sine(20, 5, 50, seed=seed) for seed in (3, 3, 4))
    assert again.equals(first)
    assert not np.array_equal(other.values, first.values)


def test_without_noise_it_is_the_formula():
    batch = make_sine(6, 3, 40, t_max=2.0, low=1.0, high=9.0, phase_noise=0.0, noise=0.0)
    t = np.linspace(0, 2, 40)
    for i in range(6):
        exact = (1 + (t / 2) ** 2) * np.sin(batch.static[i, 0] * t)
        np.testing.assert_allclose(batch.series(i)[1][:, 0], exact, atol=1e-6)


def test_both_noises_have_their_size():
    loud = make_sine(400, 4, 100, phase_noise=0.0, noise=0.3)
    still = make_sine(400, 4, 100, phase_noise=0.0, noise=0.0)
    difference = loud.values.astype(float) - still.values
    assert abs(difference.std() / 0.3 - 1) < 0.02
    shaken = make_sine(400, 4, 100, phase_noise=0.25, noise=0.0)
    phases = np.arcsin(np.clip(shaken.values.reshape(400, 100)[:, 0], -1, 1))  # x(0) = sin(nu)
    assert abs(phases.std() / 0.25 - 1) < 0.1


def test_the_frequency_can_be_found():
    batch = make_sine(100, 100)
    x = batch.values.reshape(100, 2000).astype(float)
    omega = np.linspace(10, 500, 100)
    power = np.abs(x @ np.exp(1j * np.outer(batch.grid, omega)))
    assert (power.argmax(axis=1) == batch.labels).all()


def test_classes_are_as_even_as_possible():
    assert sorted(np.bincount(make_sine(10, 4, 5).labels)) == [2, 2, 3, 3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"length": 1}, "length must be at least 2"),
        ({"t_max": np.nan}, "t_max must be positive"),
        ({"noise": -1.0}, "noise must be finite"),
    ],
)
def test_impossible_sizes_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        make_sine(**options)
