"""Notebooks of examples/: what they say, and what their cells print when they are executed anew.

python -m tests.support.docs.notebooks        # execute them, and keep what they print
"""

import json
import os
import re
import sys
import tempfile
from pathlib import Path

from tests.support.estimators.vectors import ROOT

NOTEBOOKS = ROOT / "examples"
SHELL = "%%sh\n"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MAX_SECONDS = 300
PICTURES = "module://matplotlib_inline.backend_inline"


def notebooks() -> list[Path]:
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def cells_of(path: Path) -> list[dict]:
    """The cells of a notebook as its file has them."""
    return json.loads(path.read_text())["cells"]


def page_of(path: Path) -> str:
    """A notebook as a page: its text, its code in fenced blocks."""
    return "\n\n".join(_text_of(cell) for cell in cells_of(path))


def _text_of(cell: dict) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    language = "sh" if source.startswith(SHELL) else "python"
    return f"```{language}\n{source.removeprefix(SHELL)}\n```"


def printed_of(cell: dict) -> list[str]:
    """What a cell of code shows, in order: its texts, the richest form of its values, and that there is a picture."""
    return [_shown(output) for output in cell.get("outputs", [])]


def _shown(output: dict) -> str:
    if output["output_type"] == "stream":
        return "".join(output["text"])
    kind = _richest(output["data"])
    return kind if kind == "image/png" else "".join(output["data"][kind])


def _richest(data: dict) -> str:
    return next(kind for kind in ("image/png", "text/html", "text/plain") if kind in data)


def differences(kept: list[dict], made: list[dict]) -> list[str]:
    """Cells that show something else than before, each with both."""
    pairs = zip(kept, made, strict=True)
    return [
        f"cell {number}\n--- kept\n{printed_of(old)}\n--- printed\n{printed_of(new)}"
        for number, (old, new) in enumerate(pairs, start=1)
        if printed_of(old) != printed_of(new)
    ]


def executed(path: Path, folder: Path) -> dict:
    """A notebook, executed in a folder by a kernel of its own, as its file would have it. Raises nbclient's
    CellExecutionError where a cell fails."""
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as name:  # sockets: their paths have to be short
        client = NotebookClient(
            book,
            config=Config(KernelManager={"transport": "ipc", "connection_file": f"{name}/kernel.json"}),
            timeout=MAX_SECONDS,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env=_environment(folder))
    return without_noise(json.loads(nbformat.writes(book)))


def _environment(folder: Path) -> dict[str, str]:
    """Of a kernel: this Python's commands first, tables of one width, no settings of the user's."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"COLUMNS": "80", "IPYTHONDIR": str(folder / ".ipython"), "MPLBACKEND": PICTURES}
    return os.environ | {"PATH": path} | own


def without_noise(book: dict) -> dict:
    """As it is kept: no times, no colours, and nothing of standard error, which tells of compiling."""
    for cell in book["cells"]:
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            cell["outputs"] = [output for output in cell["outputs"] if output.get("name") != "stderr"]
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                output["text"] = COLOUR.sub("", "".join(output["text"])).splitlines(keepends=True)
            elif "data" in output:  # the others of a curve have its times
                kind = _richest(output["data"])
                output["data"] = {kind: output["data"][kind]}
    language, kernel = {"name": "python"}, {"name": "python3", "display_name": "Python 3", "language": "python"}
    return book | {"metadata": {"kernelspec": kernel, "language_info": language}}


def main() -> None:
    """Execute each notebook, and keep what it prints."""
    for path in notebooks():
        with tempfile.TemporaryDirectory() as name:
            book = executed(path, Path(name))
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n")
        print(path.name, len(book["cells"]), "cells")


if __name__ == "__main__":
    main()
