"""``forking_agent.py RESTARTS SCRIPT ...``: torchrun's agent, with forks for its two processes.

Each process that torchrun starts imports torch anew for seconds, too slow where many are killed.
"""

import runpy
import sys

# Optimizers import _dynamo; it and our own modules are here so that forks have them.
import torch._dynamo  # noqa: F401
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import roughformer.cli.train  # noqa: F401
from roughformer import RFormerClassifier  # noqa: F401


def run(*command):
    sys.argv = list(command)
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code:  # the agent takes a process that returns for one that has done its work
            raise


if __name__ == "__main__":
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=int(sys.argv[1]), run_id="forked",
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork",
        logs_specs=DefaultLogsSpecs(), signals_to_handle="SIGTERM",
    )  # fmt: skip
    elastic_launch(config, run)(*sys.argv[2:])
