"""Alarms: hysteresis as a state machine, and how soon onsets are detected."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from roughformer.errors import InputError
from roughformer.inference.alarms import (
    Alarm,
    AlarmState,
    _raised,
    alarm_with_guarantee,
    time_to_detection,
)


def run(alarm, values, times=None):
    """Changes and states of one slot, event by event."""
    state = AlarmState(alarm, 1)
    times = np.arange(float(len(values))) if times is None else np.asarray(times, dtype=float)
    changes, active = [], []
    for t, v in zip(times, values, strict=True):
        changes.append(int(state.update(np.array([0]), np.array([t]), np.array([v]))[0]))
        active.append(bool(state.active[0]))
    return changes, active


def test_it_is_raised_above_and_cleared_below_the_release():
    changes, _ = run(Alarm(100, 95), [99, 100, 101, 97, 95, 94.9, 96, 102])
    assert changes == [0, 0, 1, 0, 0, -1, 0, 1]


def test_below_is_the_mirror_image():
    values = np.array([99, 100, 101, 97, 95, 94.9, 96, 102])
    up, _ = run(Alarm(100, 95), values)
    down, _ = run(Alarm(-100, -95, above=False), -values)
    assert up == down


def test_without_a_release_the_threshold_clears():
    assert run(Alarm(1.0), [2, 1, 0.9, 1, 1.1])[0] == [1, 0, -1, 0, 1]


def test_a_short_excursion_does_not_ring():
    alarm = Alarm(1.0, after=2.0)
    assert run(alarm, [2, 2, 0, 2, 2, 2])[0] == [0, 0, 0, 0, 0, 1]
    assert run(alarm, [2, 2], [0.0, 2.0])[0] == [0, 1]
    assert run(alarm, [2, 2], [1.7e9, 1.7e9 + 2])[0] == [0, 1]
    # 0.1 · 3 is not 0.3 in floating point; that must not cost an event.
    assert run(Alarm(1.0, after=0.3), [2] * 4, 0.1 * np.arange(4))[0] == [0, 0, 0, 1]


def test_what_is_not_known_changes_nothing():
    nan = float("nan")
    assert run(Alarm(1.0, after=1.0), [2, nan, 2, nan, 0])[0] == [0, 0, 1, 0, -1]


events = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.0, 3.0, float("nan")])), max_size=40
)


@given(events, st.sampled_from([0.0, 2.0, 5.0]), st.data())
def test_many_slots_in_any_chunks_are_each_alone(rows, after, data):
    alarm = Alarm(1.5, 1.0, after=after)
    slots = np.array([s for s, _ in rows], dtype=np.int64)
    values = np.array([v for _, v in rows])
    times = np.arange(float(len(rows)))
    together = AlarmState(alarm, 4)
    cut = data.draw(st.integers(0, len(rows)))
    found = np.concatenate(
        [together.update(slots[p], times[p], values[p]) for p in (slice(cut), slice(cut, None))]
    )
    for slot in range(4):
        own = slots == slot
        changes, active = run(alarm, values[own], times[own])
        assert found[own].tolist() == changes
        assert together.active[slot] == (active[-1] if active else False)


def test_a_saved_state_goes_on_elsewhere_and_is_plain():
    alarm = Alarm(1.0, 0.5, after=3.0)
    state = AlarmState(alarm, 2)
    state.update(np.array([1, 1]), np.array([0.0, 2.0]), np.array([2.0, 2.0]))
    saved = json.loads(json.dumps(state.save(1)))
    other = AlarmState(alarm, 5)
    other.load(4, saved)
    assert other.update(np.array([4]), np.array([3.0]), np.array([2.0])).tolist() == [1]
    assert other.save(4) == {"alarm": str(alarm), "active": True, "since": 3.0, "begun": 0.0}
    another = AlarmState(Alarm(7.0), 5)
    another.load(4, other.save(4))
    assert not another.active[4]
    other.resize(9)
    assert other.active.tolist() == [False] * 4 + [True] + [False] * 4
    other.reset(4)
    assert not other.active.any()
    assert np.isnan(other.since).all()


def test_no_events_are_no_changes():
    none = np.zeros(0)
    assert AlarmState(Alarm(1.0), 0).update(none.astype(np.int64), none, none).shape == (0,)


@pytest.mark.parametrize(
    ("text", "alarm"),
    [
        ("above 100", Alarm(100.0)),
        ("below 0.9", Alarm(0.9, above=False)),
        ("above 100 release 95 after 5", Alarm(100.0, 95.0, after=5.0)),
        ("class=sick above 0.8 release 0.6", Alarm(0.8, 0.6, of="sick")),
        ("target=heart rate above 1e2 after 2", Alarm(100.0, after=2.0, of="heart rate")),
        ("sick above 0.8", Alarm(0.8, of="sick")),
    ],
)
def test_an_alarm_in_words(text, alarm):
    assert Alarm.parse(text) == alarm
    assert Alarm.parse(str(alarm)) == alarm


@pytest.mark.parametrize(
    "text",
    ["", "above", "above x", "over 100", "above 100 release", "above nan", "above 1 after -1",
     "above 100 release 105", "below 100 release 95", "above inf", "above 1 after inf"],
)  # fmt: skip
def test_words_that_are_no_alarm_are_refused(text):
    with pytest.raises(InputError):
        Alarm.parse(text)


def test_what_an_alarm_watches():
    assert Alarm(0.5, of="b").column(["a", "b"], []) == 1
    assert Alarm(0.5, of="2").column([1, 2], []) == 1
    assert Alarm(100).column(None, ["rate"]) == 0
    assert Alarm(100, of="y").column(None, ["x", "y"]) == 1
    assert Alarm(100, of=1).column(None, ["x", "y"]) == 1
    for alarm, classes, targets in (
        (Alarm(0.5), ["a", "b"], []),
        (Alarm(0.5, of="c"), ["a", "b"], []),
        (Alarm(0.5), None, ["x", "y"]),
        (Alarm(0.5, of="z"), None, ["x", "y"]),
        (Alarm(0.5, of=2), None, ["x", "y"]),
    ):
        with pytest.raises(InputError, match="target" if classes is None else "class=NAME"):
            alarm.column(classes, targets)


def test_delays_misses_and_false_alarms():
    found = time_to_detection([10, 50, 90], [5, 12, 13, 70, 90], 15.0, duration=100.0)
    np.testing.assert_equal(found.delays, [2.0, np.nan, 0.0])
    assert found.missed == 1
    assert found.false_alarms == 2  # at 5, before any onset, and at 70, too late
    assert found.false_rate == 0.02
    assert found.median_delay == 1.0


def test_an_alarm_belongs_to_the_last_onset_before_it():
    found = time_to_detection([0, 10], [12], 100.0)
    np.testing.assert_equal(found.delays, [np.nan, 2.0])
    assert np.isnan(found.false_rate)


def test_nothing_to_detect_and_nothing_raised():
    found = time_to_detection([], [], 1.0, duration=10.0)
    assert (found.missed, found.false_alarms, found.false_rate) == (0, 0, 0.0)
    assert np.isnan(found.median_delay)
    assert time_to_detection([], [3.0], 1.0).false_alarms == 1
    assert time_to_detection([3.0], [], 1.0).missed == 1


@given(
    st.lists(st.integers(0, 50), max_size=6, unique=True),
    st.lists(st.integers(0, 60), max_size=10),
    st.integers(1, 20),
)
def test_detection_agrees_with_the_definition(onsets, raised, horizon):
    found = time_to_detection(onsets, raised, horizon)
    false = 0
    delays = {o: [] for o in sorted(onsets)}
    for r in raised:
        before = [o for o in delays if o <= r]
        if before and r - max(before) <= horizon:
            delays[max(before)].append(r - max(before))
        else:
            false += 1
    expected = [min(d) if d else np.nan for d in delays.values()]
    np.testing.assert_equal(found.delays, np.array(expected))
    assert found.false_alarms == false


@pytest.mark.parametrize("wrong", [([np.nan], [], 1.0), ([], [np.inf], 1.0), ([], [], 0.0)])
def test_times_that_are_none_are_refused(wrong):
    with pytest.raises(InputError):
        time_to_detection(*wrong)


def noise(n, hours, seed, step=0.05):
    """Recordings of an autocorrelated value without any event."""
    rng = np.random.default_rng(seed)
    times = np.arange(0, hours, step)
    x = rng.normal(size=(n, len(times)))
    for k in range(1, len(times)):
        x[:, k] = 0.8 * x[:, k - 1] + 0.6 * x[:, k]
    return [(times, row) for row in x]


GRID = np.linspace(0, 6, 61)
SPIKES = np.linspace(0.4, 0.9, 16)


def test_the_rate_on_new_recordings_stays_below_the_one_named_as_often_as_promised():
    """Over many draws of recordings; the true rate of each threshold from a long run."""
    rate, long = 1 / 24, noise(200, 240.0, seed=0)
    values = np.stack([v for _, v in long])
    true = {}
    for threshold in GRID:
        past = values > threshold
        true[threshold] = (past[:, 1:] & ~past[:, :-1]).sum() / (200 * 240)
    exceeded, thresholds = 0, []
    for seed in range(1, 81):
        found = alarm_with_guarantee(noise(20, 24.0, seed), rate, thresholds=GRID)
        assert found.bound <= rate
        exceeded += true[found.alarm.threshold] > rate
        thresholds.append(found.alarm.threshold)
    assert exceeded <= 10  # 4 are expected at most; more than 10 have a chance of one in 1000
    assert max(thresholds) < 5  # and it is not the one that never rings


@given(
    st.lists(st.sampled_from([-2.0, 0.0, 0.5, 1.0, 1.5, 3.0, np.nan]), min_size=1, max_size=40),
    st.sampled_from([None, 0.2, 1.0]),
    st.sampled_from([0.0, 1.0, 2.5]),
    st.booleans(),
)
def test_alarms_of_a_whole_recording_are_those_of_the_state_machine(values, release, after, above):
    times, watched = np.arange(float(len(values))), np.array(values)
    alarm = Alarm(1.0, release, True, after)
    if not above:
        watched = -watched
        alarm = Alarm(-1.0, None if release is None else -release, False, after)
    changes, _ = run(alarm, watched)
    np.testing.assert_array_equal(_raised(alarm, times, watched), times[np.array(changes) > 0])


def test_without_a_false_alarm_the_bound_is_the_exact_one_of_poisson():
    found = alarm_with_guarantee(noise(20, 48.0, 3), 0.05, thresholds=[50.0])
    assert found.duration == pytest.approx(20 * (48 - 0.05))
    assert found.bound == pytest.approx(-np.log(0.05) / found.duration)


@pytest.mark.parametrize(("shape", "most"), [(np.inf, 2), (0.3, 6)])
def test_the_bound_holds_where_false_alarms_cluster_by_recording(shape, most):
    """Recordings of a day whose own rates are gamma; 2 false alarms a day are allowed."""
    times, exceeded = np.arange(0, 24, 0.1), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        own = np.ones(40) if shape == np.inf else rng.gamma(shape, 1 / shape, 40)
        spikes = rng.random((40, len(times))) < 0.03 * own[:, None]
        values = np.where(spikes, rng.beta(2, 2, spikes.shape), 0.0005)
        found = alarm_with_guarantee([(times, v) for v in values], 2 / 24, thresholds=SPIKES)
        exceeded += 0.3 * beta.sf(found.alarm.threshold, 2, 2) > 2 / 24
    assert exceeded <= most


def test_time_without_an_answer_is_not_watched():
    recordings = noise(25, 48.0, 3)
    whole = alarm_with_guarantee(recordings[:20], 0.05, thresholds=[50.0])
    for _, v in recordings[20:]:
        v[:] = np.nan
    found = alarm_with_guarantee(recordings, 0.05, thresholds=[50.0])
    assert (found.duration, found.recordings) == (pytest.approx(whole.duration), 20)
    for _, v in recordings[:20]:
        v[100:300] = np.nan
    found = alarm_with_guarantee(recordings, 0.05, thresholds=[50.0])
    assert found.duration == pytest.approx(20 * (48 - 0.05 - 10))
    onsets = [[7.0]] * 25  # of the 9 hours after it 8 have no answer
    found = alarm_with_guarantee(recordings, 0.05, thresholds=[50.0], onsets=onsets, horizon=9.0)
    assert found.duration == pytest.approx(20 * (48 - 0.05 - 10 - 1.05))


def test_the_share_of_recordings_is_bounded_as_clopper_and_pearson_do():
    from scipy.stats import binom

    found = alarm_with_guarantee(noise(20, 48.0, 3), 0.05, thresholds=GRID)
    hit = sum(
        ((v > found.alarm.threshold) & ~np.r_[False, v[:-1] > found.alarm.threshold]).any()
        for _, v in noise(20, 48.0, 3)
    )
    assert binom.cdf(hit, 20, found.recordings_bound) == pytest.approx(0.05)


def test_alarms_after_onsets_are_not_false_and_their_delays_are_told():
    recordings, onsets = noise(40, 48.0, 5), []
    for k, (t, v) in enumerate(recordings):
        onsets.append([20.0] if k % 2 else [])
        if k % 2:
            v[(t >= 20.5) & (t < 22)] += 20
    found = alarm_with_guarantee(
        recordings, 1 / 24, thresholds=GRID, onsets=onsets, horizon=4.0, hysteresis=0.5
    )
    assert found.detection.missed == 0
    assert found.detection.median_delay == pytest.approx(0.5, abs=0.06)
    assert found.alarm.release == pytest.approx(found.alarm.threshold - 0.5)
    assert found.duration == pytest.approx(40 * (48 - 0.05) - 20 * 4)
    assert "20 of 20 onsets were detected" in str(found)
    without = alarm_with_guarantee(recordings[::2], 1 / 24, thresholds=GRID)
    assert without.detection is None


def test_below_is_chosen_from_the_other_side():
    above = alarm_with_guarantee(noise(20, 48.0, 6), 0.05, thresholds=GRID)
    below = alarm_with_guarantee(
        [(t, -v) for t, v in noise(20, 48.0, 6)], 0.05, thresholds=-GRID, above=False
    )
    assert below.alarm.threshold == -above.alarm.threshold
    assert below.false_alarms == above.false_alarms


def test_what_cannot_be_guaranteed_is_said():
    with pytest.raises(InputError, match=r"even without any false alarm 71\.8"):
        alarm_with_guarantee(noise(20, 3.0, 7), 1 / 24)
    with pytest.raises(InputError, match="19 recordings with answers do not tell"):
        alarm_with_guarantee(noise(19, 48.0, 7), 1 / 24)
    day = np.datetime64("2024-01-01") + np.arange(960) * np.timedelta64(3, "m")
    with pytest.raises(InputError, match="must be numbers in the unit of the rate, got dates"):
        alarm_with_guarantee([(day, v) for _, v in noise(20, 48.0, 7)], 1 / 24)
    with pytest.raises(InputError, match="least sensitive threshold"):
        alarm_with_guarantee(noise(20, 48.0, 7), 1 / 24, thresholds=[0.0])
    with pytest.raises(InputError, match="need a horizon"):
        alarm_with_guarantee(noise(20, 48.0, 7), 1 / 24, onsets=[[]] * 20)
    with pytest.raises(InputError, match="onsets and alarms must be finite"):
        alarm_with_guarantee(noise(20, 48.0, 7), 1 / 24, onsets=[[np.nan]] * 20, horizon=1.0)
    with pytest.raises(InputError, match="for 1 of 20 recordings"):
        alarm_with_guarantee(noise(20, 48.0, 7), 1 / 24, onsets=[[]], horizon=1.0)
    with pytest.raises(InputError, match="times"):
        alarm_with_guarantee([([1.0, 2.0], [1.0])], 1 / 24)


def test_recordings_without_time_between_answers_count_nowhere():
    rng = np.random.default_rng(0)
    watched = [(np.arange(200.0), rng.random(200)) for _ in range(22)]
    moments = [(np.array([0.0, 1.0, 2.0]), np.array([0.9, np.nan, np.nan]))] * 30
    alone, beside = (alarm_with_guarantee(x, rate=1.0) for x in (watched, watched + moments))
    assert beside == alone
