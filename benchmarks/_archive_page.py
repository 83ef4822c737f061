"""The rows of the archive as a page of the documentation; no figure on it is typed by hand."""

from pathlib import Path
from typing import Any

import numpy as np
from _archive_rows import Key, Row
from _archive_scores import mean_ranks, wins

__all__ = ["page", "write_page"]

OURS = "rformer"
PEERS = ("multirocket-hydra", "minirocket", "quant", "boosting")
TITLES = {
    OURS: "**roughformer**",
    "multirocket-hydra": "MultiRocket-Hydra",
    "minirocket": "MiniRocket",
    "quant": "QUANT",
    "boosting": "boosting on summaries",
    "rformer-paper": "the paper's RFormer",
    "rformer-v1": "roughformer's first default",
    "majority": "majority class or mean",
}
_BEHIND = 0.03
# Why the default is more than 0.03 behind the best peer on a set; (set, share dropped) -> sentence.
REASONS: dict[tuple[str, float], str] = {
    ("Computers", 0.0): "on series left out of training the blend has 0.91, trees alone 0.82",
    ("EthanolLevel", 0.0): "on series left out of training it has 0.78, less with finer cells",
    ("GesturePebbleZ1", 0.0): "six of 172 test series; one of 132 is wrong out of fold in training",
    ("GesturePebbleZ1", 0.5): "six of 172 test series; one of 132 is wrong out of fold in training",
}
_BEGIN, _END = (
    "<!-- archive: written by benchmarks/archive.py --page -->",
    "<!-- end of archive -->",
)


class Scores:
    """Means over seeds, by set and model, of one task at one share of dropped points.

    ``models`` are compared on ``sets``: those that all of them have finished. A model with less
    than four fifths of the sets would leave little to compare: it is in ``partial``.
    """

    def __init__(self, rows: list[Row], task: str, drop: float) -> None:
        self.metric = "accuracy" if task == "classification" else "rmse"
        self.larger_is_better = task == "classification"
        self.rows: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            if row.get("task") == task and row["drop"] == drop:
                self.rows.setdefault((row["set"], row["model"]), []).append(row)
        self.all_sets = sorted({name for name, _ in self.rows})
        finished = {m: {s for s, model in self.rows if model == m} for m in TITLES}
        self.models = [m for m in TITLES if 0.8 * len(self.all_sets) <= len(finished[m]) > 0]
        self.partial = [m for m in TITLES if m not in self.models and finished[m]]
        self.sets = [s for s in self.all_sets if all(s in finished[m] for m in self.models)]

    def mean(self, name: str, model: str, what: str) -> float:
        """Mean over the seeds, NaN if there are none or no such score; of times, over those that
        all models have: other seeds were run on other days.
        """
        rows = self.rows.get((name, model), [])
        if what.endswith("_seconds"):
            each = [{r["seed"] for r in self.rows.get((name, m), ())} for m in self.models]
            shared = set.intersection(*each)
            rows = [r for r in rows if not shared or r["seed"] in shared]
        values = [r[what] for r in rows if what in r]
        return float(np.mean(values)) if values else float("nan")

    def of(self, model: str, what: str | None = None, sets: list[str] | None = None) -> Any:
        """``(S,)``: means over the seeds on the common sets, or those given."""
        chosen = self.sets if sets is None else sets
        return np.array([self.mean(name, model, what or self.metric) for name in chosen])

    def table(self) -> Any:
        """``(S, M)`` on the common sets."""
        return np.stack([self.of(m) for m in self.models], axis=1)

    def ranks(self) -> dict[str, float]:
        """Model -> mean rank over the common sets."""
        ranks = mean_ranks(self.table(), self.larger_is_better)
        return dict(zip(self.models, ranks.tolist(), strict=True))

    def wins(self) -> dict[str, int]:
        """Model -> on how many of the common sets it is best."""
        return dict(
            zip(self.models, wins(self.table(), self.larger_is_better).tolist(), strict=True)
        )

    def best_peer(self, name: str) -> tuple[float, str]:
        """Score and name of the best of the peers on a set."""
        found = [(self.mean(name, m, self.metric), m) for m in PEERS]
        found = [(x, m) for x, m in found if not np.isnan(x)]
        return (max if self.larger_is_better else min)(found, default=(float("nan"), ""))

    def seeds(self, model: str) -> str:
        """How many runs stand behind each mean."""
        counts = {len(self.rows[s, m]) for s, m in self.rows if m == model}
        return "–".join(map(str, sorted({min(counts), max(counts)})))


def _table(head: list[str], lines: list[list[str]]) -> list[str]:
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows, ""]


def _number(x: float, digits: int = 3) -> str:
    return "" if np.isnan(x) else f"{x:.{digits}f}"


def _dropped(drop: float) -> str:
    return f"{100 * drop:.0f} % of the points dropped" if drop else "Full series"


def _summary(scores: Scores) -> list[str]:
    head = ["", "mean accuracy", "mean rank", "best on", "calibration error", "log-loss"]
    head += ["fit, s", "predict, s", "seeds"]
    ranks, won = scores.ranks(), scores.wins()
    lines = []
    for m in sorted(scores.models, key=lambda m: ranks[m]):
        spent = [f"{scores.of(m, f'{what}_seconds').sum():,.0f}" for what in ("fit", "predict")]
        lines.append(
            [TITLES[m], _number(scores.of(m).mean()), f"{ranks[m]:.2f}", str(won[m])]
            + [_number(scores.of(m, what).mean()) for what in ("ece", "log_loss")]
            + [*spent, scores.seeds(m)]
        )
    text = [
        f"Over the {len(scores.sets)} sets that all of these have finished:",
        "",
        *_table(head, lines),
    ]
    text += _coverage(scores)
    first = next((m for m in (OURS, *PEERS) if m in scores.models), None)
    if scores.partial and first:
        lines = []
        for m in scores.partial:
            own = [
                s for s in scores.all_sets if (s, m) in scores.rows and (s, first) in scores.rows
            ]
            means = [_number(scores.of(x, sets=own).mean()) for x in (m, first)]
            lines.append([TITLES[m], str(len(own)), *means])
        text += ["Those that have finished fewer, on the sets they have finished:", ""]
        text += _table(["", "sets", "mean accuracy", f"{TITLES[first]} on these"], lines)
    return text


def _coverage(scores: Scores) -> list[str]:
    """How often what is asked to hold for 90 % of the series does."""
    each = scores.of(OURS, "covered", scores.all_sets)
    each = each[~np.isnan(each)]
    if not len(each):
        return []
    what = "Sets of classes" if scores.larger_is_better else "Intervals"
    return [
        f"{what} that roughformer is asked to make for 90 % of new series, calibrated out of fold, "
        f"hold {100 * each.mean():.1f} % of the test series on the mean of {len(each)} sets "
        f"({100 * each.min():.0f} to {100 * each.max():.0f} %).",
        "",
    ]


def _noise(scores: Scores, name: str, ours: float, best: float) -> str:
    """How a difference of accuracies compares with chance."""
    if not scores.larger_is_better:
        return "not known"
    n = scores.rows[name, OURS][0]["n_test"]
    error = ((ours * (1 - ours) + best * (1 - best)) / n) ** 0.5
    return (
        f"{(best - ours) * n:.0f} of {n} test series, {(best - ours) / error:.1f} standard errors "
        "of a difference (to the best of five peers)"
    )


def _behind(scores: Scores, drop: float) -> list[str]:
    lines = []
    for name in scores.all_sets:
        ours, (best, peer) = scores.mean(name, OURS, scores.metric), scores.best_peer(name)
        if ours < best - _BEHIND:
            reason = REASONS.get((name, drop)) or _noise(scores, name, ours, best)
            lines.append([name, _number(ours), f"{_number(best)} ({TITLES[peer]})", reason])
    if OURS not in scores.models:
        return []
    if not lines:
        return [f"On no set it is more than {_BEHIND} below the best peer.", ""]
    text = f"Sets on which roughformer is more than {_BEHIND} below the best peer:"
    return [text, "", *_table(["set", "roughformer", "best peer", "why"], lines)]


def _sets(scores: Scores, digits: int) -> list[str]:
    models = [m for m in TITLES if m in (*scores.models, *scores.partial)]
    lines = []
    for name in scores.all_sets:
        values = [scores.mean(name, m, scores.metric) for m in models]
        best = (np.nanmax if scores.larger_is_better else np.nanmin)(values)
        cells = [f"**{_number(v, digits)}**" if v == best else _number(v, digits) for v in values]
        lines.append([name, *cells])
    return _table(["set", *(TITLES[m].strip("*") for m in models)], lines)


def _goals(full: Scores, half: Scores | None, regression: dict[float, Scores]) -> list[str]:
    """Target, measured, met."""
    lines: list[list[str]] = []

    def add(target: str, measured: str, met: bool) -> None:
        lines.append([target, measured, "yes" if met else "no"])

    for scores, title, margin in ((full, "full", 0.01), (half, "dropped", 0.03)):
        if scores is None or OURS not in scores.models:
            continue
        peers = [m for m in PEERS if m in scores.models]
        ahead = scores.of(OURS).mean() - max(scores.of(m).mean() for m in peers)
        target = f"{title}: mean accuracy at least {margin} above the best peer's"
        add(target, f"{ahead:+.3f}", ahead >= margin)
        ranks = scores.ranks()
        best = min(ranks[m] for m in peers)
        target = f"{title}: best mean rank"
        add(target, f"{ranks[OURS]:.2f}, best peer {best:.2f}", ranks[OURS] < best)
    for drop, scores in regression.items():
        if OURS in scores.models:
            ranks = scores.ranks()
            best = min(ranks[m] for m in PEERS if m in ranks)
            target = f"regression, {'dropped' if drop else 'full'}: lowest mean rank of RMSE"
            add(target, f"{ranks[OURS]:.2f}, best peer {best:.2f}", ranks[OURS] < best)
    if {OURS, "multirocket-hydra"} <= set(full.models):
        ours, theirs = (full.of(m, "fit_seconds").sum() for m in (OURS, "multirocket-hydra"))
        target = "full: fitting takes no longer than MultiRocket-Hydra"
        add(target, f"{ours:,.0f} s and {theirs:,.0f} s", ours <= theirs)
        error = full.of(OURS, "ece").mean()
        chance = _number(full.of(OURS, "ece_by_chance").mean())
        beside = f" (a perfectly calibrated model: {chance})" if chance else ""
        target = "full: mean calibration error at most 0.03"
        add(target, _number(error) + beside, error <= 0.03)
    if not lines:
        return []
    return ["## What we set out to reach", "", *_table(["target", "measured", "met"], lines)]


def _failures(rows: list[Row]) -> list[str]:
    failed: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "error" in row:
            run = f"{row['set']} ({100 * row['drop']:.0f} % dropped, seed {row['seed']})"
            failed.setdefault((row["model"], row["error"]), []).append(run)
    if not failed:
        return []
    lines = [
        [TITLES[m], error.replace("|", "/"), ", ".join(names)]
        for (m, error), names in failed.items()
    ]
    return ["## Runs that did not finish", "", *_table(["", "reason", "sets"], lines)]


def _measured_with(rows: list[Row]) -> str:
    """Machines, days, versions and commits of all rows."""
    machines, dates = (sorted({r[k] for r in rows}) for k in ("processor", "date"))
    versions = sorted({f"{k} {v}" for r in rows for k, v in r["versions"].items()})
    commits = {m: sorted({r["commit"] for r in rows if r["model"] == m}) for m in TITLES}
    ours = (f"{m} {', '.join(c)}" for m, c in commits.items() if c and m.startswith("rformer"))
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    commits_text = "; ".join(ours)
    return (
        f"*Measured {days} on {', '.join(machines)}, one thread; {', '.join(versions)}"
        f"{'; commits: ' if commits_text else ''}{commits_text}.*"
    )


def page(by_run: dict[Key, Row]) -> str:
    """The whole page."""
    rows = [by_run[key] for key in sorted(by_run)]
    drops = sorted({row["drop"] for row in rows})
    classes, numbers = (
        {drop: scores for drop in drops if (scores := Scores(rows, task, drop)).models}
        for task in ("classification", "regression")
    )
    lines = [
        "# Against what people use today",
        "",
        "<!-- written by benchmarks/archive.py --page; do not edit -->",
        "",
        "`python benchmarks/archive.py` measures this: public sets, official splits, whole",
        "training parts, every model with its default options, one thread, processor time, mean",
        "over the seeds. aeon's models need regular series: they see each series' linear path on",
        "the set's own sample grid, or, where lengths or times differ, at even times over each",
        "series' span. Gradient boosting (scikit-learn) sees 23 summary numbers of each channel.",
        "The calibration error is that of the predicted class in 15 bins; aeon's ridge",
        "classifiers have no probabilities.",
        "",
    ]
    if 0.0 in classes:
        lines += _goals(classes[0.0], classes.get(0.5), numbers)
    for drop, scores in classes.items():
        lines += [f"## {_dropped(drop)}", ""]
        if drop:
            lines += ["In training and test, the same points for all models.", ""]
        lines += [*_summary(scores), *_behind(scores, drop), *_sets(scores, 3)]
    for drop, scores in numbers.items():
        lines += [f"## Regression: {_dropped(drop).lower()}", "", "RMSE.", ""]
        ranks = scores.ranks()
        lines += _sets(scores, 4)
        shown = ", ".join(f"{TITLES[m].strip('*')} {ranks[m]:.2f}" for m in scores.models)
        lines += [f"Mean rank over {len(scores.sets)} sets: {shown}.", "", *_coverage(scores)]
    lines += [*_failures(rows), _measured_with(rows)]
    return "\n".join(lines).rstrip() + "\n"


def lead(by_run: dict[Key, Row]) -> str:
    """The table that the README leads with: mean accuracy and mean rank."""
    both = [Scores(list(by_run.values()), "classification", drop) for drop in (0.0, 0.5)]
    counts = [len(scores.sets) for scores in both]
    head = ["", f"accuracy ({counts[0]} sets)", "rank", f"half dropped ({counts[1]} sets)", "rank"]
    ranks = [scores.ranks() for scores in both]
    lines = [
        [TITLES[m]]
        + [
            text
            for scores, rank in zip(both, ranks, strict=True)
            for text in (
                (_number(scores.of(m).mean()), f"{rank[m]:.2f}") if m in rank else ("", "")
            )
        ]
        for m in sorted(ranks[0], key=lambda m: ranks[0][m])
        if m != "majority"
    ]
    return "\n".join(_table(head, lines)).rstrip()


def with_lead(readme: str, by_run: dict[Key, Row]) -> str:
    """The README with that table between its marks."""
    before, rest = readme.split(_BEGIN)
    return f"{before}{_BEGIN}\n\n{lead(by_run)}\n\n{_END}{rest.split(_END)[1]}"


def write_page(path: Path, rows: dict[Key, Row]) -> None:
    """Write the page, and the table in the README."""
    path.write_text(page(rows), encoding="utf-8")
    readme = path.parents[1] / "README.md"
    readme.write_text(with_lead(readme.read_text(encoding="utf-8"), rows), encoding="utf-8")
