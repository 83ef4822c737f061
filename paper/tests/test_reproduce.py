"""roughformer reproduce: jobs, rows, resuming, failures, pages."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roughformer.errors import InputError, MissingDataError
from roughformer_paper.reproduce import (
    NAMES,
    Experiment,
    Results,
    Selection,
    Wishes,
    experiment_of,
    key_of,
    run_jobs,
    write_page,
)
from roughformer_paper.reproduce.experiment import Page, Table, mean_of, spread
from roughformer_paper.reproduce.tasks import heart_rate_parts, sine_parts


def counting(tmp_path, fail=()):
    """An experiment whose jobs write down that they ran."""

    def run(job, where):
        with open(tmp_path / "ran", "a") as file:
            file.write(f"{job['n']}\n")
        if job["n"] in fail:
            raise RuntimeError("no luck")
        return {"square": job["n"] ** 2}

    return Experiment(
        name="counting",
        title="Counting",
        about="squares",
        jobs=lambda wishes: [{"n": n} for n in range(4)],
        run=run,
        show=lambda rows, figures: Page(
            [Table("Squares", ["n", "square"], [[r["job"]["n"], r["square"]] for r in rows])]
        ),
    )


@pytest.fixture
def known(monkeypatch, tmp_path):
    """``experiment_of("counting")`` works here."""
    found = counting(tmp_path)
    monkeypatch.setattr("roughformer_paper.reproduce.catalogue.experiment_of", lambda name: found)
    return found


def ran(tmp_path):
    return (tmp_path / "ran").read_text().split()


def test_a_finished_job_is_not_run_again(known, tmp_path):
    path = tmp_path / "results.json"
    jobs = known.jobs(Wishes())
    run_jobs(known, jobs[:2], Results(path, "counting"), tmp_path / "work", in_process=True)
    assert ran(tmp_path) == ["0", "1"]
    results = Results(path, "counting")
    run_jobs(known, jobs, results, tmp_path / "work", in_process=True)
    assert ran(tmp_path) == ["0", "1", "2", "3"]
    assert [r["square"] for r in results.rows] == [0, 1, 4, 9]
    run_jobs(known, jobs, results, tmp_path / "work", in_process=True, again=True)
    assert len(ran(tmp_path)) == 8
    assert len(results.rows) == 4


def test_again_replaces_only_the_rows_of_the_jobs_asked_for(known, tmp_path):
    path = tmp_path / "results.json"
    jobs = known.jobs(Wishes())
    run_jobs(known, jobs, Results(path, "counting"), tmp_path / "work", in_process=True)
    before = {r["job"]["n"]: r for r in json.loads(path.read_text())["rows"]}

    def stop(job, row, done, every):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(
            known, jobs[2:], Results(path, "counting"), tmp_path / "work", in_process=True,
            again=True, told=stop,
        )  # fmt: skip
    after = {r["job"]["n"]: r for r in json.loads(path.read_text())["rows"]}
    assert after.keys() == before.keys()
    assert [n for n in after if after[n] == before[n]] == [0, 1, 3]


def test_again_begins_anew_and_forgets_what_jobs_shared(known, tmp_path):
    from dataclasses import replace

    shares = replace(known, shared=lambda job: f"of-{job['n'] % 2}")
    work = tmp_path / "work"
    for name in (key_of({"n": 0}), key_of({"n": 1}), "of-0", "of-1"):
        (work / name).mkdir(parents=True)
        (work / name / "old").touch()
    results = Results(tmp_path / "results.json", "counting")
    run_jobs(shares, [{"n": 0}], results, work, in_process=True, again=True)
    assert sorted(p.name for p in work.iterdir()) == sorted([key_of({"n": 1}), "of-1", "lock"])


def test_a_failed_row_does_not_replace_a_finished_one(tmp_path):
    results = Results(tmp_path / "results.json", "one")
    job = {"n": 1}
    results.add({"key": key_of(job), "job": job, "failed": "no"})
    results.add({"key": key_of(job), "job": job, "square": 1})
    results.add({"key": key_of(job), "job": job, "failed": "no"})
    assert results.get(job)["square"] == 1
    assert len(results.rows) == 1


def test_a_job_that_fails_in_this_process_does_not_stop_the_others(monkeypatch, tmp_path):
    found = counting(tmp_path, fail=(1,))
    monkeypatch.setattr("roughformer_paper.reproduce.catalogue.experiment_of", lambda name: found)
    results = Results(tmp_path / "results.json", "counting")
    failed = run_jobs(found, found.jobs(Wishes()), results, tmp_path / "work", in_process=True)
    assert [row["failed"] for row in failed] == ["RuntimeError: no luck"]
    assert ran(tmp_path) == ["0", "1", "2", "3"]
    assert len(results.rows) == 4


def test_missing_data_are_told_once_before_the_first_job(known, tmp_path, monkeypatch):
    from dataclasses import replace

    monkeypatch.delenv("ROUGHFORMER_DATA", raising=False)
    needs = replace(known, needs_data=lambda job: job["n"] == 3)
    results = Results(tmp_path / "results.json", "counting")
    run_jobs(needs, [{"n": 0}], results, tmp_path / "work", in_process=True)
    with pytest.raises(MissingDataError, match=r"BIDMC .* was not found"):
        run_jobs(needs, needs.jobs(Wishes()), results, tmp_path / "work", in_process=True)
    assert ran(tmp_path) == ["0"]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("sine", "efficiency", "theory")])
def test_jobs_of_real_data_are_those_without_made_up_series(name):
    experiment = experiment_of(name)
    assert not any(map(experiment.needs_data, experiment.jobs(Wishes("tiny"))))
    assert any(map(experiment.needs_data, experiment.jobs(Wishes("full"))))


def test_every_row_says_where_when_and_at_what_cost(known, tmp_path):
    results = Results(tmp_path / "results.json", "counting")
    run_jobs(known, [{"n": 3}], results, tmp_path / "work", in_process=True)
    (row,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert row["key"] == key_of({"n": 3})
    assert row["job"] == {"n": 3}
    assert row["seconds"] >= 0
    assert row["peak_mb"] > 0
    assert {"date", "python", "torch", "commit", "machine", "cores"} <= set(row["environment"])


def test_the_key_is_of_the_content_not_of_the_order():
    assert key_of({"a": 1, "b": [1, 2]}) == key_of({"b": [1, 2], "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})


def test_results_of_another_experiment_are_not_overwritten(tmp_path):
    path = tmp_path / "results.json"
    Results(path, "one").add({"key": "k", "job": {}})
    with pytest.raises(InputError, match="results of 'one', not of 'two'"):
        Results(path, "two")
    damaged = '"experiment": "one", "rows"'
    rows = ("5", "[1]", '[{"key": "a"}]', '[{"key": "a", "job": 5}]')
    for text in ("[]", "", *(f"{{{damaged}: {some}}}" for some in rows)):
        path.write_text(text)
        with pytest.raises(InputError, match="holds no results"):
            Results(path, "one")


def test_not_a_number_is_null_in_the_file(tmp_path):
    path = tmp_path / "results.json"
    Results(path, "one").add({"key": "k", "job": {}, "x": [float("nan"), float("inf"), 1.0]})
    assert json.loads(path.read_text())["rows"][0]["x"] == [None, None, 1.0]


def test_a_job_that_fails_is_told_and_does_not_stop_the_others(tmp_path):
    """In processes of their own: the experiment is a real one, with a job that cannot run."""
    experiment = experiment_of("sine")
    size = {"n_samples": 20, "n_classes": 2, "length": 20, "n_test": 5}
    good = {"model": "chance", "drop": 0.0, "seed": 0, "size": size}
    bad = good | {"model": "nonsense", "epochs": 1, "max_seconds": 1.0}
    results = Results(tmp_path / "results.json", "sine")
    for job in (bad, good):  # processes that were killed before had spent this
        (tmp_path / "work" / key_of(job)).mkdir(parents=True)
        noted = tmp_path / "work" / key_of(job) / "spent.json"
        noted.write_text(json.dumps({"seconds": 1000.0, "peak_mb": 1e6}))
    failed = run_jobs(experiment, [bad, good], results, tmp_path / "work", threads=1)
    assert [row["job"] for row in failed] == [bad]
    assert all(
        (row["seconds"] > 1000, row["peak_mb"] == 1e6) == (True, True) for row in results.rows
    )
    rows = {row["job"]["model"]: row for row in results.rows}
    assert "unknown model 'nonsense'" in rows["nonsense"]["failed"]
    assert rows["chance"]["accuracy"] == 0.5
    assert results.get(bad) is None  # it will be tried again
    assert not (tmp_path / "work" / key_of(good)).exists()
    said = (tmp_path / "work" / key_of(bad) / "output.log").read_text()
    assert said.startswith("Traceback")  # nothing of Python's own comes first
    chosen = Selection([rows["chance"]], [rows["nonsense"]], 0, [])
    write_page(experiment, chosen, tmp_path, "the command")
    page = (tmp_path / "report.html").read_text()
    assert "not run: model nonsense" in page
    assert "the command" in page


@pytest.mark.slow
def test_a_killed_command_goes_on_where_it_stopped(tmp_path):
    command = [
        sys.executable, "-c", "from roughformer.cli import main; main()", "reproduce", "sine",
        "--preset", "tiny", "--models", "chance,rformer", "--out", str(tmp_path),
    ]  # fmt: skip
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    path = tmp_path / "results.json"
    process = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE)
    for _ in range(600):
        time.sleep(0.1)
        if path.exists() and len(json.loads(path.read_text())["rows"]) >= 2:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {r["key"]: r["seconds"] for r in json.loads(path.read_text())["rows"]}
    assert len(before) >= 2
    subprocess.run(command, env=variables, check=True, capture_output=True)
    after = {r["key"]: r["seconds"] for r in json.loads(path.read_text())["rows"]}
    assert len(after) == 4
    assert before.items() <= after.items()


@pytest.mark.parametrize("name", list(NAMES))
def test_jobs_of_every_preset_are_json_and_differ(name):
    experiment = experiment_of(name)
    assert experiment.name == name
    for preset in ("tiny", "quick", "full"):
        jobs = experiment.jobs(Wishes(preset))
        keys = [key_of(json.loads(json.dumps(job))) for job in jobs]
        assert len(jobs) > 0
        assert len(set(keys)) == len(keys)
        more = experiment.jobs(Wishes(preset, seeds=7))
        assert len(more) >= len(jobs) or preset == "full"


@pytest.mark.parametrize("name", list(NAMES))
def test_a_page_without_rows_can_be_made(name):
    page = experiment_of(name).show([], True)
    assert all(len(row) == len(t.columns) for t in page.tables for row in t.rows)


def test_the_guide_names_every_experiment():
    text = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
    assert [name for name in NAMES if f"| `{name}` |" not in text] == []


def test_an_unknown_experiment_is_refused():
    with pytest.raises(InputError, match="no experiment 'x'; there are sine, "):
        experiment_of("x")


def test_spread():
    assert spread([], 2) is None
    assert spread([1.0], 2) == "1.00"
    assert spread([1.0, 3.0], 2) == "2.00 ± 1.41"
    assert spread([None, 1.0, None, 3.0], 2) == "2.00 ± 1.41"  # None: it was not finite
    assert spread([None], 2) is None
    assert mean_of([None, 1.0, 3.0]) == 2.0
    assert mean_of([None]) is None


def test_parts_of_the_sine_task_share_no_series():
    parts = sine_parts({"n_samples": 50, "n_classes": 5, "length": 30, "n_test": 20})
    assert [len(parts[k]) for k in ("train", "validation", "test")] == [40, 10, 20]
    rows = [tuple(parts[k][i].values.ravel()) for k in parts for i in range(len(parts[k]))]
    assert len(set(rows)) == 70


def test_made_up_patients_are_apart_in_the_patient_protocol():
    sizes = {"n": 80, "length": 60}
    for protocol, apart in (("patient", True), ("random", False)):
        parts = heart_rate_parts(protocol, sizes)
        owners = [set(part.static[:, 0]) for part in parts.values()]
        assert (not (owners[0] & owners[2])) is apart
        assert sum(len(part) for part in parts.values()) == 80
        thin = heart_rate_parts(protocol, sizes, every=3)
        for name, part in parts.items():
            assert thin[name].labels.tolist() == part.labels[::3].tolist()
