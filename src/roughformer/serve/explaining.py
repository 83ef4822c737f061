"""What drove an answer, made aside from the thread that predicts."""

import asyncio
import contextlib
import copy
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from roughformer.inference.explanation import Explanation, explain
from roughformer.inference.predictor import Predictor
from roughformer.series import SeriesBatch
from roughformer.serve.refusal import Refusal

__all__ = ["Explainer", "check_size"]

_WAITING = 2  # explanations that are made or wait; the page asks again anyhow
_MOST_POINTS = 20_000  # of a series that is explained
_MOST_WINDOWS = 200


def check_size(predictor: Predictor, batch: SeriesBatch) -> None:
    """Every window is hidden once, so the work grows with the square of their number."""
    count = getattr(predictor.encoder, "n_positions", None)
    windows = 0 if count is None else int(count(batch))
    for what, found, most in (
        ("observations", batch.n_points, _MOST_POINTS),
        ("windows", windows, _MOST_WINDOWS),
    ):
        if found > most:
            raise Refusal(
                400, f"a series of at most {most} {what} is explained, got {found}; send its end"
            )


class Explainer:
    """Explanations, one after the other, on a copy of the model: explaining sets hooks on it, and
    the thread that predicts must not meet them.
    """

    def __init__(self, predictor: Predictor) -> None:
        """Nothing is explained yet."""
        self._predictor = replace(predictor, model=copy.deepcopy(predictor.model).eval())
        self._alone = threading.Lock()
        self._waiting = 0

    async def explain(self, batch: SeriesBatch, target: Any, seconds: float) -> dict[str, Any]:
        """Plain data for JSON; a refusal if others wait already, or if it takes too long."""
        if self._waiting >= _WAITING:
            raise Refusal(503, "other explanations are being made; ask again", retry_after=1)
        try:
            async with asyncio.timeout(seconds):
                found: dict[str, Any] = await self._begun(batch, target)
                return found
        except TimeoutError:
            raise Refusal(503, f"there was no explanation within {seconds:g} s") from None

    def _begun(self, batch: SeriesBatch, target: Any) -> "asyncio.Future[Any]":
        """In a daemon: the service can stop without waiting for the end of an explanation."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting += 1

        def work() -> None:
            result: Any
            try:
                with self._alone:
                    (found,) = explain(self._predictor, batch, n_words=0, target=target)
                result = _plain(found)
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop has ended, nobody waits
                loop.call_soon_threadsafe(self._settle, future, result)

        threading.Thread(target=work, name="explain", daemon=True).start()
        return future

    def _settle(self, future: "asyncio.Future[Any]", result: Any) -> None:
        self._waiting -= 1
        if future.done():  # given up meanwhile
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def _plain(found: Explanation) -> dict[str, Any]:
    """``share``: of the sum of all sizes, 0 if nothing changes anything."""
    target = found.target.item() if isinstance(found.target, np.generic) else found.target
    edges = found.window_edges
    windows = [
        {"start": edges[k], "end": edges[k + 1]} | part
        for k, part in enumerate(_shares(found.windows.tolist()))
    ]
    channels = [
        {"name": name} | part
        for name, part in zip(found.channels, _shares([*found.channels.values()]), strict=True)
    ]
    return {
        "prediction": found.prediction,
        "target": target,
        "value": found.value,
        "channels": channels,
        "windows": windows,
    }


def _shares(importance: list[float]) -> list[dict[str, float]]:
    total = sum(map(abs, importance)) or 1.0
    return [{"importance": x, "share": abs(x) / total} for x in importance]
