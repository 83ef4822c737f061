"""Patients of the tests of the service."""

import numpy as np

from roughformer.inference.alarms import Alarm

CHANNELS = ("hr", "spo2")
WELL = Alarm(0.45, 0.4, of="well")


def recording(seed, n=60):
    """Times (n,) and values (n, 2) with gaps, of one patient."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 2)).cumsum(axis=0)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[0] = 0.5
    return 1.7e9 + np.cumsum(rng.uniform(0.1, 0.9, n)), values
