"""Settings of all tests: how hard hypothesis tries, and the engines that are put to the test.

``pytest`` runs 50 examples of each property, always the same ones; ``pytest --examples=5000``
runs that many, drawn anew each time.
"""

import pytest
import torch
from hypothesis import settings

import roughformer as rf

settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.load_profile("ci")
# The tensors of tests are small: torch loses more time to its threads than it gains.
torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--examples", type=int, default=None, help="examples of each property, at random"
    )


def pytest_configure(config):
    examples = config.getoption("--examples")
    if examples is not None:
        settings.register_profile(
            "more", max_examples=examples, deadline=None, derandomize=False, print_blob=True
        )
        settings.load_profile("more")


def instruction_sets():
    """What the native engine offers here, or nothing where it was not built."""
    return rf.engine_info().get("available", [])


def need_native():
    info = rf.engine_info()
    if info["engine"] != "native":
        pytest.skip(f"no native engine: {info['reason']}")


# Session scope, because hypothesis runs many examples within one test.
@pytest.fixture(scope="session", params=["native", "torch"])
def engine(request):
    if request.param == "native":
        need_native()
    return request.param


@pytest.fixture(scope="session")
def native():
    need_native()
    return "native"


@pytest.fixture(params=instruction_sets() or ["none"])
def instruction_set(request):
    """The native engine runs on this instruction set during the test."""
    need_native()
    from roughformer.signatures.library import load

    library = load()
    usual = library.rf_isa()
    assert library.rf_set_isa(request.param.encode()) == 1
    yield request.param
    library.rf_set_isa(usual)
