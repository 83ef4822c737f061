"""A service in a process of its own: ``python _server.py MODEL OPTIONS`` and its controls."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import httpx


class Served:
    """``with Served(model, limits={...}, snapshot_dir=..., clock="steps") as server: ...``."""

    def __init__(self, model: Path, **options: object) -> None:
        self.model, self.options = model, options

    def __enter__(self) -> "Served":
        self.log = open(self.model.parent / f"server-{time.monotonic_ns()}.log", "w+")
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(self.model), json.dumps(self.options)],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        line = self.process.stdout.readline()
        if "serving on" not in line:
            raise RuntimeError(f"the service did not start: {self.said()[-500:]}")
        self.port = int(line.split("127.0.0.1:")[1].split()[0])
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def said(self) -> str:
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def memory(self) -> float:
        """Resident MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _step_the_clock() -> None:
    """From now on the wall clock jumps back and forth by up to a day."""
    real, draw = time.time, random.Random(0)
    time.time = lambda: real() + draw.uniform(-86_400, 3_600)
    time.time_ns = lambda: int(time.time() * 1e9)


def _serve() -> None:
    options = json.loads(sys.argv[2])
    if options.pop("clock", "") == "steps":
        _step_the_clock()
    from roughformer.inference import Predictor
    from roughformer.serve import Options, Service
    from roughformer.serve.config import Limits
    from roughformer.serve.model import ServedModel
    from roughformer.serve.server import run

    folder = Path(sys.argv[1])
    limits = Limits(**options.pop("limits", {}))
    if "snapshot_dir" in options:
        options["snapshot_dir"] = Path(options["snapshot_dir"])
    model = ServedModel(Predictor.load(folder), folder)
    service = Service(model, limits, Options(threads=1, **options))
    run(service, "127.0.0.1", 0, lambda line: print(line, flush=True))


if __name__ == "__main__":
    _serve()
