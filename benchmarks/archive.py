"""Accuracy of the default RFormer on an archive of public sets, beside what people use today.

    export ROUGHFORMER_DATA=...                      # has archive/NAME.npz
    .venv/bin/python benchmarks/archive.py --models minirocket quant rformer --seeds 0 1 2
    .venv/bin/python benchmarks/archive.py --page    # docs/archive.md from the rows

Official splits, whole training parts, default options, one thread. ``--drop 0.5`` drops half of the
points of every series in training and test, the same points for all models. Models of regular
series (aeon's) see each series' linear path: on its own sample grid where all series share one,
else at even times over its span (``_archive_data.py``); gradient boosting sees 23 summary numbers
of each channel (``_archive_models.py``).

Every run is a process of its own and one line of the results: set, model, drop, seed, scores,
processor time (with resampling, without numba's compilation), peak memory, versions and the last
commit that changed ``src``. A run that has a line is not run again, unless it failed and
``--retry`` or a larger limit is given. Of several lines of a run the last one counts.
"""

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from _archive_data import archive_directory, read_set, set_sizes
from _archive_models import MODELS, inputs_for, warm_up
from _archive_rows import Row, key_of, read_rows
from _archive_scores import class_scores, number_scores

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "results" / "archive.jsonl"
PAGE = ROOT / "docs" / "archive.md"
PACKAGES = ("roughformer", "torch", "numpy", "scikit-learn", "aeon")
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMBA", "ROUGHFORMER")
}
_AT_ONCE = 1000  # test series: features of all of them at once may not fit in memory


def measure(path: Path, model_name: str, drop: float, seed: int) -> Row:
    """Fit a model on the training part of a set and score it on the test part."""
    model = MODELS[model_name]
    data = read_set(path, drop, seed)
    warm_up(model, data)
    estimator = model.make(data, seed)
    start = time.process_time()
    options = {"groups": data.groups} if model.sees == "series" else {}
    estimator.fit(inputs_for(model, data, data.train), data.train.labels, **options)
    fitted = time.process_time()
    classifies = data.task == "classification"
    predict = estimator.predict_proba if classifies and model.probabilities else estimator.predict
    parts = [data.test[i : i + _AT_ONCE] for i in range(0, len(data.test), _AT_ONCE)]
    outputs = np.concatenate([predict(inputs_for(model, data, part)) for part in parts])
    predicted = time.process_time()
    held = {"covered": _covered(estimator, parts)} if model_name == "rformer" else {}
    return {
        "task": data.task,
        **_scores(data.test.labels, outputs, estimator, classifies),
        **held,
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "n_train": len(data.train),
        "n_test": len(data.test),
    }


def _covered(estimator: Any, parts: list[Any]) -> float:
    """Share of the labels that sets or intervals hold of which 90 % is asked."""
    inside = []
    for part in parts:
        if hasattr(estimator, "predict_set"):
            sets, columns = estimator.predict_set(part), estimator.classes_
            inside.append((sets & (part.labels[:, None] == columns)).any(axis=1))
        else:
            lower, upper = estimator.predict_interval(part)
            inside.append((lower <= part.labels) & (part.labels <= upper))
    return float(np.concatenate(inside).mean())


def _scores(labels: Any, outputs: Any, estimator: Any, classifies: bool) -> dict[str, float]:
    if not classifies:
        return number_scores(labels, outputs)
    classes = estimator.classes_
    if outputs.ndim == 1:
        return class_scores(labels, outputs, None, classes)
    return class_scores(labels, classes[outputs.argmax(axis=1)], outputs, classes)


def environment() -> Row:
    """What the numbers were measured with."""
    command = ["git", "log", "-1", "--format=%h", "--", "src"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    command = ["git", "status", "--porcelain", "--", "src"]
    changed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit + ("+" if changed else ""),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        "processor": _processor(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def run(job: Row, path: Path, limit_seconds: float | None, limit_gb: float) -> Row:
    """``measure`` in a process of its own, which ends at the limits."""

    def limited() -> None:
        if limit_seconds is not None:
            seconds = max(1, round(limit_seconds))
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 10))

    command = [sys.executable, __file__, "--measure", json.dumps([str(path), job])]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | ONE_THREAD, preexec_fn=limited,
    ) as child:  # fmt: skip
        too_large = False
        try:
            while True:
                try:
                    out, error = child.communicate(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    if _resident_gb(child.pid) > limit_gb:
                        too_large = True
                        child.kill()
        finally:
            child.kill()
    row = job | {"limit_seconds": limit_seconds}
    if child.returncode == 0:
        row |= json.loads(out.splitlines()[-1])
    elif too_large:
        row["error"] = f"memory limit: more than {limit_gb:g} GB"
    elif child.returncode == -signal.SIGXCPU and limit_seconds is not None:
        row["error"] = f"time limit: more than {limit_seconds:g} s of processor time"
    else:
        row["error"] = (error.strip().splitlines() or [f"exit code {child.returncode}"])[-1][:300]
    return row | environment()


def _resident_gb(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 2**20
    except OSError:
        pass
    return 0.0


def rounded(row: Row) -> Row:
    """Six significant digits: more is noise."""
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}


def must_run(row: Row | None, options: argparse.Namespace) -> bool:
    """Whether a run has no line yet, or one of a failure that is to be tried again."""
    if row is None or options.again:
        return True
    if "error" not in row:
        return False
    earlier = row["limit_seconds"]
    more = earlier is not None and (options.limit_seconds or float("inf")) > earlier
    return options.retry or (more and row["error"].startswith("time limit"))


def jobs(options: argparse.Namespace, sets: list[str]) -> Iterator[Row]:
    """Cheap sets first; a model that is not random has seed 0 only on full series."""
    for seed in options.seeds:
        for drop in options.drop:
            for name in sets:
                for model in options.models:
                    if seed == 0 or drop or MODELS[model].random:
                        yield {"set": name, "model": model, "drop": drop, "seed": seed}


def line_of(row: Row) -> str:
    """One line of progress."""
    what = f"{row['set']} {row['model']} drop {row['drop']:g} seed {row['seed']}"
    if "error" in row:
        return f"{what}: {row['error']}"
    score = next(f"{name} {row[name]:.4g}" for name in ("accuracy", "rmse") if name in row)
    return (
        f"{what}: {score}, fit {row['fit_seconds']:.1f} s, "
        f"predict {row['predict_seconds']:.1f} s, {row['peak_mb']:.0f} MB"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="directory of NAME.npz")
    parser.add_argument("--out", type=Path, default=ROWS, help="rows, one JSON object a line")
    parser.add_argument("--sets", nargs="+", help="default: all in the directory")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["rformer"])
    parser.add_argument("--drop", nargs="+", type=float, default=[0.0, 0.5])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--limit-seconds", type=float, help="processor time of a run")
    parser.add_argument("--limit-gb", type=float, default=6.0, help="resident memory of a run")
    parser.add_argument("--stop-after", type=float, help="start no run after so many minutes")
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    parser.add_argument("--again", action="store_true", help="run again what has a row")
    parser.add_argument("--page", action="store_true", help="write docs/archive.md, run nothing")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.measure:
        warnings.simplefilter("ignore")
        path, job = json.loads(options.measure)
        row = measure(Path(path), job["model"], job["drop"], job["seed"])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print("\n" + json.dumps(row | {"peak_mb": peak}))
        return
    if options.page:
        from _archive_page import write_page

        write_page(PAGE, read_rows(options.out))
        print(f"written: {PAGE}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the running child is ended as well
    directory = archive_directory(options.data)
    known = set_sizes(directory)
    unknown = set(options.sets or ()) - set(known)
    if unknown:
        raise SystemExit(f"no set {', '.join(sorted(unknown))} in {directory}")
    todo = list(jobs(options, [name for name in known if name in (options.sets or known)]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    for i, job in enumerate(todo, start=1):
        if options.stop_after and time.monotonic() - start > 60 * options.stop_after:
            print(f"stopped after {options.stop_after:g} minutes")
            return
        # Read anew each time: another command may have added rows.
        if must_run(read_rows(options.out).get(key_of(job)), options):
            path = directory / f"{job['set']}.npz"
            row = rounded(run(job, path, options.limit_seconds, options.limit_gb))
            with options.out.open("a") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
            print(f"[{i}/{len(todo)}] {line_of(row)}", flush=True)


if __name__ == "__main__":
    main()
