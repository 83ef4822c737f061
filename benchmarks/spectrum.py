"""Whole-path clock words: the plain sum over points against the fast transform, one thread.

    python benchmarks/spectrum.py

prints for each shape the milliseconds of both, the ratio plain : fast, and the largest difference
relative to the largest word of the series and channel. Runs are interleaved; the best counts.
"""

import argparse
import time

import numpy as np
import torch

import roughformer as rf
from roughformer.signatures import spectrum_words


def sine_shape(rng, n_series):
    t = np.linspace(0.0, 1.0, 2000)
    rate, phase = rng.uniform(10, 400, (n_series, 1, 1)), rng.uniform(0, 6.3, (n_series, 1, 1))
    x = np.sin(2 * np.pi * rate * t + phase).astype(np.float32)
    return rf.SeriesBatch.from_numpy3d(x, t), np.pi * np.arange(1, 1025)


def heart_rate_shape(n_frequencies):
    def make(rng, n_series):
        x = np.cumsum(rng.normal(size=(n_series, 2, 4000)), axis=2).astype(np.float32)
        batch = rf.SeriesBatch.from_numpy3d(x, np.arange(4000) / 125)
        return batch, 2 * np.pi * np.geomspace(0.3, 20.0, n_frequencies)

    return make


SHAPES = {
    "sine: 2000 points, 1 channel, 1024 even": sine_shape,
    "heart rate: 4000 points, 2 channels, 256 log": heart_rate_shape(256),
    "heart rate: 4000 points, 2 channels, 512 log": heart_rate_shape(512),
}


def plain_words(batch, omega, drop):
    words = rf.multiview_signature(
        batch, 1, 1, "local", lifts=[rf.Clock(frequencies=omega)], drop=drop, seed=1, threads=1
    )
    size = batch.n_channels * len(omega) * 2
    return words[:, 0, -size:].reshape(len(batch), batch.n_channels, len(omega), 2)


def best_of(repeats, *tasks):
    best = [np.inf] * len(tasks)
    for _ in range(repeats):
        for i, task in enumerate(tasks):
            start = time.perf_counter()
            task()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=64, help="series of a batch")
    parser.add_argument("--repeats", type=int, default=7)
    ask = parser.parse_args()
    torch.set_num_threads(1)
    print("| shape | dropped | plain, ms | fast, ms | ratio | largest difference |")
    print("|---|---|---|---|---|---|")
    for name, make in SHAPES.items():
        batch, omega = make(np.random.default_rng(0), ask.series)
        for drop in (0.0, 0.5):

            def plain(drop=drop, batch=batch, omega=omega):
                return plain_words(batch, omega, drop)

            def fast(drop=drop, batch=batch, omega=omega):
                return spectrum_words(batch, omega, drop=drop, seed=1, threads=1)

            want = plain()
            scale = np.abs(want).max(axis=(2, 3), keepdims=True)
            off = (np.abs(fast() - want) / scale).max()
            slow, quick = best_of(ask.repeats, plain, fast)
            print(
                f"| {name} | {drop:.0%} | {slow * 1e3:.1f} | {quick * 1e3:.2f} "
                f"| {slow / quick:.1f} | {off:.0e} |"
            )


if __name__ == "__main__":
    main()
