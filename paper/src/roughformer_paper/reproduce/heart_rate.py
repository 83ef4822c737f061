"""Table 1: heart rate from PPG and ECG (BIDMC), by both protocols, full and 50 % dropped.

"random" is the paper's protocol: windows of all patients are mixed, so that most test windows
overlap training windows of the same patient, and recognising a patient pays. "patient" is the
archive's split by recording. Yardsticks without learning stand beside the models.
"""

from pathlib import Path
from typing import Any

from roughformer_paper.datasets import load_heart_rate
from roughformer_paper.reproduce.experiment import Experiment, Job, Row, Wishes
from roughformer_paper.reproduce.heart_rate_page import (
    DROPS,
    MODELS,
    OF_PATIENT,
    PROTOCOLS,
    PULSE,
    YARDSTICKS,
    show,
)
from roughformer_paper.reproduce.models import (
    count_parameters,
    fitted,
    history_of,
    own_options,
)
from roughformer_paper.reproduce.tasks import heart_rate_parts

__all__ = ["EXPERIMENT", "RECIPES"]

_SEEDS = {"tiny": 1, "quick": 1, "full": 5}
_SECONDS = {"tiny": 5.0, "quick": 15.0, "full": 3600.0}
_EPOCHS = {"tiny": 1, "quick": 10, "full": 30}
_MADE_UP = {"tiny": {"n": 30, "length": 250}, "quick": None, "full": None}
_EVERY = {"tiny": 1, "quick": 8, "full": 1}  # every so many windows of each part
_MODELS = {
    "tiny": tuple(MODELS),
    # Others take longer.
    "quick": ("rformer", "rformer-wide", "rformer-rates", "rformer-paper", "gru", "neural-rde"),
    "full": tuple(MODELS),
}
_FEW = (*YARDSTICKS, "rformer-rates", "gru")  # all of the patient protocol in tiny
# One training at all shares of dropping serves both columns: sampling may change afterwards.
RECIPES: dict[str, dict[str, Any]] = {
    # New patients: a model that commutes with tempo.
    "rformer-rates": {
        "rate_like": True, "rate_unit": 1 / 60, "warp": 0.26, "drop": (0.0, 0.5), "draws": 2,
        "epochs": 8, "batch_size": 64, "learning_rate": 3e-3,
    },
    # Known patients: an ordinary model, which may recognise them.
    "rformer-wide": {
        "drop": (0.0, 0.5), "draws": 3, "epochs": 30, "batch_size": 64, "views": ("local",),
        "d_model": 128, "basepoint": False,
    },
}  # fmt: skip


def _jobs(wishes: Wishes) -> list[Job]:
    preset = wishes.preset
    models = wishes.models or (*YARDSTICKS, *_MODELS[preset])
    jobs = []
    for protocol in PROTOCOLS:
        few = not wishes.models and (preset, protocol) == ("tiny", "patient")
        for model in _FEW if few else models:
            once = model in YARDSTICKS
            if model in OF_PATIENT and protocol == "patient":
                continue
            if model == PULSE and _MADE_UP[preset] is not None:
                continue  # made-up series have no monitor
            drops: tuple[Any, ...] = ("both",) if model in RECIPES else DROPS
            if preset == "tiny" and model not in (*_FEW, *RECIPES):
                drops = (0.5,)
            for drop in drops:
                for seed in range(1 if once else wishes.seeds or _SEEDS[preset]):
                    job: Job = {
                        "protocol": protocol, "model": model, "drop": drop, "seed": seed,
                        "made_up": _MADE_UP[preset], "every": _EVERY[preset],
                    }  # fmt: skip
                    if not once:
                        job["options"] = _options(wishes, model, drop)
                    jobs.append(job)
    return jobs


def _options(wishes: Wishes, model: str, drop: Any) -> dict[str, Any]:
    """All have the same budget of time."""
    budget = {"max_seconds": wishes.seconds or _SECONDS[wishes.preset]}
    epochs = _EPOCHS[wishes.preset]
    if model in RECIPES:
        recipe = RECIPES[model]
        return recipe | budget | {"epochs": min(recipe["epochs"], epochs)}
    plain = {"drop": drop, "epochs": epochs, "batch_size": 32, "patience": 10}
    return plain | budget | own_options(model, "heart-rate", drop)


def _run(job: Job, where: Path) -> Row:
    import numpy as np

    parts = heart_rate_parts(job["protocol"], job["made_up"], job["every"])
    levels = DROPS if job["drop"] == "both" else (job["drop"],)
    test = parts["test"]
    truth = np.asarray(test.labels, dtype=float)
    recording = np.asarray(test.static)[:, 0].astype(int)
    found: Row = {"rmse": {}, "median": {}, "recordings": {}}
    if job["model"] in YARDSTICKS:
        answers = {level: _without_learning(job["model"], parts, level) for level in levels}
    else:
        model = fitted("regression", job["model"], parts, job["options"], job["seed"], where)
        found["history"] = history_of(model)
        found["parameters"] = count_parameters(model)
        answers = {
            level: model.predict(test.drop_points(level, 1000 + job["seed"]) if level else test)
            for level in levels
        }
    for level, answer in answers.items():
        error = np.asarray(answer) - truth
        found["rmse"][str(level)] = float(np.sqrt((error**2).mean()))
        found["median"][str(level)] = float(np.median(np.abs(error)))
        if job["protocol"] == "patient":
            found["recordings"][str(level)] = {
                str(r): float(np.sqrt((error[recording == r] ** 2).mean()))
                for r in np.unique(recording)
            }
    return found


def _without_learning(name: str, parts: dict[str, Any], drop: float) -> Any:
    import numpy as np

    from roughformer_paper import naive

    train, test = parts["train"], parts["test"]
    mean = naive.training_mean(train.labels, len(test))
    if name == "training mean":
        return mean
    if name in OF_PATIENT:
        return _of_patient(train, test, nearest=name != OF_PATIENT[0])
    if name == PULSE:
        return _pulse(test)
    if drop:
        train, test = train.drop_points(drop, seed=999), test.drop_points(drop, seed=1000)
    per_minute = np.linspace(40, 180, 561)
    omega = 2 * np.pi * per_minute / 60
    if name == "periodogram":
        return per_minute[naive.periodogram(test, omega)]
    if name == "R-peaks":
        found = naive.r_peak_rate(test)
        return np.where(np.isnan(found), mean, found)
    if name == "1-NN":
        known, asked = (naive.raw_features(part, 1000) for part in (train, test))
    elif name == "1-NN on spectra":
        turns = 2 * np.pi * np.arange(1, 129) / 32.0  # those of a series of 32 s, up to 4 a second
        known, asked = (naive.fourier_features(part, turns, log=False) for part in (train, test))
    else:
        turns = 2 * np.pi * np.linspace(0.5, 8, 240)
        known, asked = (naive.fourier_features(part, turns) for part in (train, test))
    return naive.nearest_neighbour(known, train.labels, asked)


def _of_patient(train: Any, test: Any, nearest: bool) -> Any:
    """The mean label of the patient in the training part, or that of its window that is nearest in
    time; where there is none, the mean of all.
    """
    import numpy as np

    labels = np.asarray(train.labels, dtype=float)
    owner, asked = (np.asarray(part.static)[:, 0] for part in (train, test))
    begins, begin = (_begins(part) for part in (train, test))
    found = np.full(len(test), labels.mean())
    for patient in np.intersect1d(owner, asked):
        own, wanted = np.flatnonzero(owner == patient), np.flatnonzero(asked == patient)
        if nearest:
            which = np.abs(begin[wanted, None] - begins[own]).argmin(axis=1)
            found[wanted] = labels[own[which]]
        else:
            found[wanted] = labels[own].mean()
    return found


def _pulse(test: Any) -> Any:
    """The mean of the monitor's pulse over each window."""
    import numpy as np

    windows = load_heart_rate(target="Pulse")
    assert windows.ids is not None
    said = dict(zip(windows.ids.tolist(), np.asarray(windows.labels).tolist(), strict=True))
    return np.array([said[name] for name in test.ids.tolist()])


def _begins(part: Any) -> Any:
    """When windows begin in their recordings: ids are ``bidmc07:0123``; made-up ones have none."""
    import numpy as np

    if part.ids is None:
        return np.arange(len(part), dtype=float)
    return np.array([float(str(name).rpartition(":")[2]) for name in part.ids])


EXPERIMENT = Experiment(
    name="heart-rate",
    title="Heart rate from PPG and ECG",
    about=(
        "Table 1 of the paper: BIDMC, 7,949 windows of 32 s. The paper mixes the windows of all "
        "patients before it splits; that protocol rewards recognising patients, so the archive's "
        "split by patient stands beside it, and yardsticks that learn nothing beside both."
    ),
    jobs=_jobs,
    run=_run,
    show=show,
    models=(*YARDSTICKS, *MODELS),
    needs_data=lambda job: job["made_up"] is None,
)
