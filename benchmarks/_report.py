"""Tables for people: one for each task, and the targets of the project."""

from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_targets", "print_task", "targets"]

Row = dict[str, Any]


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _number(x: float | None, form: str) -> str:
    return "" if x is None else format(x, form)


def print_task(
    console: Console,
    title: str,
    rows: list[Row],
    skipped: dict[str, str],
    notes: dict[str, str],
) -> None:
    """Rows of one task, what was skipped and why, and what each contender does."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("contender", "time", "to pySigLib", "to floor", "max rel error", "extra MB"):
        table.add_column(name, justify="left" if name == "contender" else "right", no_wrap=True)
    for row in sorted(rows, key=lambda r: r["seconds"]):
        ours = row["contender"] == "roughformer"
        table.add_row(
            row["contender"],
            _time(row["seconds"]),
            _number(row["ratio_to_pysiglib"], ".3f"),
            _number(row["ratio_to_floor"], ".2f"),
            _number(row["max_rel_error"], ".1e"),
            _number(row["peak_mb"], ".1f"),
            style="bold" if ours else "dim" if row["contender"].startswith("floor") else "",
        )
    console.print(table)
    for name, note in notes.items():
        console.print(f"  {name}: {note}", style="dim", highlight=False)
    for name, reason in skipped.items():
        console.print(f"  skipped {name}: {reason}", style="yellow", highlight=False)
    console.print()


def targets(rows: list[Row]) -> list[tuple[str, str, bool]]:
    """``(target, measured, met)`` for each target whose tasks were run."""
    seconds = {(r["task"], r["contender"]): r["seconds"] for r in rows}
    found: list[tuple[str, str, bool]] = []

    def ratio(task: str, a: str, b: str) -> float | None:
        if (task, a) not in seconds or (task, b) not in seconds:
            return None
        return float(seconds[task, a] / seconds[task, b])

    def say(target: str, value: float | None, limit: float, least: bool, more: str = "") -> None:
        if value is not None:
            met = value >= limit if least else value <= limit
            found.append((target, f"{value:.2f}x{more}", met))

    least = {"sine": (7, 5), "hr": (7, 5), "long": (7, 5), "wide2": (2.5,) * 2, "wide3": (2.5,) * 2}
    for task, (least_reused, least_fresh) in least.items():
        value = ratio(task, "pysiglib", "roughformer")
        say(f"{task}: at least {least_reused}x faster than pySigLib", value, least_reused, True)
        value = ratio(task, "pysiglib", "roughformer_fresh")
        reused = ratio(task, "roughformer_fresh", "roughformer")
        more = "" if reused is None else f" ({reused:.2f}x the time of a reused one)"
        target = f"{task}: at least {least_fresh}x faster with a new result each call"
        say(target, value, least_fresh, True, more)
    for task in ("sine", "hr", "long"):
        fresh = ratio(task, "roughformer_fresh", "floor")
        more = "" if fresh is None else f" (new result each call: {fresh:.2f}x)"
        value = ratio(task, "roughformer", "floor")
        say(f"{task}: at most 1.8x the floor", value, 1.8, False, more)
    for task in ("sine", "hr", "long", "wide2", "wide3"):
        name = f"{task}_dropped"
        for who in ("compacted", "unequal"):
            value = ratio(name, f"roughformer_{who}", "roughformer_regular")
            target = f"{name}: ragged ({who}) at most 1.5x as many regular points"
            grid = ratio(name, f"roughformer_{who}", "roughformer_grid")
            more = "" if grid is None else f" (to regular points on one shared grid: {grid:.2f}x)"
            say(target, value, 1.5, False, more)
        value = ratio(name, "roughformer", "roughformer_regular")
        say(f"{name}: dropped in the kernel, the same", value, 1.5, False)
    for who, views in (("roughformer_global", "the global view"), ("roughformer", "both views")):
        one = seconds.get(("stream1000", who))
        if one is not None:
            target = f"stream1000: push and read {views} at most 60 µs"
            found.append((target, f"{one * 1e6:.1f} µs", one <= 60e-6))
    for task in ("sine", "hr", "long", "wide2", "wide3"):
        value = ratio(f"logsig_{task}", "roughformer", "roughformer_signature")
        say(f"logsig_{task}: at most 1.3x the signature", value, 1.3, False)
    for task in ("sine", "hr", "long", "wide2", "wide3"):
        for suffix, what in (("", "backward"), ("_step", "forward and backward")):
            a, b = f"pysiglib{suffix}", f"roughformer{suffix}"
            value = ratio(f"backward_{task}", a, b)
            say(f"backward_{task}: {what} at least as fast as pySigLib", value, 1, True)
    for group, suffixes in (("forward", ("roughformer",)), ("backward", ("roughformer_step",))):
        peaks = [
            (r["peak_mb"], r["task"])
            for r in rows
            if r["contender"] in suffixes
            and r["peak_mb"] is not None
            and r["task"].startswith("backward") == (group == "backward")
        ]
        if peaks:
            most, task = max(peaks)
            target = f"{group}: at most 64 MB beyond input and output"
            found.append((target, f"{most:.1f} MB ({task})", most <= 64))
    return found


def print_targets(console: Console, rows: list[Row]) -> None:
    """The table target / measured / met."""
    table = Table(title="Targets", title_justify="left", title_style="bold")
    for name in ("target", "measured", "met"):
        table.add_column(name)
    for target, measured, met in targets(rows):
        table.add_row(target, measured, "[green]yes[/]" if met else "[red]no[/]")
    console.print(table)
