"""The service under load: capacity, then 1, 5 and 10 times as much.

    python benchmarks/serving.py

trains a small model, serves it in a process of its own and loads it from another one: first every
client waits for its answer (closed loop: the capacity), then requests come at 1x, 5x and 10x that
rate whatever becomes of them (open loop). Prints for each load what was answered, how fast, and
what was refused at once, and checks every answer against the model; writes results/serving.json.

    python benchmarks/serving.py --cost

measures what one request costs in processor time, of a small model and one series, beside the same
model as an ONNX graph behind a plain FastAPI handler, in turns in one run.
"""

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

import roughformer as rf

HERE = Path(__file__).parent


def trained(directory, length):
    """A classifier of sines of three channels, and requests with what it says of them."""
    rng = np.random.default_rng(0)

    def series(n):
        rate, phase = rng.uniform(2, 8, (n, 1, 1)), rng.uniform(0, 6.3, (n, 3, 1))
        t = np.cumsum(rng.uniform(0.005, 0.045, (n, 1, length)), axis=2)
        x = np.sin(rate * t + phase) + 0.1 * rng.normal(size=(n, 3, length))
        return np.round(x, 4), np.round(t[:, 0], 6), (rate[:, 0, 0] > 5).astype(int)

    x, t, y = series(64)
    model = rf.RFormerClassifier(
        windows=200, depth=2, model=rf.ModelConfig(d_model=128, n_layers=4), epochs=1,
        random_state=0, n_jobs=1,
    )  # fmt: skip
    model.fit(rf.SeriesBatch.from_numpy3d(x, t), y)
    model.save(directory)
    bodies, expected = [], []
    for _ in range(32):
        x, t, _ = series(2)
        one = [{"times": t[k].tolist(), "values": x[k].T.tolist()} for k in range(2)]
        bodies.append(json.dumps({"series": one}))
        expected.append(model.predict_proba(rf.SeriesBatch.from_numpy3d(x, t)).tolist())
    return bodies, expected


def served(directory, queue):
    """The command as a process, and its port."""
    code = "from roughformer.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(directory), "--port", "0", "--threads", "1",
         "--limit", f"queue={queue}"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    for line in process.stderr:
        if "serving on" in line:
            break
    return wait_ready(process, int(line.split("http://127.0.0.1:")[1].split()[0]))


def wait_ready(process, port):
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").close()
            return process, port
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the service did not become ready")


PLAIN = """
import json, sys, numpy as np, onnxruntime, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options)
class Series(BaseModel):
    times: list[float]
    values: list[list[float | None]]
class Body(BaseModel):
    series: list[Series]
app = FastAPI()
@app.get("/readyz")
async def ready(): return {}
@app.post("/v1/predict")
async def predict(body: Body):
    found = []
    for one in body.series:
        inputs = {
            "values": np.array([one.values], dtype=np.float64),
            "times": np.array([one.times]),
            "lengths": np.array([len(one.times)]),
        }
        found.append({"probabilities": session.run(["probabilities"], inputs)[0][0].tolist()})
    return {"predictions": found}
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""


def plain(graph):
    """A handler as one would write it in an afternoon, as a process, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", PLAIN, str(graph), str(port)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return wait_ready(process, port)


def cost(n=400, rounds=5):
    """Processor time of a request, in turns: the service, and the plain handler."""
    from roughformer.export import export_model

    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(0.005, 0.045, (64, 400)), axis=1).round(6)
    x = (np.sin(5 * t) + 0.1 * rng.normal(size=t.shape)).round(4)[..., None]
    model = rf.RFormerClassifier(windows=20, depth=2, epochs=1, random_state=0, n_jobs=1)
    batch = rf.SeriesBatch.from_arrays(list(x), list(t))
    model.fit(batch, np.arange(64) % 2)
    body = json.dumps({"series": [{"times": t[0].tolist(), "values": x[0].tolist()}]}).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    spent = {"service": [], "plain handler": []}
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        export_model(model.predictor_, Path(folder) / "model.onnx")
        servers = dict(
            zip(
                spent,
                (served(Path(folder) / "model", 64), plain(Path(folder) / "model.onnx")),
                strict=True,
            )
        )
        try:
            for round_ in range(rounds + 1):
                for name, (process, port) in servers.items():
                    with socket.create_connection(("127.0.0.1", port)) as connection:
                        before = cpu_seconds(process.pid)
                        for _ in range(n):
                            connection.sendall(request)
                            received = connection.recv(65536)
                            while not received.endswith(b"}"):
                                received += connection.recv(65536)
                            assert received.startswith(b"HTTP/1.1 200"), received[:200]
                    if round_:  # the first is for what is slow once only
                        spent[name].append(1e3 * (cpu_seconds(process.pid) - before) / n)
        finally:
            for process, _ in servers.values():
                process.terminate()
                process.wait(20)
    for name, times in spent.items():
        print(f"{name}: {np.median(times):.2f} ms of processor time a request", flush=True)
    ratio = np.median(np.array(spent["plain handler"]) / np.array(spent["service"]))
    print(f"plain handler / service: {ratio:.2f}")


def loaded(orders):
    done = subprocess.run(
        [sys.executable, str(HERE / "_serving_load.py")],
        input=json.dumps(orders), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def metrics(port):
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    rows = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def cpu_seconds(pid):
    """Time that a process has worked; on a busy machine it is less than it would."""
    numbers = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def batch_between(before, after):
    """Mean number of requests that were predicted together."""
    name = "roughformer_batch_requests"
    count = after[f"{name}_count"] - before.get(f"{name}_count", 0)
    return (after[f"{name}_sum"] - before.get(f"{name}_sum", 0)) / max(count, 1)


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def row_of(name, found):
    ms = lambda x: "" if x is None else f"{1e3 * x:.0f}"  # noqa: E731
    refused = sum(n for code, n in found["answers"].items() if code != "200")
    share = refused / max(found["asked"], 1)
    return (
        f"| {name} | {found['offered_per_second']:.0f} | {found['throughput']:.0f} | "
        f"{ms(found['p50'])} | {ms(found['p99'])} | {100 * share:.1f} % | "
        f"{ms(found['shed_p99'])} | {found['batch']:.1f} | {found['wrong']} | {found['lost']} | "
        f"{found['unsent']} | {found['cpu_share']:.2f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=12.0, help="of each load")
    parser.add_argument("--length", type=int, default=400, help="points of a series")
    parser.add_argument("--queue", type=int, default=64, help="requests that may wait")
    parser.add_argument("--clients", type=int, default=32, help="of the closed loop")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "serving.json")
    parser.add_argument("--cost", action="store_true", help="of one request, beside a handler")
    ask = parser.parse_args()
    if ask.cost:
        cost()
        return
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        bodies, expected = trained(directory, ask.length)
        process, port = served(directory, ask.queue)
        try:
            orders = {"port": port, "bodies": bodies, "expected": expected}
            short = orders | {"connections": 4, "seconds": 1.0, "rate": None}
            loaded(short)  # what is slow once only
            rows = {}

            def measure(name, **more):
                before, used = metrics(port), cpu_seconds(process.pid)
                found = rows[name] = loaded(orders | {"seconds": ask.seconds} | more)
                found["cpu_share"] = (cpu_seconds(process.pid) - used) / found["seconds"]
                found["batch"] = batch_between(before, metrics(port))
                print(row_of(name, rows[name]), flush=True)
                return rows[name]

            print("| load | offered/s | answered/s | p50, ms | p99, ms | refused | refused p99, ms "
                  "| batch | wrong | lost | not sent | CPU |")  # fmt: skip
            print("|---" * 12 + "|")
            capacity = measure("capacity", connections=ask.clients, rate=None)["throughput"]
            for times in (1, 5, 10):
                measure(f"{times}x", connections=2000, rate=times * capacity)
        finally:
            process.terminate()
            code = process.wait(20)
    print(f"the service ended with {code}")
    result = {
        "capacity_per_second": capacity,
        "request": {"series": 2, "points": ask.length, "bytes": len(bodies[0])},
        "queue": ask.queue,
        "loads": rows,
        "exit_code": code,
        "environment": {
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "roughformer": rf.__version__,
            "note": "load and service share the cores",
        },
    }
    ask.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {ask.out}")


if __name__ == "__main__":
    main()
