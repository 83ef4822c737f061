"""``roughformer predict``, ``evaluate``, ``explain``, ``forecast``: a model on a file of series."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import common as options
from roughformer.cli.common import option


@options.grouped
def predict(
    run: options.Run,
    data: options.Data,
    table: options.TableOptions,
    out: Annotated[
        Path | None, option("File to write, .csv or .parquet (default: CSV on stdout).")
    ] = None,
    proba: Annotated[bool, option("Also the probability of each class.", "--proba")] = False,
    windows_out: Annotated[
        Path | None,
        option("Also the predictions of a causal model at every window, .csv/.parquet."),
    ] = None,
    drop: options.Drop = 0.0,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    device: options.Device = "cpu",
) -> None:
    """Predict with a trained model: series id, prediction, probabilities, std or quantiles.

    Tables are read as in training: their columns need not be named again.
    """
    from roughformer.runs import predict_file

    options.check_place(out, "--out")
    options.check_place(windows_out, "--windows-out")
    predict_file(
        run,
        data,
        table.columns(),
        out=out,
        proba=proba,
        windows_out=windows_out,
        drop=drop,
        seed=seed,
        threads=threads,
        device=device,
    )
    for path in (out, windows_out):
        if path is not None:
            options.say(f"wrote {path}")


@options.grouped
def evaluate(
    run: options.Run,
    data: options.Data,
    table: options.TableOptions,
    target: Annotated[
        str | None, option("Column or name of the target (default: as in training).")
    ] = None,
    labels: options.Labels = None,
    drop: Annotated[str, option("Shares of points to leave out, e.g. 0,0.3,0.5,0.7.")] = "0",
    seeds: Annotated[int, option("Draws of dropped points for each share.", min=1)] = 1,
    json_file: Annotated[
        Path | None, option("Also write the scores to this file.", "--json")
    ] = None,
    threads: options.Threads = None,
    device: options.Device = "cpu",
) -> None:
    """Score a trained model on labelled series, as they are and with points left out."""
    from roughformer.runs import evaluate_file, load_model, write_json

    shares = options.numbers_of(drop, "--drop")
    if not shares or not all(0 <= share < 1 for share in shares):
        raise typer.BadParameter(f"shares from 0 to below 1, got {drop!r}", param_hint="--drop")
    options.check_place(json_file, "--json")
    estimator = load_model(run, threads, device)
    evaluation = evaluate_file(
        estimator, data, table.columns(), target=target, labels=labels, drop=shares, seeds=seeds
    )
    for note in evaluation.pop("notes"):
        options.say(f"note: {note}")
    _print_scores(evaluation["scores"], evaluation["series"], seeds)
    if json_file is not None:
        write_json(json_file, evaluation)


def _print_scores(rows: list[dict[str, Any]], n: int, seeds: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{n} series" + (f", {seeds} draws of points" if seeds > 1 else ""))
    table.add_column("dropped", justify="right")
    for name in rows[0]["std"]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        cells = [
            f"{row[name]:.4g} ± {std:.2g}" if row["seeds"] > 1 else f"{row[name]:.4g}"
            for name, std in row["std"].items()
        ]
        table.add_row(f"{row['drop']:.0%}", *cells)
    Console().print(table)


@options.grouped
def explain(
    run: options.Run,
    data: options.Data,
    table: options.TableOptions,
    series: Annotated[
        str | None, option("Id or number (0, 1, ...) of one series (default: the first).")
    ] = None,
    target: Annotated[
        str | None,
        option(
            "Class to explain (default: the predicted one), or name or number (0, 1, ...) of "
            "one of several targets."
        ),
    ] = None,
    out: Annotated[Path | None, option("Directory for a picture of each explanation.")] = None,
    as_json: Annotated[bool, option("Print JSON instead of tables.", "--json")] = False,
    top: Annotated[int, option("Rows of each table.", min=1)] = 8,
    threads: options.Threads = None,
) -> None:
    """Which windows, channels and signature words drove a prediction; tables and a picture.

    Above 0 spoke for the class (or raised the number), below 0 against it.
    """
    from roughformer.explain import explain as explain_batch
    from roughformer.runs import chosen_target, ids_of, load_model, read_for
    from roughformer.util.checks import using_threads

    options.check_place(out, "--out")
    estimator = load_model(run, threads)
    chosen = chosen_target(estimator, target)
    batch = read_for(estimator, data, table.columns()).batch
    number = _series_number(series, ids_of(batch).tolist(), data)
    one = batch[number : number + 1]
    with using_threads(threads):
        (explanation,) = explain_batch(
            estimator.predictor_, one, n_words=max(top, 20), target=chosen
        )
    name = str(ids_of(batch)[number])
    if as_json:
        plain = {f.name: getattr(explanation, f.name) for f in fields(explanation)}
        del plain["series"]
        plain = {"series_id": name} | plain
        typer.echo(json.dumps(plain, indent=2, default=lambda x: x.tolist()))
    else:
        _print_explanation(explanation, name, top)
    if out is not None:
        from roughformer.plots import plot_explanation

        out.mkdir(exist_ok=True)
        path = out / f"explanation_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)}.png"
        plot_explanation(explanation, one, 0, path=path)
        options.say(f"wrote {path}")


def _series_number(wanted: str | None, ids: list[Any], path: Path) -> int:
    """The place of a series by its id, or else by its number."""
    from roughformer.errors import InputError

    if not ids:
        raise InputError(f"{path} holds no series to explain")
    if wanted is None:
        return 0
    names = [str(key) for key in ids]
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < len(ids):
        return int(wanted)
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    raise InputError(f"{path} has no series {wanted!r}; its {len(ids)} series are {shown}")


def _print_explanation(explanation: Any, name: str, top: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"series {name}: {explanation.prediction}", markup=False)
    edges = explanation.window_edges
    windows = {
        f"{k} ({edges[k]:.6g} to {edges[k + 1]:.6g})": float(w)
        for k, w in enumerate(explanation.windows)
    }
    parts = (
        ("window", windows),
        ("channel", explanation.channels),
        ("word", explanation.words),
        ("static", explanation.static),
    )
    for title, numbers in parts:
        if not numbers:
            continue
        largest = sorted(numbers, key=lambda key: -abs(numbers[key]))[:top]
        table = Table(show_edge=False)
        more = f" ({len(largest)} of {len(numbers)})" if len(largest) < len(numbers) else ""
        table.add_column(title + more)
        table.add_column("importance", justify="right")
        for key in largest:
            table.add_row(key.replace("[", r"\["), f"{numbers[key]:+.4g}")
        console.print(table)


@options.grouped
def forecast(
    data: options.Data,
    table: options.FullTableOptions,
    model: Annotated[
        Path | None,
        option(
            "Directory of a forecaster: used if it is there, else learned from DATA (or "
            "--train) and written there (default: learned and not kept)."
        ),
    ] = None,
    train: Annotated[Path | None, option("Series to learn from (default: DATA itself).")] = None,
    at: Annotated[
        str | None, option("Times to answer for, e.g. 10,20 or 2024-03-01T12:00; past or future.")
    ] = None,
    ahead: Annotated[
        str | None,
        option(
            "Or: how long after the end of each series, e.g. 1,2,24, in the unit of the times, "
            "or 30min,2h,1d for dates (default: ten steps up to the horizon)."
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        option(
            "How far ahead to learn, e.g. 24 or 12h (default: --ahead, or half a usual series, at "
            "most 100 gaps)."
        ),
    ] = None,
    known_future: Annotated[
        str | None,
        option(
            "Channels to learn with whose rows go on after the end, with nothing in the others."
        ),
    ] = None,
    interval: Annotated[
        float, option("Share of new values that the intervals are to cover.")
    ] = 0.9,
    out: Annotated[
        Path | None, option("File to write, .csv or .parquet (default: CSV on stdout).")
    ] = None,
    report: Annotated[
        Path | None,
        option(
            "Page to write (.html): forecasts of the last part of each series of DATA beside "
            "what came, with errors against the horizon. Meaningful with --train or a model."
        ),
    ] = None,
    one_series: Annotated[
        bool,
        option(
            "All rows of the table are one series, in any order (default: if it has no ids and "
            "its times rise).",
            "--one-series",
        ),
    ] = False,
    steps: Annotated[int | None, option("Steps of training (default: 3000).", min=1)] = None,
    seed: Annotated[int, option("Seed of the training.")] = 0,
    threads: options.Threads = None,
) -> None:
    """Forecast or interpolate: a row for each series, time and channel, with an interval."""
    if at is not None and ahead is not None:
        raise typer.BadParameter("give one of them only", param_hint="--at, --ahead")
    if one_series and table.series_id is not None:
        raise typer.BadParameter("give one of them only", param_hint="--one-series, --series-id")
    options.check_place(out, "--out")
    options.check_place(report, "--report")
    from roughformer.runs import forecast_file

    forecast_file(
        data, table.columns(), model=model, train=train, at=options.words_of(at),
        ahead=options.words_of(ahead), horizon=horizon,
        known_future=options.words_of(known_future), interval=interval, out=out,
        report=report, one_series=one_series, steps=steps, seed=seed, threads=threads,
    )  # fmt: skip
    for path in (out, report):
        if path is not None:
            options.say(f"wrote {path}")
