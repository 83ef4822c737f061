"""The page's manners: themes, keyboard, small screens, little motion."""


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_colours_follow_the_system_until_they_are_chosen(rates, open_page):
    light, dark = (open_page(rates.url, color_scheme=wish) for wish in ("light", "dark"))
    assert background(light) != background(dark)
    dark.click("#theme")
    assert background(dark) == background(light)
    assert "light" in dark.get_attribute("#theme", "aria-label")
    dark.reload()
    assert background(dark) == background(light)
    dark.click("#theme")
    dark.click("#theme")
    assert "system" in dark.get_attribute("#theme", "aria-label")
    assert background(dark) != background(light)


def test_everything_works_by_keyboard(rates, open_page):
    page = open_page(rates.url)
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.className")
        )
    assert reached[0] == "skip"
    assert "theme" in reached
    assert [name for name in reached if name in ("source", "play", "dropped")] == [
        "source", "play", "dropped",
    ]  # fmt: skip
    page.focus("#dropped")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#dropped-text") == "5 %"
    assert page.get_attribute("#dropped", "aria-valuetext") == "5 percent dropped"
    page.focus("#play")
    page.keyboard.press("Space")
    page.wait_for_selector("#number:not([data-value=''])")
    assert page.inner_text("#play") == "Pause"
    assert page.evaluate("getComputedStyle(document.getElementById('play')).outlineStyle") != "none"
    page.focus("input[name=speed]:checked")
    page.keyboard.press("ArrowRight")
    assert page.locator("input[name=speed]:checked").input_value() == "2"


def test_every_control_has_a_name(rates, open_page):
    page = open_page(rates.url)
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, select, input, canvas")].filter(x =>
             !x.labels?.length && !x.getAttribute("aria-label") && !x.textContent.trim()
           ).map(x => x.outerHTML)"""
    )
    assert unnamed == []


def test_nothing_is_wider_than_the_screen(rates, open_page):
    page = open_page(rates.url)
    for width in (320, 390, 768, 1024, 2200):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_who_wants_little_motion_gets_one_picture_a_second(rates, open_page):
    count = """async () => {
      let frames = 0;
      const chart = document.getElementById("answers").getContext("2d");
      const before = chart.clearRect.bind(chart);
      chart.clearRect = (...box) => { frames++; before(...box); };
      await new Promise((resolve) => setTimeout(resolve, 1200));
      return frames;
    }"""
    calm = open_page(rates.url, reduced_motion="reduce").evaluate(count)
    assert 1 <= calm <= 2
    assert open_page(rates.url).evaluate(count) > calm


def test_the_policy_forbids_everything_from_elsewhere(rates):
    for path in ("", "page/main.js", "page/style.css"):
        policy = rates.http.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
    text = rates.http.get("").text
    assert " on" + "click" not in text
    assert "style=" not in text
    assert "http" not in text
