"""Write the tables of options on the pages: names and defaults from the code, a sentence for each.

python docs/_tables.py            # tests/test_docs.py checks that the pages are as this makes them
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roughformer import (
    RateRegressor,
    RFormerClassifier,
    RFormerRegressor,
)

HERE = Path(__file__).resolve().parent

PARAMETERS: dict[str, str] = {
    "recipe": "`ensemble`: functionals of local signatures and trees, blended; `attention`: the "
    "Rough Transformer on windows; `auto`: the ensemble, unless the model is to be causal or an "
    "option of the network is changed.",
    "windows": "Number of windows over each series' span, an `rf.Windows`, or cut times for all. "
    "Not given: 75, with at least two points in each; 12 if values are mostly missing; for causal "
    "models the duration that cuts the median span into as many.",
    "depth": "Longest words of the signatures. Not given: 2, or 1 where a view would have more "
    "than 600 words; 0 with `observations`.",
    "views": "`global` (since the start), `local` (the window), or both.",
    "static": "Names of the static covariates to use; none unless named, because they may hold "
    "the answer.",
    "causal": "Windows see the past only, and each has a prediction (`predict_windows`).",
    "epochs": "Maximum number of passes over the training part.",
    "learning_rate": "Highest rate of the schedule.",
    "drop": "Share of points dropped while training, or a range of shares.",
    "validation": "Share of the series, or of the groups, that is held out.",
    "class_weight": '`"balanced"`, or label → weight.',
    "uncertainty": "`gaussian` for `return_std`, `quantile` for `predict_quantiles`.",
    "rate_unit": "Turns per unit of time of a target of 1, e.g. 1/60 for beats a minute and "
    "seconds.",
    "random_state": "The same whole number gives the same model.",
    "device": "`auto`, `cpu`, `cuda` or `mps`.",
    "n_jobs": "Threads of torch; None: as torch is set, -1: all.",
    "run_dir": "Directory for the log, the state to resume from and the model.",
    "verbose": "1: a progress bar, or lines where there is no terminal.",
    "tokens": "An `rf.TokenConfig`, below.",
    "model": "An `rf.ModelConfig`, below; of a `RateRegressor` a dict of its own options.",
    "training": "An `rf.TrainConfig`: see [training](training.md#all-options).",
}
TOKENS: dict[str, str] = {
    "transform": "`logsignature`: the same information in fewer coordinates.",
    "time": "Time as a channel: in one `unit` for all series, as a share of each series' `span`, "
    "or `none`.",
    "lags": "Delays in time, or one; each adds x(t − delay) for every channel.",
    "counts": "Numbers of observations so far as channels.",
    "basepoint": "Windows start at the origin, so that levels show and not only changes; auto: if "
    "levels tell series apart.",
    "clock": "Harmonic clocks of each local window. auto: as many as its points can tell apart, "
    "at most 16; 0 if values are mostly missing.",
    "context": "Number of windows that a causal model looks back: in attention, and in its global "
    "view. None: all since the start. auto: as many as a usual series has, if windows are by "
    "duration or points.",
    "observations": "Words of each channel's own observations. auto: if more than half of the "
    "values are missing.",
    "spectrum": '`"linear"`, `"log"`, an `rf.SpectrumConfig`, or None. auto: linear; none for '
    "series of fewer than 16 points, mostly missing values, and causal models.",
}
# Where the description of a field does not say it all.
MODEL: dict[str, str] = {
    "wide": "Width of small networks from the last token to answers of their own, mixed with that "
    "of attention; 0: none. auto: 256 with `observations`.",
    "scaling": "Of token features: `standard` (mean and deviation), `rank` (distribution in "
    "training) or `none`. auto: rank with `observations`, else standard.",
}


def parameter_table() -> str:
    """The parameters of the estimators that are not in a group, and the groups."""
    classes = (RFormerClassifier, RFormerRegressor, RateRegressor)
    lines = ["| parameter | default | meaning |", "|---|---|---|"]
    for name, sentence in PARAMETERS.items():
        having = [cls for cls in classes if name in inspect.signature(cls).parameters]
        shared = {RFormerClassifier, RFormerRegressor} <= set(having)
        only = "" if shared else f" (`{'`, `'.join(cls.__name__ for cls in having)}` only)"
        cls = having[0]
        default = cls.usual_settings().get(name)
        lines.append(f"| `{name}` | `{_shown(default)}` | {sentence}{only} |")
    return "\n".join([*lines, ""])


def group_table(name: str, sentences: dict[str, str]) -> str:
    """The options of a group; those that are parameters as well are not told again."""
    group = RFormerClassifier.groups[name]
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for setting, default in RFormerClassifier.usual_settings().items():
        home, nested, option = setting.partition("__")
        if nested and home == name:
            text = sentences.get(option) or group.model_fields[option].description
            assert text, option
            lines.append(f"| `{option}` | `{_shown(default)}` | {text} |")
    return "\n".join([*lines, ""])


def _shown(default: Any) -> str:
    text = repr(default)
    return text.replace("'", '"') if isinstance(default, str | tuple) else text


TABLES: dict[tuple[str, str], Callable[[], str]] = {
    ("estimators.md", "parameters"): parameter_table,
    ("estimators.md", "tokens"): lambda: group_table("tokens", TOKENS),
    ("estimators.md", "model"): lambda: group_table("model", MODEL),
    ("training.md", "train-config"): lambda: group_table("training", {}),
}


def with_tables(page: str) -> str:
    """The text of a page with its tables made anew."""
    text = (HERE / page).read_text(encoding="utf-8")
    for (of, mark), make in TABLES.items():
        if of == page:
            before, rest = text.split(f"<!-- {mark} -->\n")
            after = rest.split("<!-- end -->", 1)[1]
            text = f"{before}<!-- {mark} -->\n\n{make()}\n<!-- end -->{after}"
    return text


if __name__ == "__main__":
    for name in sorted({page for page, _ in TABLES}):
        (HERE / name).write_text(with_tables(name), encoding="utf-8")
        print(f"wrote the tables of {name}")
