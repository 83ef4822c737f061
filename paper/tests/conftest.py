"""Settings of these tests, as in tests/conftest.py."""

import torch

torch.set_num_threads(1)
