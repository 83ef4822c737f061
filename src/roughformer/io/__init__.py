"""Files and data sets -> ``SeriesBatch``."""

from roughformer.io.bidmc import heart_rate_split, load_heart_rate
from roughformer.io.edf import read_edf
from roughformer.io.physionet2012 import load_physionet2012, physionet2012_subset
from roughformer.io.pulse import make_pulse
from roughformer.io.roots import data_root
from roughformer.io.sine import make_sine
from roughformer.io.tables import read_table, write_table
from roughformer.io.ts import read_ts, write_ts
from roughformer.io.wfdb import read_wfdb
from roughformer.util.atomic import directory_lock, write_file

__all__ = [
    "data_root",
    "directory_lock",
    "heart_rate_split",
    "load_heart_rate",
    "load_physionet2012",
    "make_pulse",
    "make_sine",
    "physionet2012_subset",
    "read_edf",
    "read_table",
    "read_ts",
    "read_wfdb",
    "write_file",
    "write_table",
    "write_ts",
]
