"""Read Jupyter notebooks: the training that their cells show, and the arguments in their code.

In a notebook transformers shows a table with a row a logging step, as HTML in the output of the cell. Plain TRL has the
loss in it alone, Unsloth has all metrics, with spaces around the slashes of their names ("completions / mean_length").
Other cells print dictionaries or lines, as a console does. Each row becomes such a dictionary, and a cell with rewards
is a run. No code of a notebook is run. Source: transformers/utils/notebook.py (5.19), and unsloth/models/rl.py for the
names.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import json_object, read_json
from rftlab.studies.readers.designs.script import parse_python, python_settings
from rftlab.studies.readers.formats.printed import add_lines, is_score
from rftlab.studies.readers.formats.trl_console import read_printed
from rftlab.studies.readers.names import translate_metric
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, read_number

NOTEBOOK = "Jupyter notebook"
LARGEST, LONGEST_CODE = 64 << 20, 1 << 18
_BEGINS = re.compile(r"\s*\{\s*\"(?:cells|metadata|nbformat)\"")
_CELL, _TAG = re.compile(r"<t[hd]\b[^<>]*>"), re.compile(r"<[^<>]*>")
_MAGIC = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)
"""Line for the shell or for Jupyter, which stands where a statement may."""
_LOSSES = {"Training Loss": "loss", "Validation Loss": "eval_loss"}


def is_notebook(head: Head) -> bool:
    """Whether a file begins as a notebook, which holds cells."""
    return _BEGINS.match(head.text) is not None and '"cell_type"' in head.text


def read_notebook(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Return a run for each cell that shows a training with rewards. Raises UserError where none does."""
    path = head.path
    size = path.stat().st_size
    check(size <= LARGEST, f"{path} has {size} bytes; allowed: a notebook of at most {LARGEST}")
    try:
        notebook = read_json(path.resolve(), json_object)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {str(error)[:200]}; allowed: a whole notebook") from None
    cells = _objects(notebook.get("cells"))
    config = _arguments(cells)
    shown: list[RawRun] = []
    for number, cell in enumerate(cells, start=1):
        lines = [line for output in _objects(cell.get("outputs")) for line in _lines(output)]
        run = RawRun(f"{path.stem} cell {number}", NOTEBOOK, tool="trl", place=f"cell {number}, line")
        run.config, run.whole = config, False
        other = replace(run, tool="", series={}, notes=[])
        read_printed(run, enumerate(lines, start=1), path)
        if not any(map(_of_reward, run.series)):
            run = add_lines(other, enumerate(lines, start=1))
        if any(_of_reward(name) or (is_score(name) and not run.tool) for name in run.series):
            shown.append(run)
    rewarded = [run for run in shown if any(map(_of_reward, run.series))]
    # lines that a cell prints beside what a trainer shows are those of an episode
    shown = [run for run in rewarded if run.tool] or rewarded or shown
    check(
        bool(shown),
        f"{path} shows no rewards, for transformers' table has the loss alone and Unsloth's all metrics; allowed: one "
        "that shows them, or the trainer's output folder, where trainer_state.json has all that was logged",
    )
    if len(shown) == 1:
        shown[0].name = path.stem
    return shown


def _of_reward(name: str) -> bool:
    """Whether a metric describes responses that were rewarded, unlike rewards/chosen of a training on preferences."""
    known = translate_metric(name)
    return name.startswith("completion") or (known is not None and "reward" in known.metric + name.lower())


def _objects(value: Any) -> list[dict]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(parts: Any) -> str:
    """Return a text that a notebook may hold as a list of lines."""
    return "".join(map(str, parts)) if isinstance(parts, list) else parts if isinstance(parts, str) else ""


def _lines(output: dict) -> Iterator[str]:
    """Yield the lines of a cell's output; a table with steps gives a dictionary for each row."""
    data = output.get("data")
    data = data if isinstance(data, dict) else {}
    rows = [[_words(cell) for cell in _CELL.split(row)[1:]] for row in _text(data.get("text/html")).split("<tr")]
    rows = [row for row in rows if row]
    if rows and rows[0][0] == "Step":
        names = [_LOSSES.get(name, name.replace(" / ", "/")) for name in rows[0]]
        for row in rows[1:]:
            values = {name: cell for name, cell in zip(names, row, strict=False) if read_number(cell) is not None}
            values["step"] = values.pop("Step", "")
            yield str(values)
        return
    yield from (_text(output.get("text")) or _text(data.get("text/plain"))).splitlines()


def _words(cell: str) -> str:
    """Return the text of a cell of a table, from what follows its tag."""
    return html.unescape(_TAG.sub("", cell.partition("</t")[0])).strip().replace("'", "")


def _arguments(cells: list[dict]) -> dict[str, Any] | None:
    """Return the arguments in the code; None where there are none. Cells that are no Python are passed over."""
    parts = [_MAGIC.sub(r"\1pass", _text(cell.get("source"))) for cell in cells if cell.get("cell_type") == "code"]
    if sum(map(len, parts)) > LONGEST_CODE:
        return None
    return python_settings("\n".join(filter(_is_python, parts))) or None


def _is_python(text: str) -> bool:
    try:
        return bool(parse_python(text).body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
