"""Which engine serves, and what happens where the native one cannot."""

import subprocess
import sys

import numpy as np
import pytest

import roughformer as rf
from roughformer.signatures import library, native
from roughformer.signatures.native import build as native_build

WITHOUT_LIBRARY = """
import warnings
from pathlib import Path
from roughformer.signatures import native
native.library_path = lambda: Path("/nowhere/libroughformer.so")
import numpy as np, roughformer as rf
x = np.random.default_rng(0).normal(size=(3, 20, 2))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    first = rf.multiview_signature(x, 4, 3)
    rf.multiview_signature(x, 4, 3)
ours = [w for w in caught if issubclass(w.category, rf.EngineWarning)]
print(len(ours), rf.engine_info()["engine"])
print(ours[0].message)
np.save({out!r}, first)
"""


def test_without_the_library_torch_serves_with_one_warning(tmp_path):
    out = str(tmp_path / "tokens.npy")
    code = WITHOUT_LIBRARY.format(out=out)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, warning = done.stdout.splitlines()[:2]
    assert count == "1 torch"
    assert "install a C++ compiler" in warning
    x = np.random.default_rng(0).normal(size=(3, 20, 2))
    np.testing.assert_allclose(np.load(out), rf.multiview_signature(x, 4, 3), atol=1e-12)


def test_a_library_of_another_version_is_not_used(monkeypatch):
    if library.load() is None:
        pytest.skip("no native library on this machine")
    monkeypatch.setattr(library, "_ABI", 10**6)
    assert "another version" in str(library._open())


def test_a_damaged_library_is_not_used(monkeypatch, tmp_path):
    damaged = tmp_path / "libroughformer.so"
    damaged.write_bytes(b"not a library")
    monkeypatch.setattr(native, "library_path", lambda: damaged)
    assert "cannot be loaded" in str(library._open())


def test_the_kernel_is_built_where_nothing_else_is_installed():
    """pip builds wheels in an environment that has neither numpy nor torch."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('numpy', 'torch', 'scipy', 'sklearn')))\n"
        "from roughformer.signatures.native.build import generate, is_current\n"
        "print(is_current(), len(generate()) > 10_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "True"


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(native_build, "find_compiler", lambda: None)
    with pytest.raises(native_build.BuildError, match=r"install g\+\+ or clang\+\+"):
        native_build.build()


def test_a_compiler_that_fails_is_quoted(monkeypatch):
    monkeypatch.setattr(native_build, "find_compiler", lambda: "false")
    with pytest.raises(native_build.BuildError, match=r"^false "):
        native_build.build()


def test_an_unknown_engine_is_refused():
    with pytest.raises(rf.InputError, match="engine must be 'auto', 'native' or 'torch'"):
        rf.signature([np.zeros((3, 1))], 2, engine="numba")


def test_threads_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("ROUGHFORMER_NUM_THREADS", "3")
    assert library.default_threads() == 3
    monkeypatch.setenv("ROUGHFORMER_NUM_THREADS", "none")
    assert library.default_threads() >= 1
