"""A trained model in use.

``Predictor`` and ``ForecastPredictor`` go from series to predictions and to files; around them are
the registry of models, the meaning of targets, calibration and alarms.
"""

from roughformer.inference.alarms import (
    Alarm,
    AlarmState,
    Detection,
    alarm_with_guarantee,
    time_to_detection,
)
from roughformer.inference.calibration import (
    NOT_CALIBRATED,
    calibrate_scores,
    fit_deviation_factor,
    fit_temperature,
    n_observed,
)
from roughformer.inference.forecasts import Answers, Backtest, ForecastPredictor
from roughformer.inference.predictor import (
    ModelSpec,
    Predictor,
    committee_of,
    get_model,
    model_name,
    model_names,
    register_model,
)
from roughformer.inference.targets import (
    ClassTargets,
    NumberTargets,
    check_all_known,
    check_numbers,
    check_rates,
    check_weights,
    known_labels,
    share_equal,
)
