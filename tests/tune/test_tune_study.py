"""Studies: the same seed, kills, pruning, failures; no model is trained here."""

import json

import pytest
from tuning import EPOCHS, Killed, MadeUp, by_rate, study_in

from roughformer.errors import InputError
from roughformer.tune import Choice, Ended, Space, search
from roughformer.tune.study import JOURNAL, as_csv, rows_of, summary_line

TRIALS = 12


def searched(where, score=by_rate, trials=TRIALS, **more):
    study = study_in(where, **more)
    search(study, MadeUp(score), {"metric": "loss"}, trials)
    return study


def found(study):
    return [(row["state"], row["score"], row["parameters"], row["curve"]) for row in rows_of(study)]


def test_the_first_trial_has_the_settings_as_given(tmp_path):
    study = searched(tmp_path, trials=1)
    assert study.values(0) == {"learning_rate": 2e-3, "d_model": 16}


def test_the_same_seed_gives_the_same_trials_and_another_one_others(tmp_path):
    first = searched(tmp_path / "a")
    assert found(searched(tmp_path / "b")) == found(first)
    assert found(searched(tmp_path / "c", seed=1)) != found(first)


@pytest.mark.parametrize("events", [0, 1, 5, 9, 10, 23, 40])
def test_a_killed_search_ends_as_if_it_had_not_been(tmp_path, events):
    whole = found(searched(tmp_path / "whole"))
    with pytest.raises(Killed):
        search(study_in(tmp_path / "a"), MadeUp(by_rate, dies_after=events), {}, TRIALS)
    study = study_in(tmp_path / "a", resume=True)
    search(study, MadeUp(by_rate), {}, TRIALS)
    assert found(study) == whole


def test_a_line_that_was_half_written_is_cut_off(tmp_path):
    whole = found(searched(tmp_path / "whole"))
    journal = tmp_path / "a" / JOURNAL
    searched(tmp_path / "a", trials=TRIALS // 2)
    with open(journal, "ab") as file:
        file.write(b'{"op_code":4,"worker_id":"x"')
    (tmp_path / "a" / f"{JOURNAL}.lock").symlink_to("nowhere")  # its writer held the lock
    study = study_in(tmp_path / "a", resume=True)
    assert b'"worker_id":"x"' not in journal.read_bytes()
    search(study, MadeUp(by_rate), {}, TRIALS)
    assert found(study) == whole


def test_a_journal_cut_anywhere_still_opens(tmp_path):
    """As a kill in the middle of any write leaves it."""
    searched(tmp_path / "whole", trials=2)
    whole = (tmp_path / "whole" / JOURNAL).read_bytes()
    for end in range(0, len(whole), max(len(whole) // 40, 1)):
        where = tmp_path / str(end)
        where.mkdir()
        (where / JOURNAL).write_bytes(whole[:end])
        study = study_in(where, resume=True)
        search(study, MadeUp(by_rate), {}, 2)
        assert [row["state"] for row in rows_of(study)] == ["complete", "complete"]


def test_more_trials_go_further_and_none_are_repeated(tmp_path):
    searched(tmp_path, trials=3)
    study = study_in(tmp_path, resume=True)
    engine = MadeUp(by_rate)
    search(study, engine, {}, 5)
    assert engine.started == [3, 4]
    assert engine.closed


def test_poor_trials_are_pruned_and_good_ones_are_not(tmp_path):
    rates = Space(learning_rate=Choice((1e-3, 1e-1)), d_model=Choice(tuple(range(8, 40))))
    study = searched(tmp_path, space=rates, trials=30)
    rows = rows_of(study)
    poor = [r for r in rows if r["parameters"]["learning_rate"] == 1e-3]
    good = [r for r in rows if r["parameters"]["learning_rate"] == 1e-1]
    assert any(r["state"] == "pruned" for r in poor)
    assert all(r["state"] == "complete" for r in good)
    for row in rows:
        if row["state"] == "pruned":
            assert len(row["curve"]) < EPOCHS
            assert row["trial"] != study.best.number
    first = next(r["trial"] for r in rows if r["state"] == "pruned")
    assert first >= 4  # there must be something to compare with


def test_nothing_is_pruned_without_a_pruner(tmp_path):
    rows = rows_of(searched(tmp_path, pruner="none", trials=20))
    assert {row["state"] for row in rows} == {"complete"}


def test_hyperband_prunes(tmp_path):
    rows = rows_of(searched(tmp_path, pruner="hyperband", trials=30))
    assert {row["state"] for row in rows} == {"complete", "pruned"}


def test_a_failed_trial_is_recorded_with_its_reason_and_the_search_goes_on(tmp_path):
    def breaks(settings, epoch):
        if settings["d_model"] == 16:
            raise ValueError("sixteen is too many")
        return by_rate(settings, epoch)

    study = searched(tmp_path, breaks)
    rows = rows_of(study)
    assert len(rows) == TRIALS
    assert {r["failed"] for r in rows if r["state"] == "failed"} == {"sixteen is too many"}
    assert study.values(study.best.number)["d_model"] == 8
    assert summary_line(rows[0], "loss") == "trial 0 failed: sixteen is too many"


def test_where_all_trials_fail_there_is_no_best(tmp_path):
    def breaks(settings, epoch):
        raise ValueError("no")

    assert searched(tmp_path, breaks, trials=3).best is None


def test_a_trial_that_kills_its_search_again_and_again_is_given_up(tmp_path):
    for attempt in range(3):
        with pytest.raises(Killed):
            search(study_in(tmp_path, resume=attempt > 0), MadeUp(by_rate, dies_after=2), {}, 2)
    study = study_in(tmp_path, resume=True)
    search(study, MadeUp(by_rate), {}, 2)
    assert [row["state"] for row in rows_of(study)] == ["failed", "complete"]
    assert rows_of(study)[0]["failed"] == "its search died 3 times while it ran"


def test_trials_at_a_time_are_all_ended(tmp_path):
    study = study_in(tmp_path)
    search(study, MadeUp(by_rate, slots=3), {}, TRIALS)
    assert len(study) == TRIALS
    assert study.unfinished() == []


def test_higher_is_better_where_it_is(tmp_path):
    study = searched(tmp_path, lambda s, e: s["learning_rate"], maximize=True, pruner="none")
    assert study.best.value == max(row["score"] for row in rows_of(study))


def test_a_score_that_is_no_number_is_not_reported(tmp_path):
    study = study_in(tmp_path)
    number = study.ask()
    assert not study.report(number, 1, float("nan"))
    study.end(Ended(number, failed="nan"))
    assert rows_of(study)[0]["curve"] == {}


def test_a_study_is_not_written_over(tmp_path):
    searched(tmp_path, trials=1)
    with pytest.raises(InputError, match="holds a search; go on with --resume"):
        study_in(tmp_path)


def test_a_study_of_another_configuration_is_refused_by_what_differs(tmp_path):
    study_in(tmp_path, configuration={"settings": {"epochs": "60"}, "metric": "loss"})
    with pytest.raises(InputError, match=r'other settings \(settings.epochs: "60", now "8"\)'):
        study_in(
            tmp_path, resume=True, configuration={"settings": {"epochs": "8"}, "metric": "loss"}
        )


def test_a_file_that_is_no_journal_is_named(tmp_path):
    (tmp_path / JOURNAL).write_text("hello\nworld\n")
    with pytest.raises(InputError, match="damaged or not the journal"):
        study_in(tmp_path, resume=True)


def test_trials_as_csv_have_a_column_for_each_parameter(tmp_path):
    rows = rows_of(searched(tmp_path, trials=2))
    lines = as_csv(rows, ["learning_rate", "d_model"]).splitlines()
    assert lines[0].endswith("weights,learning_rate,d_model,failed")
    assert lines[1].startswith("0,complete,")
    assert len(lines) == 3
    json.dumps(rows)
