"""Modules of the page, called in the browser one by one."""

import json
import math

import pytest

CSV = "time,ECG,PPG,truth\n" + "\n".join(
    f"{i / 10},{i},{'' if i == 3 else -i},70" for i in range(9)
)


@pytest.fixture(scope="module")
def page(rates, browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto(rates.url)
    page.wait_for_selector("html[data-ready=true]")
    yield page
    context.close()


@pytest.fixture
def call(page):
    """``call("module.js", "expression of m", **named arguments)``."""

    def run(module, expression, **given):
        names = ", ".join(given) or "_"
        loaded = f"const m = await import('/page/{module}')"
        script = f"async ([{names}]) => {{ {loaded}; return {expression} }}"
        return page.evaluate(script, list(given.values()) or [0])

    return run


def test_numbers_and_times_are_written_for_people(call):
    written = call("format.js", "xs.map(x => m.number(x))", xs=[0, 71.234, 0.0123, 148.6, 1e7])
    assert written == ["0", "71.2", "0.0123", "149", "1.00e+7"]
    assert call("format.js", "m.number(NaN)") == "–"
    assert call("format.js", "[m.signed(-0.5), m.signed(2)]") == ["−0.50", "+2.0"]
    assert call("format.js", "[m.signed(-0.0001, 1.2), m.signed(26.31, 1.2)]") == ["0.0", "+26.3"]
    times = call("format.js", "xs.map(x => m.clock(x))", xs=[0, 59.99, 61, 3599.4, 1.7e9, -5])
    assert times == ["0:00", "0:59", "1:01", "59:59", "22:13:20", "−0:05"]
    shares = call("format.js", "xs.map(x => m.percent(x))", xs=[0, 0.002, 0.5, 0.996, 1])
    assert shares == ["0 %", "< 1 %", "50 %", "> 99 %", "100 %"]


def test_dates_are_those_of_the_file_wherever_the_browser_is(browser, rates):
    context = browser.new_context(timezone_id="Asia/Tokyo", locale="de-DE")
    page = context.new_page()
    page.goto(rates.url)
    script = """async spans => {
        const m = await import("/page/format.js");
        return spans.map(x => m.moment(1711757808, x)) }"""
    assert page.evaluate(script, [60, 86400, 1e6]) == ["00:16:48", "03-30 00:16", "2024-03-30"]
    context.close()


def test_ticks_are_round_and_inside(call):
    assert call("format.js", "m.ticks(0, 1, 5)") == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert call("format.js", "m.ticks(62, 148, 5)") == [80, 100, 120, 140]
    assert call("format.js", "m.ticks(1, 1, 5)") == []
    assert call("format.js", "m.timeTicks(0, 180, 6)") == [0, 30, 60, 90, 120, 150, 180]


def test_the_place_after_a_time_is_found(call):
    places = call("recording.js", "[0, 1, 2.5, 3, 9].map(x => m.after([1, 2, 3], x))")
    assert places == [0, 1, 2, 3, 3]
    assert call("recording.js", "m.after([], 1)") == 0


def test_the_truth_is_the_mean_over_the_span(call):
    make = (
        "(() => { const r = new m.Recording({name: 'x', channels: [], seconds: 9});"
        "[[1, 10], [2, 20], [3, null], [4, 40]].forEach(x => r.addTruth(...x)); return r })()"
    )
    means = call("recording.js", f"[[4, 2], [4, 3], [2, 0], [3, 0]].map(x => {make}.truth(...x))")
    assert means[:3] == [40, 30, 20]
    assert means[3] != means[3]  # not known
    assert call("recording.js", f"Number.isNaN({make}.truth(0.5, 2))")


@pytest.mark.parametrize(
    ("prediction", "found"),
    [
        ({"point": 70, "deviation": 2}, (70, 68, 72)),
        ({"point": [1, 70], "deviation": [9, 2]}, (70, 68, 72)),
        ({"point": 70, "deviation": 2, "interval": [60, 90]}, (70, 60, 90)),
        ({"point": [1, 70], "interval": [[0, 2], [60, 90]]}, (70, 60, 90)),
        ({"point": 70, "quantiles": [60, 70, 90]}, (70, 60, 90)),
        ({"point": [1, 70], "quantiles": [[0, 1, 2], [60, 70, 90]]}, (70, 60, 90)),
        ({"point": 70}, (70, 70, 70)),
    ],
)
def test_every_kind_of_answer_is_read(call, prediction, found):
    target = 1 if isinstance(prediction["point"], list) else 0
    read = call("answers.js", "m.readNumber(p, k)", p=prediction, k=target)
    assert (read["point"], read["low"], read["high"]) == found


def test_an_interval_without_ends_is_no_certainty(call):
    read = call("answers.js", "m.readNumber(p, 0)", p={"point": 70, "interval": [None, None]})
    assert read["point"] == 70
    assert math.isnan(read["low"])
    assert math.isnan(read["high"])
    wide = "Number.isFinite(m.readNumber(p, 0).high - m.readNumber(p, 0).low)"
    assert call("answers.js", wide, p={"point": 70, "interval": [None, None]}) is False


def test_an_alarm_is_said_once_when_it_comes_and_once_when_it_goes(call):
    script = """(() => {
      const make = () => document.createElement("div");
      const [banner, log, card] = [make(), make(), make()];
      const alarms = new m.Alarms({ banner, log, card });
      const said = [];
      for (const active of [false, true, true, false]) {
        alarms.update([{ words: "above 100", active }], said.length, "101");
        said.push([banner.textContent, log.children.length, card.className]);
      }
      return said;
    })()"""
    assert call("alarms.js", script) == [
        ["", 0, ""],
        ["Alarm since 0:01: above 100", 1, "alarmed"],
        ["Alarm since 0:01: above 100", 1, "alarmed"],
        ["", 2, ""],
    ]


def test_alarms_are_named_by_what_they_watch(call):
    one = {"of": None, "above": True, "threshold": 110.0}
    words = call("alarms.js", "m.alarmWords(a, {targets: ['heart rate']})", a=one)
    assert words == "heart rate above 110"
    assert call("alarms.js", "m.alarmWords(a, {targets: ['0']})", a=one) == "above 110"
    rings = one | {"words": words, "after": 3, "release": 105}
    said = call("alarms.js", "m.settings([a], {})", a=rings)
    assert said == "Rings when: heart rate above 110 for 3 s, until below 105."
    assert "--alarm" in call("alarms.js", "m.settings([], {})")
    sick = {"of": "sick", "above": False, "threshold": 0.2}
    assert call("alarms.js", "m.alarmWords(a, {classes: ['sick']})", a=sick) == "sick below 20 %"
    number = sick | {"of": "1"}
    assert call("alarms.js", "m.alarmWords(a, {classes: ['0', '1']})", a=number) == "1 below 20 %"


def open_file(text):
    file = f"new File([{json.dumps(text)}], 'x.csv')"
    return f"await m.openFile({file}, ['PPG', 'ECG'])"


def test_a_file_is_read_with_its_gaps(call):
    got = call(
        "file.js",
        f"(r => [r.start, r.end, [...r.times], [...r.values(0)].map(x => x + ''), "
        f"[...r.values(1)], r.truth(0.8, 1)])({open_file(CSV)})",
    )
    start, end, times, ppg, ecg, truth = got
    assert (start, end) == (0, 0.8)
    assert times == pytest.approx([i / 10 for i in range(9)])
    assert ppg == ["0", "-1", "-2", "NaN", "-4", "-5", "-6", "-7", "-8"]
    assert ecg == list(range(9))
    assert truth == 70


def test_a_file_that_only_the_service_can_read_gives_its_first_series(call):
    rows = ("8;2024-03-30 00:00:00;1,5;2", "8;2024-03-30 00:01:00;;3", "9;2024-03-30 00:00:00;4;5")
    text = "\n".join(("Patient;Date;ECG;PPG", *rows))
    got = call(
        "file.js",
        "(r => [r.title, r.end - r.start, [...r.values(0)], [...r.values(1)].map(x => x + '')])"
        f"({open_file(text)})",
    )
    assert got == ["8 of x.csv", 60, [2, 3], ["1.5", "NaN"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,PPG,ECG\n1,2,3\n", "has no column time"),
        ("time,PPG\n1,2\n", "has no column ECG"),
        ("time,PPG,ECG\n1,2,x\n2,2,2\n", "line 2: x is no number"),
        ("time,PPG,ECG\n1,2,3\n1,2,3\n", "line 3: times must increase"),
        ("time,PPG,ECG\n,2,3\n1,2,3\n", "line 2: times must increase"),
        ("time,PPG,ECG\n1,2,3\n", "fewer than two rows"),
        ("", "has no column time"),
    ],
)
def test_a_file_that_cannot_be_played_is_refused_with_the_place(call, text, words):
    script = (
        f"await (async () => {{ try {{ {open_file(text)} }} catch (e) {{ return e.message }} }})()"
    )
    assert words in call("file.js", script)
