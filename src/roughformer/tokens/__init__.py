"""Series to the inputs of a model: which windows, views, lifts, observations and spectrum.

Encoders are fitted once and stored as plain data; each takes ragged batches and padded tensors.
``TokenStep`` and ``stream_tokens`` make the same tokens of streams.
"""

from roughformer.tokens.cells import CellEncoder
from roughformer.tokens.config import SpectrumConfig, TokenConfig
from roughformer.tokens.intervals import IntervalQuantiles
from roughformer.tokens.memory import Memory, memory_feature_count, remember
from roughformer.tokens.streams import (
    Piece,
    State,
    TokenStep,
    WindowTokens,
    per_stream,
    stream_tokens,
)
from roughformer.tokens.tempo import TempoEncoder
from roughformer.tokens.tokenizer import (
    PaddedTokens,
    StaticColumn,
    StaticEncoder,
    Tokenizer,
    check_series,
    encoded_static,
    frequencies,
    thinned,
)

__all__ = [
    "CellEncoder",
    "IntervalQuantiles",
    "Memory",
    "PaddedTokens",
    "Piece",
    "SpectrumConfig",
    "State",
    "StaticColumn",
    "StaticEncoder",
    "TempoEncoder",
    "TokenConfig",
    "TokenStep",
    "Tokenizer",
    "WindowTokens",
    "check_series",
    "encoded_static",
    "frequencies",
    "memory_feature_count",
    "per_stream",
    "remember",
    "stream_tokens",
    "thinned",
]
