"""Signatures of paths: words, lifts, windows; the native kernel and one definition in torch.

Names are loaded on first use: neither torch nor numpy is needed to build the kernel, and torch only
where there is no kernel or tensors are given. The steps that tokens are made of in torch are in
``torch_backend``, which ``tokens`` imports from.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roughformer.signatures.engine import (
        check_dropping,
        compute_tokens,
        logsignature,
        multiview_signature,
        signature,
    )
    from roughformer.signatures.functionals import FINE, Functionals, padded_cells, path_cells
    from roughformer.signatures.library import engine_info, load
    from roughformer.signatures.lifts import (
        Basepoint,
        Basis,
        Clock,
        Counts,
        Lag,
        Layout,
        Lift,
        Lifts,
        Time,
        Transform,
        View,
        feature_count,
        feature_names,
        layout_of,
        memory_estimate,
        over_limit,
        readable,
    )
    from roughformer.signatures.operators import padded_tokens, piece_clock_words, piece_signature
    from roughformer.signatures.paths import Cuts, locate
    from roughformer.signatures.points import Dropping, fill_gaps, pad, series_numbers, values_at
    from roughformer.signatures.running import RunningSignatures
    from roughformer.signatures.spectrum import spectrum_of, spectrum_words
    from roughformer.signatures.torch_backend import inside_of, number, observed, padded_series
    from roughformer.signatures.windows import Windows, place
    from roughformer.signatures.words import all_words, lyndon_count, lyndon_words, word_count

_NAMES = {
    "engine": "check_dropping compute_tokens logsignature multiview_signature signature",
    "functionals": "FINE Functionals padded_cells path_cells",
    "library": "engine_info load",
    "lifts": (
        "Basepoint Basis Clock Counts Lag Layout Lift Lifts Time Transform View feature_count "
        "feature_names layout_of memory_estimate over_limit readable"
    ),
    "operators": "padded_tokens piece_clock_words piece_signature",
    "paths": "Cuts locate",
    "points": "Dropping fill_gaps pad series_numbers values_at",
    "running": "RunningSignatures",
    "spectrum": "spectrum_of spectrum_words",
    "torch_backend": "inside_of number observed padded_series",
    "windows": "Windows place",
    "words": "all_words lyndon_count lyndon_words word_count",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    """Load a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
