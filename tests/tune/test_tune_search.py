"""The search itself: trials that train nothing, how they end, and what outlives a kill."""

from dataclasses import replace

import optuna
import pytest

from roughformer.errors import InputError
from roughformer.estimators import RFormerClassifier
from roughformer.tune import Choice, Problem, Range, Search, Space, begun_trials, best_trial
from roughformer.tune import search as module
from roughformer.tune.search import JOURNAL, as_csv, run_trial, trial_row
from small import TINY, make_sine

SPACE = Space(learning_rate=Range(1e-4, 1e-1, log=True), d_model=Choice((8, 16)))
EPOCHS = 8
START = {
    "learning_rate": 2e-3, "d_model": 16, "training__metric": "auto", "random_state": 0,
    "epochs": EPOCHS,
}  # fmt: skip
SETTINGS = RFormerClassifier.settings(TINY | {"training__metric": "auto", "device": "cpu"})


@pytest.fixture(scope="module")
def problem():
    batch = make_sine(24, n_classes=2, length=30)
    return Problem(RFormerClassifier, batch, batch.labels)


@pytest.fixture
def made_up(monkeypatch):
    """Trials whose score ``score(settings, epoch)`` is made up; the settings they had."""
    heard = []

    def install(score):
        def trial(problem, settings, trial):
            heard.append((trial.number, settings))
            for epoch in range(1, EPOCHS + 1):
                now = score(settings, epoch)
                trial.report(now, epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return {"score": now, "scores": {}, "best_epoch": epoch, "epochs": EPOCHS,
                    "weights": 1, "seconds": 0.0}  # fmt: skip

        monkeypatch.setattr(module, "run_trial", trial)
        return heard

    return install


def by_rate(settings, epoch):
    """Better with the rate, and with each epoch."""
    return 1 / settings["learning_rate"] + 1 / epoch


def search_in(where, problem, **more):
    return Search(problem, START | more, SPACE, where)


def begin(search, *, resume=False):
    return search.begin({"seed": 0}, resume=resume)


def parameters(study):
    return [trial.params for trial in begun_trials(study)]


def test_the_first_trial_has_the_settings_as_given(tmp_path, problem, made_up):
    heard = made_up(by_rate)
    search = search_in(tmp_path, problem)
    begin(search)
    search.run(2)
    assert heard[0][1] == START
    assert heard[1][1] != START


def test_the_same_seed_gives_the_same_trials_and_another_one_others(tmp_path, problem, made_up):
    made_up(by_rate)
    found = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / name).mkdir()
        search = search_in(tmp_path / name, problem, random_state=seed)
        begin(search)
        found.append(parameters(search.run(6)))
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_a_trial_that_dies_before_it_takes_its_parameters_keeps_them(tmp_path, problem, made_up):
    heard = made_up(by_rate)
    search = search_in(tmp_path, problem)
    begin(search).ask()  # it runs now, and nothing was suggested yet
    begin(search, resume=True)
    search.run(1)
    assert heard[0][1] == START


def test_a_killed_search_runs_its_trial_again_and_goes_on(tmp_path, problem, made_up):
    class Killed(BaseException):
        """Not an exception that Optuna knows: its trial stays as it was."""

    def dies(settings, epoch):
        if len(heard) == 3 and epoch == 2:
            raise Killed
        return by_rate(settings, epoch)

    heard = made_up(dies)
    search = search_in(tmp_path, problem)
    begin(search)
    with pytest.raises(Killed):
        search.run(5)
    with open(tmp_path / JOURNAL, "ab") as file:
        file.write(b'{"half a line')
    (tmp_path / f"{JOURNAL}.lock").symlink_to("nowhere")  # its writer held the lock
    study = begin(search, resume=True)
    assert len(begun_trials(study)) == 2
    study = search.run(5)
    ended = begun_trials(study)
    assert [t.state.name for t in ended if t.state.name != "PRUNED"].count("FAIL") == 0
    assert len(ended) == 5
    assert heard[3][1] == heard[2][1]  # the one that was running


def test_a_trial_that_kills_its_search_again_and_again_is_given_up(tmp_path, problem, made_up):
    class Killed(BaseException):
        pass

    def dies(settings, epoch):
        raise Killed

    made_up(dies)
    search = search_in(tmp_path, problem)
    begin(search)
    for _ in range(3):
        with pytest.raises(Killed):
            search.run(1)
        study = begin(search, resume=True)
    (given_up,) = begun_trials(study)
    assert "died 3 times" in given_up.user_attrs["failed"]
    assert best_trial(search.run(1)) is None


def test_an_interrupted_trial_is_run_again(tmp_path, problem, made_up):
    def interrupted(settings, epoch):
        if len(heard) == 1:
            raise KeyboardInterrupt
        return by_rate(settings, epoch)

    heard = made_up(interrupted)
    search = search_in(tmp_path, problem)
    begin(search)
    with pytest.raises(KeyboardInterrupt):
        search.run(2)
    begin(search, resume=True)
    assert len(begun_trials(search.run(2))) == 2
    assert heard[1][1] == START


def test_poor_trials_are_pruned_and_good_ones_are_not(tmp_path, problem, made_up):
    made_up(by_rate)
    search = search_in(tmp_path, problem)
    begin(search)
    study = search.run(20)
    states = [t.state.name for t in begun_trials(study)]
    assert states[:4] == ["COMPLETE"] * 4
    assert "PRUNED" in states
    rate = max(t.params["learning_rate"] for t in begun_trials(study))
    assert best_trial(study).params["learning_rate"] == rate


def test_nothing_is_pruned_without_a_pruner(tmp_path, problem, made_up):
    made_up(by_rate)
    search = replace(search_in(tmp_path, problem), pruner="none")
    begin(search)
    assert {t.state.name for t in begun_trials(search.run(12))} == {"COMPLETE"}


def test_a_failed_trial_is_recorded_with_its_reason_and_the_search_goes_on(
    tmp_path, problem, made_up
):
    def odd(settings, epoch):
        if settings["d_model"] == 8:
            raise ValueError("eight is odd")
        return by_rate(settings, epoch)

    made_up(odd)
    search = search_in(tmp_path, problem)
    begin(search)
    study = search.run(8)
    rows = [trial_row(t, SPACE, maximize=False) for t in begun_trials(study)]
    failed = [row for row in rows if row["state"] == "failed"]
    assert failed
    assert {row["failed"] for row in failed} == {"ValueError: eight is odd"}
    assert best_trial(study).params["d_model"] == 16
    lines = as_csv(rows, list(SPACE)).splitlines()
    assert len(lines) == 9
    assert lines[0].endswith("learning_rate,d_model,failed")


def test_a_study_is_not_written_over_nor_mixed(tmp_path, problem, made_up):
    made_up(by_rate)
    search = search_in(tmp_path, problem)
    begin(search)
    with pytest.raises(InputError, match="go on with --resume"):
        begin(search)
    with pytest.raises(InputError, match=r"other settings \(seed: 0, now 1\)"):
        search.begin({"seed": 1}, resume=True)


def test_a_file_that_is_no_journal_is_named(tmp_path, problem):
    (tmp_path / JOURNAL).write_text("no journal\n")
    with pytest.raises(InputError, match="is damaged or not the journal of a search"):
        begin(search_in(tmp_path, problem), resume=True)


class Heard:
    """As much of a trial of Optuna as a training asks for."""

    def __init__(self, stop=False):
        self.scores, self.stop = {}, stop

    def report(self, score, epoch):
        self.scores[epoch] = score

    def should_prune(self):
        return self.stop


def test_a_trial_reports_each_epoch_and_its_result_is_of_the_best(problem):
    trial = Heard()
    found = run_trial(problem, SETTINGS, trial)
    assert list(trial.scores) == [1, 2]
    assert found["score"] == min(trial.scores.values())
    assert found["scores"]["log_loss"] == found["score"]


def test_a_trial_that_is_pruned_stops(problem):
    trial = Heard(stop=True)
    with pytest.raises(optuna.TrialPruned):
        run_trial(problem, SETTINGS, trial)
    assert list(trial.scores) == [1]


def test_a_metric_that_is_not_defined_fails_the_trial(problem):
    one = problem.batch[problem.batch.labels == problem.batch.labels[0]]
    settings = SETTINGS | {"training__metric": "auroc"}
    with pytest.raises(InputError, match="auroc is not defined on the validation part"):
        run_trial(replace(problem, held=(one, one.labels)), settings, Heard())
