"""The study: every trial, what it reported and how it ended, in a journal that outlives kill -9.

The journal is Optuna's (``JournalStorage``; ``optuna-dashboard`` reads it): a line for each event,
appended and flushed. A new trial is one line, so it is there whole or not at all. The proposal for
trial n is drawn by a TPE sampler seeded by (seed, n) from the trials before it: a search that was
killed proposes what it would have proposed. Only the process that searches writes the journal.
"""

import csv
import io
import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roughformer.checks import optional
from roughformer.errors import InputError
from roughformer.tune.space import Space

JOURNAL = "study.journal"
PRUNERS = ("median", "hyperband", "none")
_NAME = "roughformer"
_AT_RANDOM = 8  # trials before the sampler models what it has seen
_BEFORE_PRUNING = 4  # finished trials that a trial must be compared with
_ATTEMPTS = 3  # a trial whose process dies so often is given up


@dataclass(frozen=True)
class Reported:
    """A trial has ended an epoch (from 1) with this score on validation."""

    number: int
    epoch: int
    score: float


@dataclass(frozen=True)
class Ended:
    """A trial is over: with a ``result``, because it was told to stop, or ``failed``."""

    number: int
    result: dict[str, Any] | None = None
    failed: str | None = None


def open_study(
    directory: Path,
    configuration: dict[str, Any],
    space: Space,
    *,
    start: dict[str, Any],
    maximize: bool,
    seed: int,
    epochs: int,
    pruner: str = "median",
    resume: bool = False,
) -> "Study":
    """The study in ``directory``; a new one if there is none.

    ``configuration``: what must be the same for a study to go on; ``start``: the settings of the
    first trial, as far as they lie in the space; ``epochs``: the most that a trial has.
    """
    optuna = optional("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = directory / JOURNAL
    if path.exists() and not resume:
        raise InputError(
            f"{directory} holds a search; go on with --resume, or choose another directory with "
            "--out"
        )
    directory.mkdir(parents=True, exist_ok=True)
    _mend(path)
    try:
        backend = optuna.storages.journal.JournalFileBackend(str(path))
        storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(
            study_name=_NAME,
            storage=storage,
            direction="maximize" if maximize else "minimize",
            pruner=_pruner(optuna, pruner, epochs),
            load_if_exists=True,
        )
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{path} is damaged or not the journal of a search ({error}); choose another directory "
            "with --out"
        ) from None
    plain = json.loads(json.dumps(configuration))
    begun = study.user_attrs.get("configuration")
    if begun is None:
        study.set_user_attr("configuration", plain)
    elif begun != plain:
        raise InputError(
            f"the search in {directory} was started with other settings "
            f"({_difference(begun, plain)}); resume it with the same ones, or start another one "
            "with --out"
        )
    return Study(optuna, study, space, space.place(start), seed)


class Study:
    """Trials by number, from 0."""

    def __init__(
        self, optuna: Any, study: Any, space: Space, start: dict[str, Any], seed: int
    ) -> None:
        """Made by ``open_study``."""
        self.optuna, self.study, self.space = optuna, study, space
        self.start, self.seed = start, seed
        self.states = optuna.trial.TrialState
        self.distributions = space.distributions(optuna)

    def __len__(self) -> int:
        """Trials that were begun."""
        return len(self.trials)

    @property
    def trials(self) -> list[Any]:
        """All, as Optuna's ``FrozenTrial``."""
        found: list[Any] = self.study.get_trials(deepcopy=False)
        return found

    @property
    def best(self) -> Any:
        """The best of those that ran to their end, the first of equals; None if none did."""
        done = [t for t in self.trials if t.state == self.states.COMPLETE]
        sign = -1 if self.study.direction.name == "MAXIMIZE" else 1
        return min(done, key=lambda trial: (sign * trial.value, trial.number), default=None)

    def values(self, number: int) -> dict[str, Any]:
        """The settings that the trial changes."""
        return self.space.values(self.trials[number].params)

    def unfinished(self) -> list[int]:
        """Trials that were running when their search was killed."""
        return [t.number for t in self.trials if t.state == self.states.RUNNING]

    def ask(self) -> int:
        """Propose a trial and write it down; its number."""
        number = len(self)
        parameters = self._propose(number)
        self.study.add_trial(
            self.optuna.trial.create_trial(
                state=self.states.RUNNING, params=parameters, distributions=self.distributions
            )
        )
        return number

    def _propose(self, number: int) -> dict[str, Any]:
        seed = 1000 * self.seed + number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some versions call the constant liar experimental
            sampler = self.optuna.samplers.TPESampler(
                seed=seed % 2**32, n_startup_trials=_AT_RANDOM, constant_liar=True
            )
        aside = self.optuna.create_study(
            direction=self.study.direction.name.lower(), sampler=sampler
        )
        aside.add_trials(self.trials)
        found: dict[str, Any] = aside.ask(fixed_distributions=self.distributions).params
        return found | (self.start if number == 0 else {})

    def begin(self, number: int) -> bool:
        """Count the attempt; False, and the trial has failed, if there were too many."""
        attempts = self.trials[number].user_attrs.get("attempts", 0)
        if attempts >= _ATTEMPTS:
            self.end(Ended(number, failed=f"its search died {attempts} times while it ran"))
            return False
        self._open(number).set_user_attr("attempts", attempts + 1)
        return True

    def report(self, number: int, epoch: int, score: float) -> bool:
        """Note the score of an epoch; whether the trial is to stop here."""
        if not math.isnan(score) and epoch not in self.trials[number].intermediate_values:
            self._open(number).report(score, epoch)
        return bool(self._open(number).should_prune())

    def end(self, event: Ended, *, pruned: bool = False) -> None:
        """Note how the trial ended."""
        trial = self._open(event.number)
        if event.result is not None:
            trial.set_user_attr("result", event.result)
            self.study.tell(event.number, event.result["score"])
        elif pruned:
            self.study.tell(event.number, state=self.states.PRUNED)
        else:
            trial.set_user_attr("failed", event.failed)
            self.study.tell(event.number, state=self.states.FAIL)

    def _open(self, number: int) -> Any:
        return self.optuna.trial.Trial(self.study, self.trials[number]._trial_id)


def _pruner(optuna: Any, name: str, epochs: int) -> Any:
    """The schedule of the learning rate makes early epochs poor judges: a quarter is let pass."""
    quiet = max(epochs // 4, 1)
    if name == "median":
        return optuna.pruners.MedianPruner(
            n_startup_trials=_BEFORE_PRUNING, n_warmup_steps=quiet, n_min_trials=2
        )
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=quiet, max_resource=epochs)
    return optuna.pruners.NopPruner()


def _mend(path: Path) -> None:
    """Cut off a line that was being written when its writer was killed, and free its lock: the
    caller holds the directory, so nobody else writes.
    """
    if path.exists():
        whole = path.read_bytes()
        end = whole.rfind(b"\n") + 1
        if end < len(whole):
            with open(path, "r+b") as file:
                file.truncate(end)
    lock = path.with_name(path.name + ".lock")
    lock.unlink(missing_ok=True)


def _difference(old: dict[str, Any], new: dict[str, Any], inside: str = "") -> str:
    """The first entry that differs, as ``name: old, now new``."""
    for name in dict.fromkeys([*new, *old]):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            return _difference(was, now, f"{inside}{name}.")
        return f"{inside}{name}: {json.dumps(was)}, now {json.dumps(now)}"
    return "in its order"


# What came out of a search: a row for each trial, as JSON and CSV.

_STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}


def rows_of(study: Study) -> list[dict[str, Any]]:
    """For each trial: ``trial`` (its number), ``state``, ``score`` (of a pruned one the best so
    far), what it cost, ``parameters``, ``curve`` (score of each epoch), ``failed``: why.
    """
    rows = []
    better = max if study.study.direction.name == "MAXIMIZE" else min
    for trial in study.trials:
        result = trial.user_attrs.get("result", {})
        curve = {int(step): value for step, value in sorted(trial.intermediate_values.items())}
        score = result.get("score")
        if score is None and curve:
            score = better(curve.values())
        begun, ended = trial.datetime_start, trial.datetime_complete
        spent = (ended - begun).total_seconds() if begun and ended else None
        rows.append(
            {
                "trial": trial.number,
                "state": _STATES.get(trial.state.name, "waiting"),
                "score": score,
                "best_epoch": result.get("best_epoch"),
                "epochs": result.get("epochs", len(curve)),
                "seconds": result.get("seconds", spent),
                "weights": result.get("weights"),
                "scores": result.get("scores", {}),
                "parameters": study.space.values(trial.params),
                "curve": curve,
                "failed": trial.user_attrs.get("failed"),
            }
        )
    return rows


def as_csv(rows: list[dict[str, Any]], names: list[str]) -> str:
    """A line for each trial, a column for each parameter; what is no number or word is JSON."""
    plain = ["trial", "state", "score", "best_epoch", "epochs", "seconds", "weights"]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*plain, *names, "failed"])
    for row in rows:
        cells = [row[name] for name in plain]
        cells += [_cell(row["parameters"][name]) for name in names]
        table.writerow([*cells, row["failed"]])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return "none"
    scalar = isinstance(value, bool | int | float | str)
    return value if scalar else json.dumps(value, default=str)


def summary_line(row: dict[str, Any], metric: str) -> str:
    """One trial in words, for the terminal."""
    head = f"trial {row['trial']}"
    if row["state"] == "failed":
        return f"{head} failed: {row['failed']}"
    if row["score"] is None:
        return f"{head} {row['state']}"
    told = f"{head}: {metric} {row['score']:.4g}"
    if row["state"] == "pruned":
        return f"{told}, pruned after epoch {row['epochs']}"
    return f"{told} in epoch {row['best_epoch']} of {row['epochs']}, {row['seconds']:.0f} s"
