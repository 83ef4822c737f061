"""What came out of a search: a row for each trial, as JSON and CSV."""

import csv
import io
import json
from typing import Any

from roughformer.tune.study import Study

__all__ = ["as_csv", "rows_of", "summary_line"]

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
