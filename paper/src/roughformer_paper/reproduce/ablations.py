"""Ablations: one option of the tokens changed at a time, and how the results are shown."""

from typing import Any

from roughformer_paper.reproduce.experiment import Row, Table, known, spread

__all__ = ["ablation_figure", "ablation_table", "changes_of"]

_BASE = "as chosen"
# Of a lag, in units of the task's time: two steps of the sine task, five of the heart rate's.
_LAGS = {"sine": [0.006], "heart-rate": [0.04]}
_GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "views": {
        "both views": {"views": ["global", "local"]},
        "local view only": {"views": ["local"]},
        "global view only": {"views": ["global"]},
    },
    "scaling": {
        "features not scaled": {"scaling": "none"},
        "features by ranks": {"scaling": "rank"},
    },
    "lifts": {
        "no time": {"time": "none"},
        "a lag": {"lags": "of the task"},
        "no clocks": {"clock": 0},
        "clocks": {"clock": "auto"},
        "no spectrum": {"spectrum": None},
        "spectrum": {"spectrum": "auto"},
    },
    "depth": {f"depth {n}": {"depth": n} for n in (1, 2, 3, 4)},
    "windows": {f"{n} windows": {"windows": n} for n in (10, 25, 75, 150)},
}
ORDER = (_BASE, *(title for group in _GROUPS.values() for title in group))


def changes_of(base: dict[str, Any], task: str, *, few: bool = False) -> dict[str, dict[str, Any]]:
    """title -> options: ``base`` as it is, then with one option changed; ``few``: one of the
    first three groups each.
    """
    found = {_BASE: dict(base)}
    for group in list(_GROUPS.values())[: 3 if few else None]:
        new = {}
        for title, change in group.items():
            change = {"lags": _LAGS[task]} if "lags" in change else change
            if base | change != base:
                new[title] = base | change
        found |= dict(list(new.items())[: 1 if few else None])
    return found


def _of(rows: list[Row], tokens: str, change: str) -> list[float]:
    return known(
        r["score"] for r in rows if (r["job"]["tokens"], r["job"]["change"]) == (tokens, change)
    )


def ablation_table(title: str, task: str, tokens: dict[str, str], rows: list[Row]) -> Table:
    """Validation scores of one task, a row for each change, a column for each kind of tokens."""
    digits = 3 if task == "sine" else 2
    cells = []
    for change in ORDER:
        scores = [spread(_of(rows, name, change), digits) for name in tokens]
        if any(score is not None for score in scores):
            cells.append([change, *scores])
    score = "accuracy" if task == "sine" else "RMSE"
    return Table(
        f"{title}: one option changed",
        ["change", *(f"{score}, {words}" for words in tokens.values())],
        cells,
        "As chosen: for signatures alone the paper's windows, depth and views; with clocks and "
        "spectrum our default. Not scaled: of tokens; the spectrum is standardised still.",
    )


def ablation_figure(
    title: str, task: str, tokens: dict[str, str], rows: list[Row]
) -> tuple[str, str, Any]:
    """Mean scores as dots, a line for each change."""
    from roughformer.plots import BLUE, ORANGE
    from roughformer_paper.reproduce.drawing import curves

    own = [r for r in rows if r["job"]["task"] == task]
    shown = [c for c in ORDER if any(r["job"]["change"] == c for r in own)][::-1]
    score = "validation accuracy" if task == "sine" else "validation RMSE"
    figure, panels = curves(1, score, "", width=11.0, height=1.5 + 0.24 * len(shown))
    axes = panels[0]
    for (name, words), colour in zip(tokens.items(), (ORANGE, BLUE), strict=True):
        points = [
            (value, place) for place, change in enumerate(shown) for value in _of(own, name, change)
        ]
        if not points:
            continue
        axes.plot(
            [value for value, _ in points], [place for _, place in points], "o", color=colour,
            label=words, markersize=5, clip_on=False,
        )  # fmt: skip
        base = _of(own, name, _BASE)
        if base:
            axes.axvline(sum(base) / len(base), color=colour, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(-0.6, len(shown) - 0.4)
    # A dot at 0 stays clear of the names.
    axes.set_xlim(left=-0.04 * axes.get_xlim()[1])
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=2)
    caption = f"{title}: one option changed, each seed a dot; dotted: as chosen"
    return f"ablation_{task.replace('-', '_')}", caption, figure
