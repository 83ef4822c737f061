"""Live streams: observations arrive one at a time, predictions equal those of the offline model.

``Stream`` is one stream, ``StreamBatch`` many of one model; ``ForecastStream`` forecasts.
"""

from roughformer.stream.engines import answers_of
from roughformer.stream.forecast import Forecast, ForecastStream, ForecastStreamBatch
from roughformer.stream.messages import COVERAGE, Answers, Events
from roughformer.stream.stream import Stream, StreamBatch, StreamEvent
