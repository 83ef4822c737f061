"""What the tests of searches share."""

TINY_SPACE = """
learning_rate = { low = 1e-3, high = 1e-2, log = true }
d_model = [8, 16]
"""
TINY = (
    "--epochs", "2", "--set", "windows=4", "--set", "depth=1", "--set", "spectrum=none",
    "--set", "clock=0", "--set", "n_heads=2", "--set", "device=cpu", "--threads", "1",
    "--no-plots",
)  # fmt: skip
