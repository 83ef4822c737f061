"""Write docs/findings.md: the words of docs/_findings.txt, the numbers of results/reproduce/*.json.

python docs/_findings.py
"""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from roughformer_paper.datasets.bidmc import STRIDE
from roughformer_paper.reproduce.heart_rate_page import PAPER, PULSE
from roughformer_paper.reproduce.models import OWN_RDE_TITLE

HERE = Path(__file__).resolve().parent
NOT_RUN = "(not run yet)"


def _reproduced() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_reproduced", HERE / "_reproduced.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Tables:
    """The tables of ``reproduced.md``, cell by cell."""

    def __init__(self) -> None:
        """They are made from the published rows when they are asked for."""
        self.writer = _reproduced()
        self._pages: dict[str, Any] = {}

    def tables(self, name: str) -> list[Any]:
        """Those of one experiment; none if it was not run."""
        if name not in self._pages:
            from roughformer_paper.reproduce import experiment_of

            rows = self.writer.chosen_rows(name).rows
            self._pages[name] = experiment_of(name).show(rows, False).tables if rows else []
        found: list[Any] = self._pages[name]
        return found

    def cell(self, name: str, title: str, row: str, column: str | int) -> str:
        """What stands in the first table whose title begins so, in the row of that name."""
        for table in self.tables(name):
            if not table.title.startswith(title):
                continue
            if isinstance(column, str) and column not in table.columns:
                continue
            at = column if isinstance(column, int) else table.columns.index(column)
            for cells in table.rows:
                if str(cells[0]) == row and cells[at] is not None:
                    return str(self.writer.cell_text(cells[at]))
        return NOT_RUN

    def budget(self, name: str, model: str, protocol: str | None = None) -> str:
        """Seconds of the processor that trainings of a model had, by one protocol or by all."""
        jobs = [row["job"] for row in self.writer.chosen_rows(name).rows]
        jobs = [job for job in jobs if protocol in (None, job.get("protocol"))]
        told = {job.get("options", job)["max_seconds"] for job in jobs if job["model"] == model}
        return " or ".join(f"{seconds:.0f}" for seconds in sorted(told)) or NOT_RUN

    def budget_of_task(self, name: str, task: str) -> str:
        """The same for all trainings on a task."""
        jobs = [row["job"] for row in self.writer.chosen_rows(name).rows]
        told = {job["max_seconds"] for job in jobs if job["task"] == task}
        return " or ".join(f"{seconds:.0f}" for seconds in sorted(told)) or NOT_RUN

    def range_of_rates(self) -> str:
        """The lowest and the highest RMSE of the model of rates on full series, by patient."""
        jobs = {"protocol": "patient", "model": "rformer-rates"}
        found = [
            row["rmse"]["0.0"]
            for row in self.writer.chosen_rows("heart-rate").rows
            if jobs.items() <= row["job"].items()
        ]
        return f"from {min(found):.2f} to {max(found):.2f}" if found else NOT_RUN

    def note(self, name: str, title: str) -> str:
        """What is said below a table, from "Holds" or "Does not hold" on."""
        for table in self.tables(name):
            if table.title.startswith(title):
                found = re.search(r"(Holds|Does not hold).*", table.note)
                return found.group(0) if found else table.note
        return NOT_RUN


MODELS = {
    "rformer": "RFormer", "paper": "RFormer, the paper's choices", "transformer": "Transformer",
    "gru": "GRU", "ode": "ODE-RNN", "cde": "Neural CDE", "rde": "Neural RDE",
    "own_rde": OWN_RDE_TITLE, "ssm": "State space (S5)", "rocket": "ROCKET features + ridge",
}  # fmt: skip


def numbers(t: Tables) -> dict[str, str]:
    """Everything that stands in braces on the page."""
    return {
        "not_run": NOT_RUN.strip("()"),
        **of_efficiency(t),
        **of_theory(t),
        **of_sine(t),
        **of_heart_rate(t),
        **worst_recording(t),
        **steps_of_rde(t, "Sine", "nrde"),
        **steps_of_rde(t, "Heart rate", "nrde_hr"),
        "nrde_hr_budget": t.budget_of_task("nrde-validation", "heart-rate"),
        **search_on(t, "sine", "search"),
        **search_on(t, "heart-rate", "search_hr"),
        **ablations(t),
        **changed(t),
    }


def of_efficiency(t: Tables) -> dict[str, str]:
    """Ratios of epochs, ours and the paper's, and growth with the length of series."""
    beside, ratio = "RFormer beside the Transformer", "Transformer : RFormer"
    found = {}
    for prefix, task in (("sine", "Sine"), ("hr", "Heart rate")):
        full, dropped = f"{task}, full", f"{task}, 50 % dropped"
        found[f"{prefix}_ratio"] = t.cell("efficiency", beside, full, ratio)
        found[f"{prefix}_ratio_dropped"] = t.cell("efficiency", beside, dropped, ratio)
        found[f"{prefix}_ratio_paper"] = t.cell(
            "efficiency", beside, full, "with the paper's choices"
        )
        found[f"paper_{prefix}_ratio"] = t.cell("efficiency", beside, full, "paper")
    for name in ("rformer", "transformer"):
        row = MODELS[name]
        found[f"{name}_growth"] = t.cell("efficiency", "Milliseconds per", row, "grows like")
    timed = "Heart rate: seconds per epoch"
    found["transformer_steps"] = t.cell("efficiency", timed, "Transformer", "steps timed")
    return found


def of_theory(t: Tables) -> dict[str, str]:
    """What is said below the tables of the appendix."""
    titles = {
        "chen": "Chen's relation", "invariance": "Reparametrisation", "dropping": "Points left out",
        "decay": "Factorial decay", "universal": "Universality", "aliasing": "Aliasing",
    }  # fmt: skip
    slices = "windows as half-open slices of samples (the paper's public code)"
    return {
        **{name: t.note("theory", title) for name, title in titles.items()},
        "slices": t.cell("theory", titles["chen"], slices, "300 windows"),
        "above_nyquist": t.cell("theory", titles["aliasing"], "75 %", "series above it"),
    }


def of_sine(t: Tables) -> dict[str, str]:
    """``sine_gru``, ``sine_gru_dropped``, and how long trainings were."""

    def cell(row: str, column: str | int) -> str:
        return t.cell("sine", "Sine, which", row, column)

    found = {"sine_budget": t.budget("sine", "gru")}
    for name, row in {**MODELS, "nn": "1-NN", "periodogram": "periodogram"}.items():
        found[f"sine_{name}"] = cell(row, "full")
        found[f"sine_{name}_dropped"] = cell(row, "dropped")
    epochs, pace = (cell(MODELS["paper"], column) for column in ("epochs", "s / epoch"))
    ran = NOT_RUN not in (epochs, pace) and "-" not in epochs
    found["sine_paper_epochs"] = epochs
    found["sine_paper_seconds"] = f"{int(epochs) * float(pace):.0f}" if ran else NOT_RUN
    found["sine_transformer_epochs"] = cell("Transformer", "epochs")
    found["sine_transformer_epochs_dropped"] = cell("Transformer", 5)
    return found


def of_heart_rate(t: Tables) -> dict[str, str]:
    """``hr_random_gru``, ``hr_patient_gru_dropped``; ``paper_gru``; how long trainings were."""

    def cell(protocol: str, row: str, column: int) -> str:
        return t.cell("heart-rate", f"{protocol.capitalize()} protocol (", row, column)

    rows = {
        **MODELS, "wide": "RFormer, for known patients", "rates": "RFormer, model of rates",
        "mean": "training mean", "own_mean": "patient's mean", "nn": "1-NN on spectra",
        "own_nearest": "patient's nearest window", "periodogram": "periodogram",
        "peaks": "R-peaks", "pulse": PULSE,
    }  # fmt: skip
    trained = "Random protocol: how"
    found = {
        "stride": str(STRIDE),
        "paper_hr": str(PAPER["rformer"][0]),
        "paper_hr_dropped": str(PAPER["rformer"][1]),
        "paper_gru": str(PAPER["gru"][0]),
        "paper_cde": str(PAPER["neural-cde"][0]),
        "hr_budget": t.budget("heart-rate", "gru", "random"),
        "hr_patient_rates_range": t.range_of_rates(),
        "hr_patient_median": cell("patient", rows["rates"], 3),
        "hr_patient_peaks_median": cell("patient", rows["peaks"], 3),
        "wide_pace": t.cell("heart-rate", trained, rows["wide"], "s / epoch"),
        "default_pace": t.cell("heart-rate", trained, rows["rformer"], "s / epoch"),
    }
    for protocol in ("random", "patient"):
        for name, row in rows.items():
            found[f"hr_{protocol}_{name}"] = cell(protocol, row, 1)
            found[f"hr_{protocol}_{name}_dropped"] = cell(protocol, row, 2)
    return found


def ablations(t: Tables) -> dict[str, str]:
    """Validation scores with one option changed: ``cut_sine_depth1`` with signatures alone,
    ``cut_hr_all_spectrum`` with clocks and spectrum but for the change.
    """
    rows = {
        "none": "as chosen", "both": "both views", "local": "local view only",
        "global": "global view only", "raw": "features not scaled", "time": "no time",
        "lag": "a lag", "clocks": "clocks", "no_clocks": "no clocks", "spectrum": "spectrum",
        "no_spectrum": "no spectrum",
        **{f"depth{n}": f"depth {n}" for n in range(1, 5)},
        **{f"windows{n}": f"{n} windows" for n in (10, 25, 150)},
    }  # fmt: skip
    found = {}
    for task, title in (("sine", "Sine"), ("hr", "Heart rate, random protocol")):
        for column, prefix in ((1, f"cut_{task}"), (2, f"cut_{task}_all")):
            for name, row in rows.items():
                cell = t.cell("hyperparameters", f"{title}: one option changed", row, column)
                found[f"{prefix}_{name}"] = cell
    jobs = [row["job"] for row in t.writer.chosen_rows("hyperparameters").rows]
    for name, task in (("sine", "sine"), ("hr", "heart-rate")):
        own = {j["seed"] for j in jobs if (j["part"], j["task"]) == ("ablation", task)}
        found[f"cut_{name}_seeds"] = str(len(own))
    return found


def changed(t: Tables) -> dict[str, str]:
    """Scores of models that meet series sampled otherwise: ``changed_gru_50``, on heart rate
    ``changed_hr_gru_50``, with no points dropped ``_0``, without a channel ``_ppg``.
    """
    found = {"changed_budget": t.budget("robustness", "gru")}
    tested = {"all": "RFormer, trained at all rates", "count": "No learning", **MODELS}
    others = {"quarter": "a quarter of it", "ppg": "no PPG", "ecg": "no ECG"}
    for title, prefix in (
        ("Sine: accuracy", "changed"),
        ("Heart rate, random protocol: RMSE", "changed_hr"),
    ):
        for name, row in tested.items():
            for share in ("full", *(f"{tens}0%" for tens in range(1, 10))):
                cell = t.cell("robustness", f"{title} with points dropped", row, share)
                found[f"{prefix}_{name}_{share.strip('%').replace('full', '0')}"] = cell
            for short, column in others.items():
                cell = t.cell("robustness", f"{title}, sampled otherwise", row, column)
                found[f"{prefix}_{name}_{short}"] = cell
    return found


def worst_recording(t: Tables) -> dict[str, str]:
    """The recording that is hardest to the model of rates, and what is left without it."""
    title = "By patient: recordings"
    table = next((one for one in t.tables("heart-rate") if one.title.startswith(title)), None)
    name = NOT_RUN if table is None else str(table.rows[0][0])
    columns = {
        "rates": "RFormer, model of rates", "peaks": "R-peaks", "mean": "training mean",
        "pulse": PULSE,
    }  # fmt: skip
    found = {"worst": name, **label_of_worst(name)}
    for short, column in columns.items():
        there = table is not None and column in table.columns
        for what, row in (("of", name), ("without", f"all but {name}")):
            cell = t.cell("heart-rate", title, row, column) if there else NOT_RUN
            found[f"{short}_{what}_worst"] = cell
    return found


def label_of_worst(recording: str) -> dict[str, str]:
    """What the monitor said of the window of a recording in which it was furthest from the ECG, and
    the error there alone that would be a root mean squared error of 2 over all recordings.
    """
    rows = json.loads((HERE.parent / "results" / "heart_rate_labels.json").read_text())["rows"]
    own = next((row["worst"] for row in rows if str(row["recording"]) == recording), None)
    found = {"needed_of_worst": f"{2 * len(rows) ** 0.5:.1f}", "label_window": NOT_RUN}
    if own is not None:
        second = own["id"].split(":")[1]
        found["label_window"] = f"from second {int(second)} on"
    for what in ("label", "pulse", "count"):
        found[f"label_{what}"] = NOT_RUN if own is None else f"{own[what]:.0f}"
    return found


def steps_of_rde(t: Tables, task: str, prefix: str) -> dict[str, str]:
    """The best step and depth of Neural RDE on a task and the paper's, and their scores."""
    names = ("best", "score", "paper", "paper_score")
    found = dict.fromkeys((f"{prefix}_{name}" for name in names), NOT_RUN)
    for table in t.tables("nrde-validation"):
        if not table.title.startswith(task):
            continue
        chosen = re.findall(r"step (\d+), depth (\d+)", table.note)
        scores = {(str(row[0]), str(row[1])): str(row[2]) for row in table.rows}
        for name, case in zip(("best", "paper"), chosen, strict=True):
            found[f"{prefix}_{name}"] = f"step {case[0]}, depth {case[1]}"
        found[f"{prefix}_score"] = scores.get(chosen[0], NOT_RUN)
        found[f"{prefix}_paper_score"] = scores.get(chosen[1], NOT_RUN)
    return found


def search_on(t: Tables, task: str, prefix: str) -> dict[str, str]:
    """What the search on validation chose for signatures alone, and how good the paper's choice is
    there: as it is, and at the learning rate of our default.
    """
    names = ("chosen", "score", "paper", "faster", "trials", "budget")
    found = dict.fromkeys((f"{prefix}_{name}" for name in names), NOT_RUN)
    trials = {
        row["job"]["trial"]: row
        for row in t.writer.chosen_rows("hyperparameters").rows
        if row["job"]["part"] == "search"
        and (row["job"]["task"], row["job"]["tokens"]) == (task, "signatures")
    }
    if not {0, 1} <= set(trials):
        return found
    best = min(trials.values(), key=lambda row: row["loss"] or float("inf"))
    own = best["parameters"]
    found[f"{prefix}_chosen"] = (
        f"{own['windows']} windows, depth {own['depth']}, views: {own['views']}, learning rate "
        f"{own['learning_rate']:.1e}"
    )
    digits = 3 if task == "sine" else 2
    for name, row in (("score", best), ("paper", trials[0]), ("faster", trials[1])):
        found[f"{prefix}_{name}"] = f"{row['score']:.{digits}f}"
    options = best["job"]["options"]
    found[f"{prefix}_budget"] = (
        f"{options['epochs']} epochs and {options['max_seconds']:.0f} s of the processor"
    )
    return found | {f"{prefix}_trials": str(len(trials))}


# What the words claim -> what the numbers must say. A number that no longer supports its sentence
# stops the page from being written (and the test that compares it).
CLAIMS = {
    "It is faster, by more than the paper says.": "sine_ratio > paper_sine_ratio "
    "and hr_ratio > paper_hr_ratio and sine_ratio_dropped > 1 and hr_ratio_dropped > 1",
    "It keeps working when half of the points go.": "sine_rformer_dropped > 0.95 * sine_rformer "
    "and sine_paper_dropped > max(sine_gru_dropped, sine_ode_dropped, sine_cde_dropped, "
    "sine_rde_dropped)",
    "is about as good as the paper's choices": "abs(sine_ssm_dropped - sine_paper_dropped) < 0.05",
    "ours is ahead of both": "sine_rformer_dropped > max(sine_ssm_dropped, sine_paper_dropped)",
    "It learns faster than the Transformer": "sine_paper > sine_transformer "
    "and sine_paper_dropped > sine_transformer_dropped",
    "It learns more from the same time.": "max(hr_random_rformer, hr_random_paper) < "
    "min(hr_random_gru, hr_random_cde, hr_random_rde, hr_random_ssm, hr_random_ode, "
    "hr_random_transformer)",
    "The baselines lose what they had learnt": "changed_ssm_50 < 0.5 * changed_ssm_0 "
    "and changed_gru_50 < 0.5 * changed_gru_0 and changed_ode_50 < 0.5 * changed_ode_0",
    "dropping points in training costs nothing": "changed_hr_all_0 <= changed_hr_rformer_0",
    "its signatures alone": "changed_hr_paper_80 < changed_hr_rformer_80 "
    "and changed_hr_paper_90 < changed_hr_rformer_90",
    "loses much:": "min(changed_hr_rformer_ppg, changed_hr_rformer_ecg) > 3 * changed_hr_rformer_0",
    "is ahead without PPG": "changed_hr_count_ppg < changed_hr_rformer_ppg",
    "most of the gap is the": "search_faster - search_paper > search_score - search_faster",
    "the local view carries it": "cut_sine_local > cut_sine_global and cut_hr_none < cut_hr_global "
    "and abs(cut_sine_none - cut_sine_local) < 0.05 and abs(cut_hr_both - cut_hr_none) < 0.1",
    "The spectrum gives most": "cut_sine_spectrum > cut_sine_all_no_spectrum "
    "and cut_hr_spectrum < min(cut_hr_lag, cut_hr_none, cut_hr_all_no_spectrum)",
    "and 25 do better in the same time": "max(cut_hr_all_windows10, cut_hr_all_windows25) "
    "< cut_hr_all_none",
    "depends on what an epoch may cost": "nrde_score > nrde_paper_score "
    "and nrde_hr_score < nrde_hr_paper_score",
    "Ours are slow and not blind": "hr_random_gru < 0.8 * hr_random_mean "
    "and hr_random_ode < hr_random_mean",
    "ahead of Neural CDE": "min(sine_gru, sine_ode) > max(sine_cde, sine_rde)",
    "The sine task is easy.": "min(sine_nn, sine_nn_dropped, sine_periodogram, sine_rocket) > 0.99",
    "The random split of heart rates leaks.": "hr_random_own_nearest < 0.5 "
    "and hr_patient_nn > 10 * hr_random_nn",
    "it is not first there": "hr_patient_rformer > hr_patient_rocket",
    "comes near to counting beats": "min(hr_patient_rformer, hr_patient_rocket, hr_patient_rde, "
    "hr_patient_own_rde) > 1.5 * hr_patient_peaks",
    "counting is ahead": "peaks_without_worst < rates_without_worst",
    "counting is worse": "peaks_of_worst > rates_of_worst",
    "agree about as well with each other": "abs(hr_patient_pulse - hr_patient_rates) < 0.5",
}  # fmt: skip


def check_claims(words: str, found: dict[str, str]) -> None:
    """Raise ``ValueError`` for the first claim that is not in the words or not in the numbers."""
    values = {name: re.search(r"-?\d+(\.\d+)?", text) for name, text in found.items()}
    numbers = {name: float(value.group()) for name, value in values.items() if value}
    for claim, condition in CLAIMS.items():
        if claim not in words:
            raise ValueError(f"_findings.txt no longer says {claim!r}: change CLAIMS, too")
        if not eval(condition, {}, numbers):
            used = {
                name: found[name] for name in re.findall(r"[a-z_]\w+", condition) if name in found
            }
            raise ValueError(f"the numbers no longer support {claim!r}: {condition}, but {used}")


def page() -> str:
    """The text of docs/findings.md, whose claims are checked first."""
    words, found = (HERE / "_findings.txt").read_text(), numbers(Tables())
    check_claims(words, found)
    return words.format(**found)


if __name__ == "__main__":
    (HERE / "findings.md").write_text(page())
