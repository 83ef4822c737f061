"""``roughformer predict``."""

from pathlib import Path
from typing import Annotated

import typer

from roughformer.cli import _options as options

__all__ = ["predict"]


def predict(
    run: options.Run,
    data: options.Data,
    out: Annotated[
        Path | None, typer.Option(help="File to write, .csv or .parquet (default: CSV on stdout).")
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Also the probability of each class.")
    ] = False,
    windows_out: Annotated[
        Path | None,
        typer.Option(help="Also the predictions of a causal model at every window, .csv/.parquet."),
    ] = None,
    drop: Annotated[
        float, typer.Option(min=0, help="Share of each series' points to leave out.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the dropping.")] = 0,
    series_id: options.SeriesId = None,
    time: options.Time = None,
    channel: options.Channel = None,
    value: options.Value = None,
    threads: options.Threads = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.")] = "cpu",
) -> None:
    """Predict with a trained model: series id, prediction, probabilities, std or quantiles.

    Tables are read as in training: their columns need not be named again.
    """
    from roughformer.cli._prediction import predict_file

    given = options.columns_of(series_id, time, channel, value, None)
    predict_file(
        run, data, given, out=out, proba=proba, windows_out=windows_out, drop=drop, seed=seed,
        threads=threads, device=device,
    )  # fmt: skip
    for path in (out, windows_out):
        if path is not None:
            options.say(f"wrote {path}")
