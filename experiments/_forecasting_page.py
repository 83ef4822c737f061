"""docs/forecasting.md from the rows of ``forecasting.py``."""

from typing import Any

import numpy as np

__all__ = ["page"]

Row = dict[str, Any]
Found = dict[tuple[str, str], list[Row]]  # by task and model

_PAGE = """# Forecasting and interpolation, measured

Written by `experiments/forecasting.py --page` from `results/forecasting.jsonl`. One thread. The
network and its options were chosen on the validation part of the first split of the ICU stays (some
of these stays are in the test parts of other splits), and used as they are elsewhere.

## ICU stays (PhysioNet 2012)

The first 24 hours are given, values in the next 24 hours are asked for at their own times. Each
variable is scaled to [0, 1] by its range over training and validation stays; errors are averaged
within each variable, then over the 37 variables. 60/20/20 at random, the stay with a WBC of 12,500
in the training part. Mean ± standard deviation over splits.

{physionet}

{against}

Rare variables (TroponinI and Cholesterol have about 70 and 25 values in a test part) decide the
mean squared error of a split, so models can only be compared on the same splits.

## Hourly pollution

Weeks of nine channels at Beijing's stations; six days are given, the seventh is asked for. A share
of the observations is missing at random, in training and in what is given. Errors in standard
deviations of a channel, averaged over channels.

{beijing}

Training weeks end in 2015, test weeks follow. A fifth of the training series is held out to
calibrate intervals: at random, as is the default; the last weeks of each station; or whole weeks,
by `groups=`. At random is doubtful: the twelve stations of a week are alike, so that the network
has nearly seen what is held out, and intervals may be too narrow. How much this and the change
over the years matter is asked of training weeks alone: the network learns from weeks of 2013 and
2014, and forecasts the last day of other weeks of these years, and of the weeks of 2015 (90 %
asked; nothing dropped; ± standard error over weeks).

{years}

Where coverage in 2015 is below that of other weeks of the same years, the data have changed, which
split conformal prediction makes no promise about; `calibrate` on recent series helps there.

## Interpolation of hidden observations

Observations of test series are hidden at random. Errors in standard deviations of a channel,
averaged over channels, where three observations of the channel are left. The Gaussian process (one
for each channel of a series) was fitted to {gp_series} series: the last two columns are of these.

{interpolation}

## Regular series

Public series that come with aeon. With no option set, one fit before the first origin, forecasts of
a season (shampoo four months, M1 six years) from one to four origins. Mean absolute errors, over
those of the value a season before within the training part (MASE). Simple forecasts of series of
which half of the points are dropped see the line between those that are left. Airline passengers
had been looked at once when the rule was chosen that ends the training of few series.

{series}

## Processes with a known best forecast

2,000 series of 40 points at random times to learn from, 1,000 new ones. The best forecast knows
the process (Kalman's filter, exponential decay).

{processes}
"""


def page(rows: list[Row], gp_series: int) -> str:
    """The text of the page."""
    found: dict[str, Found] = {
        name: {}
        for name in ("physionet", "beijing", "years", "interpolation", "processes", "series")
    }
    for row in rows:
        found[row["section"]].setdefault((row["task"], row["model"]), []).append(row)
    physionet = [
        [model, spread(some, "mse", 1e3), spread(some, "mae", 1e2), str(len(some)),
         spread(some, "coverage")]
        for (_, model), some in found["physionet"].items()
    ]  # fmt: skip
    beijing = [
        [task, model, spread(some, "mse"), spread(some, "mae"), spread(some, "coverage")]
        for (task, model), some in sorted(
            found["beijing"].items(), key=lambda x: int(x[0][0].split("%")[0])
        )
    ]
    years = [
        [model, task, f"{row['coverage']:.3f} ± {row['coverage_error']:.3f}"]
        for (task, model), (row, *_) in found["years"].items()
    ]
    interpolation = [
        [task, model, *(spread(some, k) for k in ("mse", "mae", "mse_subset", "mae_subset"))]
        for (task, model), some in found["interpolation"].items()
    ]
    processes = [
        [task, *(spread(some, k) for k in ("mse", "optimum", "ratio", "coverage"))]
        for (task, _), some in found["processes"].items()
    ]
    tasks = dict.fromkeys(task for task, _ in found["series"])
    simple, ours = ("last value", "seasonal naive"), "RFormerForecaster"
    series = [
        [task, *(spread(found["series"].get((task, m), []), "mase") for m in (*simple, ours)),
         spread(found["series"].get((task, ours), []), "coverage")]
        for task in tasks
    ]  # fmt: skip
    cover = "90 % intervals cover"
    return _PAGE.format(
        physionet=table(["model", "MSE × 10⁻³", "MAE × 10⁻²", "splits", cover], physionet),
        against=against_boosting(found["physionet"]),
        beijing=table(["missing", "model", "MSE", "MAE", cover], beijing),
        years=table(["held out to calibrate", "asked for", cover], years),
        interpolation=table(
            ["task", "model", "MSE", "MAE", "MSE, subset", "MAE, subset"], interpolation
        ),
        processes=table(["process", "MSE", "of the best forecast", "ratio", cover], processes),
        series=table(["series", *simple, ours, cover], series),
        gp_series=gp_series,
    )


def table(heads: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown."""
    if not lines:
        return "Not measured yet."
    text = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in text)


def spread(rows: list[Row], name: str, factor: float = 1.0) -> str:
    """Mean and standard deviation over the seeds."""
    found = [row[name] * factor for row in rows if name in row]
    if not found:
        return "–"
    if max(found) > 1e5:
        return "above 10⁵"
    text = f"{np.mean(found):.3f}"
    return text if len(found) == 1 else f"{text} ± {np.std(found, ddof=1):.3f}"


def against_boosting(found: Found) -> str:
    """How far below boosting the forecaster is on the same splits."""
    by_seed = {model: {row["seed"]: row for row in some} for (_, model), some in found.items()}
    ours, boosted = by_seed.get("RFormerForecaster", {}), by_seed.get("gradient boosting", {})
    both = sorted(ours.keys() & boosted.keys())
    if not both:
        return ""
    mse, mae = (
        1 - np.mean([ours[s][k] for s in both]) / np.mean([boosted[s][k] for s in both])
        for k in ("mse", "mae")
    )
    return (
        f"On the {len(both)} splits where both were run, the mean errors of the forecaster are "
        f"{mse:.1%} (MSE) and\n{mae:.1%} (MAE) below those of gradient boosting."
    )
