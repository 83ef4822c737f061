"""Which rows of a results.json stand in one report: those of one preset, at one budget a line.

A *line* is a job without its seed and its budget of time. A file may hold rows of several presets,
of options that have changed since, or of two budgets; averaged as if they were seeds they would
mean nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roughformer_paper.reproduce.experiment import Experiment, Job, Row, Wishes, key_of

__all__ = ["Selection", "budget_of", "only_those", "selected", "words_of_job"]

_BUDGETS = ("max_seconds", "seconds")


@dataclass(frozen=True)
class Selection:
    """Finished rows, failed rows, and in words what else there is to say."""

    rows: list[Row]
    failed: list[Row]
    left_out: int
    missing: list[str]

    @property
    def notes(self) -> list[str]:
        """What is not in the tables."""
        found = [f"not run: {words_of_job(r['job'])}: {r['failed']}" for r in self.failed]
        if self.left_out:
            found.append(
                f"{self.left_out} rows of the file are not shown: they are of another preset, of "
                "other options, or of another budget of time."
            )
        return found


def _without(job: Job, names: Sequence[str]) -> Job:
    left = {k: v for k, v in job.items() if k not in names}
    if isinstance(left.get("options"), dict):
        left["options"] = {k: v for k, v in left["options"].items() if k not in names}
    return left


def _line(job: Job) -> str:
    return key_of(_without(job, ("seed", *_BUDGETS)))


def budget_of(job: Job) -> float:
    """Seconds of a training; 0 for jobs that have none."""
    places = (job, job.get("options") or {})
    return float(next((p[name] for p in places for name in _BUDGETS if name in p), 0.0))


def words_of_job(job: Job) -> str:
    """``model gru, drop 0.5, seed 0``."""
    return ", ".join(f"{k} {v}" for k, v in job.items() if isinstance(v, str | int | float))


def only_those(jobs: list[Job], conditions: Sequence[str]) -> list[Job]:
    """The jobs that meet every condition, each ``field=value`` of what ``words_of_job`` says.

    ``ValueError`` names the fields, or the values of a field, if no job meets one.
    """
    for condition in conditions:
        name, equals, value = (part.strip() for part in condition.partition("="))
        fields = {k for job in jobs for k, v in job.items() if isinstance(v, str | int | float)}
        if not equals or name not in fields:
            raise ValueError(f"field=value with one of {', '.join(sorted(fields))}: {condition!r}")
        values = dict.fromkeys(str(job[name]) for job in jobs if name in job)
        if value not in values:
            raise ValueError(f"{name} is one of {', '.join(values)}, not {value!r}")
        jobs = [job for job in jobs if str(job.get(name)) == value]
    return jobs


def selected(experiment: Experiment, wishes: Wishes, rows: list[Row]) -> Selection:
    """The rows of the wishes' preset: all models and seeds that are there, not only those wished.

    Of a line with rows at several budgets, those at the budget that is wished now are taken or,
    without any, those at the longest.
    """
    every = experiment.jobs(replace(wishes, models=None, seeds=None))
    possible = experiment.jobs(replace(wishes, models=experiment.models or None))
    now = {_line(job): budget_of(job) for job in (*every, *possible)}
    own = [row for row in rows if _line(row["job"]) in now]
    there: dict[str, set[float]] = {}
    for row in own:
        if "failed" not in row:
            there.setdefault(_line(row["job"]), set()).add(budget_of(row["job"]))
    chosen = {
        line: now[line] if now[line] in budgets else max(budgets) for line, budgets in there.items()
    }
    kept = [
        r for r in own if budget_of(r["job"]) == chosen.get(_line(r["job"]), now[_line(r["job"])])
    ]
    good = [row for row in kept if "failed" not in row]
    failed = [row for row in kept if "failed" in row]
    return Selection(good, failed, len(rows) - len(kept), _missing(every, good))


def _missing(jobs: list[Job], rows: list[Row]) -> list[str]:
    """Jobs of the preset without a row, those of all seeds together."""

    def of_seed(job: Job) -> str:
        return key_of(_without(job, _BUDGETS))

    there = {of_seed(row["job"]) for row in rows}
    count = Counter(
        words_of_job(_without(job, ("seed", *_BUDGETS)))
        for job in jobs
        if of_seed(job) not in there
    )
    return [f"{words} ({n} run{'s' if n > 1 else ''})" for words, n in count.items()]
