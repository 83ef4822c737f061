"""Predictions over HTTP are those of the model, in every form of body; and what else GET tells."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.json import Decoder
from wards import CHANNELS, recording

import roughformer as rf
from roughformer.serve.config import Limits
from roughformer.serve.errors import APIError
from roughformer.serve.json_bodies import SeriesBody, decode, series_of
from roughformer.serve.tables import ARROW, PARQUET
from serving import arrow, plain


def many(n=5):
    return [recording(seed, 20 + seed) for seed in range(n)]


def told(answer):
    assert answer.status_code == 200, answer.text
    return np.array([[p["probabilities"][c] for c in ("sick", "well")]
                     for p in answer.json()["predictions"]])  # fmt: skip


def expected(model, recordings):
    values, times = [x for _, x in recordings], [t for t, _ in recordings]
    batch = rf.SeriesBatch.from_arrays(values, times, channels=CHANNELS)
    return model.estimator.predict_proba(batch)


def as_json(recordings, **more):
    return [{"times": plain(t), "values": plain(x), **more} for t, x in recordings]


def columns(recordings):
    names = [f"p{k}" for k, (t, _) in enumerate(recordings) for _ in t]
    values = np.concatenate([x for _, x in recordings])
    return {
        "series": names,
        "time": np.concatenate([t for t, _ in recordings]),
        "hr": values[:, 0],
        "spo2": values[:, 1],
    }


def parquet(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), sink)
    return sink.getvalue().to_pybytes()


def send(server, kind, data):
    return server.http.post("/v1/predict", content=data, headers={"Content-Type": kind})


def test_predictions_are_those_of_the_model(server, model):
    recordings = many()
    answer = server.predict(as_json(recordings))
    np.testing.assert_allclose(told(answer), expected(model, recordings), atol=1e-6)
    labels = [p["label"] for p in answer.json()["predictions"]]
    assert labels == model.estimator.classes_[expected(model, recordings).argmax(axis=1)].tolist()


def test_one_series_of_one_point_is_predicted(server, model):
    answer = server.predict([{"times": [3], "values": [[1, None]], "id": 7}])
    assert answer.json()["predictions"][0]["id"] == 7
    at = [(np.array([3.0]), np.array([[1, np.nan]]))]
    np.testing.assert_allclose(told(answer), expected(model, at), atol=1e-6)


def test_channels_may_come_in_another_order(server, model):
    recordings = many()
    swapped = [(t, x[:, ::-1]) for t, x in recordings]
    answer = server.predict(as_json(swapped), channels=["spo2", "hr"])
    np.testing.assert_allclose(told(answer), expected(model, recordings), atol=1e-6)


@pytest.mark.parametrize("coded", [False, True])
def test_tables_give_the_same_as_json(server, model, coded):
    recordings = many()
    table = pa.table(columns(recordings))
    if coded:
        table = table.set_column(0, "series", table.column("series").dictionary_encode())
    for kind, data in ((ARROW, arrow(table)), (PARQUET, parquet(table))):
        answer = send(server, kind, data)
        np.testing.assert_allclose(told(answer), expected(model, recordings), atol=1e-6)
        assert [p["id"] for p in answer.json()["predictions"]] == [f"p{k}" for k in range(5)]


def test_a_long_table_gives_the_same(server, model):
    recordings = many()
    wide = columns(recordings)
    n = len(wide["time"])
    long = pa.table(
        {
            "series": wide["series"] * 2,
            "time": np.tile(wide["time"], 2),
            "channel": ["spo2"] * n + ["hr"] * n,
            "value": np.concatenate([wide["spo2"], wide["hr"]]),
        }
    )
    shuffled = long.take(np.random.default_rng(0).permutation(len(long)))
    answer = send(server, PARQUET, parquet(shuffled))
    names = [p["id"] for p in answer.json()["predictions"]]
    order = [int(name[1:]) for name in names]
    np.testing.assert_allclose(told(answer), expected(model, recordings)[order], atol=1e-6)


def test_static_covariates_go_by_name_and_what_is_not_told_is_not_known():
    body = {
        "series": [
            {"times": [0], "values": [[1]], "static": {"age": 63}},
            {"times": [0], "values": [[1]], "static": {"weight": 70.5, "age": None}},
            {"times": [0], "values": [[1]]},
        ]
    }

    def batch_of(body):
        return series_of(decode(Decoder(SeriesBody), json.dumps(body)), *names, Limits())[0]

    names = (("x",), ("weight", "age"))
    batch = batch_of(body)
    assert batch.static_names == ("weight", "age")
    np.testing.assert_equal(batch.static, [[np.nan, 63], [70.5, np.nan], [np.nan, np.nan]])
    body["series"][2]["static"] = {"age": "old"}
    with pytest.raises(APIError, match=r"series 2: expected `number . null`, got `string` at "):
        batch_of(body)


def test_requests_that_wait_at_the_same_time_are_predicted_together(server, model):
    recordings = many(12)
    before = server.metric("roughformer_batch_requests_count")
    gate = server.block()
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(server.predict, as_json([one])) for one in recordings]
        while server.service.worker.n_waiting < 12:
            assert not any(future.done() for future in asked)
        gate.set()
        found = np.concatenate([told(future.result()) for future in asked])
    assert server.metric("roughformer_batch_requests_count") == before + 1
    np.testing.assert_allclose(found, expected(model, recordings), atol=1e-6)


def test_long_and_short_series_are_not_padded_to_each_other(server, model):
    served = server.service.model
    sizes = [2, 2, 400, 3, 400, 2]
    batches = [
        rf.SeriesBatch.from_arrays([np.zeros((2, 2))], [[0.0, 2.0 * n]], channels=CHANNELS)
        for n in sizes
    ]
    assert served.group_by_size(batches) == [[0, 1, 5, 3, 2, 4]]
    wide = [batches[k][[0] * 300] for k in range(6)]
    assert served.group_by_size(wide) == [[0, 1, 5, 3], [2], [4]]


def test_the_model_tells_what_it_is(server):
    about = server.http.get("/v1/model").json()
    assert about["task"] == "classification"
    assert about["channels"] == ["hr", "spo2"]
    assert about["classes"] == ["sick", "well"]
    assert about["targets"] is None
    assert about["causal"] is True
    assert about["windows"] == {"rule": "duration", "amount": 2.0}
    assert about["version"] == rf.__version__
    assert len(about["fingerprint"]) == 16
    assert about["alarms"] == [
        {
            "name": "well above 0.45 release 0.4",
            "of": "well",
            "above": True,
            "threshold": 0.45,
            "release": 0.4,
            "after": 0.0,
        }
    ]


def test_health_and_metrics(server):
    assert server.http.get("/healthz").json() == {"status": "alive"}
    assert server.http.get("/readyz").json() == {"ready": True}
    before = server.metric('roughformer_requests_total{code="200",route="/v1/model"}')
    server.http.get("/v1/model")
    assert server.metric('roughformer_requests_total{code="200",route="/v1/model"}') == before + 1
    assert server.metric("roughformer_queue_length") == 0
    page = server.http.get("/metrics").text
    for name in ("request_seconds_bucket", "batch_requests_bucket", "streams", "observations_total",
                 "shed_total", "windows_total"):  # fmt: skip
        assert f"roughformer_{name}" in page


def test_the_pages_ask_no_other_host(server):
    for path in ("/docs", "/openapi.json", "/"):
        answer = server.http.get(path)
        if path == "/" and answer.status_code == 404:
            continue  # a package without the page
        assert answer.status_code == 200
        hosts = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", answer.text)
        assert [h for h in hosts if "www.w3.org" not in h] == []
    policy = server.http.get("/docs").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy


def test_every_operation_is_in_the_description(server):
    paths = server.http.get("/openapi.json").json()["paths"]
    one = "/v1/streams/{name}"
    assert {"/v1/predict", "/v1/model", "/v1/streams", one, f"{one}/push", f"{one}/snapshot",
            f"{one}/prediction", "/healthz", "/readyz", "/metrics"} <= set(paths)  # fmt: skip
    body = paths["/v1/predict"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", ARROW, PARQUET}
