"""roughformer demo: small, but all of it."""

import json
import re

from command import succeeds


def test_the_demo_compares_two_models(tmp_path):
    out, file = tmp_path / "demo", tmp_path / "demo.json"
    done = succeeds("demo", "--quick", "--out", out, "--json", file, "--threads", "1")
    found = json.loads(file.read_text())
    assert set(found) == {"rformer", "transformer", "seconds"}
    for model in ("rformer", "transformer"):
        assert set(found[model]) == {"full", "dropped"}
        assert all(isinstance(v, float) and 0 <= v <= 1 for v in found[model].values())
    assert isinstance(found["seconds"], float)
    for words in ("RFormer", "vanilla", "50 % dropped", f"report: {out / 'report.html'}"):
        assert words in done.out
    assert "epoch" in done.err  # its progress, as lines where there is no terminal
    page = (out / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page)
    pictures = {path.stem for path in (out / "plots").iterdir()}
    assert pictures >= {"accuracy", "history_rformer", "history_transformer", "series", "tokens"}
    full = json.loads((out / "metrics.json").read_text())
    assert "as many epochs" in " ".join(done.out.split())
    assert "same time" not in done.out
    assert "a given time" not in page
    assert {record["epochs"] for record in (full[m] for m in ("rformer", "transformer"))} == {3}
    assert list(full["rformer"]["curve"]) == ["0", "0.3", "0.5", "0.7"]
    for model in ("rformer", "transformer"):
        assert (out / model / "model" / "model.safetensors").exists()
