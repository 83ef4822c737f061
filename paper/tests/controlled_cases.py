"""Series, fields and models that the tests of Neural CDE and Neural RDE share."""

import numpy as np
import torch
from torch import nn

import roughformer as rf
from roughformer_paper.baselines.cde_solver import VectorField
from roughformer_paper.baselines.neural_cde import NeuralCDE, NeuralCDEConfig


class LinearField(nn.Module):
    """dz = Σ_i A_i z dX_i."""

    def __init__(self, matrices):
        super().__init__()
        self.matrices = nn.Parameter(matrices)

    def forward(self, z, dx):
        return torch.einsum("bi,ide,be->bd", dx, self.matrices, z)


def walks(n=3, length=12, channels=2, missing=0.0, seed=0, ragged=False, shorter=2):
    rng = np.random.default_rng(seed)
    arrays, times = [], []
    for b in range(n):
        size = length - (shorter * b if ragged else 0)
        x = rng.standard_normal((size, channels)).cumsum(axis=0)
        x[rng.random(x.shape) < missing] = np.nan
        arrays.append(x)
        times.append(np.cumsum(rng.uniform(0.2, 2.0, size)))
    return rf.SeriesBatch.from_arrays(arrays, times)


def model_of(encoder, seed=0, **options):
    torch.manual_seed(seed)
    shape = {"d_model": 6, "n_outputs": 3} | encoder.shape | options
    config = NeuralCDEConfig(n_features=encoder.n_features, n_static=len(encoder.static), **shape)
    return NeuralCDE(config).eval()


def smooth_field(d_model):
    """Without hidden layers, hence without kinks that would spoil the order of a method."""
    torch.manual_seed(0)
    return VectorField(d_model, 2, 1, 0).double()


def linear_pieces(batch_size=2, count=7, channels=2, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return 0.4 * torch.randn(batch_size, count, 1, channels, generator=rng, dtype=torch.float64)
