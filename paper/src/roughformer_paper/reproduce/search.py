"""A search for hyperparameters, one trial a job: trials tell each other by small files.

The runner starts jobs in order, some at a time, in processes of their own. Trial ``number`` writes
its parameters to a file when it begins and its loss when it ends. A new trial reads the files of
the trials before it into a study of Optuna, whose TPE sampler, seeded by the number, then proposes:
trials that are still running count as poor ones ("constant liar"), so that parallel trials differ.
There is no server, no lock and no order in which trials must end. A trial that was killed finds its
parameters in its file and goes on with them.
"""

import json
import warnings
from pathlib import Path
from typing import Any

from roughformer import InputError
from roughformer.io import write_file

__all__ = ["SPACE", "VIEWS", "begin_trial", "end_trial", "propose"]

Parameters = dict[str, Any]
VIEWS = {"both": ("global", "local"), "local": ("local",), "global": ("global",)}
# What is searched: (lowest, highest, on a log scale) or a list of choices.
SPACE: dict[str, Any] = {
    "learning_rate": (3e-4, 1e-2, True),
    "windows": [10, 25, 75, 150],
    "depth": [1, 2, 3, 4],
    "views": list(VIEWS),
}
_AT_RANDOM = 6  # trials before the sampler models what it has seen


def propose(earlier: list[tuple[Parameters, float | None]], seed: int) -> Parameters:
    """Parameters of the next trial, after ``earlier`` ones with their losses (None: running).

    The same history and seed give the same.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions call the constant liar experimental
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=_AT_RANDOM, constant_liar=True
        )
    study = optuna.create_study(direction="minimize", sampler=sampler)
    space = _distributions(optuna)
    states = optuna.trial.TrialState
    for parameters, loss in earlier:
        done = loss is not None
        study.add_trial(
            optuna.trial.create_trial(
                state=states.COMPLETE if done else states.RUNNING,
                value=loss if done else None,
                params=parameters,
                distributions=space,
            )
        )
    found: Parameters = study.ask(fixed_distributions=space).params
    return found


def _distributions(optuna: Any) -> dict[str, Any]:
    kinds = optuna.distributions
    return {
        name: kinds.CategoricalDistribution(choice)
        if isinstance(choice, list)
        else kinds.FloatDistribution(choice[0], choice[1], log=choice[2])
        for name, choice in SPACE.items()
    }


def begin_trial(
    directory: Path,
    number: int,
    given: list[Parameters],
    seed: int = 0,
    finished: dict[int, tuple[Parameters, float | None]] | None = None,
) -> Parameters:
    """The parameters of a trial: those it began with, or new ones from the trials before it.

    The first trials take what is ``given``. ``finished``: trials that are known from elsewhere,
    where their files are gone.
    """
    mine = _read(directory, number)
    if mine is not None and mine[1] is None:
        return mine[0]
    before = [_read(directory, n) or (finished or {}).get(n) for n in range(number)]
    earlier = [trial for trial in before if trial is not None]
    known = number < len(given)
    parameters = given[number] if known else propose(earlier, 1000 * seed + number)
    _write(directory, number, parameters, None)
    return parameters


def end_trial(directory: Path, number: int, parameters: Parameters, loss: float) -> None:
    """Tell later trials what came out."""
    _write(directory, number, parameters, loss)


def _file(directory: Path, number: int) -> Path:
    return directory / f"trial-{number:04d}.json"


def _write(directory: Path, number: int, parameters: Parameters, loss: float | None) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"parameters": parameters, "loss": loss})
    write_file(_file(directory, number), text.encode())


def _read(directory: Path, number: int) -> tuple[Parameters, float | None] | None:
    path = _file(directory, number)
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        return found["parameters"], found["loss"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is not the file of a trial; remove it") from None
