"""How well RFormerForecaster forecasts and fills irregular series, beside simple yardsticks.

    export ROUGHFORMER_DATA=...          # has physionet2012/ and archive/
    .venv/bin/python experiments/forecasting.py --sections processes beijing physionet
    .venv/bin/python experiments/forecasting.py --page     # docs/forecasting.md from the rows

One thread. Every measurement is one line of results/forecasting.jsonl (section, task, model, seed,
scores, seconds, versions); one that has a line is not measured again. How options were chosen is
told on the page.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _forecasting_naive import (
    Observed,
    by_boosting,
    by_gaussian_process,
    by_line,
    lag_features,
    on_hours,
)
from _forecasting_page import page
from _forecasting_processes import PROCESSES
from _forecasting_series import known_series, mase
from _results import ROOT, environment
from sklearn.ensemble import HistGradientBoostingRegressor

import roughformer as rf
from roughformer_paper.datasets import load_physionet2012

ROWS = ROOT / "results" / "forecasting.jsonl"
PAGE = ROOT / "docs" / "forecasting.md"
KEY = ("section", "task", "model", "seed")
HIDDEN = (0.5, 0.8)
ODD_STAY = 152633
COVERED = 600  # test stays that the coverage of intervals is measured on
GP_SERIES = 20  # series of the subset that a Gaussian process is fitted to
OURS = {"random_state": 0, "n_jobs": 1}
Row = dict[str, Any]


class Rows:
    """Lines of the results, one JSON object each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text() if path.exists() else ""
        self.rows: list[Row] = [json.loads(line) for line in text.splitlines() if line.strip()]

    def has(self, **key: Any) -> bool:
        return any(all(row[k] == v for k, v in key.items()) for row in self.rows)

    def add(self, row: Row) -> None:
        rounded = {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}
        self.rows.append(rounded)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(rounded | {"environment": environment()}) + "\n")
        print({k: v for k, v in rounded.items() if k != "environment"}, flush=True)


def part_of(batch: rf.SeriesBatch, keep: np.ndarray, values: Any = None) -> rf.SeriesBatch:
    """The points of a mask; a series must keep one."""
    owner = np.repeat(np.arange(len(batch)), batch.lengths)
    counts = np.bincount(owner[keep], minlength=len(batch))
    values = batch.values if values is None else values
    return rf.SeriesBatch(
        batch.times[keep], values[keep], np.r_[0, np.cumsum(counts)], channels=batch.channels,
        static=batch.static, static_names=batch.static_names or None,
    )  # fmt: skip


# PhysioNet 2012, as t-PatchGNN measures it


def physionet_split(batch: rf.SeriesBatch, seed: int) -> tuple[np.ndarray, ...]:
    """60/20/20 at random; the stay with a WBC of 12,500 is in the training part of all splits.

    The reader takes the second of its two values of that minute, 3.8; the rule stays, so that
    splits are those of who reads the first.
    """
    odd = np.flatnonzero(batch.ids == ODD_STAY)[0]
    order = np.random.default_rng(seed).permutation(len(batch))
    order = np.concatenate([[odd], order[order != odd]])
    a, b = int(0.6 * len(batch)), int(0.8 * len(batch))
    return order[:a], order[a:b], order[b:]


def read_physionet(data: Path | None) -> rf.SeriesBatch:
    """Stays with the type of the ward as four indicators."""
    batch = load_physionet2012(data)
    assert batch.static is not None
    ward = batch.static[:, 3:] == np.arange(1, 5)
    return rf.SeriesBatch(
        batch.times, batch.values, batch.offsets, channels=batch.channels, ids=batch.ids,
        static=np.column_stack([batch.static[:, :3], ward]),
    )  # fmt: skip


def scores(error: np.ndarray, channel: np.ndarray, n_channels: int) -> Row:
    """Errors averaged within each channel, then over channels."""
    count = np.maximum(np.bincount(channel, minlength=n_channels), 1)
    return {
        "mse": float((np.bincount(channel, error**2, n_channels) / count).mean()),
        "mae": float((np.bincount(channel, np.abs(error), n_channels) / count).mean()),
    }


def forecasts(
    batch: rf.SeriesBatch, end: float, ask: Callable[..., tuple[Any, ...]]
) -> list[np.ndarray]:
    """What ``ask(past, at=times)`` answers at each time from ``end`` on, each ``(N', C)``."""
    found = []
    for i in range(0, len(batch), 300):
        some = batch[i : i + 300]
        before = some.times < end
        owner = np.repeat(np.arange(len(some)), some.lengths)
        at = [some.times[~before & (owner == b)] for b in range(len(some))]
        found.append([np.concatenate(x) for x in ask(part_of(some, before), at=at)])
    return [np.concatenate(x) for x in zip(*found, strict=True)]


def physionet(rows: Rows, data: Path | None, seeds: list[int], models: list[str]) -> None:
    batch = read_physionet(data)
    owner = np.repeat(np.arange(len(batch)), batch.lengths)
    observed = Observed(batch, 24.0)
    point, channel = np.nonzero((batch.times >= 24)[:, None] & ~np.isnan(batch.values))
    series, asked, true = owner[point], batch.times[point], batch.values[point, channel]
    for seed in seeds:
        train, held, test = physionet_split(batch, seed)
        known = batch[np.concatenate([train, held])].values
        low, high = np.nanmin(known, axis=0), np.nanmax(known, axis=0)
        size = np.where(high > low, high - low, 1.0)
        in_train, in_test = np.isin(series, train), np.isin(series, test)
        usual = np.bincount(channel[in_train], true[in_train], 37)
        usual = usual / np.maximum(np.bincount(channel[in_train], minlength=37), 1)
        last = observed.found["last"][series, channel]
        last = np.where(np.isnan(last), usual[channel], last)

        def line(last: np.ndarray = last) -> np.ndarray:
            """Through the last two observations."""
            age, old = (observed.found[k][series, channel] for k in ("age", "age_before"))
            slope = (last - observed.found["before"][series, channel]) / (old - age)
            return last + np.nan_to_num(slope * (asked - 24 + age))

        naive: dict[str, Callable[[], np.ndarray]] = {
            "last value": lambda last=last: last,
            "training mean": lambda usual=usual: usual[channel],
            "line through the last two": line,
            "gradient boosting": lambda fit=in_train: by_boosting(
                observed, batch.static, (series, channel, asked), true, fit
            ),
        }
        for name in [*naive, "RFormerForecaster"]:
            key = {"section": "physionet", "task": "24 h", "model": name, "seed": seed}
            if rows.has(**key) or (models and name not in models):
                continue
            start, row = time.process_time(), dict(key)
            if name in naive:
                answer = naive[name]()[in_test]
            else:
                model = rf.RFormerForecaster(**OURS, **PHYSIONET)
                model.fit(batch[train], validation_data=batch[held])
                row["fit_seconds"] = time.process_time() - start
                answer, covered = _at_test(model, batch, test, point[in_test], channel[in_test])
                row["coverage"] = covered
            error = (answer - true[in_test]) / size[channel[in_test]]
            row |= scores(error, channel[in_test], 37)
            rows.add(row | {"seconds": time.process_time() - start})


def _at_test(
    model: rf.RFormerForecaster,
    batch: rf.SeriesBatch,
    test: np.ndarray,
    point: np.ndarray,
    channel: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Forecasts at the points of the whole batch that are asked for, and coverage of some."""
    test = np.sort(test)
    owner = np.repeat(np.arange(len(batch)), batch.lengths)

    def at_points(stays: np.ndarray, ask: Callable[..., tuple[Any, ...]]) -> tuple[Any, Any]:
        late = np.flatnonzero(np.isin(owner, stays) & (batch.times >= 24))
        mine = np.isin(point, late)
        place = np.searchsorted(late, point[mine])
        return mine, [x[place, channel[mine]] for x in forecasts(batch[stays], 24.0, ask)]

    _, (answer,) = at_points(test, lambda past, at: (model.predict(past, at=at),))
    mine, (lower, upper) = at_points(test[:COVERED], model.predict_interval)
    true = batch.values[point, channel][mine]
    return answer, float(np.mean((lower <= true) & (true <= upper)))


PHYSIONET = {"horizon": 32.0, "interpolation": False, "steps": 3000}


# Hourly pollution


def read_beijing(data: Path | None) -> tuple[rf.SeriesBatch, np.ndarray]:
    root = Path(data or os.environ["ROUGHFORMER_DATA"])
    with np.load(root / "archive" / "BeijingPM25Week_rebuilt.npz") as file:
        values, offsets, split = file["values"], file["offsets"], file["split"]
    times = np.concatenate([np.arange(n, dtype=float) for n in np.diff(offsets)])
    return rf.SeriesBatch(times, values, offsets), split == "train"


def last_weeks(in_train: np.ndarray) -> np.ndarray:
    """The last fifth of the training weeks of each station, to calibrate intervals on: the same
    weeks at other stations would be too easy. Stations follow one another.
    """
    number = np.flatnonzero(in_train)
    stations = np.split(number, np.flatnonzero(np.diff(number) > 1) + 1)
    held = np.concatenate([weeks[int(0.8 * len(weeks)) :] for weeks in stations])
    return np.isin(np.arange(len(in_train)), held)


def week_of(in_train: np.ndarray) -> np.ndarray:
    """Number of the week of each series: stations follow one another, each from its first week."""
    number = np.arange(len(in_train))
    first = np.r_[0, np.flatnonzero(~in_train[:-1] & in_train[1:]) + 1]
    return number - first[np.searchsorted(first, number, side="right") - 1]


def coverage(inside: np.ndarray, known: np.ndarray, week: np.ndarray) -> Row:
    """Share of the values that are covered; its standard error takes weeks as the units, as all
    stations of a week are alike.
    """
    each = [(inside & known)[week == w].sum() / known[week == w].sum() for w in np.unique(week)]
    return {
        "coverage": float(inside[known].mean()),
        "coverage_error": float(np.std(each, ddof=1) / np.sqrt(len(each))),
    }


def thinned(batch: rf.SeriesBatch, share: float, seed: int) -> rf.SeriesBatch:
    """The same points with a share of the observations missing at random."""
    lost = np.random.default_rng(seed).random(batch.values.shape) < share
    return batch.with_values(np.where(lost, np.nan, batch.values))


def beijing(rows: Rows, data: Path | None, seeds: list[int], models: list[str]) -> None:
    batch, in_train = read_beijing(data)
    size = np.nanstd(batch[in_train].values, axis=0)
    n, ahead = 144, np.arange(1.0, 25.0)
    naive = ("last value", "seasonal naive", "boosted lags")
    test, held, week = batch[~in_train], last_weeks(in_train), week_of(in_train)
    true = test.values.reshape(len(test), 168, -1)[:, n:]
    for drop in (0.0, 0.5, 0.8):
        seen = thinned(batch, drop, seed=1)
        train, past = seen[in_train], part_of(seen[~in_train], test.times < n)
        for name in (*naive, *(f"RFormerForecaster{held}" for held in HELD_OUT)):
            key = {"section": "beijing", "task": f"{drop:.0%} dropped", "model": name, "seed": 0}
            if rows.has(**key) or (models and name not in models):
                continue
            start, row = time.process_time(), dict(key)
            if name.startswith("RFormerForecaster"):
                model = rf.RFormerForecaster(**OURS, **BEIJING)
                if name == "RFormerForecaster":
                    model.fit(train)
                elif name.endswith("whole weeks held out"):
                    model.fit(train, groups=week[in_train])
                else:
                    model.fit(seen[in_train & ~held], validation_data=seen[held])
                answer = model.predict(past, at=n - 1 + ahead)
                lower, upper = model.predict_interval(past, at=n - 1 + ahead)
                inside = (lower <= true) & (true <= upper)
                row |= coverage(inside, ~np.isnan(true), week[~in_train])
            else:
                answer = _beijing_naive(name, train, on_hours(past, n), ahead)
            error = (answer - true) / size
            known = ~np.isnan(error)
            channel = np.broadcast_to(np.arange(error.shape[2]), error.shape)[known]
            row |= scores(error[known], channel, error.shape[2])
            rows.add(row | {"seconds": time.process_time() - start})


def years(rows: Rows, data: Path | None, seeds: list[int], models: list[str]) -> None:
    """Coverage by the ways to hold series out, on training weeks only: of weeks drawn from the same
    two years as the training weeks, and of the year after.
    """
    batch, in_train = read_beijing(data)
    batch, week = batch[in_train], week_of(in_train)[in_train]
    n, ahead, early = 144, np.arange(1.0, 25.0), week < EARLY_WEEKS
    for seed in seeds:
        drawn = np.random.default_rng(seed).permutation(EARLY_WEEKS)[: EARLY_WEEKS // 6]
        same = np.isin(week, drawn)
        parts = {"other weeks of 2013 and 2014": same, "weeks of 2015": ~early}
        train = early & ~same
        for name, groups in (("series at random", None), ("whole weeks", week[train])):
            key = {"section": "years", "model": name, "seed": seed}
            if rows.has(**key):
                continue
            model = rf.RFormerForecaster(**OURS | {"random_state": seed}, **BEIJING)
            model.fit(batch[train], groups=groups)
            for task, asked in parts.items():
                some = batch[asked]
                true = some.values.reshape(len(some), 168, -1)[:, n : n + len(ahead)]
                past = part_of(some, some.times < n)
                lower, upper = model.predict_interval(past, at=n - 1 + ahead)
                inside = (lower <= true) & (true <= upper)
                rows.add(key | {"task": task} | coverage(inside, ~np.isnan(true), week[asked]))


EARLY_WEEKS = 96  # of 2013 and 2014


def _beijing_naive(
    name: str, train: rf.SeriesBatch, past: np.ndarray, ahead: np.ndarray
) -> np.ndarray:
    n = past.shape[1]
    if name == "last value":
        return np.repeat(past[:, -1:], len(ahead), axis=1)
    if name == "seasonal naive":
        return past[:, n - 24 :]
    whole, seen = on_hours(train, 168), train.values.reshape(len(train), 168, -1)
    answer = np.zeros((len(past), len(ahead), past.shape[2]))
    for c in range(past.shape[2]):
        x, y = [], []
        for end in (96, 120, 144):  # origins of training
            x.append(lag_features(whole[:, :end], c, ahead).reshape(len(train) * len(ahead), -1))
            y.append(seen[:, end : end + len(ahead), c].ravel())
        features, target = np.concatenate(x), np.concatenate(y)
        known = ~np.isnan(target)
        model = HistGradientBoostingRegressor(random_state=0).fit(features[known], target[known])
        rows = lag_features(past, c, ahead)
        answer[..., c] = model.predict(rows.reshape(-1, rows.shape[2])).reshape(rows.shape[:2])
    return answer


HELD_OUT = ("", ", last weeks held out", ", whole weeks held out")
BEIJING = {
    "horizon": 24.0,
    "periods": (24.0, 168.0),
    "interpolation": False,
    "steps": 3000,
}


# Interpolation of hidden observations


def hidden_tasks(data: Path | None) -> Iterator[tuple[str, rf.SeriesBatch, rf.SeriesBatch, Row]]:
    """Name, training series, test series, options."""
    batch, in_train = read_beijing(data)
    yield "pollution", batch[in_train], batch[~in_train], {"periods": (24.0, 168.0), "steps": 2000}
    stays = read_physionet(data)
    train, _, test = physionet_split(stays, 0)
    yield "ICU stays", stays[train], stays[test], {"steps": 2000}


def interpolation(rows: Rows, data: Path | None, seeds: list[int], models: list[str]) -> None:
    names = ("line", "Gaussian process", "RFormerForecaster")
    for task, train, test, options in hidden_tasks(data):
        some = np.random.default_rng(0).permutation(len(test))[: 8 * GP_SERIES]
        test = test[some]
        model = None
        for share in HIDDEN:
            label = f"{task}, {share:.0%} hidden"
            keys = [
                {"section": "interpolation", "task": label, "model": m, "seed": 0} for m in names
            ]
            if all(rows.has(**key) for key in keys):
                continue
            given = thinned(test, share, seed=2)
            asked = np.isnan(given.values) & ~np.isnan(test.values)
            # What nothing of its channel is left for cannot be interpolated by the yardsticks.
            size = np.nanstd(train.values, axis=0)
            size = np.where(size > 0, size, 1.0)
            if model is None:
                start = time.process_time()
                model = rf.RFormerForecaster(**OURS, **options).fit(train)
                fit_seconds = time.process_time() - start
            filled = model.impute(given).values
            line, process, fair, of_gp = _filled(given, asked)
            for key, answer in zip(keys, (line, process, filled), strict=True):
                if rows.has(**key):
                    continue
                row = dict(key)
                for suffix, mask in (("", fair), ("_subset", of_gp)):
                    if key["model"] == "Gaussian process" and not suffix:
                        continue
                    _, channel = np.nonzero(mask)
                    error = ((answer - test.values) / size)[mask]
                    found = scores(error, channel, test.n_channels)
                    row |= {f"{k}{suffix}": v for k, v in found.items()}
                if key["model"] == "RFormerForecaster":
                    row["fit_seconds"] = fit_seconds
                rows.add(row)


def _filled(
    given: rf.SeriesBatch, asked: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """By lines and by Gaussian processes; which can be compared, and which of them are of the
    subset that processes were fitted to.
    """
    line, process = (np.full(given.values.shape, np.nan) for _ in range(2))
    fair, of_gp = np.zeros_like(asked), np.zeros_like(asked)
    for b in range(len(given)):
        a, e = given.offsets[b : b + 2]
        t = given.times[a:e]
        for c in range(given.n_channels):
            x, wanted = given.values[a:e, c].astype(float), asked[a:e, c]
            seen = ~np.isnan(x)
            if not wanted.any() or seen.sum() < 3:
                continue
            fair[a:e, c] = wanted
            line[a:e, c][wanted] = by_line(t[seen], x[seen], t[wanted])
            if b < GP_SERIES:
                of_gp[a:e, c] = wanted
                process[a:e, c][wanted] = by_gaussian_process(t[seen], x[seen], t[wanted])
    return line, process, fair, of_gp


# Made-up processes


def processes(rows: Rows, data: Path | None, seeds: list[int], models: list[str]) -> None:
    for name, process in PROCESSES.items():
        for seed in seeds:
            key = {"section": "processes", "task": name, "model": "RFormerForecaster", "seed": seed}
            if rows.has(**key):
                continue
            rng = np.random.default_rng(seed)
            x, t = process.draw(2000, 40, 20.0, rng)
            new, when = process.draw(1000, 40, 20.0, rng)
            start = time.process_time()
            model = rf.RFormerForecaster(**OURS | {"random_state": seed}, **PROCESS).fit(x, t)
            seconds = time.process_time() - start
            past, before = [v[:30] for v in new], [s[:30] for s in when]
            at = [s[30:][s[30:] <= s[29] + 4] for s in when]
            true = np.concatenate([v[30 : 30 + len(a), 0] for v, a in zip(new, at, strict=True)])
            best = np.concatenate(
                [
                    process.best(v, s, a - s[-1])
                    for v, s, a in zip(past, before, at, strict=True)
                ]
            )  # fmt: skip
            answer = np.concatenate(model.predict(past, before, at=at))[:, 0]
            lower, upper = (
                np.concatenate(z)[:, 0] for z in model.predict_interval(past, before, at=at)
            )
            mse, optimum = np.mean((answer - true) ** 2), np.mean((best - true) ** 2)
            rows.add(
                key
                | {
                    "mse": float(mse), "optimum": float(optimum), "ratio": float(mse / optimum),
                    "coverage": float(np.mean((lower <= true) & (true <= upper))),
                    "fit_seconds": seconds,
                }
            )  # fmt: skip


def series(rows: Rows, data: Path | None, seeds: list[int], models: list[str]) -> None:
    """One fit before the first origin, with no option set; MASE over all origins."""
    for known in known_series():
        rng = np.random.default_rng(0)
        keep = [rng.random(len(x)) < 0.5 for x in known.values]
        for share in (0.0, 0.5):
            task = known.name + (", half dropped" if share else "")
            seen = keep if share else [np.ones(len(x), bool) for x in known.values]
            asked = [
                (b, len(x) - known.ahead * k)
                for b, x in enumerate(known.values)
                for k in range(known.origins, 0, -1)
            ]

            def given(at: list[tuple[int, int]], seen: Any = seen, known: Any = known) -> Any:
                """Series up to their origins, as arrays and times."""
                parts = [(b, np.flatnonzero(seen[b][:n])) for b, n in at]
                values = [known.values[b][place][:, None] for b, place in parts]
                return values, [known.times[b][place] for b, place in parts]

            first = [
                (b, n) for b, n in asked if n == len(known.values[b]) - known.ahead * known.origins
            ]
            true = [known.values[b][n : n + known.ahead] for b, n in asked]
            past = [
                known.values[b][: len(known.values[b]) - known.ahead * known.origins]
                for b, _ in asked
            ]
            answers: dict[str, list[np.ndarray]] = {"last value": [], "seasonal naive": []}
            for b, n in asked:
                place = np.flatnonzero(seen[b][:n])
                line = np.interp(np.arange(n), place, known.values[b][place])
                answers["last value"].append(np.repeat(line[-1], known.ahead))
                season = line[n - known.season + np.arange(known.ahead) % known.season]
                answers["seasonal naive"].append(season)
            more: dict[str, Row] = {}
            if not rows.has(section="series", task=task, model="RFormerForecaster", seed=0):
                start = time.process_time()
                model = rf.RFormerForecaster(**OURS).fit(*given(first))
                seconds = time.process_time() - start
                at = [known.times[b][n : n + known.ahead] for b, n in asked]
                values, times = given(asked)
                forecast = model.predict(values, times, at=at)
                answers["RFormerForecaster"] = [x[:, 0] for x in forecast]
                ends = model.predict_interval(values, times, at=at)
                inside = [
                    (low[:, 0] <= x) & (x <= high[:, 0])
                    for low, high, x in zip(*ends, true, strict=True)
                ]
                more["RFormerForecaster"] = {
                    "coverage": float(np.concatenate(inside).mean()), "fit_seconds": seconds,
                }  # fmt: skip
            for name, each in answers.items():
                key = {"section": "series", "task": task, "model": name, "seed": 0}
                if not rows.has(**key):
                    scaled = [
                        mase(x, y, z, known.season)
                        for x, y, z in zip(each, true, past, strict=True)
                    ]
                    rows.add(key | {"mase": float(np.mean(scaled))} | more.get(name, {}))


PROCESS = {"horizon": 4.0, "interpolation": False, "steps": 3000}

SECTIONS = {
    "physionet": physionet,
    "beijing": beijing,
    "years": years,
    "interpolation": interpolation,
    "processes": processes,
    "series": series,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="default: ROUGHFORMER_DATA")
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--models", nargs="*", default=[], help="only these")
    parser.add_argument("--out", type=Path, default=ROWS)
    parser.add_argument("--page", action="store_true", help="write docs/forecasting.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "the model was trained for up to")
    rows = Rows(args.out)
    for section in args.sections:
        SECTIONS[section](rows, args.data, args.seeds, args.models)
    if args.page:
        PAGE.write_text(page(rows.rows, GP_SERIES))


if __name__ == "__main__":
    main()
