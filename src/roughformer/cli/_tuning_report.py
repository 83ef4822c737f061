"""The files that a search leaves: trials.json, trials.csv, plots, report.html and tune.json."""

from typing import TYPE_CHECKING, Any

from roughformer.atomic import write_file
from roughformer.cli._runs import write_json
from roughformer.errors import InputError
from roughformer.report import write_report
from roughformer.tune import Study, as_csv, rows_of

if TYPE_CHECKING:
    from roughformer.cli._tuning import TuningRequest

__all__ = ["write_results"]

_SHOWN = 12  # trials in the report's table


def write_results(
    request: "TuningRequest", study: Study, metric: str, winner: dict[str, Any]
) -> dict[str, Any]:
    """``winner``: metrics of the best trial's run. The summary, which is written last."""
    out, rows = request.out, rows_of(study)
    names = list(study.space)
    write_json(out / "trials.json", rows)
    write_file(out / "trials.csv", as_csv(rows, names).encode())
    best = rows[study.best.number]
    count = {
        state: sum(r["state"] == state for r in rows) for state in ("complete", "pruned", "failed")
    }
    figures, notes = _figures(request, study, rows, metric)
    notes.append(
        "Trials were compared on validation only; test series were scored once, at the end."
    )
    failed = [r for r in rows if r["state"] == "failed"]
    notes += [f"Trial {r['trial']} failed: {r['failed']}" for r in failed[:_SHOWN]]
    up = study.study.direction.name == "MAXIMIZE"
    order = sorted(
        (r for r in rows if r["state"] == "complete"), key=lambda r: r["score"], reverse=up
    )
    write_report(
        out / "report.html",
        title=f"roughformer: search {out.name}",
        facts={
            "trials": len(rows), **count, "chosen by": metric, "best trial": best["trial"],
            "best score": best["score"], "seed": study.seed,
            "seconds of all trials": sum(r["seconds"] or 0.0 for r in rows),
        },
        metrics={part: winner[part] for part in ("validation", "test") if part in winner},
        figures=[(caption, figure) for _, caption, figure in figures],
        config={"best": best["parameters"], "space": study.space.plain()},
        notes=notes,
        command=request.training.command or None,
        tables=[(
            "Best trials", ["trial", metric, *names, "epochs", "s"],
            [[r["trial"], r["score"], *(_shown(r["parameters"][n]) for n in names), r["epochs"],
              r["seconds"]] for r in order[:_SHOWN]],
            "",
        )],
    )  # fmt: skip
    summary = {
        "trial": best["trial"], "metric": metric, "score": best["score"],
        "parameters": best["parameters"], "validation": winner.get("validation", {}),
        "test": winner.get("test", {}), "trials": count, "seed": study.seed,
    }  # fmt: skip
    write_json(out / "tune.json", summary)
    return summary


def _shown(value: Any) -> Any:
    """A table's cell: small numbers keep their digits, a choice of none is a word."""
    return "none" if value is None else str(value) if isinstance(value, dict) else value


def _figures(
    request: "TuningRequest", study: Study, rows: list[dict[str, Any]], metric: str
) -> tuple[list[tuple[str, str, Any]], list[str]]:
    if not request.training.plots:
        return [], []
    try:
        from roughformer.tune.pictures import pictures_of

        figures = pictures_of(study, rows, metric)
    except InputError as error:  # matplotlib is an extra
        return [], [f"No pictures: {error}"]
    for name, _, figure in figures:
        (request.out / "plots").mkdir(exist_ok=True)
        figure.savefig(request.out / "plots" / f"{name}.png", dpi=130)
    return figures, []
