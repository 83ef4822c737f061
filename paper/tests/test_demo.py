"""roughformer demo: small, but all of it."""

import json
import re

from command import succeeds


def test_the_demo_compares_models_on_two_tasks(tmp_path):
    out, file = tmp_path / "demo", tmp_path / "demo.json"
    done = succeeds("demo", "--quick", "--out", out, "--json", file, "--threads", "1")
    found = json.loads(file.read_text())
    on_sines = {"rformer", "minirocket", "boosting", "transformer"}
    assert set(found) == {*on_sines, "vowels", "seconds"}
    assert set(found["vowels"]) == on_sines - {"transformer"}
    rows = [found[model] for model in on_sines] + list(found["vowels"].values())
    for row in rows:
        assert set(row) == {"full", "dropped"}
        assert all(isinstance(v, float) and 0 <= v <= 1 for v in row.values())
    assert found["vowels"]["rformer"]["full"] > 0.95
    assert isinstance(found["seconds"], float)
    for words in ("RFormer", "vanilla", "50 % dropped", f"report: {out / 'report.html'}"):
        assert words in done.out
    page = (out / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page)
    pictures = {path.stem for path in (out / "plots").iterdir()}
    assert pictures == {
        "accuracy", "accuracy_vowels", "series", "series_dropped", "history_transformer"
    }  # fmt: skip
    for model in ("rformer", "transformer"):
        assert (out / model / "full" / "model" / "model.safetensors").exists()
