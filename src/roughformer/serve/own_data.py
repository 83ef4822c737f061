"""Files of the page's visitors -> series: the tables that ``train`` reads."""

import re
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from roughformer.errors import InputError
from roughformer.series import SeriesBatch, guess_roles, is_usual
from roughformer.serve.limits import Limits
from roughformer.serve.model import ServedModel
from roughformer.serve.refusal import Refusal
from roughformer.serve.table_bytes import read_parquet

__all__ = ["read_own_data"]

_ROLES = ("series_id", "time", "channel", "value")
_MISSING = ["", "null", "NULL", "nan", "NaN", "NA", "?"]


def read_own_data(data: bytes, model: ServedModel, limits: Limits) -> list[dict[str, Any]]:
    """Series of a CSV or Parquet table, wide or long, as ``/v1/predict`` takes them.

    Columns go by the names of the training data, then by usual ones; a table without a column of
    ids is one series. CSV: comma, semicolon or tab, decimal point or comma.
    """
    table = _parquet(data, limits) if data[:4] == b"PAR1" else _csv(data)
    if table.num_rows > limits.max_length:
        raise Refusal(400, f"a file may have {limits.max_length} rows, got {table.num_rows}")
    present = table.column_names
    trained: dict[str, Any] = model.predictor.metadata.get("data", {}).get("columns", {})
    given = {role: trained[role] for role in _ROLES if trained.get(role) in present}
    if "series_id" not in given and not any(is_usual(name, "series_id") for name in present):
        given["series_id"] = None
    if "channel" not in given:
        known = [name for name in model.channels if name in present]
        given |= {"channels": tuple(known)} if known else {}
    roles = guess_roles(present, given, read=table.select, table="the file")
    if roles["channel"] is None and not set(model.channels) <= set(present):
        missing = [name for name in model.channels if name not in present]
        raise Refusal(
            400,
            f"the file has no column {', '.join(missing)}; the model needs the channels "
            f"{', '.join(model.channels)}, got the columns {', '.join(present)}",
        )
    static = tuple(name for name in model.static_names if name in present)
    batch = SeriesBatch.from_table(
        table, **(roles | {"channels": model.channels}), static=static, absent=True
    )
    if len(batch) > limits.max_series:
        raise Refusal(400, f"a file may have {limits.max_series} series, got {len(batch)}")
    return [_plain(batch, k) for k in range(len(batch))]


def _plain(batch: SeriesBatch, k: int) -> dict[str, Any]:
    times, values = batch.series(k)
    found = {
        "id": str(k if batch.ids is None else batch.ids[k]),
        "times": times.tolist(),
        "values": values.tolist(),  # JSON's null for NaN
    }
    if batch.static is not None:
        found["static"] = dict(zip(batch.static_names, batch.static[k].tolist(), strict=True))
    return found


def _parquet(data: bytes, limits: Limits) -> pa.Table:
    try:
        names = pq.read_schema(pa.BufferReader(data)).names
    except (pa.ArrowException, OSError):
        raise Refusal(400, "this is no Parquet file") from None
    return read_parquet(data, names, limits, texts=names)


def _csv(data: bytes) -> pa.Table:
    head, _, rest = data.partition(b"\n")
    separator = max((",", ";", "\t"), key=lambda sign: head.count(sign.encode()))
    comma = separator != "," and re.search(rb"\d,\d", rest[:4096]) is not None
    try:
        return pv.read_csv(
            pa.BufferReader(data),
            parse_options=pv.ParseOptions(delimiter=separator),
            convert_options=pv.ConvertOptions(
                decimal_point="," if comma else ".", null_values=_MISSING
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        words = " ".join(str(error).split())
        raise InputError(f"the file cannot be read as a table: {words}") from None
