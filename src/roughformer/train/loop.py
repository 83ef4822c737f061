"""The training loop, on accelerate: devices, mixed precision and several processes are its work."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from roughformer.errors import InputError
from roughformer.model.inference import run_model
from roughformer.model.outputs import OutputConfig, loss_of
from roughformer.train.config import TrainConfig
from roughformer.train.log import TrainingLog
from roughformer.train.metrics import better
from roughformer.train.progress import Progress
from roughformer.train.schedule import rate_factor
from roughformer.train.source import Inputs, Source
from roughformer.train.state import TrainState, load_state, save_state

__all__ = ["TrainingData", "train"]

Scores = Callable[[Tensor, Tensor], dict[str, float]]


@dataclass(frozen=True)
class TrainingData:
    """What a model learns from.

    ``valid``: inputs and targets (as the loss takes them) of the validation part, or None;
    ``scores(outputs, targets)`` in units of the world, of which ``metric`` decides.
    """

    source: Source
    outputs: OutputConfig
    valid: tuple[Inputs, Tensor] | None = None
    scores: Scores | None = None
    metric: str = ""
    class_weight: Tensor | None = None
    key: str = ""


def _accelerator(config: TrainConfig) -> Any:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    if config.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda', but torch sees no CUDA device here; use device='auto'")
    if config.device == "mps" and not torch.backends.mps.is_available():
        raise InputError("device='mps', but torch sees no such device here; use device='auto'")
    # Its state is one for the process; another training may want another precision or device.
    if PartialState._shared_state and PartialState().num_processes == 1:
        AcceleratorState._reset_state(reset_partial_state=True)
    precision = "bf16" if config.precision == "bfloat16" else "no"
    return Accelerator(cpu=config.device == "cpu", mixed_precision=precision)


def _spread(output: Tensor, target: Tensor, outputs: OutputConfig, mask: Tensor | None) -> Tensor:
    """Targets of a causal model at each window: one per series counts for all its windows."""
    if not outputs.causal:
        return target
    length = output.shape[1]
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
    """
    accelerator = _accelerator(config)
    source = data.source
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    bare = model
    apart = bool(getattr(model, "answers_apart", False))
    prepared, optimizer = accelerator.prepare(model, optimizer)
    if config.compile:
        prepared = torch.compile(prepared)
    weight = None if data.class_weight is None else data.class_weight.to(accelerator.device)
    state = TrainState()
    where = None if run_dir is None else run_dir / "state"
    if resume:
        if where is None:
            raise InputError("resume=True needs the directory of the run: run_dir=")
        if where.exists():
            state = load_state(where, data.key, bare, optimizer.optimizer)
    log = TrainingLog(run_dir, tensorboard)
    log.restart(state.history)
    total = config.epochs * source.n_steps
    saved = time.perf_counter()
    with Progress(verbose, total) as progress:
        progress.resumed(state.epoch * source.n_steps + state.step)
        while not state.finished:
            before = time.perf_counter()
            source.watch.encoding = source.watch.waiting = 0.0
            prepared.train()
            rate = 0.0
            for inputs, target in source.epoch(state.epoch, state.step):
                done = state.epoch * source.n_steps + state.step
                along = max(float(done), _budget_used(config, state, before) * total)
                if along >= total:
                    break
                rate = config.learning_rate * rate_factor(config.schedule, along, total)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                inputs = {k: v.to(accelerator.device) for k, v in inputs.items()}
                answers = (
                    prepared(**inputs, separate=True) if apart else prepared(**inputs).unsqueeze(0)
                )
                aim = _spread(
                    answers[0], target.to(accelerator.device), data.outputs, inputs.get("mask")
                )
                smooth = config.label_smoothing
                losses = [
                    loss_of(answer.float(), aim, data.outputs, weight, smooth) for answer in answers
                ]
                loss = torch.stack(losses).mean()
                optimizer.zero_grad()
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(bare.parameters(), config.clip_norm)
                optimizer.step()
                value = float(loss.detach())
                if not value == value:
                    raise InputError(
                        f"the loss became NaN in epoch {state.epoch + 1}; lower the learning rate "
                        f"({config.learning_rate:g})"
                    )
                state.step += 1
                state.loss_sum += value * len(target)
                state.loss_count += len(target)
                now = time.perf_counter()
                speed = state.loss_count / (state.seconds + now - before)
                progress.step(done + 1, value, speed, _shown(data.metric, state))
                if where is not None and now - saved > config.save_seconds:
                    spent = state.seconds
                    state.seconds += now - before
                    save_state(where, data.key, state, bare, optimizer.optimizer)
                    state.seconds = spent
                    saved = time.perf_counter()
            record, best = _close_epoch(
                prepared, bare, data, config, state, time.perf_counter() - before, rate,
                accelerator.device,
            )  # fmt: skip
            log.write(record)
            progress.epoch(record, state.epoch * source.n_steps, config.epochs, best)
            if where is not None:
                save_state(where, data.key, state, bare, optimizer.optimizer)
                saved = time.perf_counter()
    log.close()
    if state.best is not None:
        bare.load_state_dict(state.best)
    # Mixed precision is for training: without this the model would keep its changed forward.
    accelerator.unwrap_model(prepared, keep_fp32_wrapper=False)
    bare.to(accelerator.device).eval()
    return state.history


def _budget_used(config: TrainConfig, state: TrainState, since: float) -> float:
    """Share of the budget of time that is spent; 0 without a budget."""
    if config.max_seconds is None:
        return 0.0
    earlier = sum(record["seconds"] for record in state.history) + state.seconds
    return float(earlier + time.perf_counter() - since) / config.max_seconds


def _shown(metric: str, state: TrainState) -> str:
    last = state.history[-1]["valid_metric"] if state.history else None
    return "" if last is None else f"{metric} {last:.4g}"


def _close_epoch(
    prepared: nn.Module,
    bare: nn.Module,
    data: TrainingData,
    config: TrainConfig,
    state: TrainState,
    seconds: float,
    rate: float,
    device: torch.device,
) -> tuple[dict[str, Any], bool]:
    """Validate, keep the best weights, decide whether to stop; the record, and whether best."""
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
    best = True
    if data.valid is not None and data.scores is not None:
        inputs, target = data.valid
        output = run_model(prepared, inputs, device, 4 * config.batch_size)
        aim = _spread(output, target, data.outputs, inputs.get("mask"))
        weight = None if data.class_weight is None else data.class_weight.cpu()
        scores = data.scores(output, target)
        record["valid_loss"] = float(loss_of(output, aim, data.outputs, weight))
        scores["loss"] = record["valid_loss"]
        # A validation part of one class has no AUROC: then the loss decides.
        name = "loss" if math.isnan(scores[data.metric]) else data.metric
        record["metric"], record["valid_metric"] = name, scores[name]
        # Those that there are: the record goes into JSON, which has no NaN.
        record["valid_scores"] = {k: v for k, v in scores.items() if not math.isnan(v)}
        best = better(name, scores[name], state.best_metric)
        if best:
            state.best_metric = scores[name]
    state.epoch, state.step = state.epoch + 1, 0
    state.loss_sum, state.loss_count, state.seconds = 0.0, 0, 0.0
    state.history.append(record)
    state.stale = 0 if best else state.stale + 1
    if best:
        state.best_epoch = state.epoch
        # Without validation the last weights are the result: they need not be kept twice.
        if data.valid is not None:
            state.best = {k: v.detach().cpu().clone() for k, v in bare.state_dict().items()}
    tired = config.patience is not None and state.stale >= config.patience
    broke = config.max_seconds is not None and config.max_seconds <= sum(
        record["seconds"] for record in state.history
    )
    state.finished = state.epoch >= config.epochs or tired or broke
    return record, best
