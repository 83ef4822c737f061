"""The training loop: one process, or several that a launcher started."""

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from roughformer.errors import CheckpointError, InputError
from roughformer.model import OutputConfig, loss_of, loss_weight, run_model
from roughformer.train.data import SAMPLE_WEIGHT, Inputs, Source, TrainConfig, take
from roughformer.train.distributed import ProcessGroup, current_process_group, report_lost_process
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


@dataclass(frozen=True)
class Share:
    """Inputs and targets of the series of a batch that this process takes, or why it has none."""

    inputs: Inputs
    target: Tensor
    problem: Exception | None = None


def shares(source: Source, epoch: int, first: int, processes: ProcessGroup) -> Iterator[Share]:
    """The shares of this process. An error in making one is handed over, and the last: others wait
    for this process and must be told.
    """
    batches = source.epoch(epoch, first, processes.rank, processes.size)
    while True:
        try:
            share = Share(*next(batches))
        except StopIteration:
            return
        except Exception as error:
            if processes.alone:
                raise
            yield Share({}, torch.zeros(0), error)
            return
        yield share


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
    data that it belongs to. Nothing in it depends on the number of processes.
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


# A model in training: on its device, in its precision, alone or together with other processes.


class Strategy:
    """A model in training, and its optimiser.

    ``module`` is what is called in training and validation: ``model`` in its precision, with
    gradients averaged over the processes where there are several (DDP).
    """

    def __init__(self, model: nn.Module, config: TrainConfig, processes: ProcessGroup) -> None:
        """All processes begin with the weights of the first."""
        self.model, self.config, self.processes = model, config, processes
        self.device = _device(config, processes)
        self.apart = bool(getattr(model, "answers_apart", False))
        module: nn.Module = model.to(self.device)
        if config.precision == "bfloat16":
            module = _InHalf(module, self.device)
        if not processes.alone:
            module = _averaged(module)
        self.module: Any = torch.compile(module) if config.compile else module
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def backward(self, loss: Tensor) -> None:
        """Gradients of a loss; with others, means over the processes."""
        self.optimizer.zero_grad()
        with nullcontext() if self.processes.alone else report_lost_process():
            torch.autograd.backward(loss)

    def answers(self, inputs: dict[str, Tensor]) -> Tensor:
        """``(k, B, ...)``: the answers of the model, to be trained each by itself."""
        on_device = {name: x.to(self.device) for name, x in inputs.items()}
        answers: Tensor = self.module(**on_device, **({"separate": True} if self.apart else {}))
        return answers if self.apart else answers.unsqueeze(0)

    def update(self, rate: float, factor: float = 1.0) -> None:
        """A step of the optimiser with ``factor`` times the gradients, clipped."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        weights = list(self.model.parameters())
        if factor != 1.0:
            torch._foreach_mul_([w.grad for w in weights if w.grad is not None], factor)
        nn.utils.clip_grad_norm_(weights, self.config.clip_norm)
        self.optimizer.step()

    def moments(self) -> dict[str, Tensor]:
        """What the optimiser remembers, as ``number.name``."""
        return {
            f"{i}.{name}": x if isinstance(x, Tensor) else torch.tensor(x)
            for i, entry in self.optimizer.state_dict()["state"].items()
            for name, x in entry.items()
        }

    def remember(self, moments: dict[str, Tensor]) -> None:
        """Go on with what ``moments`` gave, in another process or another number of them."""
        entries: dict[int, dict[str, Tensor]] = {}
        for name, x in moments.items():
            number, part = name.split(".", 1)
            entries.setdefault(int(number), {})[part] = x
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": entries})


def _averaged(module: nn.Module) -> nn.Module:
    """Every process has a copy, which begins with the weights of the first."""
    with report_lost_process():
        for tensor in chain(module.parameters(), module.buffers()):
            dist.broadcast(tensor.detach(), src=0)
    with warnings.catch_warnings():
        # A newer name of this option is not known to all versions of torch that we take.
        warnings.filterwarnings("ignore", ".*broadcast_buffers.*")
        # Buffers are statistics of the training part: they do not change any more.
        return DistributedDataParallel(module, broadcast_buffers=False)


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


def _device(config: TrainConfig, processes: ProcessGroup) -> torch.device:
    check_device(config.device)
    if config.device == "cpu":
        return torch.device("cpu")
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None or (device.type == "mps" and not processes.alone):  # no processes share one
        return torch.device("cpu")
    if device.type == "cuda" and not processes.alone:
        number = int(os.environ.get("LOCAL_RANK", processes.rank)) % torch.cuda.device_count()
        torch.cuda.set_device(number)
        return torch.device("cuda", number)
    return device


# One step of training: the loss of a global batch, whoever has which of its series.


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


@dataclass(frozen=True)
class Batch:
    """A step as all processes see it."""

    loss: float  # of the global batch
    count: int  # its series
    along: float  # steps or share of the budget that are done, by the clock of the first process
    save: bool  # whether to save the state now


@dataclass
class TrainStep:
    """How shares of batches become gradients.

    With L_r the mean loss of process r's share and W_r the weight of its known targets, the loss
    of the global batch is Σ_r W_r L_r / Σ_r W_r. The processes average the gradients of W_r L_r;
    times size / Σ_r W_r they are those of one process that has all series.
    """

    strategy: Strategy
    outputs: OutputConfig
    class_weight: Tensor | None
    smoothing: float
    processes: ProcessGroup
    idle: Inputs  # of some series, for a process whose share is empty

    def learn(self, share: Share, along: float, save: bool) -> tuple[Batch, float]:
        """Make the gradients; also the factor that they still need."""
        processes, strategy = self.processes, self.strategy
        loss, weight, problem = self._loss(share)
        if processes.alone:
            strategy.backward(loss)
            return Batch(float(loss.detach()), len(share.target), along, save), 1.0
        strategy.backward(loss * weight)
        of_first = (along, float(save)) if processes.first else (0.0, 0.0)
        loss_sum, total, count, along, saving, failed = processes.sums(
            float(loss.detach()) * weight,
            weight,
            len(share.target),
            *of_first,
            problem is not None,
        )
        if failed:
            processes.agreed(lambda: _raise(problem))
        total = max(total, 1e-12)
        return Batch(loss_sum / total, int(count), along, saving > 0), processes.size / total

    def _loss(self, share: Share) -> tuple[Tensor, float, Exception | None]:
        """The mean loss of the share, its weight, and why there is none."""
        problem = share.problem
        if problem is None and len(share.target):
            try:
                return *self._loss_and_weight(share), None
            except Exception as error:
                if self.processes.alone:
                    raise
                problem = error
        # The others wait for gradients of this process: zeros.
        nothing = self.strategy.answers(self.idle).nan_to_num().sum() * 0
        return nothing, 0.0, problem

    def _loss_and_weight(self, share: Share) -> tuple[Tensor, float]:
        device, classes = self.strategy.device, self.class_weight
        target = spread(share.target, share.inputs, self.outputs).to(device)
        inputs = dict(share.inputs)
        series = inputs.pop(SAMPLE_WEIGHT, None)
        series = None if series is None else series.to(device)
        weight = 1.0
        if not self.processes.alone:
            weight = float(loss_weight(target, self.outputs, classes, series))
        losses = [
            loss_of(answer.float(), target, self.outputs, classes, self.smoothing, series)
            for answer in self.strategy.answers(inputs)
        ]
        return torch.stack(losses).mean(), weight

    def noise(self, seed: int, epoch: int, step: int) -> None:
        """Dropout of processes must differ, and follow from what a resumed training knows."""
        if not self.processes.alone:
            entropy = [seed, epoch, step, self.processes.rank, self.processes.size]
            state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
            torch.manual_seed(int(state[0] >> 1))


def _raise(problem: Exception | None) -> None:
    if problem is not None:
        raise problem


# The end of an epoch: validate, keep the best weights, decide whether to go on.


def close_epoch(
    strategy: Strategy,
    data: TrainingData,
    config: TrainConfig,
    state: TrainState,
    seconds: float,
    rate: float,
    processes: ProcessGroup,
) -> tuple[dict[str, Any], bool]:
    """The record of the epoch, and whether it is the best one. ``state`` moves on to the next.

    The processes share the work; the first one makes the record, from which all decide alike.
    """
    output = None
    if data.valid is not None:
        output = _outputs(strategy, data.valid[0], 4 * config.batch_size, processes)
    record = processes.once(lambda: _record(data, state, seconds, rate, output))
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


def _outputs(strategy: Strategy, inputs: Inputs, size: int, processes: ProcessGroup) -> Tensor:
    """Outputs of the validation part. It is cut as one process cuts it, and the pieces are dealt
    out, so that the outputs have the same bits whatever the number of processes.
    """
    if processes.alone:
        return run_model(strategy.module, inputs, strategy.device, size)
    pieces = [slice(i, i + size) for i in range(0, max(len(inputs["times"]), 1), size)]
    own = {
        i: run_model(strategy.module, take(inputs, pieces[i]), strategy.device, size)
        for i in range(processes.rank, len(pieces), processes.size)
    }
    outputs = {i: output for part in processes.gathered(own) for i, output in part.items()}
    return torch.cat([outputs[i] for i in range(len(pieces))])


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


# The training loop: one process, or several that a launcher started.


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
    When an epoch is saved, ``config.callbacks`` get its record, in the first process only. If one
    returns True the training ends there; what one raises is raised.

    In a process that was started together with others (``current_process_group``) all of them must
    call this, with the same arguments: they share each batch, and end with the same weights. Files
    are written and read by the first one only.
    """
    processes = current_process_group()
    if len(set(processes.gathered(data.key))) > 1:
        raise InputError(
            "the processes of this training have different data or configurations; start them "
            "all with the same ones"
        )
    directory = None if run_dir is None else run_dir / "state"
    saved = None
    if resume:
        if directory is None:
            raise InputError("resume=True needs the directory of the run: run_dir=")
        saved = processes.once(lambda: read_state(directory, data.key))
    state = TrainState()
    if saved is not None:
        model.load_state_dict(saved.tensors["model"])
    strategy = Strategy(model, config, processes)
    if saved is not None:
        strategy.remember(saved.tensors["optimizer"])
        restore_random(saved)
        state = TrainState.of(saved)
    log = processes.agreed(
        lambda: TrainingLog(run_dir if processes.first else None, tensorboard and processes.first)
    )
    log.restart(state.history)
    saver = _Saver(directory, data.key, strategy, processes)
    total = config.epochs * data.source.n_steps
    with Progress(verbose and processes.first, total) as progress:
        progress.resumed(state.epoch * data.source.n_steps + state.step)
        while not state.finished:
            since = now()
            rate = _epoch(strategy, data, config, state, saver, progress, since)
            seconds = now() - since
            record, best = close_epoch(strategy, data, config, state, seconds, rate, processes)
            log.write(record)
            done = state.epoch * data.source.n_steps
            progress.epoch(record, done, config.epochs, best)
            saver.save(state)
            if config.callbacks and _callback_stops(config, record, processes):
                state.finished = True
                saver.save(state)
    log.close()
    if state.best is not None:
        model.load_state_dict(state.best)
    model.to(strategy.device).eval()
    return state.history


def _callback_stops(config: TrainConfig, record: dict[str, Any], processes: ProcessGroup) -> bool:
    """Call every callback, in the first process; whether one of them ends the training."""

    def call() -> bool:
        answers = [callback(dict(record)) for callback in config.callbacks]
        return any(isinstance(answer, bool | np.bool_) and answer for answer in answers)

    return processes.once(call)


@dataclass
class _Saver:
    """Saves the state of a training, if it has a place for it."""

    directory: Path | None
    key: str
    strategy: Strategy
    processes: ProcessGroup
    last: float = field(default_factory=time.perf_counter)

    def save(self, state: TrainState) -> None:
        """All processes must call it; the first one writes what is in ``strategy.model``."""
        directory = self.directory
        if directory is None:
            return
        model, moments = self.strategy.model, self.strategy.moments()

        def write() -> None:
            if self.processes.first:
                save_state(directory, self.key, state, model, moments)

        self.processes.agreed(write)
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
    source, processes = data.source, strategy.processes
    source.watch.encoding = source.watch.waiting = 0.0
    total = config.epochs * source.n_steps
    weight = None if data.class_weight is None else data.class_weight.to(strategy.device)
    idle = {} if processes.alone else source.sample(1)
    train_step = TrainStep(strategy, data.outputs, weight, config.label_smoothing, processes, idle)
    strategy.module.train()
    rate = 0.0
    for share in shares(source, state.epoch, state.step, processes):
        done = state.epoch * source.n_steps + state.step
        along = max(float(done), _budget_used(config, state, since) * total)
        if processes.alone and along >= total:
            break
        train_step.noise(config.seed, state.epoch, state.step)
        batch, factor = train_step.learn(share, along, saver.due(config.save_seconds))
        if batch.along >= total:  # the first process looks at the clock for all
            break
        rate = config.learning_rate * rate_factor(config.schedule, batch.along, total)
        strategy.update(rate, factor)
        if not batch.loss == batch.loss:
            raise InputError(
                f"the loss became NaN in epoch {state.epoch + 1}; lower the learning rate "
                f"({config.learning_rate:g})"
            )
        state.step += 1
        state.loss_sum += batch.loss * batch.count
        state.loss_count += batch.count
        seconds = state.seconds + now() - since
        speed = state.loss_count / seconds
        last = state.history[-1]["valid_metric"] if state.history else None
        metric = "" if last is None else f"{data.metric} {last:.4g}"
        progress.step(done + 1, batch.loss, speed, metric)
        if batch.save:
            saver.save(replace(state, seconds=seconds))
    return rate


def _budget_used(config: TrainConfig, state: TrainState, since: float) -> float:
    """Share of the budget of time that is spent; 0 without a budget."""
    if config.max_seconds is None:
        return 0.0
    earlier = sum(record["seconds"] for record in state.history) + state.seconds
    return float(earlier + now() - since) / config.max_seconds
