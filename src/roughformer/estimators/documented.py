"""Descriptions of parameters that several estimators have, for their docstrings."""

from typing import TypeVar

__all__ = ["documented"]

_TEXTS = {
    "recipe": """recipe : {"auto", "ensemble", "attention"}, default "auto"
        "ensemble": functionals of local signatures read by ridge regression, and trees on
        quantiles and summaries, blended by their out-of-fold predictions. "attention": the Rough
        Transformer on windows. "auto": the ensemble, unless the model is to be causal or an option
        of the network (windows, epochs, tokens, ...) is changed. An ensemble validates itself on
        series that are left out in turn, and uses no ``validation`` part.""",
    "tokens": """windows : int, dict, Windows or array-like, optional
        Number of windows over each series' span, ``{"duration": d}``, ``{"points": n}``, an
        ``rf.Windows``, or cut times shared by all series. Not given: 75, with at least two points
        in each; 12 if values are mostly missing.
    depth : int, optional
        Truncation level of the signatures. Not given: 2, or 1 where a view would have more than
        600 words.
    views : {"global", "local"} or tuple of them, optional
        Signatures since the start of the series, of each window, or both (the default).""",
    "series": """static : tuple of str, default ()
        Names of the static covariates to use. None by default, because they may leak the target.
    causal : bool, default False
        Predict at every window (a model of samples: at every sample) from the past only.""",
    "training": """epochs : int, optional
        Maximum number of passes over the training part. Not given: 60.
    learning_rate : float, optional
        Highest learning rate of the schedule. Not given: 2e-3.
    drop : float or (float, float), optional
        Share of the points that is dropped while training, or a range of shares.
    validation : float, default 0.2
        Share of the series (of the groups, if ``fit`` gets them) that is held out to choose the
        best epoch and to calibrate.""",
    "running": """random_state : int, RandomState or None, default None
        The same integer gives the same model.
    device : {"auto", "cpu", "cuda", "mps"}, default "auto"
        Where the model is trained.
    n_jobs : int or None, default None
        Threads of torch; None: as torch is set, -1: all.
    run_dir : path-like, optional
        Directory for the log, the state to resume from and the model.
    verbose : int, default 0
        1 shows progress.""",
    "classes": """class_weight : "balanced", dict or None, default None
        Weights of the classes in the loss and in the validation scores: label -> weight.""",
    "numbers": """uncertainty : {"none", "gaussian", "quantile"}, default "none"
        "gaussian" for ``predict(return_std=True)``, "quantile" for ``predict_quantiles``.""",
    "token_group": """tokens : TokenConfig or dict, optional
        Other options of the tokens.""",
    "train_group": """training : TrainConfig or dict, optional
        Other options of the training: batch size, metric, number of models, optimiser,
        augmentation, calibration, resuming, callbacks.""",
    "fitted": """predictor_ : Predictor
        The trained model with its encoder.
    history_ : list of dict
        One record per epoch; empty if loaded.
    validation_index_ : ndarray of int
        Indices of the series held out for validation.
    n_features_in_ : int
        Number of channels.""",
}
T = TypeVar("T")


def documented(cls: type[T]) -> type[T]:
    """Put the shared descriptions into the docstring of a class, for their names in braces."""
    for name, text in _TEXTS.items():
        cls.__doc__ = (cls.__doc__ or "").replace(f"{{{name}}}", text)
    return cls
