"""``roughformer evaluate``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import _options as options

__all__ = ["evaluate"]


def evaluate(
    run: options.Run,
    data: options.Data,
    target: Annotated[
        str | None, typer.Option(help="Column or name of the target (default: as in training).")
    ] = None,
    labels: options.Labels = None,
    drop: Annotated[
        str, typer.Option(help="Shares of points to leave out, e.g. 0,0.3,0.5,0.7.")
    ] = "0",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of dropped points for each share.")] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the scores to this file.")
    ] = None,
    series_id: options.SeriesId = None,
    time: options.Time = None,
    channel: options.Channel = None,
    value: options.Value = None,
    threads: options.Threads = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
) -> None:
    """Score a trained model on labelled series, as they are and with points left out."""
    from roughformer.cli._prediction import read_for, target_of
    from roughformer.cli._runs import load_model, write_json
    from roughformer.cli._scores import scores_at
    from roughformer.errors import InputError

    shares = options.numbers_of(drop, "--drop")
    if not shares or not all(0 <= share < 1 for share in shares):
        raise typer.BadParameter(f"shares from 0 to below 1, got {drop!r}", param_hint="--drop")
    options.check_place(json_file, "--json")
    estimator = load_model(run, threads, device)
    given = options.columns_of(series_id, time, channel, value, None)
    wanted = target or target_of(estimator)
    read = read_for(estimator, data, given, target=wanted, labels=labels)
    for note in read.notes:
        options.say(f"note: {note}")
    assert read.target is not None
    if len(read.batch) == 0:
        raise InputError(f"{data} holds no series to evaluate on")
    rows = [
        (share, scores_at(estimator.predictor_, read.batch, read.target, share, seeds, threads))
        for share in shares
    ]
    _print(rows, len(read.batch), seeds)
    if json_file is not None:
        plain = [
            {
                "drop": share,
                "seeds": seeds if share > 0 else 1,
                **{name: mean for name, (mean, _) in row.items()},
                "std": {name: std for name, (_, std) in row.items()},
            }
            for share, row in rows
        ]
        write_json(json_file, {"series": len(read.batch), "scores": plain})


def _print(rows: list[tuple[float, dict[str, Any]]], n: int, seeds: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{n} series" + (f", {seeds} draws of points" if seeds > 1 else ""))
    table.add_column("dropped", justify="right")
    for name in rows[0][1]:
        table.add_column(name.replace("_", " "), justify="right")
    for share, row in rows:
        several = seeds > 1 and share > 0
        cells = [f"{m:.4g} ± {s:.2g}" if several else f"{m:.4g}" for m, s in row.values()]
        table.add_row(f"{share:.0%}", *cells)
    Console().print(table)
