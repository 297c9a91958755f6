"""What tyro says of a wrong command line, as one line: it draws a frame around several."""

import contextlib
import io
import sys
from collections.abc import Iterator

from rftlab.shared.plumbing.errors import UserError

_FRAME = str.maketrans("", "", "╭╮╰╯│─")
"""Of a terminal that has these; elsewhere it is |, + and -."""
_ASIDE = "Argument helptext:"


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Raise UserError where what runs inside prints an error and ends with a status; `--help` goes on as it is."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as end:
        if end.code:
            raise UserError(flat(said.getvalue())) from None
        sys.stderr.write(said.getvalue())
        raise


def flat(box: str) -> str:
    """The parts of a framed text, without its title, behind each other."""
    parts = [""]
    for line in box.splitlines()[1:]:
        text = line.translate(_FRAME).strip("| ")
        if text.strip("-+"):
            parts[-1] += f" {text}"
        else:
            parts.append("")
    return "; ".join(part.removeprefix(f" {_ASIDE}").strip(" .") for part in parts if part)
