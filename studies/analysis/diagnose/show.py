"""A diagnosis for the terminal. Texts of logs are printed as they are, never as markup."""

import unicodedata

from rich.console import Console

from rftlab.studies.analysis.diagnose.finding import Diagnosis
from rftlab.studies.console.table import say


def show(console: Console, said: Diagnosis) -> None:
    """One line first, then findings, the gravest first, then what could not be judged."""
    _say(console, said.verdict)
    for found in said.findings:
        _say(console, "")
        _say(console, f"{found.severity}: {found.kind}: {found.what}")
        for sentence in found.evidence:
            _say(console, f"  seen       {sentence}")
        _say(console, f"  threshold  {found.threshold}")
        _say(console, f"  try        {found.advice}")
    for title, rows in (("nothing found", said.clear), ("could not be judged", said.unjudged)):
        if rows:
            _say(console, "")
            _say(console, title)
        for row in rows:
            _say(console, f"  {row}" if isinstance(row, str) else f"  {row.kind}: needs {row.needs}")


def _say(console: Console, text: str) -> None:
    plain = "".join(c if unicodedata.category(c)[0] != "C" else ascii(c)[1:-1] for c in text)
    say(console, plain)
