"""What a search shows while it runs, and what it keeps on the disk of trials that ended."""

import shutil
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from roughformer.cli._options import say
from roughformer.tune import Ended, Reported, Study, rows_of, summary_line, trial_directory

__all__ = ["Told"]


class Told:
    """A context, called with every event: a bar on a terminal, one line a trial everywhere."""

    def __init__(self, study: Study, metric: str, trials: int, work: Path, *, quiet: bool) -> None:
        """``work``: directory of the trials."""
        self.study, self.metric, self.trials, self.work = study, metric, trials, work
        self.quiet = quiet
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        """Open the bar."""
        if not self.quiet and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(bar_width=24),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[facts]}"),
                progress.TimeElapsedColumn(),
                progress.TextColumn("left"),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task("search", total=self.trials, facts="")
            self._show("")
        return self

    def __call__(self, event: Reported | Ended) -> None:
        """An epoch or a trial has ended."""
        if isinstance(event, Reported):
            self._show(f"trial {event.number} epoch {event.epoch}")
            return
        self._forget(event.number)
        if not self.quiet:
            row = rows_of(self.study)[event.number]
            best = self.study.best
            mark = " *" if best is not None and best.number == event.number else ""
            say(f"[{self._done()}/{self.trials}] {summary_line(row, self.metric)}{mark}")
        self._show("")

    def _done(self) -> int:
        return len(self.study) - len(self.study.unfinished())

    def _show(self, now: str) -> None:
        if self._bar is not None:
            best = self.study.best
            score = "" if best is None else f"best {self.metric} {best.value:.4g}"
            self._bar.update(self._task, completed=self._done(), facts=f"{score}  {now}".strip())

    def _forget(self, number: int) -> None:
        """Of the trials that ended only the best one's state is kept."""
        best = self.study.best
        keep = None if best is None else trial_directory(self.work, best.number)
        running = {trial_directory(self.work, n) for n in self.study.unfinished()}
        if self.work.is_dir():
            for path in self.work.iterdir():
                if path != keep and path not in running:
                    shutil.rmtree(path, ignore_errors=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.stop()
