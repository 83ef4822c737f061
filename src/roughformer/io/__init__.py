"""Read and write series: tables (Parquet, CSV), ``.ts``, WFDB and EDF files.

Each reader returns a ``SeriesBatch``; ``roughformer.read`` picks the reader by the file's name.
"""

from roughformer.io.edf import read_edf
from roughformer.io.tables import column_names, read_columns, read_csv, read_table, write_table
from roughformer.io.ts import read_ts
from roughformer.io.wfdb import read_wfdb
from roughformer.util.atomic import directory_lock, write_file

__all__ = [
    "column_names",
    "directory_lock",
    "read_columns",
    "read_csv",
    "read_edf",
    "read_table",
    "read_ts",
    "read_wfdb",
    "write_file",
    "write_table",
]
