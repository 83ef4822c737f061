"""Pictures of a search: score by trial, which parameters mattered, and all trials side by side."""

from typing import Any

import numpy as np

from roughformer.plots import BLUE, GREY, LIGHT, ORANGE, new_figure, note, styled, tidy
from roughformer.tune.study import Study

__all__ = ["importances", "pictures_of"]

Rows = list[dict[str, Any]]


def pictures_of(study: Study, rows: Rows, metric: str) -> list[tuple[str, str, Any]]:
    """``(name, caption, Figure)`` of each."""
    up = study.study.direction.name == "MAXIMIZE"
    weights = importances(study)
    return [
        ("history", f"Validation {_words(metric)} of each trial, and the best so far",
         _history(rows, metric, up)),
        ("importance", "How much of the score's variance each parameter explains (fANOVA)",
         _importance(weights)),
        ("parallel", "A line for each trial; the darker, the better the score",
         _parallel(study, rows, metric, up, list(weights))),
    ]  # fmt: skip


def importances(study: Study) -> dict[str, float]:
    """Share of each parameter, the largest first; empty where trials are too few or all equal."""
    done = [t for t in study.trials if t.state == study.states.COMPLETE]
    if len(done) < 4 or len({t.value for t in done}) < 2:
        return {}
    module = study.optuna.importance
    evaluator = module.FanovaImportanceEvaluator(seed=study.seed % 2**32)
    try:
        found = module.get_param_importances(study.study, evaluator=evaluator)
    except (RuntimeError, ValueError):  # no variance left to share out
        return {}
    return {name: float(share) for name, share in found.items()}


def _words(name: str) -> str:
    return name.replace("_", " ")


def _history(rows: Rows, metric: str, up: bool) -> Any:
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 9, 3.4)
        axes = figure.subplots()
        tidy(axes)
        axes.set(xlabel="trial", ylabel=_words(metric))
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True, min_n_ticks=1))
        looks = (("complete", "o", BLUE, BLUE), ("pruned", "o", "none", GREY))
        for state, mark, fill, edge in looks:
            some = [r for r in rows if r["state"] == state and r["score"] is not None]
            axes.plot([r["trial"] for r in some], [r["score"] for r in some], mark, ms=5,
                      mfc=fill, mec=edge, label=state)  # fmt: skip
        for number in (r["trial"] for r in rows if r["state"] == "failed"):
            axes.axvline(number, color=LIGHT, lw=1, ls=":", zorder=0)
        done = [r for r in rows if r["state"] == "complete"]
        if not done:
            note(axes, "no trial ran to its end")
            return figure
        best = np.maximum if up else np.minimum
        so_far = best.accumulate([r["score"] for r in done])
        axes.step([r["trial"] for r in done], so_far, where="post", color=ORANGE, label="best")
        axes.legend(loc="best")
    return figure


def _importance(weights: dict[str, float]) -> Any:
    with styled() as matplotlib:
        figure = new_figure(matplotlib, 9, 0.8 + 0.28 * max(len(weights), 4))
        axes = figure.subplots()
        tidy(axes, "x")
        if not weights:
            note(axes, "too few trials, or all with one score")
            axes.set(xticks=[], yticks=[])
            return figure
        names = list(weights)[::-1]
        axes.barh(names, [weights[name] for name in names], color=BLUE)
        axes.set(xlabel="importance", xlim=(0, None))
    return figure


def _parallel(study: Study, rows: Rows, metric: str, up: bool, order: list[str]) -> Any:
    names = order or list(study.space)
    done = [r for r in rows if r["state"] == "complete"]
    scale = study.distributions
    with styled() as matplotlib:
        figure = new_figure(matplotlib, max(9.0, 0.9 * len(names)), 4.2)
        axes = figure.subplots()
        if not done:
            note(axes, "no trial ran to its end")
            axes.set(xticks=[], yticks=[])
            return figure
        drawn = {t.number: t.params for t in study.trials}
        scores = [r["score"] for r in done]
        ranks = np.argsort(np.argsort(scores if up else [-s for s in scores]))
        for row, rank in sorted(zip(done, ranks, strict=True), key=lambda pair: pair[1]):
            share = (rank + 1) / len(done)
            places = [_place(scale[name], drawn[row["trial"]][name]) for name in names]
            best = rank == len(done) - 1
            axes.plot(
                places, color=ORANGE if best else BLUE, lw=2.2 if best else 1.0,
                alpha=1.0 if best else 0.1 + 0.6 * share**2,
                label=f"best, {_words(metric)} {row['score']:.4g}" if best else None,
            )  # fmt: skip
        for at, name in enumerate(names):
            axes.axvline(at, color=GREY, lw=0.8)
            for height, text in _ticks(scale[name]):
                axes.text(at + 0.03, height, text, fontsize=7, color=GREY, va="center")
        axes.set_xticks(range(len(names)), names, rotation=20)
        axes.set(yticks=[], xlim=(-0.2, len(names) - 0.5), ylim=(-0.06, 1.06))
        axes.spines[["left", "bottom"]].set_visible(False)
        figure.legend(loc="outside upper left")
    return figure


def _place(scale: Any, value: Any) -> float:
    """Between 0 and 1 on the axis of a parameter."""
    if hasattr(scale, "choices"):
        return float(scale.choices.index(value) / max(len(scale.choices) - 1, 1))
    low, high, here = scale.low, scale.high, value
    if scale.log:
        low, high, here = np.log([low, high, here])
    return float((here - low) / (high - low))


def _ticks(scale: Any) -> list[tuple[float, str]]:
    if hasattr(scale, "choices"):
        return [(_place(scale, c), str(c).replace('"', "")[:18]) for c in scale.choices]
    return [(0.0, f"{scale.low:.3g}"), (1.0, f"{scale.high:.3g}")]
