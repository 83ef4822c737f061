"""The report: one page, loads nothing, escapes everything."""

import base64
import io
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from roughformer.errors import InputError
from roughformer.plots import plot_history
from roughformer.plots.report import write_report

VOID = {"meta", "img", "br", "hr", "link", "input"}
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp; \x00 \ud800 {title}"
EMPTY = {"title": "t", "facts": {}, "metrics": {}, "figures": [], "config": {}}


class Page(HTMLParser):
    """Elements, attributes and text; fails where elements are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.stack[-1] if self.stack else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag):
        return [data for name, data in self.texts if name == tag]


def full(path, word="word"):
    return write_report(
        path,
        title=word,
        facts={word: word, "n": 12345, "seconds": 1.23456, "ok": True, "list": [1, word]},
        metrics={word: {word: 0.98765}, "other": {"rmse": float("nan")}},
        figures=[(word, plot_history([])), ("second", plot_history([]))],
        config={word: [word, {"deep": 1}], "array": np.float32(1)},
        notes=[word],
        command=f"roughformer train {word}",
    )


def test_a_report_has_everything_that_was_given(tmp_path):
    page = Page(full(tmp_path / "r.html").read_text(encoding="utf-8"))
    headings = ["Results", "Facts", "Notes", "Figures", "Make it again", "Configuration"]
    assert page.text("h1") == ["word"]
    assert page.text("h2") == headings
    assert page.text("td") == ["0.9877", "–", "–", "nan"]
    assert page.text("dd") == ["word", "12,345", "1.235", "yes", "1, word"]
    assert page.text("figcaption") == ["word", "second"]
    assert [a["alt"] for a in page.all("img")] == ["word", "second"]
    assert "roughformer train word" in page.text("code")
    assert '"deep": 1' in page.text("code")[-1]
    assert {a["scope"] for a in page.all("th")} == {"row", "col"}
    assert page.all("html") == [{"lang": "en"}]


def test_pictures_are_inside_and_have_their_size(tmp_path):
    from matplotlib.image import imread

    page = Page(full(tmp_path / "r.html").read_text(encoding="utf-8"))
    for attributes in page.all("img"):
        kind, data = attributes["src"].split(",", 1)
        assert kind == "data:image/png;base64"
        height, width = imread(io.BytesIO(base64.b64decode(data)))[..., 0].shape
        assert abs(width - 2 * int(attributes["width"])) <= 2
        assert abs(height - 2 * int(attributes["height"])) <= 2


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    text = full(tmp_path / "r.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|//\w|url\(|@import", re.sub(r"base64,[^\"]*", "", text))
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "base"} & {tag for tag, _ in page.elements}
    policy = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_hostile_texts_stay_texts(tmp_path):
    usual = Page(full(tmp_path / "a.html").read_text(encoding="utf-8"))
    attacked = Page(full(tmp_path / "b.html", HOSTILE).read_text(encoding="utf-8"))
    assert [tag for tag, _ in attacked.elements] == [tag for tag, _ in usual.elements]
    assert [set(a) for _, a in attacked.elements] == [set(a) for _, a in usual.elements]
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert "".join(attacked.text("h1")) == shown
    assert attacked.all("img")[0]["alt"] == shown


def test_an_empty_report_is_a_page_without_sections(tmp_path):
    page = Page(write_report(tmp_path / "r.html", **EMPTY).read_text(encoding="utf-8"))
    assert page.text("h2") == []
    assert page.all("section") == []
    one = Page(write_report(tmp_path / "s.html", **EMPTY | {"metrics": {"row": {}}}).read_text())
    assert one.all("table") == []


def test_light_and_dark_are_both_there(tmp_path):
    text = write_report(tmp_path / "r.html", **EMPTY).read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    used = set(re.findall(r"var\((--\w+)\)", text))
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in text.split("@media", 2)[:2])
    assert used == light == dark


def test_the_page_goes_where_it_is_told(tmp_path):
    assert write_report(tmp_path, **EMPTY) == tmp_path / "report.html"
    deep = tmp_path / "a" / "b" / "r.html"
    assert write_report(str(deep), **EMPTY) == deep
    assert sorted(os.listdir(tmp_path)) == ["a", "report.html"]
    with pytest.raises(InputError, match="cannot write the report"):
        write_report(tmp_path / "report.html" / "x.html", **EMPTY)


def test_the_same_report_twice_is_the_same_file_and_nothing_else_is_left(tmp_path):
    first = full(tmp_path / "r.html").read_bytes()
    assert full(tmp_path / "r.html").read_bytes() == first
    assert os.listdir(tmp_path) == ["r.html"]
