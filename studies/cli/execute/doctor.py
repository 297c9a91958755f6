"""Check the installation for `rftlab dev doctor`, and show where it keeps things."""

import shutil
from pathlib import Path

from rich.console import Console

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import reason
from rftlab.shared.plumbing.jit import CACHE_FOLDER
from rftlab.studies.console.table import Column, Table
from rftlab.studies.data.runs.about import commit, machine, versions
from rftlab.studies.data.runs.runner import available_threads

LITTLE_DISK = 1e9
HOME = Path(__file__).resolve().parents[2]
"""Folder of the packages."""


def examine(console: Console, results: Path) -> list[str]:
    """Print the facts; return the problems, each a line that says what to do."""
    problems = []
    check_path(results)
    place = next(parent for parent in (results.resolve(), *results.resolve().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if free < LITTLE_DISK:
        problems.append(f"only {free / 1e6:.0f} MB free for results in {place}")
    if CACHE_FOLDER is None:
        problems.append(
            "the compile cache cannot be written: every start compiles anew (set NUMBA_CACHE_DIR to a folder that can)"
        )
    table = Table(Column("", style="bold"), "", align="left", show_header=False, padding=(0, 2))
    here = {"commit": commit(), "machine": machine(), "threads": str(available_threads()), "code": str(HOME)}
    room = {"compile cache": _cache(), "free disk": f"{free / 1e9:.1f} GB"}
    for name, value in (here | room | versions()).items():
        table.add(name, value)
    console.print(table)
    for problem in problems:
        console.print(f"problem: {problem}", style="red", markup=False, soft_wrap=True)
    if not problems:
        console.print("no problems found", style="green")
    return problems


def check_path(path: Path) -> None:
    """Raise UserError where a path cannot be followed."""
    try:
        path.stat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        said = reason(error) if isinstance(error, OSError) else str(error)
        raise UserError(f"results = {str(path)!r}: {said}; allowed: a folder, or a new name") from None


def _cache() -> str:
    if CACHE_FOLDER is None:
        return "none"
    size = sum(file.stat().st_size for file in CACHE_FOLDER.rglob("*") if file.is_file())
    return f"{CACHE_FOLDER} ({size / 1e6:.1f} MB)"
