"""A running service: hostile clients beside honest ones."""

import contextlib
import hashlib
import io
import json
import resource
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
from _harness import Target, attack, mutated, slowdown
from _server import Served
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import roughformer as rf

PARQUET = "application/vnd.apache.parquet"
ARROW = "application/vnd.apache.arrow.stream"
_TIMES = 4  # what others may wait on a busy machine, in multiples of a service at peace
GOOD = {"series": [{"times": [0.0, 1.0, 2.5, 4.0], "values": [[1, 2], [2, None], [3, 1], [4, 0]]}]}


def _model(target: Target) -> Path:
    """A model that is trained once for all attacks of a run."""
    folder = target.shared / "model"
    if (folder / "manifest.json").exists():
        return folder
    rng = np.random.default_rng(0)
    model = rf.RFormerClassifier(
        windows=rf.Windows.by_duration(2.0),
        depth=2,
        causal=True,
        epochs=1,
        random_state=0,
        n_jobs=1,
        model=rf.ModelConfig(d_model=8, n_heads=2),
    )
    times = np.cumsum(rng.uniform(0.1, 0.9, (16, 40)), axis=1)
    x = rng.normal(size=(16, 40, 2)).cumsum(axis=1)
    batch = rf.SeriesBatch.from_arrays(list(x), list(times), channels=("hr", "spo2"))
    model.fit(batch, np.arange(16) % 2)
    model.save(folder)
    return folder


class Neighbours:
    """Honest clients, each of whom pushes to a stream of its own and keeps accounts.

    One more does the same with a service that nobody attacks: what it waits is the machine's doing.
    """

    def __init__(self, server: Served, n: int = 4) -> None:
        self.server, self.stop = server, threading.Event()
        self.control = None if n == 1 else Neighbours(Served(server.model), 1)
        self.wrong: list[str] = []
        self.slowest, self.pushes = 0.0, 0
        self.threads = [threading.Thread(target=self._run, args=(k,)) for k in range(n)]

    def __enter__(self) -> "Neighbours":
        if self.control is not None:
            self.control.server.__enter__()
            self.control.__enter__()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()
        if self.control is not None:
            self.control.__exit__(*error)
            self.control.server.__exit__(*error)

    def _run(self, k: int) -> None:
        name, now, rows = f"honest-{k}", 0.0, 0
        with self.server.client() as http:
            while http.post("/v1/streams", json={"id": name}).status_code == 503:
                pass
            while not self.stop.is_set():
                times = [now + 0.5 * (i + 1) for i in range(4)]
                began = time.monotonic()
                answer = http.post(
                    f"/v1/streams/{name}/push", json={"times": times, "values": [[1.0, 2.0]] * 4}
                )
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.pushes += 1
                if answer.status_code == 200:
                    now, rows = times[-1], rows + 4
                elif answer.status_code != 503:
                    self.wrong.append(f"{name}: {answer.status_code} {answer.text[:100]}")
                time.sleep(0.01)
            while (answer := http.get(f"/v1/streams/{name}")).status_code == 503:
                time.sleep(0.1)
            kept = answer.json()["accepted"]
        if kept != rows:
            self.wrong.append(f"{name}: {rows} rows were answered 200, {kept} are applied")

    def report(self, target: Target, seconds: float) -> None:
        """Nobody got an error, lost a row, or waited for ``seconds`` more than a few times what the
        client of the service without attackers did.
        """
        assert self.control is not None
        control = self.control.slowest
        target.check(not self.wrong, "; ".join(self.wrong[:3]))
        target.check(
            self.slowest <= seconds + _TIMES * control,
            f"a neighbour waited for {self.slowest:.2f} s, without an attack {control:.2f} s",
        )
        target.figures["slowest push of a neighbour, s"] = round(self.slowest, 3)
        target.figures["without an attack, s"] = round(control, 3)
        target.figures["pushes of neighbours"] = self.pushes


def _tampered(snapshot: bytes, rng: np.random.Generator) -> bytes:
    """A snapshot with impossible numbers, sealed again."""
    _, _, rest = snapshot.partition(b"\n")
    about, _, blob = rest.partition(b"\n")
    mark = b"roughformer stream"
    body = blob[len(mark) + 32 :]
    size = int.from_bytes(body[:8], "little")
    told = json.loads(body[8 : 8 + size])["__metadata__"]
    arrays = {name: a.copy() for name, a in safetensors.numpy.load(body).items()}
    names = sorted(arrays)
    for _ in range(int(rng.integers(1, 4))):
        array = arrays[names[int(rng.integers(len(names)))]]
        if not array.size:
            continue
        if array.dtype.kind == "f":
            odd = rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e30, 1e-300, 0.0, 2.5])
        else:
            odd = rng.choice([10**6, 2**62, -1, 2**63 - 1, 0, 7, -(2**63)])
        with np.errstate(all="ignore"):
            array.flat[int(rng.integers(array.size))] = np.array(odd).astype(array.dtype)
    body = safetensors.numpy.save(arrays, told)
    blob = mark + hashlib.sha256(body).digest() + body
    rest = about + b"\n" + blob
    return b"roughformer stream 1 " + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


@attack("impossible states", "A tampered state is refused, or harms its own stream only", 1.5)
def states(target: Target) -> None:
    with Served(_model(target)) as server:
        http = server.http
        http.post("/v1/streams", json={"id": "donor"})
        times = [0.4 * k for k in range(50)]
        http.post("/v1/streams/donor/push", json={"times": times, "values": [[1.0, None]] * 50})
        snapshot = http.get("/v1/streams/donor/snapshot").content
        with Neighbours(server) as neighbours:
            while target.time_left:
                bad = _tampered(snapshot, target.rng)
                answer = http.put("/v1/streams/bad/snapshot", content=bad)
                target.check(answer.status_code in (200, 400), f"restore: {answer.status_code}")
                if answer.status_code == 200:
                    for path in ("", "/prediction", "/snapshot"):
                        found = http.get(f"/v1/streams/bad{path}")
                        target.check(found.status_code < 500, f"{path}: {found.text[:100]}")
                    last = answer.json()["last_time"] or 0.0
                    body = {"times": [last + k + 1 for k in range(8)], "values": [[1, 2]] * 8}
                    found = http.post("/v1/streams/bad/push", json=body)
                    target.check(found.status_code < 500, f"push: {found.text[:100]}")
                    http.delete("/v1/streams/bad")
        neighbours.report(target, 2.0)


@attack("503 and nothing done", "What was answered 503 is not applied, what was applied is 200")
def deadlines(target: Target) -> None:
    with Served(_model(target), limits={"request_seconds": 0.05}) as server:
        with Neighbours(server, 6) as neighbours:
            body = {
                "series": [{"times": [0.5 * k for k in range(4000)], "values": [[1, 2]] * 4000}] * 8
            }
            while target.time_left:
                answer = server.http.post("/v1/predict", json=body)
                target.check(answer.status_code in (200, 503), f"{answer.status_code}")
        neighbours.report(target, 5.0)


@attack(
    "much work in one message", "Refused by the limit's name, or others wait a second more at most"
)
def much_work(target: Target) -> None:
    names = [f"s{k}" for k in range(40)]
    now = 0.0
    with Served(_model(target)) as server, Neighbours(server) as neighbours:
        address = f"ws://127.0.0.1:{server.port}/v1/streams"
        with connect(address, max_size=None, open_timeout=20) as ws:
            ws.send(json.dumps({"type": "open", "ids": names}))
            while target.time_left:
                windows = int(target.rng.choice([24, 480, 960, 5000]))
                rows = 32
                sink = io.BytesIO()
                table = pa.table(
                    {
                        "stream": names * rows,
                        "time": np.repeat(now + 2.0 * windows * (1 + np.arange(rows)) / rows, 40),
                        "hr": np.ones(40 * rows),
                        "spo2": np.ones(40 * rows),
                    }
                )
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                ws.send(sink.getvalue())
                while (answer := json.loads(ws.recv(timeout=60)))["type"] not in ("ack", "error"):
                    pass
                refused = answer["type"] == "error"
                words = answer.get("message", "") + str(answer.get("error", ""))
                named = "max_ended" in words or "windows" in words
                target.check(not refused or named, f"{windows} windows: {answer}")
                now += 0.0 if refused else 2.0 * windows
    neighbours.report(target, 1.5)


@attack("Parquet bombs", "Refused; memory grows by 200 MB at most", 0.5)
def bombs(target: Target) -> None:
    with Served(_model(target)) as server:
        server.http.post("/v1/predict", json=GOOD)
        before, most = server.memory(), 0.0
        while target.time_left:
            size = int(10 ** target.rng.uniform(6, 8))
            codec = str(target.rng.choice(["zstd", "gzip", "brotli", "snappy"]))
            sink = io.BytesIO()
            table = pa.table(
                {
                    "series": ["a" * size] * 2,
                    "time": [0.0, 1.0],
                    "hr": [1.0, 2.0],
                    "spo2": [1.0, 2.0],
                }
            )
            pq.write_table(
                table, sink, compression=codec, use_dictionary=bool(target.rng.random() < 0.5)
            )
            data = sink.getvalue()
            if len(data) > 2**24:
                continue
            if target.rng.random() < 0.5:
                data = data[:-200] + mutated(data[-200:], target.rng)
            head = {"Content-Type": PARQUET}
            answer = server.http.post("/v1/predict", content=data, headers=head)
            target.check(answer.status_code in (400, 413), f"{size}: {answer.status_code}")
            most = max(most, server.memory() - before)
        target.check(most < 200, f"memory grew by {most:.0f} MB")
        target.figures["growth of memory, MB"] = round(most)


@attack(
    "slow heads",
    "Health answers within a second of what it takes at peace; the connections are closed",
)
def slow_heads(target: Target) -> None:
    model = _model(target)
    with Served(model) as server, Served(model) as peaceful:
        held, slowest, control, slow = [], 0.0, 0.0, 1.0
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        for _ in range(min(4300, hard - 200)):
            try:
                held.append(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            except OSError:
                break
        began = time.monotonic()
        while time.monotonic() < began + 14:
            for connection in held:
                with contextlib.suppress(OSError):
                    connection.send(b"G" if time.monotonic() < began + 0.5 else b"E")
            for service in (server, peaceful):
                asked = time.monotonic()
                with service.client() as http:
                    answer = http.get("/healthz")
                waited = time.monotonic() - asked
                target.check(answer.status_code == 200, f"health: {answer.status_code}")
                if service is server:
                    slowest = max(slowest, waited)
                else:
                    control = max(control, waited)
            slow = max(slow, slowdown(0.02))
            time.sleep(0.3)
        # It throws thousands of bytes away meanwhile, which takes longer on a busy machine.
        target.check(
            slowest < slow + _TIMES * control,
            f"health took {slowest:.2f} s, of a service at peace {control:.2f} s",
        )
        still = 0
        for connection in held:
            connection.setblocking(False)
            try:
                while connection.recv(4096):
                    pass
            except BlockingIOError:
                still += 1
            except OSError:
                pass
            connection.close()
        target.check(still == 0, f"{still} of {len(held)} connections are still open")
        target.figures["connections"] = len(held)
        target.figures["slowest health, s"] = round(slowest, 3)
        target.figures["without an attack, s"] = round(control, 3)


@attack("hostile requests", "No answer of 500, whatever is in path, headers or body", 1.5)
def requests(target: Target) -> None:
    sink, arrow = io.BytesIO(), io.BytesIO()
    table = pa.table(
        {"series": ["a", "a"], "time": [0.0, 1.0], "hr": [1.0, 2.0], "spo2": [None, 2.0]}
    )
    pq.write_table(table, sink)
    with pa.ipc.new_stream(arrow, table.schema) as writer:
        writer.write_table(table)
    bodies = [
        ("application/json", json.dumps(GOOD).encode()),
        (PARQUET, sink.getvalue()),
        (ARROW, arrow.getvalue()),
    ]
    heads = [
        b"Origin: http://[",
        b"Host: [",
        b"Host: ",
        b"Origin: null",
        b"Content-Type: \xff",
        b"Authorization: Bearer \xc3\x28",
        b"Content-Length: 9999999999999999999",
        b"Transfer-Encoding: chunked",
        b"Upgrade: websocket",
        b"Expect: 100-continue",
        b"Content-Encoding: gzip",
        b"X: " + b"a" * 70_000,
    ]
    paths = [
        b"/",
        b"/v1/predict",
        b"/page/" + b"a" * 5000,
        b"/page/..%2f..%2fetc",
        b"/v1/streams/%00",
        b"/v1/demo/x?from=nan",
        b"/v1/demo/x?from=1e999",
        b"//",
        b"/v1/streams/\xff/push",
        b"/v1/explain",
        b"/docs",
        b"/openapi.json",
        b"*",
        b"/v1/model?x=" + b"%ff" * 50,
    ]
    with Served(_model(target), limits={"body_seconds": 1.0}) as server:
        while target.time_left:
            kind, body = bodies[int(target.rng.integers(3))]
            bad = mutated(body, target.rng)
            path = "/v1/explain" if target.rng.random() < 0.1 else "/v1/predict"
            answer = server.http.post(path, content=bad, headers={"Content-Type": kind})
            # 503: another explanation is being made.
            target.check(answer.status_code != 500, f"{kind} {bad[:100]!r}: {answer.status_code}")
            if target.rng.random() < 0.3:
                path = paths[int(target.rng.integers(len(paths)))]
                chosen = [heads[int(k)] for k in target.rng.integers(0, len(heads), 2)]
                method = [b"GET", b"POST", b"PUT", b"DELETE", b"BREW"][int(target.rng.integers(5))]
                lines = [method + b" " + path + b" HTTP/1.1", b"Host: localhost", *chosen, b"", b""]
                said = _raw(server.port, mutated(b"\r\n".join(lines), target.rng))
                target.check(b" 500 " not in said[:20], f"{lines}: {said[:60]!r}")
        answer = server.http.post("/v1/predict", json=GOOD)
        target.check(answer.status_code == 200, "an honest request afterwards")
        target.check("Traceback" not in server.said(), f"log: {server.said()[-300:]}")


def _raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=0.3) as connection:
        try:
            connection.sendall(data)
            return connection.recv(4096)
        except OSError:
            return b""


@attack("hostile messages", "A WebSocket answers each message, or closes with a reason")
def messages(target: Target) -> None:
    seeds = [
        {"type": "push", "times": [1.0, 2.0], "values": [[1, 2], [None, 3]]},
        {"type": "state"},
        {"type": "advance", "time": 5.0},
        {"type": "predict"},
        {"type": "open", "ids": ["a"]},
        {"type": "close", "id": "a"},
        {"type": "push", "id": "a", "times": [], "values": []},
    ]
    with Served(_model(target)) as server, Neighbours(server, 2) as neighbours:
        server.http.post("/v1/streams", json={"id": "one"})
        while target.time_left:
            path = "/v1/streams" if target.rng.random() < 0.5 else "/v1/streams/one"
            with connect(f"ws://127.0.0.1:{server.port}{path}", open_timeout=20) as ws:
                ws.recv(timeout=20)
                for _ in range(20):
                    seed = json.dumps(seeds[int(target.rng.integers(len(seeds)))])
                    bad: bytes | str = mutated(seed.encode(), target.rng)
                    if target.rng.random() < 0.9:
                        bad = bad.decode("utf-8", "replace")
                    try:
                        ws.send(bad)
                        found = json.loads(ws.recv(timeout=20))
                        while found["type"] == "window":
                            found = json.loads(ws.recv(timeout=20))
                        target.check(found.get("status") != 500, f"{bad!r}: {found}")
                    except ConnectionClosed as error:
                        code = error.rcvd.code if error.rcvd else None
                        target.check(code not in (None, 1011), f"{bad!r}: closed with {code}")
                        break
                    except TimeoutError:
                        target.check(False, f"{bad!r}: no answer")
                        break
    neighbours.report(target, 2.0)


@attack("random lives of streams", "States are those of a model of the service in ten lines", 1.5)
def lives(target: Target) -> None:
    rng, known = target.rng, {}
    with Served(_model(target), limits={"max_streams": 5}) as server:
        http, kept = server.http, {}
        while target.time_left:
            name = f"s{rng.integers(8)}"
            act = str(rng.choice(["open", "push", "late", "state", "close", "keep", "restore"]))
            if act == "open":
                code = http.post("/v1/streams", json={"id": name}).status_code
                want = 409 if name in known else 429 if len(known) >= 5 else 201
                if want == 201:
                    known[name] = (0, None)
            elif act in ("push", "late"):
                count, last = known.get(name, (0, None))
                first = (0.0 if last is None else last) + (1.0 if act == "push" else -1.0)
                answer = http.post(
                    f"/v1/streams/{name}/push",
                    json={"times": [first, first + 0.5], "values": [[1, 2]] * 2},
                )
                code = answer.status_code
                late = act == "late" and last is not None
                want = 404 if name not in known else 400 if late else 200
                if want == 200:
                    known[name] = (count + 2, first + 0.5)
            elif act == "state":
                answer = http.get(f"/v1/streams/{name}")
                code, want = answer.status_code, 200 if name in known else 404
                if code == want == 200:
                    told = answer.json()
                    same = (told["accepted"], told["last_time"]) == known[name]
                    target.check(same, f"{name}: {told}, expected {known[name]}")
            elif act == "close":
                code = http.delete(f"/v1/streams/{name}").status_code
                want = 404 if known.pop(name, None) is None else 204
            elif act == "keep":
                answer = http.get(f"/v1/streams/{name}/snapshot")
                code, want = answer.status_code, 200 if name in known else 404
                if want == 200:
                    kept[name] = (known[name], answer.content)
            else:
                if name not in kept:
                    continue
                code = http.put(f"/v1/streams/{name}/snapshot", content=kept[name][1]).status_code
                want = 429 if name not in known and len(known) >= 5 else 200
                if want == 200:
                    known[name] = kept[name][0]
            target.check(code == want, f"{act} {name}: {code}, expected {want}; {known}")


def _push(http: object, name: str, first: float) -> int:
    body = {"times": [first, first + 0.5], "values": [[1.0, 2.0]] * 2}
    return http.post(f"/v1/streams/{name}/push", json=body).status_code


@attack(
    "a full disk", "Pushes go on; what was written stays whole; all is written when there is room"
)
def full_disk(target: Target) -> None:
    folder = target.folder / "snapshots"
    options = {"snapshot_dir": str(folder), "snapshot_seconds": 0.2}
    model, now = _model(target), 0.0
    with Served(model, **options) as server:
        for k in range(5):
            server.http.post("/v1/streams", json={"id": f"s{k}"})
        while target.time_left:
            room = int(target.rng.integers(0, 3000))  # bytes that a file may have: EFBIG beyond
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (room, -1))
            for _ in range(10):
                now += 1.0
                for k in range(5):
                    target.check(_push(server.http, f"s{k}", now) == 200, "a push")
                time.sleep(0.02)
            target.check(server.http.get("/readyz").status_code == 200, "ready")
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
            time.sleep(0.5)
            left = [file.name for file in folder.iterdir() if file.suffix != ".stream"]
            target.check(not left, f"left behind: {left}")
        target.check("Traceback" not in server.said(), f"log: {server.said()[-300:]}")
    with Served(model, **options) as server:
        for k in range(5):
            told = server.http.get(f"/v1/streams/s{k}").json()
            target.check(told.get("last_time") == now + 0.5, f"after a restart: {told}")


@attack("a clock that steps back", "Nothing depends on the wall clock", 0.5)
def clock(target: Target) -> None:
    folder = target.folder / "snapshots"
    idle = 3 * slowdown()  # seconds that a push may take where others use the machine
    options = {
        "snapshot_dir": str(folder),
        "snapshot_seconds": 0.2,
        "idle_seconds": idle,
        "clock": "steps",
    }
    model, now = _model(target), 0.0
    with Served(model, **options) as server:
        server.http.post("/v1/streams", json={"id": "used"})
        server.http.post("/v1/streams", json={"id": "idle"})
        began = time.monotonic()
        while target.time_left or time.monotonic() < began + idle + 2:
            now += 1.0
            status = _push(server.http, "used", now)
            target.check(status == 200, f"a push: {status}")
            answer = server.http.post("/v1/predict", json=GOOD)
            target.check(answer.status_code == 200, f"predict: {answer.status_code}")
            time.sleep(0.05)
        gone = server.http.get("/v1/streams/idle").status_code
        target.check(gone == 404, f"the idle stream did not expire: {gone}")
    with Served(model, **options) as server:
        told = server.http.get("/v1/streams/used").json()
        target.check(told.get("last_time") == now + 0.5, f"after a restart: {told}")
