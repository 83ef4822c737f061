"""Series -> tokens: which windows, views, lifts and spectrum, as a fitted, storable step."""

from roughformer.tokens.cells import CellEncoder
from roughformer.tokens.config import SpectrumConfig, TokenConfig
from roughformer.tokens.static import StaticEncoder
from roughformer.tokens.thinning import thinned
from roughformer.tokens.tokenizer import Tokenizer, check_series

__all__ = [
    "CellEncoder",
    "SpectrumConfig",
    "StaticEncoder",
    "TokenConfig",
    "Tokenizer",
    "check_series",
    "thinned",
]
