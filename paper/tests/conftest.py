"""Settings of these tests, as in tests/conftest.py."""

import torch
from hypothesis import settings

settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True)
settings.load_profile("ci")
torch.set_num_threads(1)
