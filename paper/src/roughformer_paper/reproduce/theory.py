"""The paper's appendix, and its claims about sampling, as experiments without a trained model.

Each part is one claim: a job or a few, a table with a verdict, mostly a figure.
"""

from pathlib import Path

from roughformer_paper.reproduce import (
    theory_aliasing,
    theory_chen,
    theory_decay,
    theory_invariance,
    theory_reconstruction,
    theory_universal,
)
from roughformer_paper.reproduce.experiment import Experiment, Job, Page, Row, Wishes
from roughformer_paper.reproduce.theory_common import Part

__all__ = ["EXPERIMENT"]

_PARTS: dict[str, Part] = {
    module.PART.name: module.PART
    for module in (
        theory_decay,
        theory_universal,
        theory_invariance,
        theory_chen,
        theory_reconstruction,
        theory_aliasing,
    )
}
_SEEDS = {"tiny": 1, "quick": 1, "full": 3}


def _jobs(wishes: Wishes) -> list[Job]:
    """All jobs of the parts asked for (``models``), each for every seed."""
    return [
        {"part": name, **case, "seed": seed}
        for name, part in _PARTS.items()
        if wishes.models is None or name in wishes.models
        for case in part.cases[wishes.preset]
        for seed in range(wishes.seeds or _SEEDS[wishes.preset])
    ]


def _run(job: Job, where: Path) -> Row:
    return _PARTS[job["part"]].run(job)


def _show(rows: list[Row], figures: bool) -> Page:
    """The pages of the parts, one after the other."""
    pages = []
    for name, part in _PARTS.items():
        own = [row for row in rows if row["job"]["part"] == name]
        if own:
            pages.append(part.show(own, figures))
    return Page(
        tables=[table for page in pages for table in page.tables],
        figures=[figure for page in pages for figure in page.figures],
        notes=[note for page in pages for note in page.notes],
    )


EXPERIMENT = Experiment(
    name="theory",
    title="What the appendix says about signatures, measured",
    about=(
        "Factorial decay, universality, reparametrisation, Chen's relation, reconstruction by "
        "depth and windows, and the footnote on aliasing. Nothing is trained beyond ridge "
        "regression; its penalty is chosen on validation paths, errors are those of test paths."
    ),
    jobs=_jobs,
    run=_run,
    show=_show,
    models=tuple(_PARTS),
)
