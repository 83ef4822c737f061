"""How a model is trained, as plain data."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from roughformer.util.groups import Group

Callback = Callable[[dict[str, Any]], Any]


def _as_range(rate: Any) -> Any:
    """One number is the range from itself to itself."""
    number = isinstance(rate, int | float | np.number) and not isinstance(rate, bool)
    if not number and not isinstance(rate, tuple | list | np.ndarray):
        raise ValueError(f"drop must be a number in [0, 1) or a range of two, got {rate!r}")
    return (rate, rate) if number else rate


def _as_callbacks(callbacks: Any) -> Any:
    """One function is one callback."""
    return (callbacks,) if callable(callbacks) else callbacks


class TrainConfig(Group):
    """Augmentation, optimiser, schedule and stopping. The defaults are the best recipe we know.

    In an estimator, ``seed`` and ``device`` are set by its parameters ``random_state`` and
    ``device``.
    """

    set_by: ClassVar[dict[str, str]] = {"seed": "random_state", "device": "device"}

    drop: Annotated[tuple[float, float], BeforeValidator(_as_range)] = Field(
        (0.0, 0.0),
        description="Share of the points left out: a number, or a range that shares are drawn "
        "from, anew for every few batches.",
    )
    jitter: float = Field(
        0.0, ge=0, description="Noise on the values, in standard deviations of their channel."
    )
    channel_dropout: float = Field(
        0.0, ge=0, lt=1, description="Chance that a channel of a series is not observed at all."
    )
    warp: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Time runs faster by a factor between 1 - warp and 1 + warp; the target of "
        "a RateRegressor is scaled along.",
    )

    draws: int = Field(
        0,
        ge=0,
        description="0: everything is drawn anew in each epoch. n: n changed copies of the "
        "training part are made once and used in turn, their drop rates evenly over the range.",
    )
    epochs: int = Field(60, ge=1, description="Maximum number of passes over the training part.")
    batch_size: int = Field(32, ge=1, description="Series in a step.")
    learning_rate: float = Field(2e-3, gt=0, description="Highest rate of the schedule.")
    weight_decay: float = Field(0.01, ge=0, description="Of AdamW.")
    schedule: Literal["onecycle", "cosine", "constant"] = Field(
        "onecycle", description="onecycle: up over 30 % and down; cosine: up over 5 % and down."
    )
    clip_norm: float = Field(1.0, gt=0, description="Largest norm of the gradient.")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="Share of the label given to all classes alike."
    )
    metric: str = Field(
        "auto",
        description="Score of the validation part that chooses the best epoch. auto: log_loss, "
        "rmse, or the loss of a model of rates.",
    )
    patience: int | None = Field(
        20,
        ge=1,
        description="Stop after this many epochs without a better validation; None: never.",
    )
    n_estimators: int = Field(
        1,
        ge=1,
        description="Number of models, each validated on another part, whose predictions are "
        "averaged.",
    )
    max_seconds: float | None = Field(
        None,
        gt=0,
        description="A budget of time: the schedule is compressed to it. What fits in depends on "
        "the machine, so a run with a budget is not repeatable bit for bit.",
    )
    seed: int = Field(0, ge=0, lt=2**63)
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="bfloat16 where the device is fast at it."
    )
    compile: bool = Field(False, description="torch.compile: slower on a CPU at usual sizes.")
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    resume: bool = Field(
        False, exclude=True, description="Continue the interrupted run in run_dir."
    )
    save_seconds: float = Field(
        60.0, ge=0, description="Seconds after which the state is saved inside an epoch."
    )
    calibrate: bool = Field(
        True, description="Fit a temperature, or a factor on deviations, to the validation part."
    )
    num_workers: int = Field(
        0, ge=0, description="Processes that read a feature store; 0: a thread does."
    )
    baselines: bool = Field(
        True,
        description="Fit simple baselines to the same parts as a network, for summary() and the "
        "report.",
    )
    tensorboard: bool = Field(False, description="Write events for TensorBoard to run_dir.")
    callbacks: Annotated[tuple[Callback, ...], BeforeValidator(_as_callbacks)] = Field(
        (),
        exclude=True,
        description="Functions that get the record of each epoch; one that returns True ends the "
        "training. They are not saved with the model.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        low, high = self.drop
        if not 0 <= low <= high < 1:
            raise ValueError(f"drop must be in [0, 1), a range increasing, got {self.drop}")
        return self

    @property
    def changes(self) -> bool:
        """Whether the series change from epoch to epoch."""
        return self.drop[1] > 0 or self.jitter > 0 or self.channel_dropout > 0 or self.warp > 0
