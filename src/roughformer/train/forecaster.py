"""The training loop of a forecaster, on moments drawn from the series themselves."""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from roughformer.model import (
    QUANTILES,
    Drawn,
    Forecaster,
    ScaledSeries,
    draw_forecasts,
    draw_interpolations,
    far_weight,
)

Array = npt.NDArray[Any]

_HUBER = 5.0  # standard deviations beyond which errors of the mean count linearly
_ROWS = 2  # moments of a series in one step of interpolation
_AVERAGED = 0.998  # decay of the running mean of the weights
_GIVEN = 0.8  # share of forecasts in training that see the future of channels that have a known one
_LOOKED = 50  # steps between two looks at what is held out, and four times as many later
_PATIENCE = 250  # training ends after twice the steps of the best look, and so many
_BALANCE = 0.5  # power of a channel's rarity that its targets are weighted by


def train_forecaster(
    model: Forecaster,
    data: ScaledSeries,
    *,
    horizon: float,
    steps: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    interpolation: bool,
    seed: int,
    device: torch.device,
    held: Sequence[Drawn] = (),
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Train in place, and leave the running mean of the weights; the losses on the way.

    The loss of what is ``held`` out is looked at now and then: the weights with the least one are
    left, and training ends when it has not become less for long. Its quantiles count as well, since
    intervals that were learned by heart are too narrow for calibration to mend.
    """
    rng = np.random.default_rng(seed)
    periods = model.periods.cpu().numpy()
    weight = _channel_weights(data.values).to(device)
    model.to(device).train()
    start = [model.prior, model.trend]  # not drawn to zero: they were chosen
    decayed = [p for p in model.parameters() if p.dim() > 1 and all(p is not x for x in start)]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": weight_decay},
            {"params": [*others, *start], "weight_decay": 0},
        ],
        lr=learning_rate,
    )
    averaged = deepcopy(model).eval()

    def held_loss() -> float:
        with torch.no_grad():
            return float(sum(_loss(averaged, drawn, weight, device) for drawn in held))

    least, best, best_step = (held_loss() if held else 0.0), averaged.state_dict(), 0
    best = {name: value.clone() for name, value in best.items()}
    history: list[dict[str, Any]] = []
    order, n = np.zeros(0, dtype=np.int64), len(data.offsets) - 1
    total, counted = 0.0, 0
    for step in range(steps):
        while len(order) < batch_size:  # of few series, several moments of each
            order = np.concatenate([order, rng.permutation(n)])
        series, order = order[:batch_size], order[batch_size:]
        drawn = [draw_forecasts(data, series, horizon, periods, rng, given=_GIVEN)]
        if interpolation and step % 2:
            drawn.append(draw_interpolations(data, np.repeat(series, _ROWS), periods, rng))
        losses = [_loss(model, d, weight, device) for d in drawn if len(d.target)]
        rate = learning_rate * min(1.0, (step + 1) / min(100, max(steps // 10, 1)))
        rate *= 0.51 + 0.49 * math.cos(math.pi * step / steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        if not losses:
            continue
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        decay = min(_AVERAGED, (step + 1) / (step + 20))
        with torch.no_grad():
            for mean, now in zip(averaged.parameters(), model.parameters(), strict=True):
                mean.lerp_(now, 1 - decay)
        total, counted = total + float(loss.detach()), counted + 1
        if counted == 100 or step == steps - 1:
            history.append({"step": step + 1, "loss": total / counted, "learning_rate": rate})
            total, counted = 0.0, 0
            if callback is not None:
                callback(history[-1])
        often = _LOOKED if step < 10 * _LOOKED else 4 * _LOOKED
        if held and ((step + 1) % often == 0 or step == steps - 1):
            loss_held = held_loss()
            if loss_held < least:
                least, best_step = loss_held, step + 1
                best = {name: value.clone() for name, value in averaged.state_dict().items()}
            elif step + 1 > 2 * best_step + _PATIENCE:
                break
    model.load_state_dict(best if held else averaged.state_dict())
    model.eval()
    return history


def _loss(model: Forecaster, drawn: Drawn, weight: Tensor, device: torch.device) -> Tensor:
    """Huber's loss of the mean and pinball losses of the quantiles, by channel."""
    moments = drawn.moments.to(device)
    queries = drawn.queries.to(device)
    target = drawn.target.to(device)
    mean, quantiles = model(moments, queries)
    size = model.own_units(moments)[1][queries.row, queries.channel]
    mean, quantiles, target = mean / size, quantiles / size.unsqueeze(1), target / size
    level = torch.tensor(QUANTILES, device=device)
    error = target.unsqueeze(1) - quantiles
    pinball = torch.maximum(level * error, (level - 1) * error).clamp(max=20).mean(dim=1)
    loss = F.huber_loss(mean, target, reduction="none", delta=_HUBER) + 2 * pinball
    each = weight[queries.channel]
    if not model.training:
        each = each * far_weight(queries.ahead / model.scales[0].to(queries.ahead))
    return (loss * each).sum() / each.sum()


def _channel_weights(values: Array) -> Tensor:
    """Weights of targets by channel: rare ones count more, though not as much as they are rare."""
    count = np.maximum((~np.isnan(values)).sum(axis=0), 1)
    rare: Array = (count.sum() / count) ** _BALANCE
    return torch.from_numpy((rare / rare.mean()).astype(np.float32))
