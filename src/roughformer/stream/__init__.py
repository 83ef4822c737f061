"""Live streams: observations arrive one at a time, predictions equal those of the offline model.

``Stream`` is one stream, ``StreamBatch`` many of one model; ``ForecastStream`` forecasts.
"""

from roughformer.stream.engines import static_names
from roughformer.stream.forecast import Forecast, ForecastStream
from roughformer.stream.messages import Answers, Events, answers_of
from roughformer.stream.stream import Stream, StreamBatch, StreamEvent

__all__ = [
    "Answers",
    "Events",
    "Forecast",
    "ForecastStream",
    "Stream",
    "StreamBatch",
    "StreamEvent",
    "answers_of",
    "static_names",
]
