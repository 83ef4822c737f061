"""What an RFormer is made of; everything needed to build it again, as plain data."""

from typing import Literal, Self

from pydantic import Field, model_validator

from roughformer.model.outputs import OutputConfig

__all__ = ["RFormerConfig"]


class RFormerConfig(OutputConfig):
    """Shape of an RFormer. ``model_dump_json`` and ``model_validate_json`` write and read it.

    Parameters
    ----------
    n_outputs : int
        Classes, or targets of a regression.
    task : {"classification", "regression"}, default "classification"
        What the outputs are.
    uncertainty : {"none", "gaussian", "quantile", "histogram"}, default "none"
        What a regression predicts beside the point: a variance, quantiles, or logits of bins.
    quantiles : tuple of float, default (0.1, 0.5, 0.9)
        Levels, increasing.
    n_bins : int, default 2
        Bins of a histogram.
    bin_low : float, default 0.0
        Centre of the first bin, in the units of the loss.
    bin_step : float, default 1.0
        Width of a bin.
    causal : bool, default False
        Windows attend to the past only, and each has an output of its own.
    n_features : int
        Features of a token.
    d_model : int, default 64
        Width of the blocks.
    n_heads : int, default 4
        Attention heads; they divide the width.
    n_layers : int, default 1
        Attention blocks.
    d_feedforward : int, optional
        Hidden width; by default 2 d_model.
    dropout : float, default 0.1
        Of the blocks.
    attention_dropout : float, optional
        Of the weights of attention; by default as ``dropout``.
    input_dropout : float, default 0.0
        Of standardised features.
    wide : int, default 0
        Width of small networks beside attention, from the last token (each token, if causal) and
        the static covariates to outputs of their own; 0 for none.
    n_wide : int, default 8
        Number of these networks.
    n_wide_features : int, optional
        Number of leading features of the token that they see; by default all.
    wide_share : float, default 0.8
        Weight of their mean beside the output of attention.
    wide_dropout : float, default 0.5
        Inside these networks.
    scaling : {"standard", "rank", "none"}, default "standard"
        Of the features: mean and deviation, or ranks, or none.
    pooling : {"mean", "attention", "last"}, default "mean"
        How windows become one vector; a causal model has no pooling.
    context : int, optional
        For causal models: a window attends to the last ``context`` up to itself, and knows how long
        ago they were instead of how late it is; by default to all before it.
    n_time_waves : int, default 8
        Octaves of the encoding of window times.
    n_static : int, default 0
        Covariates that do not change with time.
    n_spectrum : int, default 0
        Powers of the spectrum of a path, over channels and frequencies.
    clip : float, default 10.0
        Standardised features are cut to ± this.
    """

    n_features: int = Field(ge=1, description="Features of a token.")
    d_model: int = Field(64, ge=1, description="Width of the blocks.")
    n_heads: int = Field(4, ge=1, description="Attention heads; they divide the width.")
    n_layers: int = Field(1, ge=0, description="Attention blocks.")
    d_feedforward: int | None = Field(None, ge=1, description="Hidden width; None: 2 d_model.")
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float | None = Field(
        None, ge=0, lt=1, description="Of the weights of attention; None: as dropout."
    )
    input_dropout: float = Field(0.0, ge=0, lt=1, description="On standardised features.")
    wide: int = Field(
        0,
        ge=0,
        description="Width of small networks from the last token (its own, if causal) and the "
        "static covariates to answers of their own, beside attention; 0 for none.",
    )
    n_wide: int = Field(8, ge=1, description="How many such networks.")
    n_wide_features: int | None = Field(
        None, ge=1, description="They see the first so many features of the token; None: all."
    )
    wide_share: float = Field(
        0.8, ge=0, le=1, description="Weight of their mean beside the answer of attention."
    )
    wide_dropout: float = Field(0.5, ge=0, lt=1, description="Inside these networks.")
    scaling: Literal["standard", "rank", "none"] = Field(
        "standard", description="Of the features: mean and deviation, or ranks, or none."
    )
    pooling: Literal["mean", "attention", "last"] = Field(
        "mean", description="How windows become one vector; a causal model has no pooling."
    )
    context: int | None = Field(
        None,
        ge=1,
        description="A window attends to the last so many up to itself, and knows how long ago "
        "they were instead of how late it is; None: to all before it. For causal models.",
    )
    n_time_waves: int = Field(8, ge=0, description="Octaves of the encoding of window times.")
    n_static: int = Field(0, ge=0, description="Covariates that do not change with time.")
    n_spectrum: int = Field(
        0, ge=0, description="Powers of the spectrum of a path, over channels and frequencies."
    )
    clip: float = Field(10.0, gt=0, description="Standardised features are cut to ± this.")

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model must be a multiple of n_heads, got {self.d_model} and {self.n_heads}"
            )
        if self.context is not None and not self.causal:
            raise ValueError("a context of windows is for causal models; set causal=True")
        return self
