"""Ragged, timestamped, incomplete series: the one door through which data enter the package.

``SeriesBatch`` is what users meet; the other names read and check columns for the rest of us.
"""

from roughformer.series._arrays import (
    Extras,
    Parts,
    UnobservedWarning,
    blocks,
    check_mask,
    is_tensor,
    layout_of,
    refuse_tables,
    to_seconds,
)
from roughformer.series._table import (
    Read,
    column_numbers,
    column_times,
    guess_roles,
    is_table,
    is_usual,
    run_starts,
    sorting_order,
    take_rows,
    to_table,
    told_apart,
    with_roles,
)
from roughformer.series.batch import SeriesBatch

__all__ = [
    "Extras",
    "Parts",
    "Read",
    "SeriesBatch",
    "UnobservedWarning",
    "blocks",
    "check_mask",
    "column_numbers",
    "column_times",
    "guess_roles",
    "is_table",
    "is_tensor",
    "is_usual",
    "layout_of",
    "refuse_tables",
    "run_starts",
    "sorting_order",
    "take_rows",
    "to_seconds",
    "to_table",
    "told_apart",
    "with_roles",
]
