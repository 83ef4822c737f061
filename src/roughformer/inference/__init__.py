"""A trained model in use: predictors and forecasts, targets, calibration, explanations, alarms."""
