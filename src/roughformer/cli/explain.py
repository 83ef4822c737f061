"""``roughformer explain``."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from roughformer.cli import _options as options

__all__ = ["explain"]


def explain(
    run: options.Run,
    data: options.Data,
    series: Annotated[
        str | None,
        typer.Option(help="Id or number (0, 1, ...) of one series (default: the first)."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Class to explain (default: the predicted one), or name or number (0, 1, ...) of "
            "one of several targets."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for a picture of each explanation.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    top: Annotated[int, typer.Option(min=1, help="Rows of each table.")] = 8,
    series_id: options.SeriesId = None,
    time: options.Time = None,
    channel: options.Channel = None,
    value: options.Value = None,
    threads: options.Threads = None,
) -> None:
    """Which windows, channels and signature words drove a prediction; tables and a picture.

    Above 0 spoke for the class (or raised the number), below 0 against it.
    """
    from roughformer.cli._data import ids_of
    from roughformer.cli._prediction import chosen_target, read_for
    from roughformer.cli._runs import load_model
    from roughformer.explain import explain as explain_batch
    from roughformer.threads import using_threads

    options.check_place(out, "--out")
    estimator = load_model(run, threads)
    chosen = chosen_target(estimator, target)
    given = options.columns_of(series_id, time, channel, value, None)
    batch = read_for(estimator, data, given).batch
    number = _number(series, ids_of(batch).tolist(), data)
    one = batch[number : number + 1]
    with using_threads(threads):
        (found,) = explain_batch(estimator.predictor_, one, n_words=max(top, 20), target=chosen)
    name = str(ids_of(batch)[number])
    if as_json:
        typer.echo(json.dumps(_plain(found, name), indent=2))
    else:
        _print(found, name, top)
    if out is not None:
        from roughformer.plots import plot_explanation

        out.mkdir(exist_ok=True)
        path = out / f"explanation_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)}.png"
        plot_explanation(found, one, 0, path=path)
        options.say(f"wrote {path}")


def _number(wish: str | None, ids: list[Any], path: Path) -> int:
    """The place of a series by its id, or else by its number."""
    from roughformer.errors import InputError

    if not ids:
        raise InputError(f"{path} holds no series to explain")
    if wish is None:
        return 0
    names = [str(key) for key in ids]
    if wish in names:
        return names.index(wish)
    if wish.isdecimal() and int(wish) < len(ids):
        return int(wish)
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    raise InputError(f"{path} has no series {wish!r}; its {len(ids)} series are {shown}")


def _plain(found: Any, name: str) -> dict[str, Any]:
    target = found.target.item() if hasattr(found.target, "item") else found.target
    return {
        "series_id": name,
        "prediction": found.prediction,
        "target": target,
        "value": float(found.value),
        "windows": [float(w) for w in found.windows],
        "window_edges": [float(t) for t in found.window_edges],
        "channels": found.channels,
        "words": found.words,
        "static": found.static,
    }


def _print(found: Any, name: str, top: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"series {name}: {found.prediction}", markup=False)
    edges = found.window_edges
    windows = {
        f"{k} ({edges[k]:.6g} to {edges[k + 1]:.6g})": float(w) for k, w in enumerate(found.windows)
    }
    parts = (
        ("window", windows),
        ("channel", found.channels),
        ("word", found.words),
        ("static", found.static),
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
