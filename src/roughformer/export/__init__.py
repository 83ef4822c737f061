"""Trained models as one graph, from raw irregular samples to predictions."""

from roughformer.export.graph import Graph
from roughformer.export.model import Exported, export_model, export_step
from roughformer.export.step import StepGraph, why_no_step

__all__ = ["Exported", "Graph", "StepGraph", "export_model", "export_step", "why_no_step"]
