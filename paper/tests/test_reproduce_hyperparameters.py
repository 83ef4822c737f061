"""The search, the ablations and their page."""

import json
import math

import pytest

from roughformer.errors import InputError
from roughformer_paper.reproduce import Results, Wishes, experiment_of, key_of, run_jobs
from roughformer_paper.reproduce.ablations import changes_of
from roughformer_paper.reproduce.hyperparameters import PAPER, _base
from roughformer_paper.reproduce.search import SPACE, begin_trial, end_trial, propose

EXPERIMENT = experiment_of("hyperparameters")
GIVEN = [PAPER["sine"], PAPER["heart-rate"]]


def loss_of(parameters):
    """Least at depth 3 with the local view, whatever the rest."""
    return abs(parameters["depth"] - 3) + (parameters["views"] != "local")


# The search


def test_the_first_trials_are_the_given_ones_and_all_are_of_the_space(tmp_path):
    found = []
    for number in range(12):
        parameters = begin_trial(tmp_path, number, GIVEN)
        end_trial(tmp_path, number, parameters, loss_of(parameters))
        found.append(parameters)
    assert found[:2] == GIVEN
    low, high, _ = SPACE["learning_rate"]
    for parameters in found:
        assert list(parameters) == list(SPACE)
        assert low <= parameters["learning_rate"] <= high
        assert all(parameters[name] in SPACE[name] for name in ("windows", "depth", "views"))
    rest = [json.dumps(parameters) for parameters in found]
    assert len(set(rest)) == len(rest)


def test_the_same_history_gives_the_same_proposal_and_another_seed_another():
    history = [(parameters, loss_of(parameters)) for parameters in GIVEN]
    assert propose(history, 5) == propose(history, 5)
    assert propose(history, 5) != propose(history, 6)
    assert set(propose([], 0)) == set(SPACE)


def test_the_search_goes_where_losses_are_low(tmp_path):
    found = []
    for number in range(30):
        parameters = begin_trial(tmp_path, number, GIVEN)
        end_trial(tmp_path, number, parameters, loss_of(parameters))
        found.append(loss_of(parameters))
    assert sum(found[-10:]) < sum(found[:10])
    assert min(found) == 0


def test_a_killed_trial_goes_on_with_its_parameters_and_a_finished_one_is_drawn_anew(tmp_path):
    for number in range(3):
        begin_trial(tmp_path, number, GIVEN)
    third = begin_trial(tmp_path, 3, GIVEN)
    # Earlier trials end meanwhile, which would change what is proposed.
    for number, parameters in enumerate(GIVEN):
        end_trial(tmp_path, number, parameters, float(number))
    assert begin_trial(tmp_path, 3, GIVEN) == third
    end_trial(tmp_path, 3, third, 0.5)
    begin_trial(tmp_path, 3, GIVEN)
    assert json.loads((tmp_path / "trial-0003.json").read_text())["loss"] is None


def test_trials_that_run_at_a_time_differ(tmp_path):
    found = [begin_trial(tmp_path, number, GIVEN) for number in range(10)]
    assert len({json.dumps(parameters) for parameters in found}) == 10


def test_a_trial_does_not_need_the_ones_before_it_nor_see_later_ones(tmp_path):
    alone = begin_trial(tmp_path / "a", 7, GIVEN)
    end_trial(tmp_path / "b", 8, GIVEN[0], 0.0)
    assert begin_trial(tmp_path / "b", 7, GIVEN) == alone


def test_a_file_that_is_no_trial_is_refused(tmp_path):
    (tmp_path / "trial-0000.json").write_text("{}")
    with pytest.raises(InputError, match="not the file of a trial"):
        begin_trial(tmp_path, 2, GIVEN)


def test_a_search_goes_on_after_trials_that_broke(tmp_path):
    for number in range(12):
        parameters = begin_trial(tmp_path, number, GIVEN)
        end_trial(tmp_path, number, parameters, math.inf)
    assert set(begin_trial(tmp_path, 12, GIVEN)) == set(SPACE)


# Ablations


@pytest.mark.parametrize("task", ["sine", "heart-rate"])
@pytest.mark.parametrize("tokens", ["signatures", "rformer"])
def test_each_ablation_changes_one_option(task, tokens):
    base = _base(task, tokens)
    found = changes_of(base, task)
    first, *others = found.values()
    assert first == base
    for options in others:
        assert sum(options[name] != base[name] for name in base) == 1
    assert len({json.dumps(options) for options in found.values()}) == len(found)
    assert {"features not scaled", "no time", "a lag", "10 windows", "150 windows"} <= set(found)
    assert ("clocks" in found) == (tokens == "signatures")
    assert ("no clocks" in found) == (tokens == "rformer")
    few = changes_of(base, task, few=True)
    assert few.items() <= found.items()
    assert len(few) == 4


def test_the_paper_chose_different_views_for_its_tasks():
    assert _base("sine", "signatures")["views"] == ["global", "local"]
    assert _base("heart-rate", "signatures")["views"] == ["local"]
    assert _base("heart-rate", "signatures")["depth"] == 4


# The experiment


@pytest.mark.parametrize("preset", ["tiny", "quick", "full"])
def test_jobs_are_json_and_differ(preset):
    jobs = EXPERIMENT.jobs(Wishes(preset))
    assert json.loads(json.dumps(jobs)) == jobs
    assert len({key_of(job) for job in jobs}) == len(jobs)
    parts = {(job["task"], job["part"]) for job in jobs}
    assert len(parts) == 4
    trials = [job["trial"] for job in jobs if job["part"] == "search"]
    assert trials == sorted(trials)
    assert all(job["options"]["max_seconds"] > 0 for job in jobs)


def test_wishes_choose_tokens_seeds_and_budget():
    jobs = EXPERIMENT.jobs(Wishes("full", seeds=2, models=("rformer",), seconds=7.0))
    assert {job["tokens"] for job in jobs} == {"rformer"}
    assert {job["seed"] for job in jobs if job["part"] == "ablation"} == {0, 1}
    assert {job["options"]["max_seconds"] for job in jobs} == {7.0}
    # BIDMC, in the full preset only.
    assert {job["data"] is None for job in jobs if job["task"] == "heart-rate"} == {True}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    out = tmp_path_factory.mktemp("hyperparameters")
    results = Results(out / "results.json", "hyperparameters")
    jobs = EXPERIMENT.jobs(Wishes("tiny"))
    run_jobs(EXPERIMENT, jobs, results, out / "work", in_process=True)
    return json.loads((out / "results.json").read_text())["rows"]


def test_each_row_has_the_score_of_the_epoch_with_the_least_loss(rows):
    assert len(rows) == len(EXPERIMENT.jobs(Wishes("tiny")))
    for row in rows:
        name = "log_loss" if row["job"]["task"] == "sine" else "rmse"
        assert row["loss"] == min(record[name] for record in row["history"])
        if name == "rmse":
            assert row["score"] == row["loss"]
        else:
            assert 0 <= row["score"] <= 1


def test_trials_tell_their_parameters_and_begin_with_the_papers(rows):
    trials = [row for row in rows if row["job"]["part"] == "search"]
    for row in trials:
        if row["job"]["trial"] == 0:
            assert row["parameters"] == PAPER[row["job"]["task"]]
    assert len(trials) == 6


@pytest.mark.parametrize("figures", [True, False])
def test_the_page_has_what_was_chosen_and_the_ablations(rows, figures):
    page = EXPERIMENT.show(rows, figures)
    chosen = page.tables[0]
    assert len(chosen.rows) == 4
    best = min(
        (r for r in rows if r["job"]["part"] == "search" and r["job"]["task"] == "sine"),
        key=lambda r: r["loss"],
    )
    assert chosen.rows[0][6] == best["score"]
    assert all(len(line) == len(t.columns) for t in page.tables for line in t.rows)
    assert len(page.figures) == (4 if figures else 0)
    assert any("validation" in note for note in page.notes)
    ablations = [t for t in page.tables if "one option" in t.title]
    assert ablations[0].rows[0][0] == "as chosen"
    assert len(ablations[0].rows) == 4


def test_trials_that_broke_are_the_worst_and_are_not_drawn(rows):
    sine = [r for r in rows if r["job"]["part"] == "search" and r["job"]["task"] == "sine"]
    good = sine[1]
    broken = [r | {"loss": None, "score": None} for r in rows if r is not good]
    page = EXPERIMENT.show([*broken, good], True)
    assert page.tables[0].rows[0][6] == good["score"]
    assert page.tables[1].rows[0][0] == good["job"]["trial"]
    assert EXPERIMENT.show(broken, True).tables[0].rows[0][6] is None


def test_an_epoch_without_a_finite_score_is_not_chosen(monkeypatch, tmp_path):
    from roughformer_paper.reproduce import hyperparameters

    job = EXPERIMENT.jobs(Wishes("tiny"))[-1]
    monkeypatch.setattr(hyperparameters, "fitted", lambda *given: None)
    monkeypatch.setattr(hyperparameters, "count_parameters", lambda model: 0)
    for history, loss in (([{}, {"rmse": 2.0}, {"rmse": 3.0}], 2.0), ([{}, {}], None)):
        monkeypatch.setattr(hyperparameters, "history_of", lambda model, found=history: found)
        assert EXPERIMENT.run(job, tmp_path)["loss"] == loss


def test_trials_of_a_search_share_a_directory_that_ablations_do_not_know():
    jobs = EXPERIMENT.jobs(Wishes("full"))
    found = {(j["task"], j["tokens"], EXPERIMENT.shared(j)) for j in jobs if j["part"] == "search"}
    assert len(found) == len({name for _, _, name in found}) == 4
    assert {EXPERIMENT.shared(j) for j in jobs if j["part"] == "ablation"} == {None}


def test_the_legend_shows_markers_as_they_are_drawn(rows):
    pytest.importorskip("matplotlib")
    figures = {name: figure for name, _, figure in EXPERIMENT.show(rows, True).figures}
    for name, hollow in (("search_sine", True), ("search_heart_rate", False)):
        (legend,) = figures[name].legends
        assert {h.get_markerfacecolor() == "none" for h in legend.legend_handles} == {hollow}
    (legend,) = figures["ablation_sine"].legends
    assert [text.get_text() for text in legend.texts] == ["signatures alone"]


def test_the_page_of_nothing_is_empty():
    page = EXPERIMENT.show([], True)
    assert not page.figures
    assert not page.tables[0].rows


def test_no_job_reads_the_test_part(rows):
    assert not any("test" in row for row in rows)
    for job in EXPERIMENT.jobs(Wishes("full")):
        if job["task"] == "sine":
            assert job["data"]["n_test"] == 2  # as few as can be


def test_trials_whose_files_are_gone_are_known_from_their_rows(tmp_path):
    told = {}
    for number in range(14):
        parameters = begin_trial(tmp_path / "files", number, GIVEN)
        again = begin_trial(tmp_path / f"none {number}", number, GIVEN, finished=told)
        assert again == parameters
        end_trial(tmp_path / "files", number, parameters, loss_of(parameters))
        told[number] = (parameters, loss_of(parameters))
