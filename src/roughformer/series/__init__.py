"""Ragged, timestamped, incomplete series: ``SeriesBatch`` checks data once, where they enter.

The other names read and check columns, times and masks for the folders above.
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
from roughformer.series._fields import check_fraction, keep_mask, series_keys
from roughformer.series._table import (
    Read,
    column_numbers,
    column_times,
    guess_roles,
    has_exact_ids,
    is_table,
    is_usual,
    listed,
    run_starts,
    sorting_order,
    take_rows,
    to_table,
    with_roles,
)
from roughformer.series.batch import SeriesBatch
