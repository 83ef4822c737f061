"""The README's picture: time relative to pySigLib, a panel for each task, on a log axis."""

from pathlib import Path
from typing import Any

__all__ = ["plot"]

_NAMES = {
    "roughformer": "roughformer",
    "roughformer_1_thread": "roughformer, 1 thread",
    "pysiglib": "pySigLib",
    "signax": "signax",
    "iisignature": "iisignature",
    "torch": "torch (our twin)",
}
_PANELS = {
    "sine": "sine\n1000×2000×2, depth 2",
    "hr": "heart rate\n5500×4000×3, depth 4",
    "long": "long\n181×18000×7, depth 2",
    "wide2": "wide\n256×1500×20, depth 2",
    "wide3": "wide\n64×1500×20, depth 3",
}


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Write ``file``: bars start at pySigLib = 1, to the left is faster."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    ratio = {(r["task"], r["contender"]): r["ratio_to_pysiglib"] for r in rows}
    panels = [t for t in _PANELS if (t, "pysiglib") in ratio]
    shown = [c for c in _NAMES if any((t, c) in ratio for t in panels)]
    if not panels:
        raise ValueError(f"nothing to draw: none of the tasks {', '.join(_PANELS)} was run")
    numbers = [ratio[t, c] for t in panels for c in [*shown, "floor"] if (t, c) in ratio]
    low, high = min(numbers) / 1.6, max(max(numbers) * 5, 100)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(2.3 * len(panels) + 1.6, 3.1), sharey=True, squeeze=False
    )
    for panel, axis in zip(panels, axes[0], strict=True):
        for place, name in enumerate(shown):
            value = ratio.get((panel, name))
            if value is None:
                axis.text(1, place, " skipped", va="center", fontsize=8, color="#888888")
                continue
            colour = "#c8102e" if name.startswith("roughformer") else "#8c96a3"
            axis.barh(place, value - 1, left=1, height=0.62, color=colour, zorder=2)
            slower = f"{value:.2g}×" if value > 1 else "1"
            text = f"{1 / value:.2g}× faster" if value < 1 else slower
            # A faster bar ends on the left, so the right of the line is free for its label.
            axis.text(max(value, 1) * 1.15, place, text, va="center", fontsize=8, zorder=3)
        floor = ratio.get((panel, "floor"))
        if floor is not None:
            axis.axvline(floor, color="#1f4e79", linestyle=":", linewidth=1.3, zorder=1)
        axis.axvline(1, color="#444444", linewidth=0.8, zorder=3)
        axis.set_xscale("log")
        axis.set_xlim(low, high)
        axis.set_title(_PANELS[panel], fontsize=9)
        axis.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
        axis.tick_params(labelsize=8, length=2)
        axis.tick_params(axis="y", length=0)
        axis.minorticks_off()
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    axes[0][0].set_yticks(range(len(shown)), [_NAMES[c] for c in shown])
    axes[0][0].invert_yaxis()
    figure.supxlabel(
        "time relative to pySigLib (log scale); left is faster; "
        "dotted: copying the input and filling the output",
        fontsize=8.5,
    )
    figure.tight_layout()
    figure.savefig(file, dpi=150)
    plt.close(figure)
