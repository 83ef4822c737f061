"""Small series that several test files share."""

import json

import numpy as np

import roughformer as rf

TINY = {
    "windows": 4, "depth": 2, "clock": 0, "spectrum": None, "d_model": 8, "n_heads": 2,
    "epochs": 2, "random_state": 0, "n_jobs": 1,
}  # fmt: skip


def walks(n=24, channels=2, length=16, seed=0):
    """``(n, length, channels)``."""
    steps = np.random.default_rng(seed).normal(size=(n, channels, length))
    return steps.cumsum(axis=2).transpose(0, 2, 1)


def ragged(n=24, seed=0):
    """A list of (L_i, 2) with gaps, and times of their own."""
    rng = np.random.default_rng(seed)
    series, times = [], []
    for length in rng.integers(3, 20, n):
        values = rng.normal(size=(length, 2)).cumsum(axis=0)
        values[1:-1][rng.random((length - 2, 2)) < 0.3] = np.nan
        series.append(values)
        times.append(1.7e9 + np.cumsum(rng.uniform(0.1, 2.0, length)))
    return series, times


def ragged_batch(n=5, channels=2, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 40, n)
    times = [np.cumsum(rng.uniform(0.5, 1.5, m)) for m in lengths]
    values = [rng.standard_normal((m, channels)).cumsum(axis=0) for m in lengths]
    for v in values:
        v[rng.random(v.shape) < missing] = np.nan
    return rf.SeriesBatch.from_arrays(values, times)


def make_sine(n=60, n_classes=3, length=60, *, t_max=6.0, low=10.0, high=500.0, seed=0):
    """Noisy sines whose label is their frequency, one of ``n_classes`` from low to high."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % n_classes)
    omega = np.linspace(low, high, n_classes)[labels]
    phase = 0.5 * rng.standard_normal(n)
    t = np.linspace(0.0, t_max, length)
    x = (1 + (t / t_max) ** 2) * np.sin(omega[:, None] * t + phase[:, None])
    x = (x + 0.2 * rng.standard_normal((n, length))).astype(np.float32)
    return rf.SeriesBatch.from_tensor(
        x[..., None], t=t, channels=["x"], labels=labels,
        static=omega[:, None], static_names=["omega"],
    )  # fmt: skip


def make(kind, model=None, **options):
    """An estimator from options by their own names, whatever group they are in.

    Without baselines, whose fit takes as long as that of a small model. ``model``: the kind of
    another model, which gets those of the options that it has.
    """
    if model is not None:
        from roughformer.estimators import estimator_class

        kind = estimator_class(kind.task, model)
        known = {name.rpartition("__")[2] for name in kind.usual_settings()}
        options = {name: value for name, value in options.items() if name.split(".")[-1] in known}
    return kind.from_preset("default", **({"baselines": False} | options))


def read_log(directory):
    """The records of a training."""
    return [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
