"""What an RFormer is made of; everything needed to build it again, as plain data."""

from typing import Literal, Self

from pydantic import Field, model_validator

from roughformer.model.outputs import OutputConfig


class RFormerConfig(OutputConfig):
    """Shape of an RFormer; ``model_dump_json`` and ``model_validate_json`` write and read it."""

    n_features: int = Field(ge=1, description="Features of a token.")
    d_model: int = Field(64, ge=1, description="Width of the blocks.")
    n_heads: int = Field(4, ge=1, description="Attention heads; they divide the width.")
    n_layers: int = Field(1, ge=0, description="Attention blocks.")
    d_feedforward: int | None = Field(
        None, ge=1, description="Hidden width of a block; None: 2 d_model."
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of activations hidden while training."
    )
    attention_dropout: float | None = Field(
        None, ge=0, lt=1, description="Dropout of the attention weights; None: as dropout."
    )
    input_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of token features hidden while training."
    )
    wide: int = Field(
        0,
        ge=0,
        description="Width of small networks beside attention, from the last token (each token, "
        "if causal) and the static covariates to outputs of their own; 0 for none.",
    )
    n_wide: int = Field(8, ge=1, description="Number of these networks.")
    n_wide_features: int | None = Field(
        None, ge=1, description="Number of leading features of the token that they see; None: all."
    )
    wide_share: float = Field(
        0.8, ge=0, le=1, description="Weight of their mean beside the output of attention."
    )
    wide_dropout: float = Field(0.5, ge=0, lt=1, description="Dropout inside these networks.")
    scaling: Literal["standard", "rank", "none"] = Field(
        "standard", description="Scaling of token features: mean and deviation, ranks, or none."
    )
    pooling: Literal["mean", "attention", "last"] = Field(
        "mean", description="How windows become one vector; a causal model has no pooling."
    )
    context: int | None = Field(
        None,
        ge=1,
        description="For causal models: a window attends to the last ``context`` up to itself, and "
        "knows how long ago they were instead of how late it is; None: to all before it.",
    )
    n_time_waves: int = Field(8, ge=0, description="Octaves of the encoding of window times.")
    n_static: int = Field(0, ge=0, description="Covariates that do not change with time.")
    n_spectrum: int = Field(
        0, ge=0, description="Powers of the spectrum of a path, over channels and frequencies."
    )
    clip: float = Field(10.0, gt=0, description="Standardised features are clipped to ± this.")

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model must be a multiple of n_heads, got {self.d_model} and {self.n_heads}"
            )
        if self.context is not None and not self.causal:
            raise ValueError("a context of windows is for causal models; set causal=True")
        return self
