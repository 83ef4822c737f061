"""numpydoc sections of what is public, against the signatures."""

import importlib
import inspect
import re
from functools import cached_property

import pytest

import roughformer as rf
from roughformer import io, plots
from roughformer.export import Exported, export_model, export_step
from roughformer.inference.alarms import Alarm, AlarmState, Detection, time_to_detection
from roughformer.model.rformer import Step
from roughformer.stream import Answers, Events, StreamEvent

ESTIMATORS = [
    rf.RFormerClassifier, rf.RFormerRegressor, rf.RFormerForecaster, rf.RateRegressor,
]  # fmt: skip
GROUPS = [
    rf.TokenConfig, rf.ModelConfig, rf.TrainConfig, rf.SpectrumConfig, rf.RateModelConfig,
]  # fmt: skip
METHODS = [
    getattr(cls, name)
    for cls in (rf.RFormerClassifier, rf.RFormerRegressor)
    for name, method in inspect.getmembers(cls, inspect.isroutine)
    if name in ("fit", "predict", "predict_proba", "predict_quantiles", "predict_windows", "score",
                "calibrate", "predict_interval", "predict_set",
                "explain", "save", "load", "from_preset", "get_params", "set_params")
]  # fmt: skip


def described(documented):
    """Names in the section of parameters, in their order."""
    text = inspect.getdoc(documented)
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-{3,}|\Z)", text, re.M | re.S)
    return re.findall(r"^(\**\w+)(?: : .+)?$", section[1], re.M)


@pytest.mark.parametrize("documented", [*ESTIMATORS, *GROUPS], ids=lambda cls: cls.__name__)
def test_the_docstring_of_a_class_describes_each_parameter_and_no_other(documented):
    assert "{" + "training}" not in documented.__doc__
    assert set(described(documented)) == set(inspect.signature(documented).parameters)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__qualname__)
def test_the_docstring_of_a_method_describes_each_parameter(method):
    expected = [
        ("**" if p.kind is p.VAR_KEYWORD else "") + name
        for name, p in inspect.signature(method).parameters.items()
        if name != "self"
    ]
    assert described(method) == expected


# Series, windows, lifts and signatures

SIGNATURES = [
    rf.read, rf.SeriesBatch, rf.Windows, rf.Time, rf.Lag, rf.Counts, rf.Basepoint, rf.Clock,
    rf.signature,
    rf.logsignature, rf.multiview_signature, rf.feature_count, rf.feature_names,
    rf.memory_estimate, rf.engine_info, rf.RunningSignatures, rf.SignatureTransformer,
]  # fmt: skip
SIGNATURES += [
    getattr(cls, name)
    for cls in (rf.SeriesBatch, rf.Windows, rf.RunningSignatures, rf.SignatureTransformer)
    for name, member in vars(cls).items()
    if not name.startswith("_") and (callable(member) or isinstance(member, classmethod))
]


@pytest.mark.parametrize("documented", SIGNATURES, ids=lambda documented: documented.__qualname__)
def test_the_docstring_describes_each_parameter_and_no_other(documented):
    parameters = [
        ("**" if p.kind is p.VAR_KEYWORD else "") + name
        for name, p in inspect.signature(documented).parameters.items()
        if name != "self"
    ]
    has_section = "Parameters\n---" in inspect.getdoc(documented)
    assert (described(documented) if has_section else []) == parameters


# Predictor, tokens, streams, plots, alarms, export and files

CLASSES = [
    rf.Predictor, rf.Tokenizer, rf.Stream, rf.StreamBatch,
    rf.RFormer, rf.RFormerConfig, rf.RFormerForecaster, Alarm, AlarmState,
]  # fmt: skip
RECORDS = [rf.Explanation, Answers, Events, StreamEvent, Detection, Exported, Step]
PUBLIC_METHODS = [
    getattr(cls, name)
    for cls in CLASSES
    for name in vars(cls)
    if not name.startswith(("_", "model_")) and name != "set_extra_state"
    if inspect.isroutine(getattr(cls, name)) and not isinstance(vars(cls)[name], cached_property)
]
FUNCTIONS = [
    *(getattr(module, name) for module in (io, plots) for name in module.__all__ if name.islower()),
    rf.RFormer.from_tokens, rf.RFormer.step_tokens, export_model, export_step, time_to_detection,
]  # fmt: skip
STARS = {inspect.Parameter.VAR_KEYWORD: "**"}


def expected_names(documented):
    parameters = inspect.signature(documented).parameters.items()
    return [STARS.get(p.kind, "") + name for name, p in parameters if name != "self"]


@pytest.mark.parametrize(
    "documented", [*CLASSES, *PUBLIC_METHODS, *FUNCTIONS], ids=lambda x: x.__qualname__
)
def test_the_section_of_parameters_is_that_of_the_signature(documented):
    expected = expected_names(documented)
    assert not expected or described(documented) == expected


@pytest.mark.parametrize("record", RECORDS, ids=lambda cls: cls.__name__)
def test_the_docstring_of_a_record_describes_each_attribute(record):
    text = inspect.getdoc(record)
    assert "Attributes\n----------\n" in text
    assert re.findall(r"^(\w+) : .+$", text, re.M) == list(inspect.signature(record).parameters)


@pytest.mark.parametrize("name", ["RFormerAeonClassifier", "RFormerAeonRegressor"])
def test_the_docstring_of_an_aeon_class_describes_each_parameter(name):
    pytest.importorskip("aeon")
    cls = getattr(importlib.import_module("roughformer.aeon"), name)
    assert described(cls) == expected_names(cls)


def public():
    """Everything in the lists of public names, and the methods of its classes."""
    for module in (rf, rf.nn):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) and not issubclass(thing, Exception):
                yield thing
                yield from methods(thing)
            elif inspect.isfunction(thing):
                yield thing


def methods(cls):
    """Our own, wherever they are inherited from."""
    for name, member in inspect.getmembers(cls, inspect.isroutine):
        own = (getattr(member, "__module__", None) or "").startswith("roughformer")
        if own and not name.startswith(("_", "model_")):
            yield member


EVERYTHING = {f"{x.__module__}.{x.__qualname__}": x for x in public()}


@pytest.mark.parametrize("name", EVERYTHING)
def test_everything_public_has_its_sections(name):
    documented = EVERYTHING[name]
    text, signature = inspect.getdoc(documented), inspect.signature(documented)
    takes = [p for p in signature.parameters if p not in ("self", "cls")]
    if takes:
        assert re.search(r"^(Parameters|Attributes)\n-{3,}", text, re.M)
    returns = signature.return_annotation not in (None, "None", inspect.Signature.empty)
    if takes and returns and not inspect.isclass(documented):
        assert re.search(r"^(Returns|Yields)\n-{3,}", text, re.M)
