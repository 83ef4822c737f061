"""``roughformer export``."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roughformer.cli import common as options
from roughformer.cli.common import option

if TYPE_CHECKING:
    from roughformer.export import Exported


class Format(StrEnum):
    """Files that a model can be exported to."""

    onnx = "onnx"
    torch = "torch"


class Dtype(StrEnum):
    """Types of the input ``values``."""

    float32 = "float32"
    float64 = "float64"


@options.grouped
def export(
    run: options.Run,
    table: options.TableOptions,
    format: Annotated[
        Format, option("onnx, or torch: a torch.export program (.pt2).")
    ] = Format.onnx,
    out: Annotated[
        Path | None,
        option(
            "File to write (default: model.onnx or model.pt2); the step graph is written "
            "beside it, as model.step.onnx, and to each what its numbers mean, as model.onnx.json."
        ),
    ] = None,
    step: Annotated[
        bool | None,
        option(
            "Also the step graph for streams: state in, state out (default: if the model is "
            "causal)."
        ),
    ] = None,
    max_windows: Annotated[
        int, option("Of a stream, if the model was trained with context=None.", min=1)
    ] = 1024,
    dtype: Annotated[Dtype, option("Of the input values.")] = Dtype.float64,
    data: Annotated[
        Path | None, option("Series to compare graph and model on (default: synthetic ones).")
    ] = None,
    force: Annotated[bool, option("Replace files that are there.", "--force")] = False,
    threads: options.Threads = None,
) -> None:
    """Write a model as ONE graph: raw padded samples (values, times, lengths) -> predictions.

    A causal model is also written as a step graph, which takes in the points of streams as they
    come: state in, state out. The graph of a forecaster also takes the times that are asked for.

    Before a graph is written it is run in onnxruntime (or torch) on sizes it was not traced with,
    and compared with the model; one that differs by more than 1e-5 is not written.

    It takes from ten seconds to a minute. ONNX needs the extra 'export' of the package.
    """
    suffix = ".onnx" if format is Format.onnx else ".pt2"
    path = out or Path(f"model{suffix}")
    if path.suffix != suffix:
        raise typer.BadParameter(
            f"a file of format {format.value} is called ...{suffix}, got {path.name!r}",
            param_hint="--out",
        )
    step_path = path.with_name(f"{path.stem}.step{suffix}")
    options.check_place(path, "--out")
    files = [path, step_path] if step is not False else [path]
    options.check_free(
        [f for file in files for f in (file, file.with_name(f"{file.name}.json"))], force
    )

    from roughformer.errors import InputError
    from roughformer.export import export_model, export_step, why_no_step
    from roughformer.inference import ForecastPredictor
    from roughformer.runs import is_forecaster, load_model, read_data, read_for
    from roughformer.util.checks import using_threads

    if is_forecaster(run):
        if step:
            raise InputError("--step: a forecaster has no step graph; it takes whole series")
        batch = None if data is None else read_data(data, table.columns()).batch
        with using_threads(threads):
            done = export_model(
                ForecastPredictor.load(run), path, format=format.value, dtype=dtype.value,
                data=batch,
            )  # fmt: skip
        _report(done)
        return
    estimator = load_model(run, threads)
    predictor = estimator.predictor_
    reason = why_no_step(predictor)
    if step and reason is not None:
        raise InputError(f"--step: {reason}; leave --step out to export the whole graph only")
    batch = None
    if data is not None:
        batch = read_for(estimator, data, table.columns()).batch
    with using_threads(threads):
        done = export_model(predictor, path, format=format.value, dtype=dtype.value, data=batch)
        _report(done)
        if step is False:
            return
        if reason is not None:
            options.say(f"no step graph: {reason}")
            return
        done = export_step(
            predictor, step_path, format=format.value, dtype=dtype.value, data=batch,
            max_windows=max_windows,
        )  # fmt: skip
        _report(done)


def _report(done: "Exported") -> None:
    """The differences on stdout, one line for each output."""
    for name, gap in done.differences.items():
        typer.echo(
            f"{done.path.name}: {name} differs from the model by at most {gap:.2g} on "
            f"{done.n_series} series"
        )
    options.say(f"wrote {done.path} and {done.about_path}")
