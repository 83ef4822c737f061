"""Sphinx configuration."""

import inspect
from operator import attrgetter

import roughformer
from roughformer import __version__

project = "roughformer"
author = "The roughformer developers"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"roughformer {release}"
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# A type of a parameter ("times") may fit several attributes; a function cannot be cached.
suppress_warnings = ["myst.xref_missing", "ref.python", "config.cache"]


def own_members(name: str) -> list[str]:
    """Name the public methods of a class that it has from us, not from scikit-learn or torch."""
    cls = attrgetter(name.removeprefix("roughformer."))(roughformer)
    return [
        member
        for base in cls.__mro__
        if base.__module__.startswith("roughformer")
        for member, value in vars(base).items()
        if not member.startswith("_") and not member.endswith("_request")
        if inspect.getdoc(getattr(cls, member, None))
        if callable(getattr(cls, member)) or isinstance(value, property)
    ]


autosummary_context = {"own_members": own_members}
autosummary_ignore_module_all = False
html_static_path = ["_static"]
html_css_files = ["style.css"]
