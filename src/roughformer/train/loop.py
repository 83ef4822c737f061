"""The training loop."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from roughformer.errors import CheckpointError, InputError
from roughformer.model import OutputConfig, loss_of, run_model
from roughformer.train.data import SAMPLE_WEIGHT, Inputs, Source, TrainConfig
from roughformer.train.validation import better
from roughformer.util.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

_CLOCK: ContextVar[Callable[[], float]] = ContextVar("_CLOCK", default=time.perf_counter)


def now() -> float:
    """Seconds of the clock in force; only differences mean something."""
    return _CLOCK.get()()


def _processor() -> float:
    """Processor time of all threads of this process, by the number of torch's threads: what the
    wall would show if the threads were always busy and nothing else ran.
    """
    return time.process_time() / torch.get_num_threads()


@contextmanager
def processor_time() -> Iterator[None]:
    """Inside, epochs are timed and budgets (``max_seconds``) spent in processor time: other work
    on the machine makes the training later, and not shorter.
    """
    token = _CLOCK.set(_processor)
    try:
        yield
    finally:
        _CLOCK.reset(token)


# The learning rate as a function of the step: no state, so nothing to restore on resume.

_RISE = {"onecycle": 0.3, "cosine": 0.05, "constant": 0.0}


def rate_factor(schedule: str, step: float, total: float) -> float:
    """Share of the highest rate at ``step`` of ``total``.

    onecycle: half a cosine from 1/25 up to 1 over 30 % of the steps, then half a cosine to 1e-4.
    cosine: a line up over 5 %, then half a cosine to 0. constant: 1.
    """
    if schedule == "constant":
        return 1.0
    rise = max(_RISE[schedule] * total, 1.0)
    if step < rise:
        if schedule == "cosine":
            return (step + 1) / (rise + 1)
        return 1.0 - (1.0 - 1 / 25) * 0.5 * (1 + math.cos(math.pi * step / rise))
    along = min((step - rise) / max(total - rise, 1.0), 1.0)
    low = 1e-4 if schedule == "onecycle" else 0.0
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * along))


# The record of a training: one JSON object a line, and TensorBoard where it is installed.


class TrainingLog:
    """``log.jsonl`` in a run's directory; ``tensorboard=True`` writes events beside it."""

    def __init__(self, directory: Path | None, tensorboard: bool = False) -> None:
        """``directory=None`` writes nothing."""
        self.path = None if directory is None else directory / "log.jsonl"
        self._writer: Any = None
        if tensorboard:
            if directory is None:
                raise InputError("TensorBoard needs a directory: give run_dir=")
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise InputError(
                    "TensorBoard is not installed: pip install 'roughformer[tensorboard]'"
                ) from None
            self._writer = SummaryWriter(str(directory / "tensorboard"))

    def restart(self, records: list[dict[str, Any]]) -> None:
        """Begin with these records: what a killed process wrote after its last save is dropped."""
        if self.path is not None:
            aside = self.path.with_suffix(".tmp")
            aside.write_text("".join(json.dumps(r) + "\n" for r in records))
            os.replace(aside, self.path)

    def write(self, record: dict[str, Any]) -> None:
        """Add a record."""
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(record) + "\n")
        if self._writer is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "epoch":
                    self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        """Flush what TensorBoard holds."""
        if self._writer is not None:
            self._writer.close()


# What training shows while it runs: a bar on a terminal, one line an epoch elsewhere.


class Progress:
    """A context: ``step`` after each batch, ``epoch`` after each epoch; silent if not ``shown``."""

    def __init__(self, shown: bool, total_steps: int, title: str = "training") -> None:
        """``total_steps`` over all epochs."""
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self.total, self.title = total_steps, title
        self._lines = shown and not console.is_terminal
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.fields[facts]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=console,
            disable=not shown or not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=total_steps, facts="")
        self._last_line, self._start, self._first = -1e9, 0.0, 0

    def __enter__(self) -> Self:
        """Open the bar."""
        self._start = time.perf_counter()
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the bar."""
        self._bar.stop()

    def resumed(self, done: int) -> None:
        """Steps that an earlier process has done."""
        self._first = done
        self._bar.update(self._task, completed=done)

    def step(self, done: int, loss: float, rate: float, metric: str) -> None:
        """After a batch: steps done in all, its loss, series per second, the last metric."""
        facts = f"loss {loss:.4g}  {metric}  {rate:,.0f} series/s"
        self._bar.update(self._task, completed=done, facts=facts)

    def epoch(self, record: dict[str, Any], done: int, epochs: int, best: bool) -> None:
        """After an epoch. Lines are at least a second apart, the last one always comes."""
        now = time.perf_counter()
        if not self._lines or (now - self._last_line < 1.0 and record["epoch"] < epochs):
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


# What a model learns from.


@dataclass(frozen=True)
class TrainingData:
    """What a model learns from.

    ``valid``: inputs and targets (as the loss takes them) of the validation part, or None;
    ``scores(outputs, targets)`` in units of the world, of which ``metric`` decides. ``key``: a
    hash of data and configuration, which a training that goes on must share. ``valid_weight``: of
    the series of the validation part.
    """

    source: Source
    outputs: OutputConfig
    valid: tuple[Inputs, Tensor] | None = None
    scores: Callable[[Tensor, Tensor], dict[str, float]] | None = None
    metric: str = ""
    class_weight: Tensor | None = None
    key: str = ""
    valid_weight: Tensor | None = None


# Everything a training needs to go on bit for bit where it was stopped.


@dataclass
class TrainState:
    """Where a training is. The order of batches and all draws follow from (seed, epoch, step)."""

    epoch: int = 0  # epochs completed
    step: int = 0  # steps completed in the epoch that runs
    loss_sum: float = 0.0  # of the epoch that runs
    loss_count: int = 0
    seconds: float = 0.0  # spent in the epoch that runs, by earlier processes
    stale: int = 0  # epochs since the best one
    finished: bool = False
    best_metric: float | None = None
    best_epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] | None = None

    @classmethod
    def of(cls, saved: Checkpoint) -> "TrainState":
        """The state in what ``read_state`` gives."""
        return cls(**saved.config["state"], best=saved.tensors.get("best"))


def save_state(
    directory: Path, key: str, state: TrainState, model: nn.Module, moments: dict[str, Tensor]
) -> None:
    """Write the state, with the ``moments`` of the optimiser; ``key`` names the configuration and
    data that it belongs to.
    """
    tensors = {
        "model": dict(model.state_dict()),
        "optimizer": moments,
        "random": {"torch": torch.get_rng_state()},
    }
    if torch.cuda.is_available():
        tensors["random"] |= {f"cuda{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    if state.best is not None:
        tensors["best"] = state.best
    plain = {f.name: getattr(state, f.name) for f in fields(state) if f.name != "best"}
    save_checkpoint(directory, {"kind": "training", "key": key, "state": plain}, tensors)


def read_state(directory: Path, key: str) -> Checkpoint | None:
    """What ``save_state`` wrote for the same data and configuration; None if there is nothing."""
    if not directory.exists():
        return None
    saved = load_checkpoint(directory)
    if saved.config.get("kind") != "training":
        raise CheckpointError(f"{directory} holds no training state")
    if saved.config["key"] != key:
        raise CheckpointError(
            f"the training saved in {directory} had other data or another configuration; resume "
            "it with the same ones, or start anew in another directory"
        )
    return saved


def restore_random(saved: Checkpoint) -> None:
    """Put torch's random numbers back."""
    random = saved.tensors["random"]
    torch.set_rng_state(random["torch"])
    if torch.cuda.is_available() and "cuda0" in random:
        torch.cuda.set_rng_state_all([random[f"cuda{i}"] for i in range(len(random) - 1)])


# A model in training: on its device, in its precision.


class Strategy:
    """A model in training, and its optimiser.

    ``module`` is what is called in training and validation: ``model`` in its precision.
    """

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        """Put the model on its device."""
        self.model, self.config = model, config
        self.device = _device(config)
        self.apart = bool(getattr(model, "answers_apart", False))
        module: nn.Module = model.to(self.device)
        if config.precision == "bfloat16":
            module = _InHalf(module, self.device)
        self.module: Any = torch.compile(module) if config.compile else module
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def answers(self, inputs: dict[str, Tensor]) -> Tensor:
        """``(k, B, ...)``: the answers of the model, to be trained each by itself."""
        on_device = {name: x.to(self.device) for name, x in inputs.items()}
        answers: Tensor = self.module(**on_device, **({"separate": True} if self.apart else {}))
        return answers if self.apart else answers.unsqueeze(0)

    def update(self, rate: float) -> None:
        """A step of the optimiser, the gradients clipped."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()

    def moments(self) -> dict[str, Tensor]:
        """What the optimiser remembers, as ``number.name``."""
        return {
            f"{i}.{name}": x if isinstance(x, Tensor) else torch.tensor(x)
            for i, entry in self.optimizer.state_dict()["state"].items()
            for name, x in entry.items()
        }

    def remember(self, moments: dict[str, Tensor]) -> None:
        """Go on with what ``moments`` gave, in another process."""
        entries: dict[int, dict[str, Tensor]] = {}
        for name, x in moments.items():
            number, part = name.split(".", 1)
            entries.setdefault(int(number), {})[part] = x
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": entries})


class _InHalf(nn.Module):
    """The model with its products in bfloat16 and its answers in float32."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.model, self.kind = model, device.type

    def forward(self, **inputs: Any) -> Tensor:
        with torch.autocast(self.kind, torch.bfloat16):
            answer: Tensor = self.model(**inputs)
        return answer.float()


def check_device(device: str) -> None:
    """``InputError`` if torch does not see it."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda', but torch sees no CUDA device here; use device='auto'")
    if device == "mps" and not torch.backends.mps.is_available():
        raise InputError("device='mps', but torch sees no such device here; use device='auto'")


def _device(config: TrainConfig) -> torch.device:
    check_device(config.device)
    if config.device == "cpu":
        return torch.device("cpu")
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


# One step of training.


def spread(target: Tensor, inputs: Inputs, outputs: OutputConfig) -> Tensor:
    """Targets of a causal model at each window: one per series counts for all its windows."""
    if not outputs.causal:
        return target
    length, mask = inputs["times"].shape[1], inputs.get("mask")
    classes = outputs.task == "classification"
    if target.dim() == (1 if classes else 2):
        target = target.unsqueeze(1).expand(-1, length, *target.shape[1:])
    # Windows of a batch may be fewer than those of the longest series; never more.
    if target.shape[1] < length:
        raise InputError(
            f"there are {length} windows but targets for {target.shape[1]} of them; give as many "
            "as the series with most windows has"
        )
    target = target[:, :length]
    if mask is not None:
        hidden = mask.new_zeros(()).to(target.dtype) + (-1 if classes else float("nan"))
        real = mask if classes else mask.unsqueeze(-1)
        target = torch.where(real, target, hidden)
    return target


def batch_loss(
    strategy: Strategy, data: TrainingData, inputs: Inputs, target: Tensor, weight: Tensor | None
) -> Tensor:
    """The mean loss of a batch; ``weight (K,)`` of the classes, on the device."""
    target = spread(target, inputs, data.outputs).to(strategy.device)
    inputs = dict(inputs)
    series = inputs.pop(SAMPLE_WEIGHT, None)
    series = None if series is None else series.to(strategy.device)
    smoothing = strategy.config.label_smoothing
    losses = [
        loss_of(answer.float(), target, data.outputs, weight, smoothing, series)
        for answer in strategy.answers(inputs)
    ]
    return torch.stack(losses).mean()


# The end of an epoch: validate, keep the best weights, decide whether to go on.


def close_epoch(
    strategy: Strategy,
    data: TrainingData,
    config: TrainConfig,
    state: TrainState,
    seconds: float,
    rate: float,
) -> tuple[dict[str, Any], bool]:
    """The record of the epoch, and whether it is the best one. ``state`` moves on to the next."""
    output = None
    if data.valid is not None:
        size = 4 * config.batch_size
        output = run_model(strategy.module, data.valid[0], strategy.device, size)
    record = _record(data, state, seconds, rate, output)
    best = True
    if output is not None:
        best = better(record["metric"], record["valid_metric"], state.best_metric)
        if best:
            state.best_metric = record["valid_metric"]
    state.epoch, state.step = state.epoch + 1, 0
    state.loss_sum, state.loss_count, state.seconds = 0.0, 0, 0.0
    state.history.append(record)
    state.stale = 0 if best else state.stale + 1
    if best:
        state.best_epoch = state.epoch
        # Without validation the last weights are the result: they need not be kept twice.
        if data.valid is not None:
            weights = strategy.model.state_dict()
            state.best = {k: v.detach().cpu().clone() for k, v in weights.items()}
    tired = config.patience is not None and state.stale >= config.patience
    broke = config.max_seconds is not None and config.max_seconds <= sum(
        record["seconds"] for record in state.history
    )
    state.finished = state.epoch >= config.epochs or tired or broke
    return record, best


def _record(
    data: TrainingData, state: TrainState, seconds: float, rate: float, output: Tensor | None
) -> dict[str, Any]:
    watch = data.source.watch
    spent = state.seconds + seconds
    record: dict[str, Any] = {
        "epoch": state.epoch + 1,
        "train_loss": state.loss_sum / max(state.loss_count, 1),
        "valid_loss": None,
        "valid_metric": None,
        "metric": "",
        "learning_rate": rate,
        "seconds": spent,
        "samples_per_second": state.loss_count / spent if spent > 0 else 0.0,
        "encode_seconds": watch.encoding,
        "wait_seconds": watch.waiting,
    }
    if output is None:
        return record
    assert data.valid is not None
    assert data.scores is not None
    inputs, target = data.valid
    weight = None if data.class_weight is None else data.class_weight.cpu()
    loss = loss_of(
        output, spread(target, inputs, data.outputs), data.outputs, weight,
        sample_weight=data.valid_weight,
    )  # fmt: skip
    record["valid_loss"] = float(loss)
    scores = data.scores(output, target) | {"loss": record["valid_loss"]}
    # A validation part of one class has no AUROC: then the loss decides.
    name = "loss" if math.isnan(scores[data.metric]) else data.metric
    record["metric"], record["valid_metric"] = name, scores[name]
    # Those that there are: the record goes into JSON, which has no NaN.
    record["valid_scores"] = {k: v for k, v in scores.items() if not math.isnan(v)}
    return record


# The loop.


def train(
    model: nn.Module,
    data: TrainingData,
    config: TrainConfig,
    *,
    run_dir: Path | None = None,
    resume: bool = False,
    verbose: bool = False,
    tensorboard: bool = False,
) -> list[dict[str, Any]]:
    """Train ``model`` in place, leave the best weights in it, and return the record of each epoch.

    ``run_dir`` gets the log and, in ``state``, what ``resume=True`` goes on from bit for bit.
    The caller seeds torch before the weights are drawn, and this function goes on from there.
    When an epoch is saved, ``config.callbacks`` get its record. If one returns True the training
    ends there; what one raises is raised.
    """
    directory = None if run_dir is None else run_dir / "state"
    saved = None
    if resume:
        if directory is None:
            raise InputError("resume=True needs the directory of the run: run_dir=")
        saved = read_state(directory, data.key)
    state = TrainState()
    if saved is not None:
        model.load_state_dict(saved.tensors["model"])
    strategy = Strategy(model, config)
    if saved is not None:
        strategy.remember(saved.tensors["optimizer"])
        restore_random(saved)
        state = TrainState.of(saved)
    log = TrainingLog(run_dir, tensorboard)
    log.restart(state.history)
    saver = _Saver(directory, data.key, strategy)
    with Progress(verbose, config.epochs * data.source.n_steps) as progress:
        progress.resumed(state.epoch * data.source.n_steps + state.step)
        while not state.finished:
            since = now()
            rate = _epoch(strategy, data, config, state, saver, progress, since)
            record, best = close_epoch(strategy, data, config, state, now() - since, rate)
            log.write(record)
            progress.epoch(record, state.epoch * data.source.n_steps, config.epochs, best)
            saver.save(state)
            if config.callbacks and _callback_stops(config, record):
                state.finished = True
                saver.save(state)
    log.close()
    if state.best is not None:
        model.load_state_dict(state.best)
    model.to(strategy.device).eval()
    return state.history


def _callback_stops(config: TrainConfig, record: dict[str, Any]) -> bool:
    """Call every callback; whether one of them ends the training."""
    answers = [callback(dict(record)) for callback in config.callbacks]
    return any(isinstance(answer, bool | np.bool_) and answer for answer in answers)


@dataclass
class _Saver:
    """Saves the state of a training, if it has a place for it."""

    directory: Path | None
    key: str
    strategy: Strategy
    last: float = field(default_factory=time.perf_counter)

    def save(self, state: TrainState) -> None:
        """Write what is in ``strategy.model``."""
        if self.directory is not None:
            strategy = self.strategy
            save_state(self.directory, self.key, state, strategy.model, strategy.moments())
            self.last = time.perf_counter()

    def due(self, seconds: float) -> bool:
        """Whether the last save is longer ago."""
        return self.directory is not None and time.perf_counter() - self.last > seconds


def _epoch(
    strategy: Strategy,
    data: TrainingData,
    config: TrainConfig,
    state: TrainState,
    saver: _Saver,
    progress: Progress,
    since: float,
) -> float:
    """What is left of an epoch; the last learning rate."""
    source = data.source
    source.watch.encoding = source.watch.waiting = 0.0
    total = config.epochs * source.n_steps
    weight = None if data.class_weight is None else data.class_weight.to(strategy.device)
    strategy.module.train()
    rate = 0.0
    for inputs, target in source.epoch(state.epoch, state.step):
        done = state.epoch * source.n_steps + state.step
        along = max(float(done), _budget_used(config, state, since) * total)
        if along >= total:
            break
        save = saver.due(config.save_seconds)
        loss = batch_loss(strategy, data, inputs, target, weight)
        strategy.optimizer.zero_grad()
        torch.autograd.backward(loss)
        batch_mean = float(loss.detach())
        rate = config.learning_rate * rate_factor(config.schedule, along, total)
        strategy.update(rate)
        if math.isnan(batch_mean):
            raise InputError(
                f"the loss became NaN in epoch {state.epoch + 1}; lower the learning rate "
                f"({config.learning_rate:g})"
            )
        state.step += 1
        state.loss_sum += batch_mean * len(target)
        state.loss_count += len(target)
        seconds = state.seconds + now() - since
        speed = state.loss_count / seconds
        last = state.history[-1]["valid_metric"] if state.history else None
        metric = "" if last is None else f"{data.metric} {last:.4g}"
        progress.step(done + 1, batch_mean, speed, metric)
        if save:
            saver.save(replace(state, seconds=seconds))
    return rate


def _budget_used(config: TrainConfig, state: TrainState, since: float) -> float:
    """Share of the budget of time that is spent; 0 without a budget."""
    if config.max_seconds is None:
        return 0.0
    earlier = sum(record["seconds"] for record in state.history) + state.seconds
    return float(earlier + now() - since) / config.max_seconds
