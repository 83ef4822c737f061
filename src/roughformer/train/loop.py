"""The training loop: one process, or several that a launcher started."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from roughformer.errors import InputError
from roughformer.train.clock import now
from roughformer.train.config import TrainConfig
from roughformer.train.data import TrainingData
from roughformer.train.feed import shares
from roughformer.train.log import TrainingLog
from roughformer.train.progress import Progress
from roughformer.train.schedule import rate_factor
from roughformer.train.state import TrainState, read_state, restore_random, save_state
from roughformer.train.step import Lesson
from roughformer.train.team import Team, current_team
from roughformer.train.trainee import Trainee, trainee_of
from roughformer.train.validate import close_epoch

__all__ = ["train"]


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

    In a process that was started together with others (``current_team``) all of them must call
    this, with the same arguments: they share each batch, and end with the same weights. Files are
    written and read by the first one only.
    """
    team = current_team()
    if len(set(team.gathered(data.key))) > 1:
        raise InputError(
            "the processes of this training have different data or configurations; start them "
            "all with the same ones"
        )
    where = None if run_dir is None else run_dir / "state"
    saved = None
    if resume:
        if where is None:
            raise InputError("resume=True needs the directory of the run: run_dir=")
        saved = team.once(lambda: read_state(where, data.key))
    state = TrainState()
    if saved is not None:
        model.load_state_dict(saved.tensors["model"])
    trainee = trainee_of(model, config, team)
    if saved is not None:
        trainee.remember(saved.tensors["optimizer"])
        restore_random(saved)
        state = TrainState.of(saved)
    log = team.agreed(
        lambda: TrainingLog(run_dir if team.first else None, tensorboard and team.first)
    )
    log.restart(state.history)
    keeper = _Keeper(where, data.key, trainee, team)
    total = config.epochs * data.source.n_steps
    with Progress(verbose and team.first, total) as progress:
        progress.resumed(state.epoch * data.source.n_steps + state.step)
        while not state.finished:
            since = now()
            rate = _epoch(trainee, data, config, state, keeper, progress, since)
            seconds = now() - since
            record, best = close_epoch(trainee, data, config, state, seconds, rate, team)
            log.write(record)
            done = state.epoch * data.source.n_steps
            progress.epoch(record, done, config.epochs, best)
            keeper.save(state)
            if config.callbacks and _told_to_stop(config, record, team):
                state.finished = True
                keeper.save(state)
    log.close()
    if state.best is not None:
        model.load_state_dict(state.best)
    model.to(trainee.device).eval()
    return state.history


def _told_to_stop(config: TrainConfig, record: dict[str, Any], team: Team) -> bool:
    """Call every callback, in the first process; whether one of them ends the training."""

    def call() -> bool:
        answers = [callback(dict(record)) for callback in config.callbacks]
        return any(isinstance(answer, bool | np.bool_) and answer for answer in answers)

    return team.once(call)


@dataclass
class _Keeper:
    """Saves the state of a training, if it has a place for it."""

    where: Path | None
    key: str
    trainee: Trainee
    team: Team
    last: float = field(default_factory=time.perf_counter)

    def save(self, state: TrainState) -> None:
        """All processes must call it; the first one writes what is in ``trainee.model``."""
        if self.where is None:
            return
        where, model, moments = self.where, self.trainee.model, self.trainee.moments()
        if self.team.first:
            self.team.agreed(lambda: save_state(where, self.key, state, model, moments))
        else:
            self.team.agreed(lambda: None)
        self.last = time.perf_counter()

    def due(self, seconds: float) -> bool:
        """Whether the last save is longer ago."""
        return self.where is not None and time.perf_counter() - self.last > seconds


def _epoch(
    trainee: Trainee,
    data: TrainingData,
    config: TrainConfig,
    state: TrainState,
    keeper: _Keeper,
    progress: Progress,
    since: float,
) -> float:
    """What is left of an epoch; the last learning rate."""
    source, team = data.source, trainee.team
    source.watch.encoding = source.watch.waiting = 0.0
    total = config.epochs * source.n_steps
    weight = None if data.class_weight is None else data.class_weight.to(trainee.device)
    idle = {} if team.alone else source.sample(1)
    lesson = Lesson(trainee, data.outputs, weight, config.label_smoothing, team, idle)
    trainee.module.train()
    rate = 0.0
    for share in shares(source, state.epoch, state.step, team):
        done = state.epoch * source.n_steps + state.step
        along = max(float(done), _budget_used(config, state, since) * total)
        if team.alone and along >= total:
            break
        lesson.noise(config.seed, state.epoch, state.step)
        batch, factor = lesson.learn(share, along, keeper.due(config.save_seconds))
        if batch.along >= total:  # the first process looks at the clock for all
            break
        rate = config.learning_rate * rate_factor(config.schedule, batch.along, total)
        trainee.update(rate, factor)
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
        progress.step(done + 1, batch.loss, speed, _shown(data.metric, state))
        if batch.save:
            trainee.gather()
            keeper.save(replace(state, seconds=seconds))
    return rate


def _budget_used(config: TrainConfig, state: TrainState, since: float) -> float:
    """Share of the budget of time that is spent; 0 without a budget."""
    if config.max_seconds is None:
        return 0.0
    earlier = sum(record["seconds"] for record in state.history) + state.seconds
    return float(earlier + now() - since) / config.max_seconds


def _shown(metric: str, state: TrainState) -> str:
    last = state.history[-1]["valid_metric"] if state.history else None
    return "" if last is None else f"{metric} {last:.4g}"
