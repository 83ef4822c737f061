"""The page in a real browser, against the real service."""

import numpy as np

from roughformer.serve.config import StreamOptions
from roughformer.serve.pulse import make_pulse
from serving import running, wait_for

TOKEN = "a-token-for-the-tests"


def play(page, recording, speed=8):
    page.select_option("#source", recording)
    page.check(f"input[name=speed][value='{speed}']", force=True)
    page.click("#play")


def wait_until(page, seconds):
    """Until the prediction of so many seconds after the start is shown."""
    page.wait_for_function(
        "seconds => Number(document.getElementById('number').dataset.time ?? 0) >= seconds",
        arg=seconds,
    )


def value(page, selector):
    return float(page.get_attribute(selector, "data-value"))


def test_it_plays_and_the_number_holds_while_most_observations_are_dropped(rates, open_page):
    wait_for(lambda: rates.streams() == set())
    page = open_page(rates.url)
    assert "heart rate of PPG, ECG; from the last 32 s, every 1 s" in page.inner_text("#facts")
    play(page, "exercise")
    wait_until(page, 12)
    assert abs(value(page, "#number") - value(page, "#truth")) < 4
    assert page.inner_text("#unit") == "beats/min"
    assert page.inner_text("#status") == "live"
    # An alarm came: it is said, shown and noted.
    assert page.get_attribute("#alarm", "role") == "alert"
    assert "heart rate above 50" in page.inner_text("#alarm")
    assert page.locator("#log .raised").count() == 1
    # Which channels drove it: as many bars.
    page.wait_for_selector("#channels li")
    assert page.locator("#channels .name").all_inner_texts() == ["PPG", "ECG"]
    assert "(100 %)" in page.inner_text("#sent")
    page.locator("#dropped").fill("80")
    assert page.inner_text("#dropped-text") == "80 %"
    (name,) = rates.streams()
    before, since = rates.accepted(name), float(page.get_attribute("#number", "data-time"))
    wait_until(page, since + 36)  # by now the model sees nothing of before
    assert abs(value(page, "#number") - value(page, "#truth")) < 4
    assert rates.accepted(name) - before < 0.5 * 36 * 125


def test_what_is_left_behind_is_removed(rates, open_page):
    wait_for(lambda: rates.streams() == set())
    page = open_page(rates.url)
    play(page, "slow")
    wait_until(page, 3)
    (first,) = rates.streams()
    page.click("#restart")
    wait_for(lambda: len(rates.streams()) == 1 and first not in rates.streams())
    wait_until(page, 3)
    page.goto("about:blank")
    wait_for(lambda: rates.streams() == set())


def test_after_a_break_it_goes_on_where_it_was(rates, open_page):
    wait_for(lambda: rates.streams() == set())
    page = open_page(rates.url)
    play(page, "slow")
    wait_until(page, 8)
    (name,) = rates.streams()
    # The stream is taken away: the page makes it anew and sends again what it had sent.
    rates.http.delete(f"v1/streams/{name}")
    page.wait_for_selector("#status[data-state=bad]")
    page.wait_for_selector("#status[data-state=live]")
    page.errors.clear()  # the browser notes that the stream was not there
    wait_until(page, 20)
    page.click("#play")
    assert page.inner_text("#play") == "Resume"

    def sent():
        return int(page.inner_text("#sent").split()[0].replace(",", ""))

    wait_for(lambda: rates.accepted(name) == sent())
    assert abs(value(page, "#number") - value(page, "#truth")) < 4


def drawn(page, canvas):
    """Pixels of a canvas that are not empty."""
    return page.evaluate(
        """id => {
          const canvas = document.getElementById(id);
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return data.filter((value, i) => i % 4 === 3 && value > 0).length;
        }""",
        canvas,
    )


def test_a_server_that_goes_and_comes_back_is_noticed(rate_model, open_page):
    options = StreamOptions(span=32.0, every=1.0)
    with running(rate_model.predictor_, streams=options) as first:
        page = open_page(first.url)
        play(page, "slow")
        wait_until(page, 6)
    page.wait_for_selector("#status[data-state=bad]")
    assert page.inner_text("#status") == "connection lost, trying again"
    assert "stale" in page.get_attribute(".card.number", "class")
    since = float(page.get_attribute("#number", "data-time"))
    with running(rate_model.predictor_, port=first.port, streams=options):
        page.wait_for_selector("#status[data-state=live]")
        wait_until(page, since + 2)
        assert "stale" not in page.get_attribute(".card.number", "class")
        page.errors.clear()  # the browser notes that nobody answered
        page.goto("about:blank")


def test_a_link_brings_back_what_was_chosen(rates, open_page):
    page = open_page(rates.url)
    page.select_option("#source", "slow")
    page.check("input[name=speed][value='4']", force=True)
    page.locator("#dropped").fill("35")
    page.locator("#dropped").dispatch_event("change")
    assert page.url.endswith("#source=slow&speed=4&dropped=35")
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    assert page.input_value("#source") == "slow"
    assert page.inner_text("#dropped-text") == "35 %"
    assert page.locator("input[name=speed]:checked").input_value() == "4"
    # What a link says wrongly is left as it was.
    page.goto(f"{rates.url}#source=nothing&dropped=x&speed=%22%5D")
    page.wait_for_timeout(100)
    assert page.input_value("#source") == "slow"
    rates.http.post("v1/streams", json={"id": "bed-8"})
    page.goto(f"{rates.url}#source=(watch)&stream=bed-8")
    page.wait_for_selector("#status[data-state=live]")
    rates.http.delete("v1/streams/bed-8")
    page.wait_for_selector("#status:has-text('gone')")
    page.errors.clear()  # the browser notes the 404 of the stream that is gone


def test_a_stream_of_others_can_be_watched(rates, open_page):
    page = open_page(rates.url)
    page.select_option("#source", "(watch)")
    page.fill("#stream-id", "nobody")
    page.click("#watch button")
    page.wait_for_selector("#error:not([hidden])")
    assert "nobody" in page.inner_text("#error")
    page.errors.clear()  # the browser notes the 404 that was asked for
    rates.http.post("v1/streams", json={"id": "bed-7"})
    page.fill("#stream-id", "bed-7")
    page.click("#watch button")
    page.wait_for_selector("#status[data-state=live]")
    times, values = make_pulse(1, 8.0, seed=5, disturbed=0.0).series(0)
    rows = np.round(values.astype(float), 4).tolist()
    rates.http.post("v1/streams/bed-7/push", json={"times": times.tolist(), "values": rows})
    wait_until(page, 7)
    assert page.is_hidden("#error")
    # Its signal is drawn, and what drove the answer is told.
    page.wait_for_selector("#channels li")
    assert drawn(page, "signal") > 1000
    assert page.is_hidden("#dropped")
    page.goto("about:blank")  # a stream of others stays
    assert rates.http.get("v1/streams/bed-7").status_code == 200
    rates.http.delete("v1/streams/bed-7")


def test_it_shows_the_chances_of_classes(classes, open_page):
    page = open_page(classes.url)
    play(page, "exercise")
    wait_until(page, 6)
    assert page.inner_text("#number") in ("fast", "slow")
    assert page.locator("#classes .name").all_inner_texts() == ["fast", "slow"]
    shares = [
        int(text.split()[0]) for text in page.locator("#classes span + span").all_inner_texts()
    ]
    assert 99 <= sum(shares) <= 101
    page.wait_for_selector("#channels li")


def test_a_token_is_asked_for_and_used(rate_model, open_page):
    options = StreamOptions(span=32.0, every=1.0)
    with running(rate_model.predictor_, streams=options, token=TOKEN) as served:
        page = open_page(served.url, ready=False)
        page.wait_for_selector("#token-dialog[open]")
        page.errors.clear()  # the browser notes the 401
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("html[data-ready=true]")
        play(page, "slow")
        wait_until(page, 3)
        page.goto("about:blank")


def test_a_model_without_streams_has_the_page_for_whole_series(rate_model, open_page):
    with running(rate_model.predictor_) as served:
        page = open_page(served.url)
        assert page.is_visible("#drop")
        assert "PPG" in page.inner_text("#columns")
        page.wait_for_selector("#signal-title:has-text('A synthetic example')")
        page.wait_for_load_state("networkidle")  # its explanation, too
        assert page.is_hidden("#pages")  # no streams, no monitor
        assert " to " in page.inner_text("#deviation")  # the interval
        page.fill("#text", "time,other\n0,1\n1,2")
        page.click("#predict")
        page.wait_for_selector("#error:has-text('the file has no column PPG, ECG')")
        assert page.is_hidden("#results")  # of the example
        assert "400" in page.errors.pop()  # the browser's own line about the refusal


def test_a_forecast_is_drawn_ahead_of_the_signal_with_its_band(forecaster, open_page, tmp_path):
    file = tmp_path / "own.csv"
    file.write_text(
        "time;load\n" + "".join(f"{t};{t / 7:.3f}\n".replace(".", ",") for t in range(30))
    )
    page = open_page(forecaster.url + "series")
    signal = "#signal[aria-label*='with a forecast']"
    page.wait_for_selector(signal)  # the example, by itself
    assert page.inner_text("#signal-title") == "A synthetic example"
    page.set_input_files("#file", file)
    page.wait_for_selector(f"{signal}[aria-label*='30 rows']")
    assert "load" in page.inner_text("#deviation")
    page.select_option("#coverage", "0.5")
    page.wait_for_selector("#deviation:has-text('with 50 %')")


def test_forecasts_run_ahead_of_a_live_signal(forecaster, open_page):
    page = open_page(forecaster.url, autoplay=True)
    page.wait_for_selector("#number:not([data-value=''])")
    assert page.inner_text("#number-title") == "Forecast, 10 ahead"
    assert page.inner_text("#source option:checked") == "A synthetic example"
    assert not page.is_visible("#answers")
    page.wait_for_selector("#signal[aria-label*='with the forecast of the next 10']")
    (stream,) = forecaster.http.get("v1/streams").json()["streams"]
    assert len(stream["prediction"]["at"]) == 20
    page.click("#play")
    # Right of now, where nothing was observed yet, the band has coloured what was empty.
    ahead = """() => {
      const {width, height} = document.querySelector("#signal");
      const pen = document.querySelector("#signal").getContext("2d");
      const found = pen.getImageData(Math.round(0.75 * width), 0, 1, 0.9 * height).data;
      return found.some((x, i) => i % 4 === 3 && x > 0);
    }"""
    assert page.evaluate(ahead)
    other = open_page(f"{forecaster.url}#source=(watch)&stream={stream['id']}")
    other.wait_for_selector("#status[data-state=live]")
    assert not other.is_visible("#drivers-text")


def test_a_fresh_visit_plays_by_itself(rates, open_page):
    page = open_page(rates.url, autoplay=True)
    wait_until(page, 3)
    assert page.inner_text("#play") == "Pause"


def test_the_ward_shows_all_streams_with_the_alarming_ones_first(rates, open_page):
    wait_for(lambda: rates.streams() == set())
    fast = make_pulse(1, 30.0, seed=5, low=120, high=130, disturbed=0.0)
    for name, scale in (("calm", 0.0), ("fast", 1.0)):
        rates.http.post("v1/streams", json={"id": name})
        times, values = fast.series(0)
        body = {"times": times.tolist(), "values": (scale * values).tolist()}
        assert rates.http.post(f"v1/streams/{name}/push", json=body).status_code == 200
    listed = rates.http.get("v1/streams").json()
    alarming = [any(a["active"] for a in s["alarms"]) for s in listed["streams"]]
    assert (listed["count"], alarming) == (2, sorted(alarming, reverse=True))
    assert alarming[[s["id"] for s in listed["streams"]].index("fast")]
    page = open_page(rates.url + "ward")
    page.wait_for_selector("#ward .alarming")
    assert page.inner_text("#ward li:first-child a") == listed["streams"][0]["id"]
    assert "2 streams" in page.inner_text("#summary")
    assert " to " in page.inner_text("#ward .alarming .hint")  # its interval
    for name in ("calm", "fast"):
        rates.http.delete(f"v1/streams/{name}")
    page.wait_for_selector("#ward li", state="detached")


def test_the_ward_tells_dates_and_not_seconds_since_1970(rates, open_page):
    rates.http.post("v1/streams", json={"id": "dated"})
    body = {"times": [1711757808.0], "values": [[0.0] * len(rates.service.model.channels)]}
    assert rates.http.post("v1/streams/dated/push", json=body).status_code == 200
    page = open_page(rates.url + "ward")
    page.wait_for_selector("#ward .hint:has-text('last observation at 03-30 00:16')")
    rates.http.delete("v1/streams/dated")
