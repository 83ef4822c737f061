"""How each model of a comparison is trained, in words: a table without them compares nothing."""

from collections import Counter
from typing import Any

from roughformer_paper.reproduce.experiment import Row, mean_of
from roughformer_paper.reproduce.models import settings_of

__all__ = ["epochs_and_pace", "options_of", "recipes_note"]

_TOLD = (
    "d_model", "n_layers", "batch_size", "learning_rate", "epochs", "patience", "max_seconds",
)  # fmt: skip
_SILENT = ("drop", "calibrate", "model")  # of the task, not of the recipe


def _words(task: str, model: str, options: dict[str, Any]) -> dict[str, str]:
    """What there is to say of a training, by what it is about."""
    cls, settings = settings_of(task, model, options)
    p = cls.usual_settings() | settings
    p = {name.rpartition("__")[2]: value for name, value in p.items()}
    rates = cls.kind == "tempo"  # a model of rates has a shape of its own
    own = {k: v for k, v in options.items() if k not in (*_TOLD, *_SILENT)}
    return {
        "width": "the model of rates" if rates else f"width {p['d_model']}",
        "layers": "" if rates else f"{p['n_layers']} layer{'s' if p['n_layers'] != 1 else ''}",
        "batches": f"batches of {p['batch_size']}",
        "rate": f"learning rate {p['learning_rate']:g}",
        "epochs": f"at most {p['epochs']} epochs",
        "stop": "no early stopping" if p["patience"] is None else f"patience {p['patience']}",
        "budget": _budget(p["max_seconds"]),
        "own": ", ".join(f"{name} {_plain(value)}" for name, value in own.items()),
    }


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
    """``used``: model -> options it was trained with. What most have is told once, then for
    each model what is different, models alike together.
    """
    told: dict[str, list[dict[str, str]]] = {}
    for model, several in used.items():
        if model != "rocket":  # ridge: it has no recipe
            for options in several:
                words = _words(task, model, options)
                if words not in told.setdefault(model, []):
                    told[model].append(words)
    recipes = [words for several in told.values() for words in several]
    if not recipes:
        return ""
    usual = {}
    for about in recipes[0]:
        ((said, count),) = Counter(words[about] for words in recipes).most_common(1)
        usual[about] = said if 2 * count > len(recipes) else ""
    alike: dict[str, list[str]] = {}
    for model, several in told.items():
        others = [
            ", ".join(said for about, said in words.items() if said and said != usual[about])
            for words in several
        ]
        if any(others):
            text = " or ".join(words or "nothing else" for words in others)
            alike.setdefault(text, []).append(titles[model])
    common = ", ".join(filter(None, usual.values()))
    found = [f"If nothing else is said: {common}."] if common else []
    found += [f"{', '.join(models)}: {words}." for words, models in alike.items()]
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
