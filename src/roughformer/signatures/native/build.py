"""Compiles the kernel into one shared library that depends on nothing but the C++ runtime.

``python -m roughformer.signatures.native.build`` does it by hand, for example after installing a
compiler (``--if-needed``: only when a source is newer). The library has no tie to a Python or torch
version: it is loaded with ctypes.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from roughformer.signatures import native
from roughformer.signatures.native.codegen import generate

HERE = Path(__file__).resolve().parent
_AVX2 = ["-mavx2", "-mfma", "-mbmi", "-mbmi2"]
_X86 = ("x86_64", "amd64", "i686")
# name -> (register bytes, flags). "baseline" is what every processor of the family can run.
_ISAS: dict[str, tuple[int, list[str]]] = {
    "base": (16, []),
    "avx2": (32, _AVX2),
    "avx512": (64, [*_AVX2, "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw"]),
}


class BuildError(RuntimeError):
    """The kernel could not be compiled; the text says what the compiler said."""


def find_compiler() -> str | None:
    """The C++ compiler to use: $CXX, or the first of c++, g++, clang++ on the path."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name.split()[0]):
            return name
    return None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stderr.strip()[-4000:]}")


def build(verbose: bool = False) -> Path:
    """Compile and link; returns the library's path or raises ``BuildError``."""
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler found; install g++ or clang++, or set CXX")
    x86 = platform.machine().lower() in _X86
    isas = _ISAS if x86 else {"base": _ISAS["base"]}
    common = [*compiler.split(), "-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-w"]
    common += ["-fno-math-errno", "-fno-trapping-math", "-pthread"]
    if x86:
        common.append("-DRF_X86")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "generated.h").write_text(generate())
        entry = ["-c", str(HERE / "entry.cpp"), "-o", f"{folder}/entry.o"]
        jobs = [[*common, "-fvisibility=default", *entry]]
        for isa, (width, flags) in isas.items():
            for tag, scalar, double in (("f32", "float", 0), ("f64", "double", 1)):
                name = f"{isa}_{tag}"
                defines = [f"-DRF_NAME={name}", f"-DRF_BYTES={width}", f"-DRF_SCALAR={scalar}"]
                defines += [f"-DRF_DOUBLE={double}", f"-I{folder}"]
                files = ["-c", str(HERE / "kernel.cpp"), "-o", f"{folder}/{name}.o"]
                jobs.append([*common, *flags, *defines, *files])
        if verbose:
            print(f"compiling {len(jobs)} units with {compiler}", file=sys.stderr)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(_run, jobs))
        objects = [job[-1] for job in jobs]
        target = native.library_path()
        made = Path(folder, target.name)
        _run([*compiler.split(), "-shared", "-pthread", *objects, "-o", str(made)])
        # Beside the target first, then renamed: a process that has it loaded keeps the old one.
        aside = target.with_suffix(f".{os.getpid()}.tmp")
        shutil.copy(made, aside)
        os.replace(aside, target)
    return target


def is_current() -> bool:
    """Whether the library is there and newer than everything it is made from."""
    library = native.library_path()
    sources = [p for p in HERE.iterdir() if p.suffix in (".cpp", ".h", ".py")]
    sources.append(HERE.parent / "words.py")
    made = library.stat().st_mtime if library.exists() else 0.0
    return all(p.stat().st_mtime < made for p in sources)


if __name__ == "__main__":
    try:
        if "--if-needed" not in sys.argv or not is_current():
            print(build(verbose=True))
    except BuildError as error:
        raise SystemExit(f"roughformer: {error}") from None
