"""ForecastStream: live forecasts are those of the model on the series so far."""

import numpy as np
import pytest

import roughformer as rf
from roughformer.errors import CheckpointError, InputError

TINY = {"steps": 20, "horizon": 8.0, "d_model": 16, "n_layers": 1, "random_state": 0, "n_jobs": 1}


def series(n, seed, length=40):
    rng = np.random.default_rng(seed)
    times = [np.cumsum(rng.exponential(0.3, length)) for _ in range(n)]
    values = [np.column_stack([np.sin(t), 50 + 10 * np.cos(t)]) for t in times]
    for x in values:
        x[rng.random(x.shape) < 0.3] = np.nan
    return values, times


def test_a_stream_of_a_series_of_its_own_size_is_that_series():
    values, times = series(40, 0)
    for k, x in enumerate(values):
        x *= 10 ** (3 * k / 40)
    model = rf.RFormerForecaster(**TINY, context=16).fit(values, times)
    assert model.predictor_.networks[0].config.relative == (1,)
    stream, at = rf.ForecastStream(model), times[5][-1] + np.array([0.5, 5.0])
    stream.push(times[5], values[5])
    assert_same(stream.forecast(at), offline(model, values[5], times[5], at))


@pytest.fixture(scope="module")
def model():
    return rf.RFormerForecaster(**TINY, context=16).fit(*series(40, 0))


def offline(model, x, t, at):
    """Value, lower and upper end by the estimator."""
    ends = model.predict_interval([x], [t], at=at)
    return [model.predict([x], [t], at=at)[0], *(e[0] for e in ends)]


def assert_same(found, wanted):
    for mine, theirs in zip((found.value, found.lower, found.upper), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


def test_a_slow_channel_is_not_forgotten_beside_a_fast_one(model):
    """Offline and live: its last value counts, however many points of the other came since."""
    rng = np.random.default_rng(8)
    t, x = np.arange(500.0) / 10, np.full((500, 2), np.nan)
    x[:, 0], x[50:200:50, 1] = rng.normal(size=500), [45.0, 50.0, 55.0]
    stream, at = rf.ForecastStream(model), t[-1] + np.array([0.5, 5.0])
    for k in range(0, 500, 20):
        stream.push(t[k : k + 20], x[k : k + 20])
    found = stream.forecast(at)
    assert_same(found, offline(model, x, t, at))
    x[150, 1] = 45.0
    assert abs(offline(model, x, t, at)[0] - found.value)[:, 1].min() > 0.1


@pytest.mark.parametrize("sizes", [(1,) * 40, (3, 17, 20), (40,)])
def test_a_forecast_of_a_stream_is_that_of_the_model_on_the_series_so_far(model, sizes):
    """Also beyond the context of 16 points, however the points come in."""
    (x,), (t,) = series(1, 1)
    stream, n = rf.ForecastStream(model), 0
    for size in sizes:
        assert stream.push(t[n : n + size], x[n : n + size]) == []
        n += size
        at = t[n - 1] + np.array([0.1, 2.0, 7.5])
        assert_same(stream.forecast(at), offline(model, x[:n], t[:n], at))
    assert (stream.count, stream.last_time) == (40, t[-1])


def test_forecasts_at_every_window_know_nothing_that_came_later(model):
    (x,), (t,) = series(1, 2)
    stream = rf.ForecastStream(model, every=1.0, ahead=[0.5, 3.0])
    made = stream.push(t[:25], x[:25])
    for k in range(25, 40):
        made += stream.push(t[k], x[k])
    last = t[-1] + 2.5
    made += stream.advance(last)
    np.testing.assert_allclose(
        [f.time for f in made], t[0] + np.arange(1, np.floor(last - t[0]) + 1)
    )
    for found in made:
        n = int(np.searchsorted(t, found.time, side="right"))
        np.testing.assert_allclose(found.at, found.time + np.array([0.5, 3.0]))
        assert_same(found, offline(model, x[:n], t[:n], found.at))


def test_windows_do_not_depend_on_how_points_come_in(model):
    (x,), (t,) = series(1, 3)
    whole = rf.ForecastStream(model, every=0.7, ahead=[1.0])
    single = rf.ForecastStream(model, every=0.7, ahead=[1.0])
    a = whole.push(t, x)
    b = [f for k in range(len(t)) for f in single.push(t[k], x[k])]
    assert [f.time for f in a] == [f.time for f in b]
    np.testing.assert_array_equal([f.value for f in a], [f.value for f in b])


def test_a_huge_gap_makes_a_bounded_number_of_forecasts_and_says_so(model):
    whole, single = (rf.ForecastStream(model, every=1.0, ahead=[1.0]) for _ in range(2))
    times, values = np.array([0.0, 1e9, 1e9 + 2.5, 2e9]), np.ones((4, 2))
    with pytest.warns(UserWarning, match="nothing was observed for more than 1000"):
        made = whole.push(times, values)
    assert [f.time for f in made] == [
        *range(1, 1001),
        1e9 + 1,
        1e9 + 2,
        *(1e9 + np.arange(3, 1003)),
    ]
    with pytest.warns(UserWarning, match="nothing was observed"):
        again = [f.time for t, v in zip(times, values, strict=True) for f in single.push(t, v)]
    assert again == [f.time for f in made]
    with pytest.warns(UserWarning, match="nothing was observed"):
        assert len(single.advance(1e12)) == 1000


def test_what_a_stream_holds_and_looks_at_does_not_grow(model, monkeypatch):
    rng = np.random.default_rng(0)
    stream = rf.ForecastStream(model)
    looked = []
    ask = type(model.predictor_).ask

    def counted(self, batch, *rest, **options):
        looked.append(len(batch.times))
        return ask(self, batch, *rest, **options)

    monkeypatch.setattr(type(model.predictor_), "ask", counted)
    sizes = []
    for k in range(20):
        stream.push(k * 100 + np.sort(rng.uniform(0, 100, 500)), rng.normal(size=(500, 2)))
        stream.forecast()
        sizes.append(stream.nbytes)
    assert stream.count == 10_000
    assert len(set(sizes)) == 1
    # At most the context twice, the nearest 16 of both channels, and one that says when all began.
    assert max(looked) <= 16 * 4 + 1


def test_a_stream_goes_on_from_its_snapshot(model):
    (x,), (t,) = series(1, 4)
    stream = rf.ForecastStream(model, every=1.0)
    stream.push(t[:30], x[:30])
    again = rf.ForecastStream.restore(model, stream.snapshot(), every=1.0)
    for some in (stream, again):
        some.made = some.push(t[30:], x[30:])
    assert [f.time for f in stream.made] == [f.time for f in again.made]
    np.testing.assert_array_equal(stream.forecast().value, again.forecast().value)
    with pytest.raises(CheckpointError, match="another model"):
        rf.ForecastStream.restore(
            rf.RFormerForecaster(**TINY | {"random_state": 1}).fit(*series(40, 0)),
            stream.snapshot(),
        )


def test_dates_and_seconds_since_1970_are_the_same_stream():
    x, t = series(40, 5)
    day = np.datetime64("2024-03-01T00:00:00", "ns")
    dates = [day + (1e9 * 3600 * s).astype("timedelta64[ns]") for s in t]
    model = rf.RFormerForecaster(**TINY | {"horizon": 3600.0 * 8}).fit(x, dates)
    stream, other = rf.ForecastStream(model), rf.ForecastStream(model)
    stream.push(dates[0], x[0])
    other.push(dates[0].astype(np.int64) / 1e9, x[0])
    at = dates[0][-1] + np.array([1, 5]) * np.timedelta64(1, "h")
    assert_same(stream.forecast(at), offline(model, x[0], dates[0], at))
    np.testing.assert_allclose(stream.forecast(at).value, other.forecast(at).value, atol=1e-5)


def test_a_known_future_is_used_in_streams():
    """Also where past and plan are longer than the context, and when the planned time has come."""
    x, t = series(40, 6)
    model = rf.RFormerForecaster(**TINY, known_future=["x1"], context=8).fit(x, t)
    (given,), (when,) = series(1, 6, 400)
    given[200:390, 0] = np.nan
    stream = rf.ForecastStream(model)
    for begin in range(0, 400, 5):
        stream.push(when[begin : begin + 5], given[begin : begin + 5])
        n = begin + 5
        seen = np.flatnonzero(~np.isnan(given[:n, 0]))[-1]
        if n in (150, 205, 300, 395):
            at = when[seen] + np.array([0.01, 0.5, 2.0])
            assert_same(stream.forecast(at), offline(model, given[:n], when[:n], at))


def test_what_cannot_be_meant_is_refused(model):
    (x,), (t,) = series(1, 7)
    stream = rf.ForecastStream(model)
    with pytest.raises(InputError, match="push an observation first"):
        stream.forecast()
    assert stream.advance(3.0) == []
    stream.push(t, x)
    with pytest.raises(InputError, match="not after"):
        stream.push(t[5], x[5])
    with pytest.raises(InputError, match="after its last observation"):
        stream.forecast(at=[t[3]])
    with pytest.raises(InputError, match="values of shape"):
        stream.push(t[-1] + 1, [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="numbers, got dates"):
        stream.push(np.datetime64("2024-01-01"), [1.0, 2.0])
    with pytest.raises(InputError, match="every must be"):
        rf.ForecastStream(model, every=0)
    with pytest.raises(InputError, match="0 static covariates"):
        rf.ForecastStream(model, static=[1.0])
    with pytest.raises(InputError, match="fitted RFormerForecaster"):
        rf.ForecastStream(3)
    assert stream.count == len(t)
