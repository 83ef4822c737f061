"""Odd data at the doors: tables, arrays, estimators, checkpoints, signatures."""

import io
import shutil
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from _harness import Target, attack, mutated

import roughformer as rf
import roughformer.io

REFUSALS = (rf.InputError, rf.CapacityError, rf.MissingDataError)
ODD = [0.0, -0.0, 1.0, 1e-320, 1e20, -1e38, 1e200, 1e308, np.nan, np.inf, -np.inf]


@attack("tables", "A table is read, or refused by InputError with its position; ids never merge")
def tables(target: Target) -> None:
    rng = target.rng
    plain = "id;time;x;y\n" + "".join(f"{i // 5};{i % 5},5;{i},25;{i * i}\n" for i in range(40))
    sink = io.BytesIO()
    columns = {
        "id": [i // 5 for i in range(40)],
        "time": [float(i % 5) for i in range(40)],
        "x": [float(i) for i in range(40)],
    }
    pq.write_table(pa.table(columns), sink)
    seeds = {".csv": plain.encode(), ".parquet": sink.getvalue()}
    while target.time_left:
        for ending, data in seeds.items():
            file = target.folder / f"table{ending}"
            file.write_bytes(mutated(data, rng))
            target.expect(
                lambda file=file: rf.io.read_table(file, series_id="id", time="time"),
                REFUSALS,
                f"{ending}: {file.read_bytes()[:80]!r}",
            )
        frame = pd.DataFrame({"id": _column(rng), "time": _column(rng), "x": _column(rng)})
        target.expect(
            lambda frame=frame: rf.SeriesBatch.from_table(frame, series_id="id", time="time"),
            REFUSALS,
            f"frame of {list(map(str, frame.dtypes))}",
        )
        big = [int(rng.integers(2**62)) + 2**64, int(rng.integers(2**62)) + 2**65]
        file = target.folder / "ids.csv"
        file.write_text("id,time,x\n" + "".join(f"{b},{k},1.5\n" for b in big for k in range(2)))
        batch = target.expect(
            lambda file=file: rf.io.read_table(file, series_id="id", time="time"),
            REFUSALS,
            f"ids {big}",
        )
        target.check(batch is None or len(batch) == 2, f"ids {big} merge")


def _column(rng: np.random.Generator, n: int = 6) -> object:
    kinds = [
        lambda: rng.integers(-3, 3, n),
        lambda: rng.normal(size=n),
        lambda: rng.choice(ODD, n),
        lambda: [None] * n,
        lambda: ["a", "b", "", "1", "nan", "\ud7ff"],
        lambda: [2**70, 1, 2, 3, 4, 5],
        lambda: pd.date_range("2024", periods=n, tz="UTC"),
        lambda: [b"x"] * n,
        lambda: [[1], [2], [3], [4], [5], [6]],
        lambda: rng.random(n) < 0.5,
        lambda: pd.Categorical(list("aabbcc")),
        lambda: [1 + 2j] * n,
        lambda: pd.to_timedelta(np.arange(n), unit="s"),
        lambda: [{}, 1, "a", None, 2.5, (1,)],
    ]
    return kinds[int(rng.integers(len(kinds)))]()


@attack("fit", "fit and predict give finite numbers, or refuse in words", 2.0)
def fit(target: Target) -> None:
    rng = target.rng
    options = [
        {},
        {"recipe": "attention", "epochs": 1, "windows": 3, "depth": 2},
        {"causal": True, "epochs": 1, "windows": rf.Windows.by_points(2)},
    ]
    allowed = (*REFUSALS, ValueError, TypeError)
    while target.time_left:
        n, length, c = int(rng.integers(0, 9)), int(rng.integers(0, 9)), int(rng.integers(0, 3))
        x = rng.normal(size=(n, length, c)) * 10.0 ** rng.integers(-30, 30)
        if x.size and rng.random() < 0.6:
            spots = rng.random(x.shape) < rng.uniform(0, 1)
            x[spots] = rng.choice(ODD, int(spots.sum()))
        if rng.random() < 0.3:
            x = x.astype(rng.choice(["float32", "float16", "int8", "object", "complex64", "bool"]))
        y = [
            rng.integers(0, 3, n),
            np.zeros(n),
            rng.normal(size=n),
            np.array(["a", "b"] * n)[:n],
            rng.choice(ODD, n),
            None,
            np.array([[1, 2]] * n),
        ][int(rng.integers(7))]
        kind = rf.RFormerClassifier if rng.random() < 0.5 else rf.RFormerRegressor
        option = options[int(rng.choice(3, p=(0.04, 0.48, 0.48)))]  # the first takes seconds
        what = f"{kind.__name__}({option}).fit({x.dtype}{x.shape}, {y!r})"

        def work(kind=kind, option=option, x=x, y=y):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = kind(random_state=0, n_jobs=1, **option).fit(x, y)
                return model.predict_proba(x) if kind is rf.RFormerClassifier else model.predict(x)

        found = target.expect(work, allowed, what)
        finite = found is None or np.isfinite(np.asarray(found, dtype=float)).all()
        target.check(bool(finite), f"{what}: predictions that are not finite")


@attack("signatures", "Finite input gives finite signatures, or is refused before allocating")
def signatures(target: Target) -> None:
    rng = target.rng
    while target.time_left:
        n, length, c = int(rng.integers(0, 4)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
        x = rng.choice([0.0, 1.0, 1e20, 1e200, -1e308, 1e-300, 5.0], (n, length, c))
        x = x.astype(rng.choice(["float32", "float64"]))
        windows = int(rng.choice([1, 2, 7, 10**4, 10**9, 2**31, 2**40]))
        depth = int(rng.integers(1, 7))
        what = f"multiview_signature of {x.shape} {x.dtype}, windows={windows}, depth={depth}"

        def work(x=x, windows=windows, depth=depth):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return rf.multiview_signature(x, windows=windows, depth=depth)

        if not np.isfinite(x).all() or (windows > 10**4 and n):
            continue
        found = target.expect(work, (*REFUSALS, OverflowError), what)
        if found is None:
            continue
        target.check(bool(np.isfinite(np.asarray(found)).all()), f"{what}: not finite")


@attack("checkpoints", "A damaged checkpoint is refused by CheckpointError", 0.5)
def checkpoints(target: Target) -> None:
    rng = target.rng
    x = rng.normal(size=(12, 10, 2)).cumsum(axis=1)
    model = rf.RFormerClassifier(
        recipe="attention",
        windows=3,
        depth=2,
        epochs=1,
        random_state=0,
        n_jobs=1,
        model=rf.ModelConfig(d_model=8, n_heads=2),
    )
    good = target.folder / "good"
    model.fit(x, np.arange(12) % 2).save(good)
    before = model.predict_proba(x)
    while target.time_left:
        bad = target.folder / "bad"
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(good, bad)
        files = sorted(file for file in bad.rglob("*") if file.is_file())
        file = files[int(rng.integers(len(files)))]
        file.write_bytes(mutated(file.read_bytes(), rng))
        found = target.expect(
            lambda bad=bad: rf.RFormerClassifier.load(bad),
            (rf.CheckpointError,),
            f"damaged {file.name}",
        )
        if found is not None:
            same = np.array_equal(found.predict_proba(x), before)
            target.check(same, f"damaged {file.name} is loaded as another model")


@attack("two trainings", "Of two trainings in one directory one is refused", 0.5)
def two_trainings(target: Target) -> None:
    rng = target.rng
    rows = [f"{i},{t},{rng.normal():.3f},{i % 2}\n" for i in range(300) for t in range(60)]
    file = target.folder / "data.csv"
    file.write_text("id,time,x,label\n" + "".join(rows))
    out = target.folder / "run"
    command = [
        sys.executable,
        "-c",
        "from roughformer.cli import main; main()",
        "train",
        str(file),
        "--series-id",
        "id",
        "--time",
        "time",
        "--target",
        "label",
        "--out",
        str(out),
        "--model",
        "rformer",
        "--epochs",
        "2000",
        "--threads",
        "1",
    ]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for _ in range(600):
            if out.exists() and any(out.iterdir()):
                break
            if first.poll() is not None:
                target.check(False, f"the first training ended: {first.stdout.read()[-300:]}")
                return
            time.sleep(0.1)
        again = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=120)
        said = again.stdout + again.stderr
        target.check(again.returncode != 0 and "Traceback" not in said, f"second: {said[-300:]}")
    finally:
        first.kill()
        first.wait()
