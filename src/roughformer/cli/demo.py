"""``roughformer demo``: the tokens of irregular series, measured and drawn."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roughformer.errors import InputError
from roughformer.io import make_sine
from roughformer.lifts import Time
from roughformer.series import SeriesBatch
from roughformer.signatures.api import multiview_signature
from roughformer.signatures.features import feature_names
from roughformer.signatures.library import engine_info

__all__ = ["run_demo"]


def run_demo(
    out: Path, n_series: int, length: int, n_windows: int, depth: int, drop: float, seed: int
) -> None:
    """Make sine series, take their tokens full and thinned, print times, draw one series."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    engine = engine_info()
    console.print(
        f"engine: [bold]{engine['engine']}[/bold] {engine.get('instruction_set', '')} "
        f"({engine['threads']} threads)"
    )
    with console.status(f"making {n_series} series of {length} points"):
        batch = make_sine(n_samples=n_series, length=length, seed=seed)
    table = Table(title="multi-view signatures")
    for heading in ("series", "points", "tokens", "ms", "million points/s"):
        table.add_column(heading, justify="left" if heading == "series" else "right")
    tokens: dict[str, npt.NDArray[Any]] = {}
    kinds = (("all points", 0.0), (f"{drop:.0%} dropped", drop))
    with console.status("computing signatures"):
        for name, fraction in kinds:
            options: dict[str, Any] = {"lifts": (Time(),), "drop": fraction, "seed": seed}
            multiview_signature(batch[:2], n_windows, depth, **options)  # loads the engine
            start = time.perf_counter()
            tokens[name] = multiview_signature(batch, n_windows, depth, **options)
            seconds = time.perf_counter() - start
            kept = batch.n_points - int(fraction * batch.n_points)
            shape = " x ".join(map(str, tokens[name].shape))
            rate = batch.n_points / seconds / 1e6
            table.add_row(name, f"{kept:,}", shape, f"{1e3 * seconds:.1f}", f"{rate:.0f}")
    console.print(table)
    full, thin = tokens.values()
    slowest = int(np.argmin(batch.static[:, 0])) if batch.static is not None else 0
    alike = _correlation(full[slowest], thin[slowest])
    console.print(
        f"the series drawn: its token coordinates with {drop:.0%} dropped correlate {alike:.2f} "
        "with those of all points (mean over coordinates that vary)"
    )
    path = _draw(out, batch, slowest, full, thin, n_windows, depth, drop, seed)
    console.print(f"picture: [bold]{path}[/bold]")


def _correlation(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Mean over the coordinates of their correlation along the windows; (L, d), (L, d)."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    size = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    varies = size > 1e-9
    return float(((a * b).sum(axis=0)[varies] / size[varies]).mean())


def _draw(
    out: Path,
    batch: SeriesBatch,
    i: int,
    full: npt.NDArray[Any],
    thin: npt.NDArray[Any],
    n_windows: int,
    depth: int,
    drop: float,
    seed: int,
) -> Path:
    """A slow series, its thinned copy, and the tokens of both."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("the demo draws a picture: pip install 'roughformer[plots]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    scale = np.abs(full[i]).max(axis=0) + 1e-12
    figure, axes = plt.subplots(4, 1, figsize=(10, 9), layout="constrained", sharex=True)
    thinned = batch.drop_points(drop, seed)
    for row, (title, part, tokens) in enumerate(
        (("all points", batch, full), (f"{drop:.0%} of the points dropped", thinned, thin))
    ):
        t, x = part.series(i)
        cuts = np.linspace(t[0], t[-1], n_windows + 1)
        top, bottom = axes[2 * row], axes[2 * row + 1]
        top.vlines(cuts, x.min(), x.max(), color="0.85", lw=0.6)
        top.plot(t, x[:, 0], ".-", ms=2, lw=0.5, color=f"C{row}")
        top.set_title(f"{title}: {len(t)} points, {n_windows} windows", loc="left", fontsize=10)
        top.set_ylabel("x(t)")
        bottom.imshow(
            (tokens[i] / scale).T,
            aspect="auto",
            extent=(t[0], t[-1], tokens.shape[2], 0),
            cmap="RdBu_r",
            vmin=-1,
            vmax=1,
            interpolation="nearest",
        )
        bottom.set_title("its tokens", loc="left", fontsize=10)
        names = feature_names(batch.channels, depth, lifts=(Time(),))
        if len(names) <= 20:
            bottom.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=7)
    axes[-1].set_xlabel("t")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "multiview.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
