"""The model that is served: what it is, and its answers to whole series."""

import hashlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import roughformer
from roughformer.inference.predictor import Predictor
from roughformer.inference.targets import ClassTargets
from roughformer.series import SeriesBatch, UnobservedWarning
from roughformer.serve.limits import Limits
from roughformer.serve.numbers import bad
from roughformer.stream.answers import answers_of
from roughformer.stream.sliding import static_names
from roughformer.tokens import Tokenizer

__all__ = ["ServedModel"]

_TOKENS_AT_ONCE = 65_536  # padded tokens of series that are predicted together


class ServedModel:
    """A predictor and the facts that clients ask for. ``predict`` is the worker's alone."""

    def __init__(self, predictor: Predictor, directory: Path | None = None) -> None:
        """``directory``: of the model, to tell one model from another."""
        self.predictor = predictor
        encoder = predictor.encoder
        self.channels: tuple[str, ...] = tuple(encoder.channels)
        self.static_names = static_names(predictor)
        self.fingerprint = _fingerprint(directory)

    @property
    def classes(self) -> list[Any] | None:
        """Labels of a classification."""
        targets = self.predictor.targets
        return targets.labels.tolist() if isinstance(targets, ClassTargets) else None

    @property
    def targets(self) -> list[str]:
        """Names of the targets of a regression; their numbers where none were told."""
        if self.classes is not None:
            return []
        n = self.predictor.outputs.n_outputs
        told = str(self.predictor.metadata.get("data", {}).get("target", ""))
        names = [name.strip() for name in told.split(",")]
        return names if len(names) == n and all(names) else [str(k) for k in range(n)]

    @property
    def causal(self) -> bool:
        """Whether it predicts at the end of each window."""
        return self.predictor.outputs.causal

    def about(self) -> dict[str, Any]:
        """What ``GET /v1/model`` tells of the model itself."""
        outputs = self.predictor.outputs
        return {
            "task": outputs.task,
            "channels": list(self.channels),
            "static": list(self.static_names),
            "classes": self.classes,
            "targets": self.targets if self.classes is None else None,
            "uncertainty": outputs.uncertainty,
            "quantiles": list(outputs.quantiles) if outputs.uncertainty == "quantile" else None,
            "causal": outputs.causal,
            "windows": self._windows(),
            "fingerprint": self.fingerprint,
            "version": roughformer.__version__,
        }

    def _windows(self) -> dict[str, Any] | None:
        if not isinstance(self.predictor.encoder, Tokenizer):
            return None
        rule = self.predictor.encoder.config.rule
        return {"rule": rule.rule, "amount": rule.amount if rule.rule != "explicit" else None}

    # Size

    def check_size(self, batch: SeriesBatch, limits: Limits) -> None:
        """Two points far apart can be a million windows: refused before they are made."""
        encoder = self.predictor.encoder
        if not isinstance(encoder, Tokenizer):
            return
        rule = encoder.config.rule
        if rule.rule == "duration":
            start, end = batch.span
            counts = np.ceil((end - start) / rule.amount)
        elif rule.rule == "points":
            counts = np.ceil(batch.lengths / rule.amount)
        else:
            return
        if counts.max(initial=0) > limits.max_windows:
            number = int(np.argmax(counts))
            raise bad(
                f"it would have {counts[number]:.0f} windows of {rule.amount:g}, the limit is "
                f"{limits.max_windows}; are the times in the unit of the training series?",
                {"series": number},
            )
        if counts.sum() > limits.max_tokens:
            raise bad(
                f"the series would have {counts.sum():.0f} windows of {rule.amount:g} in all, "
                f"max_tokens = {limits.max_tokens} is the limit; send fewer series at once",
                {},
            )

    def n_tokens(self, batch: SeriesBatch) -> int:
        """Tokens of the longest series, which all of a batch are padded to."""
        count = getattr(self.predictor.encoder, "n_positions", None)
        return int(batch.lengths.max(initial=1)) if count is None else max(int(count(batch)), 1)

    def together(self, batches: list[SeriesBatch]) -> list[list[int]]:
        """Numbers of the batches in groups to predict at once: of similar length, and of no more
        padded tokens than fit.
        """
        sizes = [self.n_tokens(batch) for batch in batches]
        groups: list[list[int]] = []
        series = 0
        for i in sorted(range(len(batches)), key=sizes.__getitem__):
            series += len(batches[i])
            if not groups or series * sizes[i] > _TOKENS_AT_ONCE:
                groups.append([])
                series = len(batches[i])
            groups[-1].append(i)
        return groups

    # Answers

    def predict(self, batch: SeriesBatch) -> list[dict[str, Any]]:
        """One prediction a series, of JSON's types only."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnobservedWarning)  # the client's business
            return self._answers(batch)

    def _answers(self, batch: SeriesBatch) -> list[dict[str, Any]]:
        output, mask = self.predictor.forward(batch)
        last = self.predictor.at_last_window(output, mask)
        return answers_of(self.predictor, last).plain()


def _fingerprint(directory: Path | None) -> str:
    """Beginning of the SHA-256 of the manifest, which has those of all parts."""
    manifest = None if directory is None else directory / "manifest.json"
    if manifest is None or not manifest.exists():
        return "unsaved"
    return hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]
