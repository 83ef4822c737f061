"""One self-contained HTML page about a run: nothing is loaded from elsewhere, all is escaped."""

import base64
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from roughformer.errors import InputError
from roughformer.util.atomic import write_file

_PIXELS_PER_INCH = 96  # of a browser; pictures have twice as many, for sharp screens
_NOT_PRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    facts: Mapping[str, Any],
    metrics: Mapping[str, Mapping[str, float]],
    figures: Sequence[tuple[str, Any]],
    config: Mapping[str, Any],
    notes: Sequence[str] = (),
    command: str | None = None,
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]], str]] = (),
) -> Path:
    """Write a report as one HTML page that needs no other file.

    What is empty has no section. The same input gives the same bytes, and a reader never finds
    half a page.

    Parameters
    ----------
    path : path
        File to write; in a directory it is ``report.html``.
    title : str
        Heading of the page.
    facts : mapping
        Name to value.
    metrics : mapping
        Row to column to number.
    figures : sequence of (str, Figure)
        Captions and figures of matplotlib, kept as PNG inside the page.
    config : mapping
        Anything that prints as JSON.
    notes : sequence of str, default ()
        Paragraphs.
    command : str, optional
        The line that makes the run again.
    tables : sequence of (str, columns, rows, str), default ()
        Title, columns, rows and note of each table beyond the metrics.

    Returns
    -------
    Path
        Where the page is.
    """
    target = Path(path)
    if target.is_dir():
        target = target / "report.html"
    columns = list(dict.fromkeys(name for row in metrics.values() for name in row))
    results = [[name, *(row.get(column) for column in columns)] for name, row in metrics.items()]
    settings = json.dumps(config, indent=2, ensure_ascii=False, default=str) if config else ""
    page = _template().render(
        title=title,
        tables=[*([("Results", ["", *columns], results, "")] if columns else []), *tables],
        facts=facts,
        notes=notes,
        figures=[_figure(*pair) for pair in figures],
        command=command,
        config=settings,
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, page.encode())
    except OSError as error:
        raise InputError(
            f"cannot write the report {os.fspath(target)!r} ({error.strerror or error}); choose "
            "another place"
        ) from error
    return target


def _template() -> Any:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters |= {
        "text": _text,
        "value": _value,
        "slug": lambda title: re.sub("[^a-z0-9]+", "-", title.lower()).strip("-"),
    }
    return environment.from_string((files("roughformer") / "report.html.jinja").read_text("utf-8"))


def _text(value: Any) -> str:
    return _NOT_PRINTABLE.sub("\ufffd", str(value))


def _value(value: Any) -> str:
    """Numbers to four digits, thousands parted; None is a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real):
        number = float(value)
        return f"{number:,.0f}" if 1e4 <= abs(number) < 1e12 else f"{number:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value) or "none"
    return _text(value)


def _figure(caption: str, figure: Any) -> dict[str, Any]:
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format="png",
        dpi=2 * _PIXELS_PER_INCH,
        facecolor="white",
        metadata={"Software": None},
    )
    width, height = (round(_PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return {"caption": caption, "data": data, "width": width, "height": height}
