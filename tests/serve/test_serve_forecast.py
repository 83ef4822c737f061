"""Forecasts over HTTP: those of the estimator, at the times and for the channels asked for."""

import numpy as np
import pytest

import roughformer as rf
from command import succeeds
from roughformer.inference import Alarm
from roughformer.serve import Limits, Options, ServedForecaster, Service, StreamOptions, load_served
from serving import plain, running


@pytest.fixture(scope="module")
def forecaster():
    rng = np.random.default_rng(0)
    times = [np.sort(rng.uniform(0, 20, 30)) for _ in range(40)]
    values = [np.stack([np.sin(t), np.cos(t)], 1) + rng.uniform() for t in times]
    batch = rf.SeriesBatch.from_arrays(values, times, channels=["hr", "spo2"])
    model = rf.RFormerForecaster(steps=5, d_model=8, random_state=0, horizon=5.0, n_jobs=1)
    return model.fit(batch)


@pytest.fixture(scope="module")
def server(forecaster):
    with running(ServedForecaster(forecaster.predictor_)) as found:
        yield found


SERIES = {"id": "a", "times": [0, 1, 2.5, 4], "values": [[1, 0.5], [None, 0.2], [0.3, 1], [0.1, 2]]}


def expected(forecaster, at, **options):
    values = np.array(SERIES["values"], dtype=float)[None]
    times = np.array(SERIES["times"], dtype=float)[None]
    batch = rf.SeriesBatch.from_arrays(values, times, channels=["hr", "spo2"])
    return forecaster.predict(batch, at=at), *forecaster.predict_interval(batch, at=at, **options)


def test_the_service_forecasts_and_interpolates_what_the_estimator_does(server, forecaster):
    at = [0.5, 2.5, 4.5, 6.0, 8.5]
    body = {"series": [SERIES], "at": at, "coverage": 0.8}
    answer = server.http.post("/v1/forecast", json=body)
    assert answer.status_code == 200, answer.text
    (told,) = answer.json()["forecasts"]
    assert (told["id"], told["times"]) == ("a", at)
    for name, values in zip(
        ("value", "lower", "upper"), expected(forecaster, at, coverage=0.8), strict=True
    ):
        np.testing.assert_allclose(np.array(told[name], dtype=float), values[0], atol=1e-6)


def test_channels_can_be_sent_in_any_order_and_asked_for_by_name(server, forecaster):
    swapped = SERIES | {"values": [row[::-1] for row in SERIES["values"]]}
    body = {"series": [swapped], "channels": ["spo2", "hr"], "targets": ["spo2"], "ahead": [1, 3]}
    answer = server.http.post("/v1/forecast", json=body).json()
    assert answer["channels"] == ["spo2"]
    assert answer["forecasts"][0]["times"] == [5, 7]
    value = expected(forecaster, [5.0, 7.0])[0]
    np.testing.assert_allclose(answer["forecasts"][0]["value"], value[0, :, 1:], atol=1e-6)


def test_each_series_is_forecast_after_its_own_end_up_to_the_horizon(server):
    later = {"times": [10, 11], "values": [[1, 2], [2, 3]]}
    told = server.http.post("/v1/forecast", json={"series": [SERIES, later]}).json()["forecasts"]
    assert [entry["times"][-1] for entry in told] == [9, 16]
    assert [len(entry["value"]) for entry in told] == [20, 20]


def test_each_series_may_name_its_own_times_and_what_is_beyond_the_horizon_is_told(server):
    later = {"times": [10, 11], "values": [[1, 2], [2, 3]]}
    own = [SERIES | {"at": [4.5, 6]}, later | {"at": [12]}]
    answer = server.http.post("/v1/forecast", json={"series": own, "coverage": 0.8}).json()
    assert [entry["times"] for entry in answer["forecasts"]] == [[4.5, 6], [12]]
    assert answer["warnings"] == []
    body = {"series": [SERIES, later], "at": [15]}
    (horizon, series) = server.http.post("/v1/forecast", json=body).json()["warnings"]
    assert "trained for up to 5 ahead, and is asked for 11" in horizon
    assert "8 held-out series" in series
    wrong = server.http.post("/v1/forecast", json={"series": [own[0], later]})
    assert "give each one" in wrong.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [({"at": [1], "ahead": [1]}, "'at' or 'ahead', not both"), ({"at": "1"}, "got `string` at at"),
     ({"ahead": [0, 1]}, "row 0: expected `number` > 0"), ({"targets": ["x"]}, "of hr, spo2"),
     ({"targets": []}, "of length >= 1"), ({"coverage": 1}, "expected `number` < 1"),
     ({"coverage": "0.9"}, "at coverage"), ({"when": [1]}, "unknown field `when`"),
     ({"at": list(range(5001))}, "max_queries = 10000")],
)  # fmt: skip
def test_what_cannot_be_forecast_is_refused_in_words(server, body, words):
    answer = server.http.post("/v1/forecast", json={"series": [SERIES]} | body)
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]


def test_a_forecaster_has_no_predictions_of_whole_series_but_the_page_of_streams(server):
    for path in ("/v1/predict", "/v1/explain"):
        answer = server.http.post(path, json={})
        assert answer.status_code == 409
        assert "POST /v1/forecast" in answer.json()["error"]["message"]
    assert "page/main.js" in server.http.get("/").text
    about = server.http.get("/v1/model").json()
    assert (about["task"], about["horizon"], about["channels"]) == (
        "forecasting", 5.0, ["hr", "spo2"],
    )  # fmt: skip
    assert (about["stream"]["available"], about["stream"]["every"]) == (True, 0.5)


def test_a_stream_is_told_the_forecasts_of_the_library_as_time_passes(server, forecaster):
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.uniform(0.05, 0.4, 30))
    values = rng.normal(size=(30, 2))
    values[rng.random(values.shape) < 0.3] = np.nan
    ahead = np.linspace(0, 5.0, 21)[1:]
    stream = rf.ForecastStream(forecaster, every=0.5, ahead=ahead)
    expected = stream.push(times, values)
    server.http.post("/v1/streams", json={"id": "bed"})
    events = []
    for part in (slice(0, 1), slice(1, 17), slice(17, 30)):
        answer = server.http.post(
            "/v1/streams/bed/push",
            json={"times": times[part].tolist(), "values": plain(values[part])},
        )
        assert answer.status_code == 200, answer.text
        events += answer.json()["events"]
    assert len(events) == len(expected) > 3
    for number, (event, forecast) in enumerate(zip(events, expected, strict=True)):
        assert (event["window"], event["time"]) == (number, forecast.time)
        told = event["prediction"]
        for name in ("at", "value", "lower", "upper"):
            np.testing.assert_allclose(told[name], getattr(forecast, name), atol=1e-5)
        assert told["point"] == told["value"][-1]
    now = server.http.get("/v1/streams/bed/prediction").json()["prediction"]
    np.testing.assert_allclose(now["value"], stream.forecast().value, atol=1e-5)
    saved = server.http.get("/v1/streams/bed/snapshot").content
    server.http.put("/v1/streams/other/snapshot", content=saved)
    again = server.http.get("/v1/streams/other/prediction").json()["prediction"]
    assert again == now
    (event,) = server.http.get("/v1/streams").json()["streams"][:1]
    assert event["prediction"] == events[-1]["prediction"]


def test_a_refused_push_changes_no_stream_of_a_forecaster(server):
    server.http.post("/v1/streams", json={"id": "late"})
    server.http.post("/v1/streams/late/push", json={"times": [5], "values": [[1, 2]]})
    answer = server.http.post(
        "/v1/streams/late/push", json={"times": [6, 5.5], "values": [[1, 2], [3, 4]]}
    )
    assert answer.status_code == 400
    assert "after 6" in answer.json()["error"]["message"]
    state = server.http.get("/v1/streams/late").json()
    assert (state["last_time"], state["accepted"]) == (5, 1)


def test_an_alarm_watches_the_forecast_of_a_channel_furthest_ahead(forecaster):
    alarm = Alarm(-100.0, of="hr")
    served = ServedForecaster(forecaster.predictor_)
    with running(served, streams=StreamOptions(every=1.0, alarms=(alarm,))) as server:
        server.http.post("/v1/streams", json={"id": "bed"})
        body = {"times": [0, 1, 2.5], "values": [[1, 2], [1, None], [3, 4]]}
        events = server.http.post("/v1/streams/bed/push", json=body).json()["events"]
    assert [event["alarms"][0]["changed"] for event in events] == [True, False]
    assert events[0]["alarms"][0]["value"] == events[0]["prediction"]["value"][-1][0]


def test_a_forecaster_takes_no_span(forecaster):
    with pytest.raises(rf.InputError, match="leave --span out"):
        Service(
            ServedForecaster(forecaster.predictor_),
            Limits(),
            Options(streams=StreamOptions(span=3.0)),
        )


def test_a_saved_forecaster_is_served_by_its_directory(forecaster, tmp_path):
    forecaster.save(tmp_path / "run")
    served = load_served(tmp_path / "run")
    assert isinstance(served, ServedForecaster)
    assert served.fingerprint != "unsaved"
    assert "--limit" in succeeds("serve", "--help").out


def test_dates_come_as_seconds_since_1970_and_seasons_are_those_of_the_clock(tmp_path):
    start = np.datetime64("2024-03-01T00:00", "s")
    times = start + np.arange(40) * np.timedelta64(3600, "s")
    values = np.sin(np.arange(40) * 2 * np.pi / 24)[:, None]
    batch = rf.SeriesBatch.from_arrays([values] * 8, [times] * 8, channels=["x"])
    model = rf.RFormerForecaster(steps=5, d_model=8, random_state=0, n_jobs=1).fit(batch)
    text = "time,x\n" + "".join(f"{t},{v[0]}\n" for t, v in zip(times, values, strict=True))
    with running(ServedForecaster(model.predictor_)) as server:
        read = server.http.post("/v1/read", content=text).json()["series"]
        assert read[0]["times"][0] == start.astype(int)
        at = times[-1] + np.timedelta64(7200, "s")
        body = {"series": read, "at": [int(at.astype(int))]}
        told = server.http.post("/v1/forecast", json=body).json()["forecasts"][0]["value"]
    np.testing.assert_allclose(told, model.predict(batch[:1], at=[at])[0], atol=1e-6)
