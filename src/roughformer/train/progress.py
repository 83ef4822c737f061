"""What training shows while it runs: a bar on a terminal, one line an epoch elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any, Self

__all__ = ["Progress"]


class Progress:
    """A context: ``step`` after each batch, ``epoch`` after each epoch; silent if not ``shown``."""

    def __init__(self, shown: bool, total_steps: int, title: str = "training") -> None:
        """``total_steps`` over all epochs."""
        self.shown, self.total, self.title = shown, total_steps, title
        self._bar: Any = None
        self._task: Any = None
        self._last_line = -1e9
        self._start = 0.0
        self._first = 0

    def __enter__(self) -> Self:
        """Open the bar."""
        self._start = time.perf_counter()
        if self.shown and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(bar_width=24),
                progress.TextColumn("{task.fields[facts]}"),
                progress.TimeElapsedColumn(),
                progress.TextColumn("left"),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, facts="")
        return self

    def resumed(self, done: int) -> None:
        """Steps that an earlier process has done."""
        self._first = done
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def step(self, done: int, loss: float, rate: float, metric: str) -> None:
        """After a batch: steps done in all, its loss, series per second, the last metric."""
        if self._bar is not None:
            facts = f"loss {loss:.4g}  {metric}  {rate:,.0f} series/s"
            self._bar.update(self._task, completed=done, facts=facts)

    def epoch(self, record: dict[str, Any], done: int, epochs: int, best: bool) -> None:
        """After an epoch. Lines are at least a second apart, the last one always comes."""
        if not self.shown or self._bar is not None:
            return
        now = time.perf_counter()
        last = record["epoch"] == epochs
        if now - self._last_line < 1.0 and not last:
            return
        self._last_line = now
        worked = max(done - self._first, 1)
        left = (now - self._start) / worked * (self.total - done)
        scores = f"  {record['metric']} {record['valid_metric']:.4g}" if record["metric"] else ""
        print(
            f"{self.title}: epoch {record['epoch']}/{epochs}  loss {record['train_loss']:.4g}"
            f"{scores}{' *' if best else ''}  {record['samples_per_second']:,.0f} series/s  "
            f"{left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.stop()
