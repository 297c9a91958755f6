"""The documentation site: `make docs` builds it into build/docs, from these pages and the docstrings, without a
network."""

import os
import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import scipy.stats  # noqa: F401  before a stand-in for torch is there, which it would look into
from sphinx.ext.autodoc.mock import _MockObject

os.environ["NUMBA_DISABLE_JIT"] = "1"  # docstrings are read from plain functions, and nothing is compiled
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

project = "rftlab"
author = "The rftlab developers"
copyright = "the rftlab developers, MIT licence"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
templates_path = ["templates"]
exclude_patterns = ["templates"]
html_theme = "furo"
html_title = "rftlab"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 4
nb_execution_mode = "off"  # tests execute notebooks, and compare with what is kept in them
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries = False  # every page would copy them all for its sidebar, which takes two thirds of a build
suppress_warnings = ["ref.python"]  # a type that two modules have, named in the signature of a third
autodoc_mock_imports = [
    "torch",
    "transformers",
    "huggingface_hub",
    "safetensors",
    "tokenizers",
    "datasets",
    "math_verify",
    "peft",
    "prime_rl",
    "slime",
    "tensorboard",
    "wandb",
    "trl",
    "verl",
    "vllm",
    "nicegui",
    "fastapi",
    "uvicorn",
]

# `torch.Tensor | None` is evaluated where a module is read
_MockObject.__or__ = _MockObject.__ror__ = lambda self, other: Any

ROLE = re.compile(r"(`[^`]+`)")
BOLD = re.compile(r"(\*\*[^*]+\*\*)")
COLUMNS = re.compile(r"\S {2,}\S")
SIDEBARS: dict[tuple, str] = {}
"""Sidebars by the page, or the package of a module, and the options of the theme."""


def _prose(line: str) -> str:
    """A line of a docstring for Sphinx: names between backticks are code, ** is bold, all else is as it stands."""
    parts = [part for piece in ROLE.split(line) for part in ([piece] if piece.startswith("`") else BOLD.split(piece))]
    return "".join(map(_part, parts))


def _part(part: str) -> str:
    if part.startswith("`"):
        return f"``{part.strip('`').strip()}``"
    return part if part.startswith("**") else re.sub(r"([*_|\\`])", r"\\\1", part)


def plain(app, what, name, obj, options, lines: list[str]) -> None:
    """Docstrings are plain text: paragraphs, and blocks that are indented or set in columns, which stay as they are."""
    if lines and lines[0].startswith("Alias for field number"):  # what a NamedTuple says where we say nothing
        lines.clear()
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    found: list[str] = []
    for paragraph in filter(str.strip, paragraphs):
        rows = paragraph.split("\n")
        if rows[0].startswith(" ") or (len(rows) > 1 and any(COLUMNS.search(row) for row in rows)):
            found += ["::", "", *(f"    {row}" for row in rows), ""]
        elif any(row.startswith(" ") for row in rows):
            first = next(place for place, row in enumerate(rows) if row.startswith(" "))
            found += [*map(_prose, rows[:first]), "", "::", "", *(f"    {row}" for row in rows[first:]), ""]
        else:
            found += [*map(_prose, rows), ""]
    lines[:] = found


def signature(app, what, name, obj, options, arguments: str, returns: str) -> tuple[str, str | None] | None:
    """None for classes of data: their fields follow, with types and defaults."""
    of_data = is_dataclass(obj) or hasattr(obj, "_fields")
    return ("", None) if what == "class" and of_data else None


def shallow(app, pagename, templatename, context, doctree) -> None:
    """The sidebar ends above the five hundred modules: each page would copy all their names."""
    if "toctree" in context:
        # modules below a package have the same one, which takes a quarter of a build to make for each
        whole, parts = context["toctree"], pagename.split(".")

        def tree(**options) -> str:
            place = (*parts[:2], len(parts) > 2, *sorted(options.items()))
            if place not in SIDEBARS:
                SIDEBARS[place] = whole(**options | {"maxdepth": 2})
            return SIDEBARS[place]

        context["toctree"] = tree


def link_from_site(app, name: str, source: list[str]) -> None:
    """Notebooks lie in examples/, where their links go by docs/."""
    if name.startswith("notebooks/"):
        source[0] = source[0].replace("](../docs/", "](../")


def list_for_assistants(app, failure) -> None:
    """Write llms.txt (llmstxt.org): a line for each page, from the README's first sentences and the pages' titles."""
    if failure is None and app.builder.format == "html":
        about = Path(__file__).parent.parent.joinpath("README.md").read_text().split("\n\n")[1].replace("\n", " ")
        names = [name for name in app.env.titles if not name.startswith("reference/modules/")]
        pages = [f"- [{app.env.titles[name].astext()}]({name}.html)" for name in sorted(names)]
        Path(app.outdir, "llms.txt").write_text("\n".join(["# rftlab", "", f"> {about}", "", *pages, ""]))


def setup(app) -> None:
    """Hooks of this site."""
    app.connect("source-read", link_from_site)
    app.connect("build-finished", list_for_assistants)
    app.connect("html-page-context", shallow, priority=400)  # before the theme's
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-process-signature", signature)
