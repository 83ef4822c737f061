"""Live streams: observations come one at a time, predictions are those of the offline model."""

from roughformer.stream.answers import Answers, Events
from roughformer.stream.batch import StreamBatch
from roughformer.stream.forecast import Forecast, ForecastStream
from roughformer.stream.single import Stream, StreamEvent

__all__ = [
    "Answers",
    "Events",
    "Forecast",
    "ForecastStream",
    "Stream",
    "StreamBatch",
    "StreamEvent",
]
