"""Signatures of paths: words, lifts, windows; the native kernel and one definition in torch.

Names are loaded on first use: neither torch nor numpy is needed to build the kernel, and torch only
where there is no kernel or tensors are given. The steps that tokens are made of in torch are in
``torch_backend``, which ``tokens`` imports from.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roughformer.signatures.engine import compute_tokens as compute_tokens
    from roughformer.signatures.engine import logsignature as logsignature
    from roughformer.signatures.engine import multiview_signature as multiview_signature
    from roughformer.signatures.engine import signature as signature
    from roughformer.signatures.functionals import FINE as FINE
    from roughformer.signatures.functionals import Functionals as Functionals
    from roughformer.signatures.functionals import padded_cells as padded_cells
    from roughformer.signatures.functionals import path_cells as path_cells
    from roughformer.signatures.library import engine_info as engine_info
    from roughformer.signatures.library import load as load
    from roughformer.signatures.lifts import Basepoint as Basepoint
    from roughformer.signatures.lifts import Basis as Basis
    from roughformer.signatures.lifts import Clock as Clock
    from roughformer.signatures.lifts import Counts as Counts
    from roughformer.signatures.lifts import Lag as Lag
    from roughformer.signatures.lifts import Layout as Layout
    from roughformer.signatures.lifts import Lift as Lift
    from roughformer.signatures.lifts import Lifts as Lifts
    from roughformer.signatures.lifts import Time as Time
    from roughformer.signatures.lifts import Transform as Transform
    from roughformer.signatures.lifts import View as View
    from roughformer.signatures.lifts import feature_count as feature_count
    from roughformer.signatures.lifts import feature_names as feature_names
    from roughformer.signatures.lifts import layout_of as layout_of
    from roughformer.signatures.lifts import memory_estimate as memory_estimate
    from roughformer.signatures.lifts import over_limit as over_limit
    from roughformer.signatures.lifts import readable as readable
    from roughformer.signatures.operators import padded_tokens as padded_tokens
    from roughformer.signatures.operators import piece_clock_words as piece_clock_words
    from roughformer.signatures.operators import piece_signature as piece_signature
    from roughformer.signatures.paths import Cuts as Cuts
    from roughformer.signatures.paths import locate as locate
    from roughformer.signatures.points import Dropping as Dropping
    from roughformer.signatures.points import fill_gaps as fill_gaps
    from roughformer.signatures.points import pad as pad
    from roughformer.signatures.points import series_numbers as series_numbers
    from roughformer.signatures.points import values_at as values_at
    from roughformer.signatures.running import RunningSignatures as RunningSignatures
    from roughformer.signatures.spectrum import spectrum_of as spectrum_of
    from roughformer.signatures.spectrum import spectrum_words as spectrum_words
    from roughformer.signatures.torch_backend import inside_of as inside_of
    from roughformer.signatures.torch_backend import number as number
    from roughformer.signatures.torch_backend import observed as observed
    from roughformer.signatures.torch_backend import padded_series as padded_series
    from roughformer.signatures.windows import Windows as Windows
    from roughformer.signatures.windows import place as place
    from roughformer.signatures.words import all_words as all_words
    from roughformer.signatures.words import lyndon_count as lyndon_count
    from roughformer.signatures.words import lyndon_words as lyndon_words
    from roughformer.signatures.words import word_count as word_count

_NAMES = {
    "engine": "compute_tokens logsignature multiview_signature signature",
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
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
