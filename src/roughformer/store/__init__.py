"""Feature stores: tokens and series of data larger than memory, as shards of Parquet.

``build_store`` makes one from tables of any size, in bounded memory; ``StoredSeries`` reads it.
"""

from roughformer.store.build import MARKER, Built, Progress, build_store
from roughformer.store.dataset import (
    TableColumns,
    by_id,
    entries_of,
    find_files,
    keys_of,
    open_source,
    schema_of_file,
)
from roughformer.store.storage import Place
from roughformer.store.stored import (
    MANIFEST,
    Manifest,
    StoredSeries,
)
