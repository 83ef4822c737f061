"""Table 2: seconds per epoch and memory of all models, and how they grow with the series' length.

All have width 64, one layer (S5: four, as in the other experiments), the same loop and the same
batch size, and no dropout: with it, torch's attention on a processor takes a slow form that keeps
L x L matrices, which the Transformer should not be blamed for. Neural RDE has the step and depth
that the paper chose. Neural CDE has two lines: as it comes, with at most 2,048 steps of its solver
to a series, and with a step for every sample; up to 2,049 points they are the same model, and only
the first is timed. ROCKET has no epochs and is left out.
"""

from pathlib import Path

from roughformer_paper.reproduce.efficiency_page import LINES, TASKS, show
from roughformer_paper.reproduce.experiment import Experiment, Job, Row, Wishes
from roughformer_paper.reproduce.models import own_options, recipe_of
from roughformer_paper.reproduce.timing import growth_of, time_of_epoch

__all__ = ["EXPERIMENT"]

_DROPS = (0.0, 0.5)
_FIRST = ("rformer", "transformer")  # the comparison that matters most
_WIDTH = 64
_SIZES: dict[str, dict[str, tuple[int, int]]] = {  # series and points
    "tiny": {"sine": (8, 48), "heart-rate": (8, 64)},
    "quick": {"sine": (200, 500), "heart-rate": (200, 1000)},
    "full": {"sine": (1000, 2000), "heart-rate": (5500, 4000)},
}
_LENGTHS = {
    "tiny": [24, 48],
    "quick": [250, 500, 1000, 2000],
    "full": [250, 500, 1000, 2000, 4000, 8000, 16000, 32000],
}
_SECONDS = {"tiny": 0.05, "quick": 3.0, "full": 60.0}  # of timed epochs
_STEP_SECONDS = {"tiny": 5.0, "quick": 2.0, "full": 20.0}  # the longest step that is run
_EPOCHS = {"tiny": 1, "quick": 5, "full": 10}
_BATCH = {"tiny": 4, "quick": 32, "full": 32}
_GROWTH_BATCH = {"tiny": 2, "quick": 8, "full": 8}
_MOST_MB = 8192
_EVERY = "neural-cde-every"
_SAME_UP_TO = 2049  # points: the usual Neural CDE has a step for every sample too


def _jobs(wishes: Wishes) -> list[Job]:
    preset = wishes.preset
    models = wishes.models or tuple(LINES)
    same = () if wishes.models else (_EVERY,)  # left out where it would be timed twice
    jobs: list[Job] = []
    for seed in range(wishes.seeds or 1):
        for task in TASKS:
            n, length = _SIZES[preset][task]
            for model in models:
                if model in same and length <= _SAME_UP_TO:
                    continue
                for drop in _DROPS if preset != "tiny" or model in _FIRST else (0.0,):
                    job = _common(task, model, drop, seed, _BATCH[preset]) | {
                        "part": "epoch", "n": n, "length": length, "epochs": _EPOCHS[preset],
                        "seconds": wishes.seconds or _SECONDS[preset],
                    }  # fmt: skip
                    jobs.append(job)
        for model in models:
            if model in same and _LENGTHS[preset][-1] <= _SAME_UP_TO:
                continue
            job = _common("sine", model, 0.0, seed, _GROWTH_BATCH[preset]) | {
                "part": "growth", "lengths": _LENGTHS[preset], "most_mb": _MOST_MB,
                "seconds": _STEP_SECONDS[preset],
            }  # fmt: skip
            jobs.append(job)
    return jobs


def _common(task: str, model: str, drop: float, seed: int, batch_size: int) -> Job:
    own = {"max_steps": None} if model == _EVERY else None
    return {
        "task": task, "model": model, "drop": drop, "seed": seed, "batch_size": batch_size,
        "width": _WIDTH, "n_layers": recipe_of(model)[1].get("n_layers", 1), "dropout": 0.0,
        "model_options": own_options(model, task, drop).get("model_options", own),
    }  # fmt: skip


def _run(job: Job, where: Path) -> Row:
    return time_of_epoch(job) if job["part"] == "epoch" else growth_of(job)


EXPERIMENT = Experiment(
    name="efficiency",
    title="Seconds per epoch, memory, and growth with the length of the series",
    about=(
        "Table 2 of the paper, on a processor instead of a graphics card: 1000 series of 2000 "
        "points (sine) and 5,500 of 4000 points in two channels (sizes of the heart-rate task, "
        "series made up), batches of 32, width 64. Beyond it, how time and memory grow with the "
        "length of the series."
    ),
    jobs=_jobs,
    run=_run,
    show=show,
    models=tuple(LINES),
    timed=True,
)
