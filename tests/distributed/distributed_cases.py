"""Trainings that must not depend on the number of processes, and what each process reports.

Run as a program by torchrun, this file trains every case and goes on with trainings that one
process began; each process writes what it found as JSON.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

from roughformer import SeriesBatch
from roughformer.errors import InputError
from roughformer.estimators import RateRegressor, RFormerClassifier, RFormerRegressor
from roughformer.train import data, loop
from roughformer.train.distributed import current_process_group

TINY = {
    "windows": 4, "d_model": 8, "n_heads": 2, "epochs": 2, "batch_size": 7, "random_state": 3,
    "n_jobs": 1, "spectrum": None, "depth": 2, "clock": 0, "dropout": 0.0, "wide_dropout": 0.0,
    "device": "cpu",
}  # fmt: skip


def series(n=36, seed=0):
    """Irregular walks of two channels, of which the second is seen now and then."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(9, 30, n)
    times = [np.cumsum(rng.uniform(0.2, 2.0, m)) for m in lengths]
    values = [rng.standard_normal((m, 2)).cumsum(axis=0) for m in lengths]
    for v in values:
        v[1:, 1][rng.random(len(v) - 1) < 0.3] = np.nan
    return SeriesBatch.from_arrays(values, times)


def classes(n=36, seed=0):
    """Three classes, of which one is rare."""
    return np.random.default_rng(seed).choice(3, n, p=[0.6, 0.3, 0.1])


def numbers(n=36, seed=0):
    """Two targets, many of them not known."""
    found = np.random.default_rng(seed).normal(size=(n, 2))
    found[np.random.default_rng(seed + 1).random((n, 2)) < 0.5] = np.nan
    return found


def stop_after_two(record):
    """A callback, which only the first process may call."""
    assert os.environ.get("RANK", "0") == "0"
    return record["epoch"] == 2


def _classify(run, sample_weight=None, **options):
    model = RFormerClassifier.from_preset("default", **(TINY | options), run_dir=run)
    return model.fit(series(), classes(), sample_weight=sample_weight)


def _regress(run, y, **options):
    return RFormerRegressor.from_preset("default", **(TINY | options), run_dir=run).fit(series(), y)


# 29 series are trained on, in batches of 7: the last one has a single series, so that one of two
# processes has nothing.
CASES = {
    "plain": lambda run: _classify(run),
    "drawn anew": lambda run: _classify(
        run, drop=(0.1, 0.6), jitter=0.1, channel_dropout=0.2, warp=0.2, class_weight="balanced"
    ),
    "dropped": lambda run: _classify(run, drop=0.5, label_smoothing=0.1, wide=8),
    "causal": lambda run: _classify(
        run, causal=True, windows={"points": 4}, class_weight="balanced"
    ),
    "weights": lambda run: _classify(
        run, sample_weight=1.0 + np.arange(len(classes())) % 5, class_weight="balanced"
    ),
    "ended by a callback": lambda run: _classify(run, epochs=4, callbacks=[stop_after_two]),
    "numbers": lambda run: _regress(run, numbers(), uncertainty="gaussian"),
    "copies and members": lambda run: _regress(
        run, numbers(), drop=(0.0, 0.6), draws=2, n_estimators=2, validation=0.3
    ),
    "rates": lambda run: RateRegressor(
        epochs=2, random_state=0, n_jobs=1, training={"warp": 0.2, "batch_size": 7},
        model={"dropout": 0.0, "channel_dropout": 0.0, "window_dropout": 0.0},
        device="cpu", run_dir=run,
    ).fit(series(), np.abs(numbers(seed=5)[:, :1]) + 0.2),
}  # fmt: skip


def report(model):
    """What must agree: the curves, and what the model says."""
    curves = [
        [[r["train_loss"], r["valid_loss"], r["valid_metric"]] for r in history]
        for history in model.member_histories_
    ]
    said = model.predict_proba(series()) if hasattr(model, "predict_proba") else None
    said = model.predict(series()) if said is None else said
    return {"curves": curves, "said": np.asarray(said).tolist()}


class Stop(Exception):
    """A training ends here."""


def stopped_after(saves, run, **options):
    """A training that ends with an error at that save, in the process that writes it."""
    real, count = loop.save_state, [0]

    def save_then_stop(*args):
        real(*args)
        count[0] += 1
        if count[0] == saves:
            raise Stop("enough")

    loop.save_state = save_then_stop
    loop.TrainConfig.model_fields["save_seconds"].default = 0.0
    signature = loop.TrainConfig.__signature__  # pydantic makes another one when it rebuilds
    loop.TrainConfig.model_rebuild(force=True)
    try:
        _classify(run, drop=0.4, **options)
    finally:
        loop.save_state = real
        loop.TrainConfig.model_fields["save_seconds"].default = 60.0
        loop.TrainConfig.model_rebuild(force=True)
        loop.TrainConfig.__signature__ = signature


def resumed(run, **options):
    return report(_classify(run, drop=0.4, resume=True, **options))


def whole(**options):
    return report(_classify(None, drop=0.4, **options))


def refusal(work):
    """The text of the error."""
    try:
        work()
    except (InputError, Stop) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _failing_in_one(rank):
    """The inputs of a batch cannot be made in that process."""
    real = data.Source._fresh

    def fails(self, epoch, group, *rest):
        if current_process_group().rank == rank and epoch == 1:
            raise InputError("a broken file")
        return real(self, epoch, group, *rest)

    data.Source._fresh = fails
    try:
        _classify(None, drop=0.4)
    finally:
        data.Source._fresh = real


def main(where):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank = current_process_group().rank
    found = {"rank": rank, "size": current_process_group().size}
    for name in CASES:
        found[name] = report(CASES[name](where / name / str(rank)))
    # Began by one process, goes on in two; and the other way round.
    found["from one"] = resumed(where / "one")
    found["stopped"] = refusal(lambda: stopped_after(7, where / "two"))
    found["noise"] = whole(dropout=0.3)
    found["noise stopped"] = refusal(lambda: stopped_after(7, where / "noise", dropout=0.3))
    found["noise resumed"] = resumed(where / "noise", dropout=0.3)
    found["diverged"] = refusal(
        lambda: _regress(None, numbers(), learning_rate=1e30, uncertainty="none")
    )
    found["one failed"] = refusal(lambda: _failing_in_one(1))
    found["other data"] = refusal(
        lambda: RFormerClassifier.from_preset("default", **TINY).fit(series(seed=rank), classes())
    )
    found["budget"] = len(_classify(None, epochs=10**6, max_seconds=1.0, patience=None).history_)
    found["no seed"] = report(_classify(None, random_state=None))
    (where / f"found-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
