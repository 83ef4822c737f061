"""The Rough Transformer: attention on multi-view signature tokens."""

from roughformer.model.config import RFormerConfig
from roughformer.model.heads import Head, Pooling
from roughformer.model.outputs import OutputConfig
from roughformer.model.rformer import RFormer, TokenTransformer
from roughformer.model.scaling import Standardize

__all__ = [
    "Head",
    "OutputConfig",
    "Pooling",
    "RFormer",
    "RFormerConfig",
    "Standardize",
    "TokenTransformer",
]
