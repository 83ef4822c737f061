"""Build the sdist and the wheel into dist/ and try both in clean environments (``make wheel``).

The wheel is built from the sdist, so that what is uploaded is what was tried. On Linux auditwheel
gives it a manylinux tag, without which the package index refuses it. It is then installed for each
Python named on the command line and runs with no compiler in reach. Where torch has no build for a
Python (``--no-torch``), only what needs no torch is tried.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


def run(*command: str | Path, **environment: str) -> None:
    """Run a command in the root, with variables added to the environment; stop when it fails."""
    print("+", *command, file=sys.stderr, flush=True)
    subprocess.run(
        [str(c) for c in command], check=True, cwd=ROOT, env=os.environ | environment, text=True
    )


def try_wheel(wheel: Path, python: Path, engine: str, torch: bool) -> None:
    """Install the wheel for this Python in an environment of its own, and use it."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--prefer-binary"]
        if torch:
            run(*pip, "-c", "constraints.txt", wheel)
        else:
            run(*pip, "--no-deps", wheel)
            run(*pip, "numpy")
        # Neither the sources nor a compiler are to be found from here.
        environment = {"PATH": f"{folder}/bin", "HOME": folder}
        check = [f"{folder}/bin/python", ROOT / "tools/try_wheel.py", engine]
        commands = [[*check, *([] if torch else ["--without-torch"])]]
        if torch:
            commands.append([f"{folder}/bin/roughformer", "info"])
        for command in commands:
            subprocess.run(command, check=True, cwd=folder, env=environment)


def main() -> None:
    """Build, repair, try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", type=Path, default=[Path(sys.executable)])
    parser.add_argument("--no-torch", nargs="*", type=Path, default=[], metavar="PYTHON")
    options = parser.parse_args()
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder, "tools/bin")
        venv.create(tools.parent, with_pip=True)
        run(tools / "pip", "install", "--quiet", "build", "auditwheel", "patchelf", "twine")
        run(tools / "pyproject-build", "--sdist", "--outdir", DIST)
        (sdist,) = DIST.glob("*.tar.gz")
        for native in ("never", "always"):
            out = Path(folder, native)
            build = [tools / "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, sdist]
            run(*build, ROUGHFORMER_BUILD_NATIVE=native)
        (pure,) = Path(folder, "never").glob("*.whl")
        (wheel,) = Path(folder, "always").glob("*.whl")
        if sys.platform == "linux":
            platform = f"manylinux_2_28_{os.uname().machine}"
            repair = [tools / "auditwheel", "repair", "--plat", platform, "--only-plat"]
            path = f"{tools}{os.pathsep}{os.environ['PATH']}"  # auditwheel calls patchelf
            run(*repair, "--wheel-dir", DIST, wheel, PATH=path)
        else:
            shutil.copy(wheel, DIST)
        (repaired,) = DIST.glob("*.whl")
        shutil.copy(pure, DIST)
        run(tools / "twine", "check", "--strict", *DIST.iterdir())
    for python in options.pythons:
        try_wheel(repaired, python, "native", torch=True)
    for python in options.no_torch:
        try_wheel(repaired, python, "native", torch=False)
    try_wheel(DIST / pure.name, options.pythons[0], "torch", torch=True)
    for file in sorted(DIST.iterdir()):
        print(f"{file.stat().st_size / 1e6:6.2f} MB  {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
