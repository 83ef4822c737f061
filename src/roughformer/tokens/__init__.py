"""Series -> tokens: which windows, views, lifts and spectrum, as a fitted, storable step."""

from roughformer.tokens.config import SpectrumConfig, TokenConfig
from roughformer.tokens.tokenizer import Tokenizer

__all__ = ["SpectrumConfig", "TokenConfig", "Tokenizer"]
