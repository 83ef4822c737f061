"""A model of heart rates and one of classes, their services, and a browser that looks at them."""

from pathlib import Path

import numpy as np
import pytest

import roughformer as rf

pytest.importorskip("fastapi", reason="the page needs the extra 'serve'")

from roughformer.inference.alarms import Alarm
from roughformer.serve import ServedForecaster
from roughformer.serve.config import StreamOptions
from roughformer.serve.demo import DEMO_EVERY, DEMO_SPAN, train_demo_model
from roughformer.serve.pulse import make_pulse
from serving import running
from small import make

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def rate_model():
    """The demo's model, taught less."""
    return train_demo_model(n=120, epochs=9, threads=1)


@pytest.fixture(scope="session")
def rates(rate_model):
    """Its service; every heart above 50 beats a minute alarms it."""
    options = StreamOptions(
        span=DEMO_SPAN, every=DEMO_EVERY, alarms=(Alarm(50.0, 45.0, after=2.0),)
    )
    with running(rate_model.predictor_, streams=options) as found:
        yield found


@pytest.fixture(scope="session")
def classes():
    """A causal model that tells slow from fast hearts at the end of every two seconds."""
    pulses = make_pulse(40, 12.0, seed=3, disturbed=0.0)
    model = make(rf.RFormerClassifier,
        windows=rf.Windows.by_duration(2.0), depth=2, clock=0, spectrum=None, d_model=8, n_heads=2,
        epochs=2, causal=True, random_state=0, n_jobs=1,
    )  # fmt: skip
    model.fit(pulses, np.where(np.asarray(pulses.labels) > 90, "fast", "slow"))
    with running(model.predictor_, streams=StreamOptions()) as found:
        yield found


@pytest.fixture(scope="session")
def forecaster():
    """A forecaster of a load, up to ten ahead."""
    rng = np.random.default_rng(0)
    times = [np.arange(40.0)] * 20
    values = [np.sin(t / 4 + rng.uniform(0, 6))[:, None] for t in times]
    model = rf.RFormerForecaster(steps=5, d_model=8, random_state=0, horizon=10.0, n_jobs=1)
    model.fit(rf.SeriesBatch.from_arrays(values, times, channels=["load"]))
    with running(ServedForecaster(model.predictor_), streams=StreamOptions()) as found:
        yield found


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: there is no {CHROMIUM}")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """``open_page(url, **context options)``: the page, ready; at the end of the test it must have
    made no error and asked no other host.
    """
    contexts, errors, asked = [], [], []

    def open_one(url, *, ready=True, autoplay=False, **options):
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        host = "/".join(url.split("/")[:3])
        page.on("request", lambda request: asked.append((host, request.url)))
        page.on("websocket", lambda ws: asked.append((host, ws.url.replace("ws://", "http://"))))
        # A fresh visit plays by itself; an address with a fragment waits for the button.
        page.goto(url if autoplay or "#" in url else url + "#waiting")
        if ready:
            page.wait_for_selector("html[data-ready=true]")
        page.errors = errors
        return page

    yield open_one
    for context in contexts:
        for page in context.pages:
            page.goto("about:blank")  # as one leaves a page: it removes its stream
        context.close()
    assert errors == []
    assert [there for host, there in asked if not there.startswith(host)] == []
