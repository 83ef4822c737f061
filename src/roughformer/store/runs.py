"""Where other ids begin in a column, in one native pass where they are whole numbers or codes."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from roughformer.series._columns import run_starts
from roughformer.signatures.library import load

__all__ = ["runs_of"]


def runs_of(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """``(R,)`` rows at which another entry begins than in the row before, the first one included,
    and those at which chunks begin.
    """
    library = load()
    if library is None or column.num_chunks != 1:
        return run_starts(column)
    chunk = column.chunk(0)
    codes = chunk.indices if pt.is_dictionary(chunk.type) else chunk
    whole = pt.is_integer(codes.type) and codes.type.bit_width in (32, 64)
    if not whole or codes.null_count:
        return run_starts(column)
    numbers = codes.to_numpy()
    starts = np.empty(len(numbers), np.int64)
    count = library.rf_runs(numbers.ctypes.data, len(numbers), numbers.itemsize, starts.ctypes.data)
    return starts[:count].copy()
