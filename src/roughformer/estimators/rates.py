"""RateRegressor."""

from typing import Any, ClassVar, Literal

from torch import Tensor

from roughformer.estimators.documented import documented
from roughformer.estimators.models import RateModelConfig
from roughformer.estimators.regressor import TrainedRegressor
from roughformer.inference.targets import NumberTargets, check_rates
from roughformer.model.outputs import OutputConfig
from roughformer.train import TrainConfig
from roughformer.util.checks import real_number
from roughformer.util.groups import Group

__all__ = ["RateRegressor"]


@documented
class RateRegressor(TrainedRegressor):
    """Predict a rate, per unit of time: a heart rate, a frequency, a rotation speed.

    A ``TempoFormer``: spectra of windows on a logarithmic axis, where another tempo is a shift,
    attention over the windows, and a histogram over rates, which gives a standard deviation too.
    ``TrainConfig(warp=...)`` plays the training series faster and slower, and scales the target
    along.

    Parameters
    ----------
    rate_unit : float, default 1.0
        Turns per unit of time of a target of 1, e.g. 1/60 for beats per minute and times in
        seconds.
    {training}
    {running}
    model : RateModelConfig or dict, optional
        Shape of the TempoFormer.
    {train_group}

    Attributes
    ----------
    {fitted}

    Examples
    --------
    >>> import roughformer as rf
    >>> model = rf.RateRegressor(rate_unit=1 / 60, training=rf.TrainConfig(warp=0.2))
    >>> model.fit(X, y).predict(X_new, return_std=True)  # doctest: +SKIP
    """

    kind = "tempo"
    groups: ClassVar[dict[str, type[Group]]] = {"model": RateModelConfig, "training": TrainConfig}
    shortcuts: ClassVar[dict[str, str]] = dict.fromkeys(
        ("epochs", "learning_rate", "drop"), "training"
    )
    _rate_like = True

    def __init__(
        self,
        *,
        rate_unit: float = 1.0,
        epochs: int | None = None,
        learning_rate: float | None = None,
        drop: float | tuple[float, float] | None = None,
        validation: float = 0.2,
        random_state: Any = None,
        device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
        n_jobs: int | None = None,
        run_dir: Any = None,
        verbose: int = 0,
        model: RateModelConfig | dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
    ) -> None:
        """Keep the parameters as given, as scikit-learn wants it; see the class."""
        self.rate_unit = rate_unit
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.drop = drop
        self.validation = validation
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.run_dir = run_dir
        self.verbose = verbose
        self.model = model
        self.training = training

    def __sklearn_tags__(self) -> Any:
        """There is one target, and it is positive."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.target_tags.positive_only = True
        return tags

    def _rate_unit(self) -> float | None:
        return real_number(self.rate_unit, "rate_unit", "a positive number", positive=True)

    def _aim(self, y: Any, n: int) -> Tensor:
        target = super()._aim(y, n)
        check_rates(target.numpy())
        return target

    def _fit_targets(self, target: Tensor, outputs: OutputConfig) -> None:
        # The bins of the histogram are places on the log axis itself.
        self._targets = NumberTargets(mean=(0.0,), scale=(1.0,), log=True, flat=self._flat)

    @classmethod
    def checked_metric(cls, name: str) -> str:
        """Check the name of a metric.

        Parameters
        ----------
        name : str
            A metric, or "auto": the loss of the histogram, since a mean may be right by luck.

        Returns
        -------
        str
        """
        return "loss" if name == "auto" else super().checked_metric(name)
