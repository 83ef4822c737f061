"""Reconstruction: how much of a path is left in its tokens, by depth and number of windows.

The values x(t) at all times are recovered by least squares from words of the tokens of (t, x)
with a basepoint. x(t) is linear in x, and so are the words in which x occurs once, the moments
∫ tʲ dx of a window: they are enough, which is measured too ("all words").
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer import multiview_signature
from roughformer.series import SeriesBatch
from roughformer.signatures import all_words, word_count
from roughformer_paper.reproduce.experiment import Job, Page, Row, Table
from roughformer_paper.reproduce.theory_common import (
    Array,
    Part,
    random_paths,
    ridge,
    verdict,
)

__all__ = ["PART", "words_with_x_once"]

_LENGTH = 301
_FEW_WINDOWS = 3  # "all words" are tried up to here: more would be more words than paths
_NOTHING_LEFT = 1e-9
_CHOICES = ("local", "global", "both", "all words")


def words_with_x_once(depth: int) -> npt.NDArray[np.bool_]:
    """Which words over the letters t = 0, x = 1 up to ``depth`` contain x exactly once."""
    return np.array([word.count(1) == 1 for word in all_words(2, depth)], dtype=bool)


def _run(job: Job) -> Row:
    rng = np.random.default_rng(job["seed"])
    sizes = {"train": job["n_train"], "validation": job["n_test"], "test": job["n_test"]}
    paths = {k: random_paths(n, _LENGTH, 1, job["modes"], rng) for k, n in sizes.items()}
    y = {name: x[..., 0] for name, x in paths.items()}
    size = float(np.sqrt(((y["test"] - y["train"].mean(axis=0)) ** 2).mean()))
    t = np.linspace(0.0, 1.0, _LENGTH)
    deepest = {
        name: multiview_signature(
            SeriesBatch.from_tensor(x, t=t), job["windows"], job["depth"],
            lifts=("time", "basepoint"),
        )
        for name, x in paths.items()
    }  # fmt: skip

    def error(chosen: npt.NDArray[np.bool_]) -> float:
        words = {name: some[:, :, chosen].reshape(len(some), -1) for name, some in deepest.items()}
        predict = ridge(words["train"], y["train"], words["validation"], y["validation"])
        return float(np.sqrt(((predict(words["test"]) - y["test"]) ** 2).mean()) / size)

    most = word_count(2, job["depth"])
    found: dict[str, list[float | None]] = {name: [] for name in _CHOICES}
    for depth in range(1, job["depth"] + 1):
        once = np.zeros(most, dtype=bool)
        once[: word_count(2, depth)] = words_with_x_once(depth)
        none, every = np.zeros(most, dtype=bool), np.arange(most) < word_count(2, depth)
        # The global view comes first.
        found["global"].append(error(np.concatenate([once, none])))
        found["local"].append(error(np.concatenate([none, once])))
        found["both"].append(error(np.concatenate([once, once])))
        few = job["windows"] <= _FEW_WINDOWS
        found["all words"].append(error(np.concatenate([none, every])) if few else None)
    return {"error": found}


def _show(rows: list[Row], figures: bool) -> Page:
    depth = rows[0]["job"]["depth"]
    cases = sorted({(r["job"]["modes"], r["job"]["windows"]) for r in rows})
    mean: dict[Any, Array] = {}
    for case in cases:
        own = [r for r in rows if (r["job"]["modes"], r["job"]["windows"]) == case]
        for name in _CHOICES:
            errors = [r["error"][name] for r in own]
            if None not in errors[0]:
                mean[(*case, name)] = np.mean(errors, axis=0)
    falls = [
        bool((np.diff(line) <= _NOTHING_LEFT + 0.02 * line[:-1]).all())
        for (_, _, name), line in mean.items()
        if name == "both"
    ]
    by_depth = Table(
        "Reconstruction of x(t) from both views: error over the standard deviation, test paths",
        ["paths", "windows", *(f"depth {k}" for k in range(1, depth + 1))],
        [[f"{m} modes", w, *mean[m, w, "both"].tolist()] for m, w in cases],
        verdict(
            "a path is determined by the signature of (t, x).",
            all(falls),
            f"the error falls with depth in {sum(falls)} of {len(falls)} lines, and faster with "
            "the number of windows. Depth n of a window tells n moments of x, and a path of m "
            "modes has m + 1 numbers to tell: it is exact as soon as windows × depth > m. One "
            "window at depth 2 to 4, as a whole signature is mostly used, keeps only the coarse "
            "shape.",
        ),
    )
    at = min(2, depth)
    by_view = Table(
        f"Reconstruction by view, depth {at}",
        ["paths", "windows", *(f"{c} view" for c in _CHOICES[:2]), "both", "local, all words"],
        [
            [
                f"{m} modes", w,
                *(float(mean[m, w, c][at - 1]) if (m, w, c) in mean else None for c in _CHOICES),
            ]
            for m, w in cases
        ],
        "Both views together do not lose what one of them has. Words with x more than once add "
        "nothing to a linear reconstruction.",
    )  # fmt: skip
    return Page(
        tables=[by_depth, by_view], figures=[_figure(mean, cases, depth)] if figures else []
    )


def _figure(mean: dict[Any, Array], cases: list[Any], depth: int) -> tuple[str, str, Any]:
    from roughformer_paper.reproduce.drawing import curves

    kinds = sorted({m for m, _ in cases})
    counts = sorted({w for _, w in cases})
    figure, panels = curves(len(kinds), "depth", "error / standard deviation")
    for axes, modes in zip(panels, kinds, strict=True):
        for number, windows in enumerate(counts):
            if (modes, windows) in cases:
                axes.plot(
                    range(1, depth + 1), mean[modes, windows, "both"], color=f"C{number}",
                    marker="o", markersize=4, label=f"{windows} windows" if windows > 1 else
                    "1 window",
                )  # fmt: skip
        axes.set_title(f"{modes} modes")
        axes.set_yscale("log")
        axes.set_xticks(range(1, depth + 1))
        axes.set_ylim(1e-4, 1.2)  # what is below is exact: its line leaves the picture
    panels[-1].legend(fontsize=8, loc="lower left")
    caption = (
        "Values of a path recovered linearly from its multi-view tokens; lines that leave the "
        "picture, or are not in it, are exact to rounding"
    )
    return "theory_reconstruction", caption, figure


def _cases(n_train: int, n_test: int, depth: int, windows: tuple[int, ...]) -> list[Job]:
    return [
        {"n_train": n_train, "n_test": n_test, "depth": depth, "modes": modes, "windows": w}
        for modes in (6, 150)
        for w in windows
    ]


PART = Part(
    name="reconstruction",
    cases={
        "tiny": _cases(200, 50, 3, (1, 3)),
        "quick": _cases(400, 200, 4, (1, 3, 15, 75)),
        "full": _cases(1500, 500, 5, (1, 3, 15, 35, 75)),
    },
    run=_run,
    show=_show,
)
