"""How each model of a comparison is trained, in words: a table without them compares nothing."""

from typing import Any

from roughformer.estimators import RFormerClassifier, RFormerRegressor
from roughformer.reproduce.experiment import Row, mean_of
from roughformer.reproduce.models import recipe_of

__all__ = ["epochs_and_pace", "options_of", "recipes_note"]

_TOLD = (
    "d_model", "n_layers", "batch_size", "learning_rate", "epochs", "patience", "max_seconds",
)  # fmt: skip
_SILENT = ("drop", "calibrate", "model")  # of the task, not of the recipe


def _words(task: str, model: str, options: dict[str, Any]) -> list[str]:
    cls = RFormerClassifier if task == "classification" else RFormerRegressor
    preset, recipe = recipe_of(model)
    p = cls.from_preset(preset, **(recipe | options)).get_params()
    layers = f"{p['n_layers']} layer{'s' if p['n_layers'] != 1 else ''}"
    # A model of rates has a shape of its own.
    shape = ["the model of rates"] if p.get("rate_like") else [f"width {p['d_model']}", layers]
    own = {k: v for k, v in options.items() if k not in (*_TOLD, *_SILENT)}
    return [
        *shape,
        f"batches of {p['batch_size']}",
        f"learning rate {p['learning_rate']:g}",
        f"at most {p['epochs']} epochs",
        "no early stopping" if p["patience"] is None else f"patience {p['patience']}",
        _budget(p["max_seconds"]),
        *(f"{name} {_plain(value)}" for name, value in own.items()),
    ]


def _budget(seconds: float | None) -> str:
    return "no budget of time" if seconds is None else f"at most {seconds:g} s of the processor"


def _plain(value: Any) -> str:
    """As text, numbers short."""
    if isinstance(value, dict):
        return " ".join(f"{k} {_plain(v)}" for k, v in value.items())
    if isinstance(value, float):
        return f"{value:.3g}"
    return "+".join(map(_plain, value)) if isinstance(value, list | tuple) else str(value)


def recipes_note(task: str, titles: dict[str, str], used: dict[str, list[dict[str, Any]]]) -> str:
    """``used``: model -> options it was trained with. What all have in common is told once, then
    what each has beside it, models alike together.
    """
    told = {
        model: [_words(task, model, options) for options in several]
        for model, several in used.items()
        if several and model != "rocket"  # ridge: it has no recipe
    }
    lists = [words for several in told.values() for words in several]
    if not lists:
        return ""
    common = [word for word in lists[0] if all(word in words for words in lists)]
    alike: dict[str, list[str]] = {}
    for model, several in told.items():
        rest = (", ".join(w for w in words if w not in common) for words in several)
        alike.setdefault(" or ".join(dict.fromkeys(rest)), []).append(titles[model])
    found = [f"All: {', '.join(common)}."] if common else []
    found += [f"{', '.join(models)}: {words}." for words, models in alike.items() if words]
    return f"Recipes. {' '.join(found)}"


def epochs_and_pace(rows: list[Row]) -> tuple[str | None, float | None]:
    """``"4-11"``, from the fewest to the most epochs that they took, and mean seconds of one."""
    own = [row["history"] for row in rows if row.get("history")]
    epochs = sorted({len(history) for history in own})
    span = "-".join(str(count) for count in dict.fromkeys((epochs[0], epochs[-1]))) if own else None
    return span, mean_of(history[-1]["seconds"] / len(history) for history in own)


def options_of(rows: list[Row]) -> list[dict[str, Any]]:
    """The options of the rows' jobs, each once."""
    found: list[dict[str, Any]] = []
    for row in rows:
        options = row["job"].get("options")
        if options is not None and options not in found:
            found.append(options)
    return found
