"""Whatever is sent, the answer is words and the server goes on."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roughformer.serve.tables import ARROW, PARQUET, unpacked_size
from serving import arrow

GOOD = {"times": [0.0, 1.0, 2.5], "values": [[1, 2], [None, 3], [1.5, None]]}


def series(**changes):
    return json.dumps({"series": [GOOD, GOOD | changes]}).encode()


def parquet(columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def with_compression():
    sink = pa.BufferOutputStream()
    table = pa.table({"series": ["a"] * 99, "time": np.arange(99.0), "hr": 1.0 * np.ones(99)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


WIDE = {"series": ["a", "a"], "time": [0.0, 1.0], "hr": [1.0, 2.0], "spo2": [1.0, None]}
JSON = [
    (b"", "not valid JSON"),
    (b"{", "not valid JSON"),
    (b"null", "expected `object`, got `null`"),
    (b"[]", "expected `object`, got `list`"),
    (b'"text"', "expected `object`, got `string`"),
    (b"\xff\xfe\x00", "not valid JSON"),
    (b"\xef\xbb\xbf{}", "not valid JSON"),
    (b"[" * 5000 + b"]" * 5000, "expected `object`"),
    (b'{"series": ' * 2000, "expected `list`, got `object` at series"),
    (b"{}", "missing required field `series`"),
    (b'{"series": []}', "expected `list` of length >= 1 at series"),
    (b'{"series": {}}', "expected `list`, got `object` at series"),
    (b'{"series": [1]}', "series 0: expected `object`, got `integer`"),
    (b'{"serie": []}', "unknown field `serie`"),
    (series(time=[0]), "series 1: object contains unknown field `time`"),
    (series().replace(b"2.5", b"NaN"), "not valid JSON"),
    (series().replace(b"2.5", b"Infinity"), "not valid JSON"),
    (series().replace(b"1.5", b"-Infinity"), "not valid JSON"),
    (series().replace(b"1.5", b"1e999"), "series 0, row 2: number out of range"),
    (series(times=None), "series 1: expected `list`, got `null` at series[1].times"),
    (series(times="012"), "expected `list`, got `string` at series[1].times"),
    (series(times=[0, "1", 2]), "series 1, row 1: expected `number`, got `string`"),
    (series(times=[0, True, 2]), "series 1, row 1: expected `number`, got `boolean`"),
    (series(times=[0, None, 2]), "series 1, row 1: expected `number`, got `null`"),
    (series(times=[0, [1], 2]), "series 1, row 1"),
    (series(times=[0, 2, 1]), "series 1, row 2: times must strictly increase, got 1.0 after 2.0"),
    (series(times=[0, 1, 1]), "series 1, row 2: times must strictly increase, got 1.0 twice"),
    (series(times=[], values=[]), "series 1: a series needs at least one observation"),
    (series(times=[0, 1]), "series 1: there are 2 times but 3 rows"),
    (series(values=7), "series 1: expected `list`, got `integer` at series[1].values"),
    (series(values=[1, 2, 3]), "series 1, row 0: expected `list`, got `integer`"),
    (series(values=[[1, 2], [3], [4, 5]]), "series 1, row 1: a row must have 2 values"),
    (series(values=[[1, 2], [3, 4, 5], [4, 5]]), "row 1: a row must have 2 values, one for each"),
    (series(values=[[1, 2], [3, "4"], [4, 5]]), "row 1: expected `number | null`, got `string`"),
    (series(values=[[1, 2], [3, 4], [False, 5]]), "row 2: expected `number | null`, got `boolean`"),
    (series(values=[[1, 2], [3, {}], [4, 5]]), "got `object` at series[1].values[1][1]"),
    (series(values=[[1, 2], [3, 1e39], [4, 5]]), "row 1: a value must be at most 3e+38 in size"),
    (series(times=[0, 1, 1e200]), "series 1, row 2: a time must be finite and at most 1e+30"),
    (series(static={"age": 3}), "series 1: the model has no static covariate 'age'"),
    (series(static=[1]), "series 1: expected `object | null`, got `list`"),
    (series(id={"a": 1}), "series 1: expected `integer | string | null`"),
    (series(id="x" * 300), "series 1: expected `string` of length <= 256"),
    (json.dumps({"series": [GOOD], "channels": ["hr", "pulse"]}), "no channel 'pulse'"),
    (json.dumps({"series": [GOOD], "channels": ["hr"]}), "must name each of hr, spo2 once"),
    (json.dumps({"series": [GOOD], "channels": ["hr", "hr"]}), "must name each of hr, spo2 once"),
    (json.dumps({"series": [GOOD], "channels": "hr"}), "expected `list | null`"),
    (json.dumps({"series": [GOOD], "channels": [1, 2]}), "expected `string`"),
    (json.dumps({"series": [GOOD] * 41}), "may have 40 series, got 41"),
    (
        json.dumps({"series": [{"times": list(range(6000)), "values": []}]}),
        "may have 5000 points in all",
    ),
    (
        series(times=[0, 1, 1e9]),
        "series 1: it would have 500000000 windows of 2, the limit is max_windows = 500",
    ),
]
TABLES = [
    (ARROW, b"", "not an Arrow stream"),
    (ARROW, b"ARROW1\0\0garbage", "not an Arrow stream"),
    (ARROW, arrow(WIDE)[:-100], "Arrow stream"),
    (ARROW, with_compression(), "compressed Arrow is not accepted"),
    (ARROW, arrow({"time": [0.0], "hr": [1.0], "spo2": [1.0]}), "one column 'series'"),
    (ARROW, arrow({"series": ["a"], "hr": [1.0], "spo2": [1.0]}), "one column 'time'"),
    (ARROW, arrow({"series": ["a"], "time": [0.0], "hr": [1.0]}), "no column 'spo2'"),
    (ARROW, arrow(WIDE | {"hr": ["1", "2"]}), "column 'hr' must hold numbers"),
    (ARROW, arrow(WIDE | {"hr": [[1], [2]]}), "column 'hr' must hold numbers"),
    (ARROW, arrow(WIDE | {"hr": [1.0, float("inf")]}), "column 'hr' must be finite"),
    (ARROW, arrow(WIDE | {"series": ["a", None]}), "must have an entry in each row"),
    (ARROW, arrow(WIDE | {"series": [0.5, 0.5]}), "strings or integers"),
    (ARROW, arrow(WIDE | {"time": [1.0, 1.0]}), "times must strictly increase"),
    (ARROW, arrow(WIDE | {"time": [1.0, 0.0]}), "row 1: times must strictly increase"),
    (ARROW, arrow(WIDE | {"time": [0.0, float("nan")]}), "row 1: times must strictly increase"),
    (ARROW, arrow(WIDE | {"time": [0.0, None]}), "row 1: a row needs a time"),
    (ARROW, arrow(WIDE | {"hr": [1.0, 1e39]}), "row 1: column 'hr' must be finite"),
    (ARROW, arrow(WIDE | {"hrr": [1.0, 2.0]}), "column 4: the model has no channel 'hrr'"),
    (ARROW, arrow(pa.table(WIDE).slice(0, 0)), "no rows"),
    (PARQUET, parquet(WIDE | {"hrr": [1.0, 2.0]}), "column 4: the model has no channel 'hrr'"),
    (PARQUET, b"", "not a Parquet file"),
    (PARQUET, b"PAR1garbagePAR1", "not a Parquet file"),
    (PARQUET, parquet(WIDE)[:-20], "not a Parquet file"),
    (PARQUET, parquet(WIDE)[::-1], "not a Parquet file"),
    (
        PARQUET,
        parquet(
            {"series": ["a"], "time": [0.0], "channel": ["pulse"], "value": [1.0]},
        ),
        "no channel 'pulse'",
    ),
    (PARQUET, parquet({n: [c[0]] * 6000 for n, c in WIDE.items()}), "may have 5000 rows"),
]


def check(answer, words, server):
    assert answer.status_code == 400, answer.text
    message = answer.json()["error"]["message"]
    assert words in message
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    assert server.http.get("/healthz").status_code == 200


@pytest.mark.parametrize(("body", "words"), JSON, ids=range(len(JSON)))
def test_a_malformed_body_is_answered_with_words(server, body, words):
    kind = {"Content-Type": "application/json"}
    check(server.http.post("/v1/predict", content=body, headers=kind), words, server)


@pytest.mark.parametrize(("kind", "body", "words"), TABLES, ids=range(len(TABLES)))
def test_a_malformed_table_is_answered_with_words(server, kind, body, words):
    answer = server.http.post("/v1/predict", content=body, headers={"Content-Type": kind})
    check(answer, words, server)


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_a_table_with_any_byte_changed_does_no_harm(server, kind):
    columns = {k: v * 20 if k != "time" else np.arange(40.0) for k, v in WIDE.items()}
    data = arrow(columns) if kind == ARROW else parquet(columns)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(150):
        broken = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            broken[at] = rng.integers(0, 256)
        answer = server.http.post(
            "/v1/predict", content=bytes(broken), headers={"Content-Type": kind}
        )
        seen.add(answer.status_code)
        assert answer.status_code in (200, 400, 413), answer.text
    assert 400 in seen
    assert server.metric("roughformer_errors_total") == 0


def test_the_place_of_a_fault_is_told_as_data_too(server):
    answer = server.http.post("/v1/predict", content=series(times=[0, 2, 1]))
    assert answer.json()["error"]["position"] == {"series": 1, "row": 2}


def test_large_whole_numbers_and_keys_that_come_twice_do_no_harm(server):
    body = series().replace(b"2.5", b"123456789012345678901234567890").replace(b"1.5", b"9" * 40)
    assert server.http.post("/v1/predict", content=body).status_code == 400  # so many windows
    twice = b'{"series": 1, "series": ' + series()[len(b'{"series": ') :]
    assert server.http.post("/v1/predict", content=twice).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/predict", 405),
        ("DELETE", "/v1/model", 405),
        ("GET", "/page/../app.py", 404),
        ("GET", "/page/..%2Fapp.py", 404),
        ("GET", "/page/.hidden", 404),
        ("GET", "/v1/model/", 404),
        ("GET", "/v1/streams/none", 404),
        ("GET", "/v1/streams/a%20b", 400),
        ("POST", "/v1/streams/none/push", 400),
        ("PUT", "/v1/streams/x/snapshot", 400),
    ],
)
def test_what_is_not_there_is_told_in_the_same_form(server, method, path, status):
    answer = server.http.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "position"}


def test_another_kind_of_body_is_not_taken(server):
    answer = server.http.post("/v1/predict", content=b"x", headers={"Content-Type": "text/csv"})
    assert answer.status_code == 415


def test_a_compressed_body_is_refused(server):
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = server.http.post("/v1/predict", content=b"\x1f\x8b", headers=packed)
    assert answer.status_code == 415
    assert "must not be compressed, got 'gzip'" in answer.json()["error"]["message"]


def test_an_index_that_pandas_writes_along_is_no_channel(server):
    body = parquet(WIDE | {"__index_level_0__": [0, 1]})
    answer = server.http.post("/v1/predict", content=body, headers={"Content-Type": PARQUET})
    assert answer.status_code == 200


def test_an_error_of_ours_has_a_number_and_no_trace(server, monkeypatch, caplog):
    def fails(batch):
        raise RuntimeError("secret /path/of/the.py")

    with monkeypatch.context() as patch:
        patch.setattr(server.service.model, "predict", fails)
        answer = server.predict([GOOD])
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "in the server's log as" in answer.json()["error"]["message"]
    assert server.predict([GOOD]).status_code == 200


def bomb(size, codec="zstd", **options):
    """A file of two rows one of whose ids is long, and whose footer claims that all is small."""
    sink = io.BytesIO()
    columns = WIDE | {"series": ["a" * size, "a" * size]}
    pq.write_table(pa.table(columns), sink, compression=codec, **options)
    return sink.getvalue()


def lying(data):
    """The same with a footer that says 1 wherever it says what a row group unpacks to."""
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    claimed = pq.read_metadata(io.BytesIO(data)).row_group(0).total_byte_size
    number, told = claimed << 1, b""
    while number >= 128:
        told, number = told + bytes([number & 127 | 128]), number >> 7
    told += bytes([number])
    small = b"\x82" + b"\x80" * (len(told) - 2) + b"\x00"
    assert told in footer
    return data[: -8 - length] + footer.replace(told, small) + data[-8:]


@pytest.mark.parametrize("codec", ["zstd", "gzip", "brotli"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("size", [20_000_000, 2_000_000])  # beyond any file; beyond one of two rows
def test_a_parquet_file_is_measured_by_its_pages_and_not_by_its_footer(
    server, codec, dictionary, size
):
    data = lying(bomb(size, codec, use_dictionary=dictionary))
    assert len(data) < 100_000
    assert pq.read_metadata(io.BytesIO(data)).row_group(0).total_byte_size < 10
    before = pa.total_allocated_bytes()
    answer = server.http.post("/v1/predict", content=data, headers={"Content-Type": PARQUET})
    assert answer.status_code == 413
    assert "too large when unpacked" in answer.json()["error"]["message"]
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_ids_of_tables_are_as_long_as_those_of_json_at_most(server):
    for size, status in ((256, 200), (257, 400)):
        body = bomb(size)
        answer = server.http.post("/v1/predict", content=body, headers={"Content-Type": PARQUET})
        assert answer.status_code == status, answer.text
    assert "at most 256 characters" in answer.json()["error"]["message"]


def test_one_text_for_every_row_is_not_unpacked(server):
    columns = WIDE | {"hr": ["x" * 100_000] * 2}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    head = {"Content-Type": PARQUET}
    answer = server.http.post("/v1/predict", content=sink.getvalue(), headers=head)
    assert answer.status_code == 400
    assert "column 'hr' must hold numbers, got string" in answer.json()["error"]["message"]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "lz4", "zstd"])
def test_pages_are_counted_as_pyarrow_counts_them(version, codec):
    rng = np.random.default_rng(0)
    columns = {
        "series": ["ab", "c"] * 5000,
        "time": np.arange(10_000),
        "x": rng.normal(size=10_000),
    }
    sink = io.BytesIO()
    pq.write_table(
        pa.table(columns), sink, compression=codec, data_page_version=version, row_group_size=3000,
        data_page_size=2000,
    )  # fmt: skip
    about = pq.read_metadata(io.BytesIO(sink.getvalue()))
    groups = [about.row_group(g) for g in range(about.num_row_groups)]
    size = sum(group.total_byte_size for group in groups)
    found = unpacked_size(sink.getvalue(), 10_000)
    assert 0.7 * size < found <= size  # what headers take is not counted


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/model", {"Origin": "http://["}, 403),
        ("/v1/model", {"Origin": "http://[::1"}, 403),
        ("/v1/model", {"Host": "["}, 403),
        ("/v1/model", {"Host": "[::1"}, 403),
        ("/page/" + "a" * 5000 + ".js", {}, 404),
        ("/page/%00.js", {}, 404),
        ("/page/..%5Capp.py", {}, 404),
        ("/page/.js", {}, 404),
    ],
)
def test_odd_headers_and_names_are_refused(server, path, headers, status):
    assert server.http.get(path, headers=headers).status_code == status
