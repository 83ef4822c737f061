"""Series to the inputs of a model: which windows, views, lifts, observations and spectrum.

Encoders are fitted once and stored as plain data; each takes ragged batches and padded tensors.
``TokenStep`` and ``stream_tokens`` make the same tokens of streams. Names are loaded on first use:
plain tokens of ragged batches do without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roughformer.tokens.cells import CellEncoder as CellEncoder
    from roughformer.tokens.config import SpectrumConfig as SpectrumConfig
    from roughformer.tokens.config import TokenConfig as TokenConfig
    from roughformer.tokens.fitted import StaticColumn as StaticColumn
    from roughformer.tokens.fitted import StaticEncoder as StaticEncoder
    from roughformer.tokens.fitted import check_series as check_series
    from roughformer.tokens.fitted import encoded_static as encoded_static
    from roughformer.tokens.fitted import thinned as thinned
    from roughformer.tokens.intervals import IntervalQuantiles as IntervalQuantiles
    from roughformer.tokens.padded import PaddedTokens as PaddedTokens
    from roughformer.tokens.streams import Piece as Piece
    from roughformer.tokens.streams import State as State
    from roughformer.tokens.streams import TokenStep as TokenStep
    from roughformer.tokens.streams import WindowTokens as WindowTokens
    from roughformer.tokens.streams import per_stream as per_stream
    from roughformer.tokens.streams import stream_tokens as stream_tokens
    from roughformer.tokens.tempo import TempoEncoder as TempoEncoder
    from roughformer.tokens.tokenizer import Tokenizer as Tokenizer
    from roughformer.tokens.tokenizer import frequencies as frequencies

_NAMES = {
    "cells": "CellEncoder",
    "config": "SpectrumConfig TokenConfig",
    "fitted": "StaticColumn StaticEncoder check_series encoded_static thinned",
    "intervals": "IntervalQuantiles",
    "padded": "PaddedTokens",
    "streams": "Piece State TokenStep WindowTokens per_stream stream_tokens",
    "tempo": "TempoEncoder",
    "tokenizer": "Tokenizer frequencies",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    """Load a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
