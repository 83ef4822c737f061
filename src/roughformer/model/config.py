"""What an RFormer is made of; everything needed to build it again, as plain data."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["RFormerConfig"]


class RFormerConfig(BaseModel):
    """Shape of an RFormer. ``model_dump_json`` and ``model_validate_json`` write and read it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_features: int = Field(ge=1, description="Features of a token.")
    n_outputs: int = Field(ge=1, description="Classes, or targets of a regression.")
    task: Literal["classification", "regression"] = "classification"
    uncertainty: Literal["none", "gaussian", "quantile"] = Field(
        "none", description="What a regression says beside the point: a variance or quantiles."
    )
    quantiles: tuple[float, ...] = Field((0.1, 0.5, 0.9), description="Levels, increasing.")
    d_model: int = Field(64, ge=1, description="Width of the blocks.")
    n_heads: int = Field(4, ge=1, description="Attention heads; they divide the width.")
    n_layers: int = Field(2, ge=0, description="Attention blocks.")
    d_feedforward: int | None = Field(None, ge=1, description="Hidden width; None: 2 d_model.")
    dropout: float = Field(0.1, ge=0, lt=1)
    causal: bool = Field(
        False, description="Windows attend to the past only, and each has an output of its own."
    )
    pooling: Literal["mean", "attention", "last"] = Field(
        "mean", description="How windows become one vector; a causal model has no pooling."
    )
    n_time_waves: int = Field(8, ge=0, description="Octaves of the encoding of window times.")
    n_static: int = Field(0, ge=0, description="Covariates that do not change with time.")
    clip: float = Field(10.0, gt=0, description="Standardised features are cut to ± this.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model must be a multiple of n_heads, got {self.d_model} and {self.n_heads}"
            )
        if self.task == "classification" and self.uncertainty != "none":
            raise ValueError("a classification has probabilities; uncertainty is for regression")
        levels = self.quantiles
        if not levels or not all(0 < q < 1 for q in levels) or list(levels) != sorted(set(levels)):
            raise ValueError(f"quantiles must increase between 0 and 1, got {levels}")
        return self

    @property
    def outputs_per_target(self) -> int:
        """Numbers that the head gives for each class or target."""
        return {"none": 1, "gaussian": 2, "quantile": len(self.quantiles)}[self.uncertainty]
