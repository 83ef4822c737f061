"""Trained models as one graph, from raw irregular samples to predictions."""

from roughformer.export.forecast import ForecastGraph, export_forecaster
from roughformer.export.graph import Graph
from roughformer.export.model import Exported, export_model, export_step
from roughformer.export.step import StepGraph, why_no_step

__all__ = [
    "Exported",
    "ForecastGraph",
    "Graph",
    "StepGraph",
    "export_forecaster",
    "export_model",
    "export_step",
    "why_no_step",
]
