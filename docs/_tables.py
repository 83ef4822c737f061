"""Write the tables of options on the pages: names and defaults from the code, a sentence for each.

python docs/_tables.py            # tests/test_docs.py checks that the pages are as this makes them
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roughformer import RFormerClassifier, RFormerRegressor
from roughformer.train.config import Augmentation, TrainConfig

HERE = Path(__file__).resolve().parent

PARAMETERS: dict[str, dict[str, str]] = {
    "Tokens": {
        "model": '`"rformer"`, or a [baseline](baselines.md) with the same training: '
        '`"transformer"`, `"gru"`, `"ode-rnn"`, `"neural-cde"`, `"neural-rde"`, `"state-space"`. '
        "Of the options of this table baselines use `static` only; a warning names others that "
        "were set.",
        "model_options": "Options that only this model has, by name; a wrong name tells which.",
        "windows": "A number of windows over each series' span, an `rf.Windows`, or cut times for "
        "all. auto: 75, at least two points in each; 12 if values are mostly missing; for causal "
        "models the duration that cuts the median span into as many.",
        "depth": "Longest words of the signatures. auto: 2, or 1 where a view would have more than "
        "600 words; 0 with `observations`.",
        "views": "`global` (since the start), `local` (the window), or both.",
        "logsignature": "Lyndon coordinates: fewer numbers, the same knowledge.",
        "time": "Time as a channel: in one `unit` for all series, as a share of each series' "
        "`span`, or `none`.",
        "lags": "Delays in time, or one; each adds x(t − delay) for every channel.",
        "counts": "Numbers of observations so far as channels.",
        "basepoint": "Windows start at the origin, so that levels show and not only changes; "
        "auto: if levels tell series apart.",
        "clock": "Harmonic clocks of each local window. auto: as many as its points can tell "
        "apart, at most 16; 0 if values are mostly missing.",
        "observations": "Words of each channel's own observations. auto: if more than half of the "
        "values are missing.",
        "spectrum": '`"linear"`, `"log"`, an `rf.SpectrumConfig`, or None. auto: linear; none for '
        "series of fewer than 16 points, mostly missing values, and causal models.",
        "static": "Names of the static covariates to use; none unless named, because they may hold "
        "the answer.",
    },
    "Model": {
        "d_model": "Width.",
        "n_heads": "Attention heads; they divide the width.",
        "n_layers": "Attention blocks.",
        "dropout": "Share of activations hidden while training.",
        "input_dropout": "Share of token features hidden while training.",
        "wide": "Width of eight small networks from the last token to answers of their own, mixed "
        "with that of attention; 0: none. auto: 256 with `observations`.",
        "wide_dropout": "Share of activations hidden in these networks while training.",
        "scaling": "Of token features: `standard` (mean and deviation) or `rank` (distribution in "
        "training). auto: rank with `observations`.",
        "pooling": "How windows become one vector: `mean`, `attention` or `last`.",
        "causal": "Windows see the past only, and each has a prediction (`predict_windows`).",
        "context": "Windows that a causal model looks back: in attention, and in its global view. "
        "None: all since the start. auto: as many as a usual series has, if windows are by "
        "duration or points.",
    },
    "Training": {
        "epochs": "At most so many passes over the training part.",
        "batch_size": "Series in a step.",
        "learning_rate": "Highest rate of the schedule.",
        "weight_decay": "Of AdamW.",
        "schedule": "`onecycle`, `cosine` or `constant`.",
        "patience": "Stop after so many epochs without a better validation; None: never.",
        "max_seconds": "A budget of time; the schedule is compressed to it.",
        "validation": "Share of the series, or of the groups, that is held out.",
        "members": "More than 1: so many models, each validated on another part, answer as one.",
        "metric": "What decides on the validation part. auto: log_loss or rmse.",
        "drop": "Share of points left out while training, or a range of shares.",
        "jitter": "Noise on the values, in standard deviations of their channel.",
        "channel_dropout": "Chance that a channel of a series is hidden.",
        "warp": "Time runs faster by a factor within 1 ± warp; with targets of each window only "
        "if windows are by count or by points.",
        "draws": "0: augmentation is drawn anew each time. n: n changed copies, used in turn.",
        "label_smoothing": "Share of the label given to all classes alike.",
        "class_weight": '`"balanced"`, or label → weight.',
        "uncertainty": "`gaussian` for `return_std`, `quantile` for `predict_quantiles`.",
        "quantiles": "Levels of `quantile`.",
        "rate_like": "The target is a rate, per unit of time: see "
        "[the model](model.md#rates-tempoformer).",
        "rate_unit": "Turns per unit of time of a target of 1, e.g. 1/60 for beats a minute and "
        "seconds.",
        "calibrate": "Fit a temperature, or a factor on deviations, to the validation part.",
    },
    "Running": {
        "precision": "`bfloat16` where the device is fast at it.",
        "compile": "`torch.compile` the model.",
        "device": "`auto`, `cpu`, `cuda` or `mps`.",
        "n_jobs": "Threads of torch; None: as torch is set, -1: all.",
        "readers": "Processes that read a feature store; 0: a thread does.",
        "random_state": "The same whole number gives the same model.",
        "run_dir": "Directory for the log, the state to resume from and the model.",
        "resume": "Go on where a killed run in `run_dir` stopped.",
        "tensorboard": "Events for TensorBoard in `run_dir`.",
        "verbose": "1: a progress bar, or lines where there is no terminal.",
    },
}
# Fields of TrainConfig that neither describe themselves nor are parameters.
UNSAID = {
    "seed": "Of the order of batches and of all draws; the estimators draw it from `random_state`.",
    "augment": "What follows.",
}


def defaults(estimator: Any) -> dict[str, Any]:
    """Parameter -> default."""
    return {name: p.default for name, p in inspect.signature(estimator).parameters.items()}


def parameter_tables() -> str:
    """A table for each group of parameters of the estimators."""
    known = {"classifier": defaults(RFormerClassifier), "regressor": defaults(RFormerRegressor)}
    lines = []
    for title, sentences in PARAMETERS.items():
        lines += [f"### {title}", "", "| parameter | default | meaning |", "|---|---|---|"]
        for name, sentence in sentences.items():
            having = [who for who, given in known.items() if name in given]
            only = "" if len(having) == 2 else f" ({having[0]} only)"
            (default,) = {_shown(known[who][name]) for who in having}
            lines.append(f"| `{name}` | `{default}` | {sentence}{only} |")
        lines.append("")
    return "\n".join(lines)


def train_config_table() -> str:
    """The fields of TrainConfig, then those of its augmentation."""
    said = {name: text for group in PARAMETERS.values() for name, text in group.items()} | UNSAID
    lines = ["| field | default | meaning |", "|---|---|---|"]
    for config, prefix in ((TrainConfig, ""), (Augmentation, "augment.")):
        for name, field in config.model_fields.items():
            shown = "…" if name == "augment" else _shown(field.default)
            meaning = field.description or said[name]
            lines.append(f"| `{prefix}{name}` | `{shown}` | {meaning} |")
    return "\n".join([*lines, ""])


def _shown(default: Any) -> str:
    text = repr(default)
    return text.replace("'", '"') if isinstance(default, str | tuple) else text


TABLES: dict[tuple[str, str], Callable[[], str]] = {
    ("estimators.md", "parameters"): parameter_tables,
    ("training.md", "train-config"): train_config_table,
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
