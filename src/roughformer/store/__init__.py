"""Feature stores: tokens (and series) of data larger than memory, as shards of Parquet."""

from roughformer.store.build import Built, build_store
from roughformer.store.columns import TableColumns
from roughformer.store.manifest import Manifest

__all__ = ["Built", "Manifest", "TableColumns", "build_store"]
