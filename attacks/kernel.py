"""The native kernel under AddressSanitizer and UndefinedBehaviorSanitizer, at odd sizes."""

import os
import subprocess
import sys
import time
from pathlib import Path

from _harness import Target, attack

_PROGRAM = """
import sys, time, warnings
import numpy as np
import roughformer.signatures.native as native
from pathlib import Path
native.library_path = lambda: Path(sys.argv[1])
import roughformer as rf
warnings.simplefilter("ignore")
rng, tried = np.random.default_rng(int(sys.argv[2])), 0
until = time.monotonic() + float(sys.argv[3])
assert rf.engine_info()["engine"] == "native" if "engine" in rf.engine_info() else True
while time.monotonic() < until:
    n = int(rng.choice([0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33]))
    length = int(rng.choice([1, 2, 3, 5, 31, 64, 65]))
    c = int(rng.integers(1, 6))
    depth = int(rng.integers(1, 6 if c < 4 else 4))
    windows = int(rng.choice([1, 2, 3, 8, 100, 1000]))
    x = rng.normal(size=(n, length, c)).astype(rng.choice(["float32", "float64"]))
    if rng.random() < 0.3:
        x[rng.random(x.shape) < 0.5] = np.nan
    options = {"transform": str(rng.choice(["signature", "logsignature"]))}
    if rng.random() < 0.5:
        options["lifts"] = ("time",)
    if rng.random() < 0.3:
        options["drop"] = float(rng.uniform(0, 0.99))
    print("case", n, length, c, depth, windows, x.dtype, options, flush=True)
    try:
        rf.multiview_signature(x, windows=windows, depth=depth, threads=1, **options)
    except (rf.InputError, rf.CapacityError):
        pass
    if rng.random() < 0.1 and n > 3 and length > 2:
        model = rf.RFormerClassifier(windows=2, depth=2, causal=True, epochs=1, random_state=0,
                                     n_jobs=1, model=rf.ModelConfig(d_model=8, n_heads=2))
        clean = np.nan_to_num(x).astype("float64")
        try:
            model.fit(clean, np.arange(n) % 2)
        except rf.InputError:
            pass
    tried += 1
# Sizes beyond 2**31 are refused before anything is allocated for them.
for windows, depth in ((2**31, 2), (2**40, 1), (3, 40), (2**62, 6)):
    try:
        rf.multiview_signature(np.zeros((2, 3, 2)), windows=windows, depth=depth)
        print("NOT REFUSED", windows, depth)
    except (rf.InputError, rf.CapacityError):
        tried += 1
print("tried", tried)
"""


def _sanitised(folder: Path) -> Path:
    """A build of the kernel for any processor of the family, with both sanitisers."""
    from roughformer.signatures.native.build import HERE, find_compiler
    from roughformer.signatures.native.codegen import generate

    (folder / "generated.h").write_text(generate())
    common = [
        *find_compiler().split(),
        "-std=c++17",
        "-O0",
        "-fPIC",
        "-w",
        "-include",
        "immintrin.h",
        "-pthread",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
        f"-I{folder}",
    ]
    jobs = [[*common, "-c", str(HERE / "entry.cpp"), "-o", f"{folder}/entry.o"]]
    for tag, scalar, double in (("f32", "float", 0), ("f64", "double", 1)):
        defines = [
            f"-DRF_NAME=base_{tag}",
            "-DRF_BYTES=16",
            f"-DRF_SCALAR={scalar}",
            f"-DRF_DOUBLE={double}",
        ]
        files = ["-c", str(HERE / "kernel.cpp"), "-o", f"{folder}/{tag}.o"]
        jobs.append([*common, *defines, *files])
    running = [subprocess.Popen(job) for job in jobs]
    if any(process.wait() for process in running):
        raise RuntimeError("the sanitised kernel did not compile")
    library = folder / "libsanitised.so"
    objects = [job[-1] for job in jobs]
    subprocess.run([*common, "-shared", *objects, "-o", str(library)], check=True)
    return library


@attack("memory of the kernel", "No report of AddressSanitizer or UBSan; sizes beyond 2^31 refused")
def memory(target: Target) -> None:
    library = _sanitised(target.folder)
    compiler = os.environ.get("CXX", "c++").split()[0]
    preload = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    env = {
        **os.environ,
        "LD_PRELOAD": ":".join(preload),
        "OMP_NUM_THREADS": "1",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "halt_on_error=1",
    }
    seconds = max(target.until - time.monotonic(), 5.0)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _PROGRAM,
            str(library),
            str(target.rng.integers(2**31)),
            str(seconds),
        ],
        capture_output=True,
        text=True,
        env=env,
        timeout=seconds + 120,
    )
    lines = done.stdout.splitlines()
    tried = int(lines[-1].split()[1]) if lines and lines[-1].startswith("tried") else len(lines)
    target.tried = max(tried - 1, 0)
    last = lines[-1] if lines else ""
    words = [
        line for line in done.stderr.splitlines() if "ERROR" in line or "runtime error" in line
    ]
    target.check(
        done.returncode == 0 and "NOT REFUSED" not in done.stdout,
        f"{last}: {words[:2] or done.stderr[-300:]}",
    )
