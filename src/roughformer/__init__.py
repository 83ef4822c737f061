"""roughformer: learning from long, irregular, multichannel time series.

Everything public is named here and loaded on first use, so that importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roughformer import nn as nn
    from roughformer.errors import CapacityError as CapacityError
    from roughformer.errors import CheckpointError as CheckpointError
    from roughformer.errors import EngineWarning as EngineWarning
    from roughformer.errors import InputError as InputError
    from roughformer.errors import MissingDataError as MissingDataError
    from roughformer.estimators import ModelConfig as ModelConfig
    from roughformer.estimators import RateModelConfig as RateModelConfig
    from roughformer.estimators import RateRegressor as RateRegressor
    from roughformer.estimators import RFormerClassifier as RFormerClassifier
    from roughformer.estimators import RFormerForecaster as RFormerForecaster
    from roughformer.estimators import RFormerRegressor as RFormerRegressor
    from roughformer.estimators import SignatureTransformer as SignatureTransformer
    from roughformer.explain import Explanation as Explanation
    from roughformer.inference import Alarm as Alarm
    from roughformer.inference import AlarmState as AlarmState
    from roughformer.inference import ModelSpec as ModelSpec
    from roughformer.inference import Predictor as Predictor
    from roughformer.inference import alarm_with_guarantee as alarm_with_guarantee
    from roughformer.inference import get_model as get_model
    from roughformer.inference import register_model as register_model
    from roughformer.inference import time_to_detection as time_to_detection
    from roughformer.model import RFormer as RFormer
    from roughformer.model import RFormerConfig as RFormerConfig
    from roughformer.plots import plot_calibration as plot_calibration
    from roughformer.plots import plot_confusion as plot_confusion
    from roughformer.plots import plot_explanation as plot_explanation
    from roughformer.plots import plot_forecast as plot_forecast
    from roughformer.plots import plot_history as plot_history
    from roughformer.plots import plot_horizon as plot_horizon
    from roughformer.plots import plot_regression as plot_regression
    from roughformer.plots import plot_series as plot_series
    from roughformer.plots.report import write_report as write_report
    from roughformer.runs import SeriesData as SeriesData
    from roughformer.runs import read as read
    from roughformer.series import SeriesBatch as SeriesBatch
    from roughformer.series import UnobservedWarning as UnobservedWarning
    from roughformer.signatures import Basepoint as Basepoint
    from roughformer.signatures import Clock as Clock
    from roughformer.signatures import Counts as Counts
    from roughformer.signatures import Lag as Lag
    from roughformer.signatures import Lift as Lift
    from roughformer.signatures import RunningSignatures as RunningSignatures
    from roughformer.signatures import Time as Time
    from roughformer.signatures import Windows as Windows
    from roughformer.signatures import algebra as algebra
    from roughformer.signatures import engine_info as engine_info
    from roughformer.signatures import feature_count as feature_count
    from roughformer.signatures import feature_names as feature_names
    from roughformer.signatures import fill_gaps as fill_gaps
    from roughformer.signatures import logsignature as logsignature
    from roughformer.signatures import memory_estimate as memory_estimate
    from roughformer.signatures import multiview_signature as multiview_signature
    from roughformer.signatures import signature as signature
    from roughformer.signatures import spectrum_words as spectrum_words
    from roughformer.signatures import values_at as values_at
    from roughformer.signatures import words as words
    from roughformer.stream import Forecast as Forecast
    from roughformer.stream import ForecastStream as ForecastStream
    from roughformer.stream import Stream as Stream
    from roughformer.stream import StreamBatch as StreamBatch
    from roughformer.tokens import SpectrumConfig as SpectrumConfig
    from roughformer.tokens import TokenConfig as TokenConfig
    from roughformer.tokens import Tokenizer as Tokenizer
    from roughformer.train import TrainConfig as TrainConfig

__version__ = "0.2.0"

_HOME = {
    "errors": "CapacityError CheckpointError EngineWarning InputError MissingDataError",
    "estimators": (
        "ModelConfig RFormerClassifier RFormerForecaster RFormerRegressor RateModelConfig "
        "RateRegressor SignatureTransformer"
    ),
    "explain": "Explanation",
    "inference": (
        "Alarm AlarmState ModelSpec Predictor alarm_with_guarantee get_model "
        "register_model time_to_detection"
    ),
    "model": "RFormer RFormerConfig",
    "plots": (
        "plot_calibration plot_confusion plot_explanation plot_forecast plot_history plot_horizon "
        "plot_regression plot_series"
    ),
    "plots.report": "write_report",
    "runs": "SeriesData read",
    "series": "SeriesBatch UnobservedWarning",
    "signatures": (
        "Basepoint Clock Counts Lag Lift RunningSignatures Time Windows engine_info feature_count "
        "feature_names fill_gaps logsignature memory_estimate multiview_signature signature "
        "spectrum_words values_at"
    ),
    "stream": "Forecast ForecastStream Stream StreamBatch",
    "tokens": "SpectrumConfig TokenConfig Tokenizer",
    "train": "TrainConfig",
}
_MODULE_OF = {name: home for home, names in _HOME.items() for name in names.split()}

_MODULES = {"algebra": "signatures.algebra", "nn": "nn", "words": "signatures.words"}

__all__ = [*sorted(_MODULE_OF), "__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name in _MODULES:
        return import_module(f"roughformer.{_MODULES[name]}")
    home = _MODULE_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'roughformer' has no attribute {name!r}")
    value = getattr(import_module(f"roughformer.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
