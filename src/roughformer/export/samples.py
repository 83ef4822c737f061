"""Tokens of single samples, dense: as ``baselines/samples.py``."""

import torch
from torch import Tensor

from roughformer.baselines import SampleEncoder
from roughformer.export.dense import inside_of, number
from roughformer.export.filling import Observed, observation_order

__all__ = ["sample_inputs"]


def sample_inputs(encoder: SampleEncoder, data: Observed) -> dict[str, Tensor]:
    """``tokens (B, L, F)``, ``times (B, L)``, ``mask (B, L)``."""
    real = inside_of(data.lengths, data.since.shape[1])
    since = data.since / number(encoder.time_unit, data.since)
    before = torch.cat([since[:, :1], since[:, :-1]], dim=1)
    n_channels = len(encoder.channels)
    centre = torch.tensor(encoder.centre or (0.0,) * n_channels, dtype=torch.float64)
    values = data.values - centre.to(since.device)
    count, place = observation_order(data.seen)
    known = data.seen
    if encoder.fill == "forward":
        values, known = values.gather(1, place.gather(1, count)), count > 0
    parts = [
        torch.where(known, values, torch.nan),
        data.seen.double(),
        (since - before).unsqueeze(-1),
    ]
    if encoder.ages:
        # Since the observation before this sample; since the first sample if there was none.
        earlier = torch.cat([torch.zeros_like(count[:, :1]), count[:, :-1]], dim=1)
        times = since.unsqueeze(-1).expand(values.shape)
        then = torch.where(earlier > 0, times.gather(1, place.gather(1, earlier)), 0.0)
        parts.append(times - then)
    tokens = torch.where(real.unsqueeze(-1), torch.cat(parts, dim=-1), 0.0)
    return {
        "tokens": tokens.float(),
        "times": torch.where(real, since, 0.0).float(),
        "mask": real,
    }
