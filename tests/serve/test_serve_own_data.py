"""Files of visitors: the tables that training reads, as series to predict."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

import roughformer as rf
from command import succeeds
from roughformer.runs import load_model
from serving import running
from small import make

WIDE = "id,time,hr,spo2\na,0,1.5,2\na,1,2.5,\nb,0,3,4\nb,2,4,5\n"
SERIES = [
    {"id": "a", "times": [0, 1], "values": [[1.5, 2], [2.5, None]]},
    {"id": "b", "times": [0, 2], "values": [[3, 4], [4, 5]]},
]
LONG = (
    "id,time,channel,value\na,0,hr,1.5\na,0,spo2,2\na,1,hr,2.5\n"
    "b,0,hr,3\nb,0,spo2,4\nb,2,hr,4\nb,2,spo2,5\n"
)


def parquet(text):
    import pyarrow.csv as pv

    sink = io.BytesIO()
    pq.write_table(pv.read_csv(io.BytesIO(text.encode())), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    "body",
    [WIDE.encode(), WIDE.replace(",", ";").replace(".", ",").encode(), LONG.encode(),
     WIDE.replace(",", "\t").encode(), parquet(WIDE), parquet(LONG),
     WIDE.replace("\n", "\r\n").encode()],
    ids=["csv", "decimal commas", "long", "tabs", "parquet", "long parquet", "windows"],
)  # fmt: skip
def test_a_table_is_read_as_training_reads_it(server, body):
    answer = server.http.post("/v1/read", content=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["series"] == SERIES
    told = server.http.post("/v1/predict", json=answer.json() | {"channels": ["hr", "spo2"]})
    assert [entry["id"] for entry in told.json()["predictions"]] == ["a", "b"]


def test_ids_that_are_long_numbers_stay_apart(server):
    first, second = "123456789012345678901", "123456789012345678902"
    text = f"id,time,hr,spo2\n{first},0,1,2\n{first},1,1,2\n{second},0,3,4\n"
    series = server.http.post("/v1/read", content=text).json()["series"]
    assert [entry["id"] for entry in series] == [first, second]


def test_dates_and_a_table_of_one_series(server):
    text = "time,spo2,hr\n2024-03-01T12:00:00,1,2\n2024-03-01T12:01:30,3,4\n"
    (one,) = server.http.post("/v1/read", content=text).json()["series"]
    assert np.diff(one["times"]).tolist() == [90.0]
    assert one["values"] == [[2, 1], [4, 3]]


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"time,hr\n0,1\n", "no column spo2"), (b"", "cannot be read"), (b"\xff\xfe\x00", "the file"),
     (b"PAR1 nothing", "not a Parquet file"),
     (b"a,b\n1,2\n", "cannot tell which column of the file")],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_words(server, body, words):
    answer = server.http.post("/v1/read", content=body)
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]


def test_a_model_without_streams_has_the_page_of_whole_series(model, server):
    estimator = make(rf.RFormerClassifier,
        windows=3, depth=2, clock=0, spectrum=None, d_model=8, n_heads=2, epochs=1, random_state=0,
        n_jobs=1,
    )  # fmt: skip
    estimator.fit(model.batch, np.arange(24) % 2)
    with running(estimator.predictor_) as other:
        assert "page/series.js" in other.http.get("/").text
    assert "page/main.js" in server.http.get("/").text
    assert "page/series.js" in server.http.get("/series").text


def test_a_run_reads_the_file_that_it_was_trained_on(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{k};2024-03-0{d};{rng.normal():.3f};{k % 2}" for k in range(12) for d in range(1, 6)]
    text = "Fall-Nr.;Zeitpunkt;Puls;Tod\n" + "\n".join(rows).replace(".", ",")
    (tmp_path / "x.csv").write_text(text)
    names = ("--target", "Tod", "--series-id", "Fall-Nr.", "--time", "Zeitpunkt")
    succeeds("train", tmp_path / "x.csv", *names, "--out", tmp_path / "run", "--no-plots", "-q")
    succeeds("predict", tmp_path / "run", tmp_path / "x.csv", "--out", tmp_path / "p.csv")
    with running(load_model(tmp_path / "run").predictor_) as server:
        answer = server.http.post("/v1/read", content=text.encode())
        assert answer.status_code == 200, answer.text
        told = server.http.post("/v1/predict", json=answer.json()).json()["predictions"]
    expected = (tmp_path / "p.csv").read_text().split()[1:]
    assert [f"{entry['id']},{entry['label']}" for entry in told] == expected
