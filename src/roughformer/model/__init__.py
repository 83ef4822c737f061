"""The Rough Transformer: attention on multi-view signature tokens."""

from roughformer.model.config import RFormerConfig
from roughformer.model.rformer import RFormer, TokenTransformer

__all__ = ["RFormer", "RFormerConfig", "TokenTransformer"]
