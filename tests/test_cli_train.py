"""roughformer train: what a run holds, where its settings come from, what is refused."""

import json
import re
import tomllib

import numpy as np
import pytest

import roughformer as rf
from command import SMALL, fails, succeeds
from roughformer.errors import InputError
from roughformer.estimators import estimator_class
from roughformer.io import write_table
from roughformer.runs.run import choose_task, parse_assignments, settings_of, started_run, to_toml
from small import make_sine, read_log

OMEGA = ("--target", "omega", "--task", "regression")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A directory with the same series in several formats, and one finished run."""
    where = tmp_path_factory.mktemp("train")
    batch = make_sine(48, n_classes=3, length=60)
    batch.save(where / "sine.parquet")
    make_sine(12, n_classes=3, length=60, seed=1).save(where / "test.parquet")
    write_table(batch, where / "sine.csv")
    test = ("--test", where / "test.parquet", "--drop", "0,0.5", "--set", "d_model=16")
    drawn = [word for word in SMALL if word != "--no-plots"]
    succeeds("train", where / "sine.parquet", *drawn, *test, "--out", where / "run", "--quiet")
    return where


def config_of(run):
    return tomllib.loads((run / "config.toml").read_text())


def test_a_run_holds_everything(files):
    run = files / "run"
    held = {path.name for path in run.iterdir()}
    assert held >= {"config.toml", "log.jsonl", "model", "state", "metrics.json", "plots"}
    assert {p.name for p in (run / "plots").iterdir()} >= {"history.png", "confusion.png"}
    for picture in (run / "plots").iterdir():
        assert picture.read_bytes()[:4] == b"\x89PNG"
    assert (run / "model" / "model.safetensors").exists()
    assert [record["epoch"] for record in read_log(run)] == [1, 2]
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["task"] == "classification"
    for part in ("validation", "test"):
        assert 0 <= metrics[part]["accuracy"] <= 1
    assert metrics["epochs"] == 2
    config = config_of(run)
    assert config["epochs"] == 2
    assert config["model"]["d_model"] == 16
    assert config["drop"] == [0.0, 0.5]
    assert config["random_state"] == 0


def test_the_report_loads_nothing_from_elsewhere(files):
    page = (files / "run" / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page)
    assert "data:image/png;base64," in page
    assert "roughformer train" in page  # the exact command
    assert "--set d_model=16" in page
    assert "accuracy" in page


def test_scores_are_printed(files, tmp_path):
    loud = succeeds("train", files / "sine.parquet", *SMALL, "--out", tmp_path / "loud")
    assert "48 series, 2,880 points, 1 channel (x); classification of 'label'" in loud.err
    assert "epoch 2/2" in loud.err
    assert "accuracy" in loud.out
    assert f"report: {tmp_path / 'loud' / 'report.html'}" in loud.out


def test_the_same_command_gives_the_same_bytes(files, tmp_path):
    for name in ("a", "b"):
        done = succeeds("train", files / "sine.parquet", *SMALL, "-q", "--out", tmp_path / name)
        assert (done.out, done.err) == ("", "")
    weights = [(tmp_path / n / "model" / "model.safetensors").read_bytes() for n in ("a", "b")]
    assert weights[0] == weights[1]


def test_flags_override_the_file_and_the_file_overrides_the_preset(files, tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('learning_rate = 0.005\nepochs = 7\nspectrum = "none"\n[data]\ntask = "auto"\n')
    run = tmp_path / "run"
    chosen = ("--config", file, "--preset", "paper", "--set", "n_heads=2", *SMALL)
    succeeds("train", files / "sine.parquet", *chosen, "-q", "--out", run)
    config = config_of(run)
    assert config["training"]["schedule"] == "constant"  # the paper's
    assert config["learning_rate"] == 0.005  # the file's, not the paper's 0.001
    assert config["epochs"] == 2  # the flag's
    assert config["windows"] == 6
    assert config["model"]["n_heads"] == 2
    assert config["tokens"]["spectrum"] == "none"


def test_the_written_configuration_makes_the_same_model(files, tmp_path):
    config = files / "run" / "config.toml"
    out = tmp_path / "again"
    options = ("--no-plots", "-q", "--out", out)
    succeeds("train", files / "sine.parquet", "--config", config, *options)
    weights = [(d / "model" / "model.safetensors").read_bytes() for d in (out, files / "run")]
    assert weights[0] == weights[1]
    assert config_of(out) == config_of(files / "run")


def test_a_regression_with_uncertainty_from_a_wide_table(files, tmp_path):
    options = ("--target", "omega", "--task", "regression", "--channels", "x")
    out = tmp_path / "run"
    gaussian = ("--uncertainty", "gaussian", "-q", "--out", out)
    drawn = [word for word in SMALL if word != "--no-plots"]
    succeeds("train", files / "sine.csv", *options, *drawn, *gaussian)
    assert (out / "plots" / "regression.png").exists()
    assert json.loads((out / "metrics.json").read_text())["validation"]["rmse"] > 0
    about = config_of(out)["data"]
    assert about == {
        "series_id": "series_id", "time": "time", "channels": ["x"], "target": "omega",
        "task": "regression",
    }  # fmt: skip


def test_a_run_is_not_overwritten_unasked(files, tmp_path):
    out = tmp_path / "run"
    command = ("train", files / "sine.parquet", *SMALL, "-q", "--out", out)
    succeeds(*command)
    before = (out / "model" / "model.safetensors").read_bytes()
    assert "holds a finished run; choose another directory with --out" in fails(*command)
    succeeds(*command, "--resume")  # nothing left to do: the same model
    assert (out / "model" / "model.safetensors").read_bytes() == before
    (out / "metrics.json").unlink()
    assert "did not finish; go on with --resume, start it anew with --force" in fails(*command)
    keep = out / "notes.txt"
    keep.write_text("mine")
    succeeds(*command, "--force", "--seed", "1")
    assert (out / "model" / "model.safetensors").read_bytes() != before
    assert keep.read_text() == "mine"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_run_is_replaced_when_the_next_one_has_begun(tmp_path, error):
    def files_of(out):
        return {str(p.relative_to(out)): p.read_text() for p in out.rglob("*") if p.is_file()}

    out = tmp_path / "run"
    (out / "model").mkdir(parents=True)
    old = {"metrics.json": "{}", "model/config.json": "old", "notes.txt": "mine"}
    for name, text in old.items():
        (out / name).write_text(text)

    def broken(name):
        with started_run(out, resume=False, force=True):
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_text("new")
            raise error

    with pytest.raises(error):
        broken("config.toml")
    assert files_of(out) == old
    with pytest.raises(error):
        broken("state/x")
    assert files_of(out) == {"state/x": "new", "notes.txt": "mine"}
    with started_run(out, resume=False, force=True):
        (out / "config.toml").write_text("newer")
    assert files_of(out) == {"config.toml": "newer", "notes.txt": "mine"}


def test_a_run_that_waits_outlives_one_that_was_killed_before_it_began(tmp_path):
    out = tmp_path / "run"
    (out / ".replaced" / "model").mkdir(parents=True)
    (out / ".replaced" / "model" / "w").write_text("old")
    (out / "config.toml").write_text("of the one that was killed")

    def refused():
        with started_run(out, resume=False, force=True):
            raise ValueError

    with pytest.raises(ValueError):
        refused()
    assert [str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()] == ["model/w"]


def test_a_run_is_resumed_with_the_same_configuration_only(files, tmp_path):
    out = tmp_path / "run"
    command = ("train", files / "sine.parquet", *SMALL, "-q", "--out", out)
    succeeds(*command)
    words = fails(*command, "--resume", "--learning-rate", "0.01")
    assert (
        "was started with other settings (learning_rate = 0.01); resume it with the same" in words
    )
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    fails(*command, "--resume", "--epochs", "9")
    after = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    assert after == before, "a run that cannot go on is left as it is"


def test_a_directory_of_other_things_is_left_alone(files, tmp_path):
    (tmp_path / "thesis.txt").write_text("")
    words = fails("train", files / "sine.parquet", *SMALL, "--out", tmp_path, "-q")
    assert "is not empty and holds no run; choose another directory (--out)" in words
    words = fails("train", files / "sine.parquet", "-q", "--out", tmp_path / "thesis.txt")
    assert "is a file; choose a directory with --out" in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "epoch=3"], "unknown parameter 'epoch'; did you mean 'epochs'?"),
        (["--set", "epochs"], "--set takes name=value, e.g. --set tokens.clock=8; got 'epochs'"),
        (["--set", "d_model=wide"], "model.d_model: Input should be a valid integer"),
        (["--set", "run_dir=x"], "'run_dir' is no parameter of a model; it is an option of"),
        (["--set", "rate_unit=2"], "'rate_unit' is no parameter of a classification by this model"),
        (["--set", "rate_unit=2"], "or use --task regression --model tempo"),
        ([*OMEGA, "--set", "rate_unit=2"], "leave it out, or use --model tempo"),
        ([*OMEGA, "--set", "class_weight=balanced"], "or use --task classification"),
        ([*OMEGA, "--model", "tempo", "--set", "quantiles=0.1,0.9"], "or use --model rformer"),
        (["--model", "tempo"], "there is no model 'tempo' for classification"),
        (["--views", "up,down"], "views"),
        (["--model", "lstm"], "unknown model 'lstm'"),
        (["--preset", "best"], "presets are default, paper; got 'best'"),
        (["--task", "ranking"], "--task must be auto, classification or regression"),
        (["--target", "nothing"], "has no target 'nothing'; it has label, omega"),
        (["--static", "age"], "'age'"),
        (["--target", "omega", "--static", "omega"], "is the target: it cannot be a static"),
        (["--metric", "luck"], "metric must be 'auto' or one of"),
        (["--device", "cuda"], "use device='auto'"),
        (["--config", "absent.toml"], "there is no file 'absent.toml'; check --config"),
        (["--group", "ward"], "has no static covariate 'ward' for --group"),
        (["--test", "absent.csv"], "there is no file 'absent.csv'"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(files, tmp_path, options, words):
    command = ("train", files / "sine.parquet", *options, "-q", "--out", tmp_path / "run")
    assert words in fails(*command)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epochs = ", "is no valid TOML"),
        ("epoch = 3", "did you mean 'epochs'?"),
        ("data = 3", "data must be a table in the configuration: [data]"),
        ("[data]\ncolour = 'x'", "[data] has the unknown key 'colour'; known are series_id"),
        ("[data]\ntime = 3", "[data] time must name columns, got 3"),
        ("[data]\ntarget = 3", "[data] target must be a text, got 3"),
    ],
)
def test_a_wrong_configuration_is_said_in_one_line(files, tmp_path, text, words):
    file = tmp_path / "my.toml"
    file.write_text(text)
    command = ("train", files / "sine.parquet", "--config", file, "-q", "--out", tmp_path / "run")
    assert words in fails(*command)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("target", "task"),
    [
        (["a", "b", "a"], "classification"),
        ([True, False, True], "classification"),
        ([0, 1, 0, 1], "classification"),
        ([1.0, 2.0, 1.0, 2.0], "classification"),
        ([0.5, 1.5, 0.5], "regression"),
        (list(range(50)), "regression"),
        ([[1, 2], [3, 4]], "regression"),
    ],
)
def test_the_task_follows_from_the_targets(target, task):
    assert choose_task(np.array(target), "auto") == task


def test_an_unclear_task_is_asked_for():
    with pytest.raises(InputError, match="30 distinct whole numbers: are they classes or quant"):
        choose_task(np.arange(300) % 30, "auto")
    assert choose_task(np.arange(300) % 30, "classification") == "classification"


def test_assignments_are_toml_or_words():
    pairs = ["a=1", "b=0.5", "c=true", "d=word", "e=0,0.7", "f=x,y", "g-h={duration = 2.0}"]
    assert parse_assignments(pairs) == {
        "a": 1, "b": 0.5, "c": True, "d": "word", "e": [0, 0.7], "f": ["x", "y"],
        "g_h": {"duration": 2.0},
    }  # fmt: skip


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_settings_survive_the_way_through_toml(task):
    chosen = {"windows": {"duration": 2.5}, "spectrum": "none", "views": ["local"], "patience": 3}
    if task == "classification":
        chosen["class_weight"] = {'a "b"': 1.0, "c": 2.0}
    settings = settings_of(estimator_class(task), "default", chosen)
    text = to_toml(settings, {"data": {"time": "t é"}})
    read = tomllib.loads(text)
    assert read.pop("data") == {"time": "t é"}
    assert settings_of(estimator_class(task), "default", read) == settings
    assert settings["tokens__spectrum"] is None
    assert settings["views"] == ("local",)
    assert settings["tokens__time"] == "unit"
    assert settings_of(estimator_class(task), "default", {"time": "none"})["tokens__time"] == "none"


def test_class_weights_name_numbers_as_texts(files, tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('class_weight = { "0" = 1.0, "1" = 2.0, "2" = 1.0 }\n')
    out = ("-q", "--out", tmp_path / "run")
    succeeds("train", files / "sine.parquet", *SMALL, "--config", file, *out)


def test_several_members_are_never_scored_on_what_one_of_them_was_trained_on(files, tmp_path):
    out = tmp_path / "run"
    command = (
        "train",
        files / "sine.parquet",
        *SMALL,
        "--set",
        "n_estimators=2",
        "-q",
        "--out",
        out,
    )
    succeeds(*command)
    metrics = json.loads((out / "metrics.json").read_text())
    best = [min(r["valid_metric"] for r in read_log(out / f"member-{k}")) for k in (1, 2)]
    assert metrics["validation"] == {"log_loss": pytest.approx(np.mean(best))}
    assert "2 models answer as one" in (out / "report.html").read_text()
    assert "holds a finished run" in fails(*command)
    before = (out / "model" / "model.safetensors").read_bytes()
    succeeds(*command, "--resume")
    assert (out / "model" / "model.safetensors").read_bytes() == before


def test_without_validation_the_last_epoch_is_kept(files, tmp_path):
    out = tmp_path / "run"
    options = ("--validation", "0", "-q", "--out", out)
    succeeds("train", files / "sine.parquet", *SMALL, *options)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["best_epoch"] == 2
    assert "validation" not in metrics


def test_one_option_of_a_group_can_be_set():
    found = parse_assignments(["model.step=4", "model.solver=rk4"])
    assert found == {"model": {"step": 4, "solver": "rk4"}}
    none = parse_assignments(["model.max_steps=none"])
    neural_cde = estimator_class("classification", "neural-cde")
    settings = settings_of(neural_cde, "default", none)
    assert settings["model__max_steps"] is None
    word = parse_assignments(["model.scaling=none"])  # a choice of that name
    assert settings_of(rf.RFormerClassifier, "default", word)["model__scaling"] == "none"
    again = tomllib.loads(to_toml(settings, {}))
    assert settings_of(neural_cde, "default", again) == settings
    with pytest.raises(InputError, match=r"model=... and --set model.step"):
        parse_assignments(["model=3", "model.step=4"])


def test_a_parameter_has_one_setting_by_whatever_name_it_is_said():
    for said in ("clock=8", "tokens.clock=8"):
        settings = settings_of(rf.RFormerClassifier, "default", parse_assignments([said]))
        assert settings["tokens__clock"] == 8
    depth = settings_of(rf.RFormerClassifier, "default", parse_assignments(["tokens.depth=3"]))
    assert depth["depth"] == 3
    with pytest.raises(InputError, match=r"depth=3 and tokens.depth=2 are the same parameter"):
        settings_of(rf.RFormerClassifier, "default", {"depth": 3, "tokens": {"depth": 2}})
