"""The end of an epoch: validate, keep the best weights, decide whether to go on."""

import math
from typing import Any

import torch
from torch import Tensor

from roughformer.model.inference import run_model
from roughformer.model.outputs import loss_of
from roughformer.train.config import TrainConfig
from roughformer.train.data import TrainingData
from roughformer.train.inputs import Inputs, take
from roughformer.train.metrics import better
from roughformer.train.state import TrainState
from roughformer.train.step import spread
from roughformer.train.team import Team
from roughformer.train.trainee import Trainee

__all__ = ["close_epoch"]


def close_epoch(
    trainee: Trainee,
    data: TrainingData,
    config: TrainConfig,
    state: TrainState,
    seconds: float,
    rate: float,
    team: Team,
) -> tuple[dict[str, Any], bool]:
    """The record of the epoch, and whether it is the best one. ``state`` moves on to the next.

    The processes share the work; the first one makes the record, from which all decide alike.
    """
    output = None
    if data.valid is not None:
        output = _outputs(trainee, data.valid[0], 4 * config.batch_size, team)
    record = team.once(lambda: _record(data, state, seconds, rate, output))
    trainee.gather()
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
            weights = trainee.model.state_dict()
            state.best = {k: v.detach().cpu().clone() for k, v in weights.items()}
    tired = config.patience is not None and state.stale >= config.patience
    broke = config.max_seconds is not None and config.max_seconds <= sum(
        record["seconds"] for record in state.history
    )
    state.finished = state.epoch >= config.epochs or tired or broke
    return record, best


def _outputs(trainee: Trainee, inputs: Inputs, size: int, team: Team) -> Tensor:
    """Outputs of the validation part. It is cut as one process cuts it, and the pieces are dealt
    out, so that the outputs have the same bits whatever the number of processes.
    """
    if team.alone:
        return run_model(trainee.module, inputs, trainee.device, size)
    n = len(inputs["times"])
    pieces = [slice(i, i + size) for i in range(0, max(n, 1), size)]
    found = {}
    for i in range(team.rank, -(-len(pieces) // team.size) * team.size, team.size):
        if i < len(pieces):
            piece = take(inputs, pieces[i])
            found[i] = run_model(trainee.module, piece, trainee.device, size)
        elif trainee.together:
            run_model(trainee.module, take(inputs, slice(0, 1)), trainee.device, size)
    told = team.gathered(found)
    whole = {i: output for some in told for i, output in some.items()}
    return torch.cat([whole[i] for i in range(len(pieces))])


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
    aim = spread(target, inputs, data.outputs)
    weight = None if data.class_weight is None else data.class_weight.cpu()
    scores = data.scores(output, target)
    loss = loss_of(output, aim, data.outputs, weight, sample_weight=data.valid_weight)
    record["valid_loss"] = float(loss)
    scores["loss"] = record["valid_loss"]
    # A validation part of one class has no AUROC: then the loss decides.
    name = "loss" if math.isnan(scores[data.metric]) else data.metric
    record["metric"], record["valid_metric"] = name, scores[name]
    # Those that there are: the record goes into JSON, which has no NaN.
    record["valid_scores"] = {k: v for k, v in scores.items() if not math.isnan(v)}
    return record
