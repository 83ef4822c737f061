"""Series to the inputs of a model: which windows, views, lifts, observations and spectrum.

Encoders are fitted once and stored as plain data; each takes ragged batches and padded tensors.
``TokenStep`` and ``stream_tokens`` make the same tokens of streams. Names are loaded on first use:
plain tokens of ragged batches do without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roughformer.tokens.cells import CellEncoder
    from roughformer.tokens.fitted import (
        StaticColumn,
        StaticEncoder,
        check_series,
        encoded_static,
        thinned,
    )
    from roughformer.tokens.intervals import IntervalQuantiles
    from roughformer.tokens.padded import PaddedTokens
    from roughformer.tokens.streams import (
        Piece,
        State,
        TokenStep,
        WindowTokens,
        per_stream,
        stream_tokens,
    )
    from roughformer.tokens.tempo import TempoEncoder
    from roughformer.tokens.tokenizer import SpectrumConfig, TokenConfig, Tokenizer, frequencies

_NAMES = {
    "cells": "CellEncoder",
    "fitted": "StaticColumn StaticEncoder check_series encoded_static thinned",
    "intervals": "IntervalQuantiles",
    "padded": "PaddedTokens",
    "streams": "Piece State TokenStep WindowTokens per_stream stream_tokens",
    "tempo": "TempoEncoder",
    "tokenizer": "SpectrumConfig TokenConfig Tokenizer frequencies",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    """Load a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
