"""Write a trained model as one ONNX or torch graph, from raw irregular samples to predictions.

``export_model`` writes a graph of whole series, ``export_step`` that of one step of a stream; each
file is compared with its model before it is written.
"""

from roughformer.export.check import differences, step_differences
from roughformer.export.files import Exported, export_model, export_step, open_graph
from roughformer.export.forecast import ForecastGraph
from roughformer.export.graphs import Graph, StepGraph, why_no_step
