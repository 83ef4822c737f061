"""One self-contained HTML page about a run: nothing is loaded from elsewhere, all is escaped."""

import base64
import html
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from roughformer.atomic import write_file
from roughformer.errors import InputError

__all__ = ["write_report"]

_PIXELS_PER_INCH = 96  # of a browser; pictures have twice as many, for sharp screens
_NOT_PRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

# The policy is a second lock: even a mistake in the escaping could not run or load anything.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{sections}
</main>
<footer>Written by roughformer.</footer>
</body>
</html>
"""

_STYLE = """
:root { --ink: #1d2126; --soft: #5b626b; --line: #dfe3e8; --paper: #ffffff; --card: #f5f7f9;
  --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7eaee; --soft: #a3abb5; --line: #343a42; --paper: #15181c; --card: #1e2227;
    --accent: #56b4e9; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main, footer { max-width: 60rem; margin: 0 auto; padding: 0 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 2.2rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .7rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; }
thead th { color: var(--soft); font-weight: 600; font-size: .88rem; vertical-align: bottom; }
tbody th { font-weight: 600; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .7rem;
  margin: 0; }
dl div { background: var(--card); border-radius: .5rem; padding: .6rem .8rem; min-width: 0; }
dt { color: var(--soft); font-size: .84rem; }
dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
figure { margin: 1.2rem 0 2rem; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff;
  border: 1px solid var(--line); border-radius: .5rem; padding: .4rem; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .45rem; }
pre { background: var(--card); border-radius: .5rem; padding: .8rem 1rem; overflow-x: auto;
  font: .86rem/1.5 ui-monospace, "Liberation Mono", monospace; margin: .7rem 0; }
summary { cursor: pointer; color: var(--accent); }
footer { color: var(--soft); font-size: .84rem; padding-top: 2rem; padding-bottom: 2rem; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr 1fr; } h1 { font-size: 1.5rem; } }
@media print { details > pre { white-space: pre-wrap; } figure { break-inside: avoid; } }
"""


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
    sections = [
        _metrics(metrics),
        *(_table_section(*table) for table in tables),
        _facts(facts),
        _notes(notes),
        _figures(figures),
        _command(command),
        _config(config),
    ]
    page = _PAGE.format(
        title=_text(title), style=_STYLE, sections="\n".join(filter(None, sections))
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


def _text(value: Any) -> str:
    """Any value as text that HTML takes for text."""
    return html.escape(_NOT_PRINTABLE.sub("\ufffd", str(value)), quote=True)


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


def _section(title: str, inside: str) -> str:
    name = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
    return (
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{_text(title)}</h2>\n{inside}\n'
        "</section>"
    )


def _metrics(metrics: Mapping[str, Mapping[str, float]]) -> str:
    columns = list(dict.fromkeys(name for row in metrics.values() for name in row))
    if not columns:
        return ""
    rows = [[name, *(row.get(column) for column in columns)] for name, row in metrics.items()]
    return _section("Results", _table(["", *columns], rows))


def _table_section(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str
) -> str:
    told = f"\n<p>{_text(note)}</p>" if note else ""
    return _section(title, _table(columns, rows) + told)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The first cell of a row is its heading."""
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in columns)
    lines = "\n".join(
        f'<tr><th scope="row">{_value(first)}</th>'
        + "".join(f"<td>{_value(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody>\n</table></div>"
    )


def _facts(facts: Mapping[str, Any]) -> str:
    if not facts:
        return ""
    cells = (f"<div><dt>{_text(k)}</dt><dd>{_value(v)}</dd></div>" for k, v in facts.items())
    return _section("Facts", "<dl>\n" + "\n".join(cells) + "\n</dl>")


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return _section(
        "Notes", "<ul>\n" + "\n".join(f"<li>{_text(n)}</li>" for n in notes) + "\n</ul>"
    )


def _figures(figures: Sequence[tuple[str, Any]]) -> str:
    if not figures:
        return ""
    return _section("Figures", "\n".join(_figure(*pair) for pair in figures))


def _figure(caption: str, figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format="png",
        dpi=2 * _PIXELS_PER_INCH,
        facecolor="white",
        metadata={"Software": None},
    )
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    width, height = (round(_PIXELS_PER_INCH * inches) for inches in figure.get_size_inches())
    return (
        f'<figure>\n<img src="data:image/png;base64,{data}" alt="{_text(caption)}" '
        f'width="{width}" height="{height}">\n<figcaption>{_text(caption)}</figcaption>\n</figure>'
    )


def _command(command: str | None) -> str:
    if not command:
        return ""
    return _section("Make it again", f"<pre><code>{_text(command)}</code></pre>")


def _config(config: Mapping[str, Any]) -> str:
    if not config:
        return ""
    text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
    inside = f"<details>\n<summary>All settings</summary>\n<pre><code>{_text(text)}</code></pre>"
    return _section("Configuration", inside + "\n</details>")
