"""`rftlab doctor`: is this installation sound, and where does it keep things?"""

import importlib.util
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared.jit import CACHE_FOLDER
from studies.about import commit, machine, versions
from studies.runner import available_threads

OURS = ("shared", "sim", "studies")
HOME = Path(__file__).resolve().parent.parent
LITTLE_DISK = 1e9


def shadowed() -> list[str]:
    """A line for each of our packages whose name another folder on the import path also bears."""
    problems = []
    for name in OURS:
        found = importlib.util.find_spec(name)
        origin = Path(found.origin).resolve().parent if found and found.origin else None
        if origin != HOME / name:
            problems.append(f"package `{name}` is imported from {origin}, not from {HOME / name}: uninstall what brought it, or use a fresh environment")
        for entry in dict.fromkeys(Path(item or ".").resolve() for item in sys.path):
            if entry != HOME and ((entry / name / "__init__.py").exists() or (entry / f"{name}.py").exists()):
                problems.append(f"another package `{name}` lies in {entry}: it can be imported instead of ours")
    return problems


def examine(console: Console, results: Path) -> list[str]:
    """Print the facts; return the problems, each a line that says what to do."""
    problems = shadowed()
    place = next(parent for parent in (results.resolve(), *results.resolve().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if free < LITTLE_DISK:
        problems.append(f"only {free / 1e6:.0f} MB free for results in {place}")
    if CACHE_FOLDER is None:
        problems.append("the compile cache cannot be written: every start compiles anew (set NUMBA_CACHE_DIR to a folder that can)")
    table = Table(show_header=False, box=None, padding=(0, 2))
    here = {"commit": commit(), "machine": machine(), "threads": str(available_threads()), "code": str(HOME)}
    room = {"compile cache": _cache(), "free disk": f"{free / 1e9:.1f} GB"}
    for name, value in (here | room | versions()).items():
        table.add_row(f"[bold]{name}", value)
    console.print(table)
    for problem in problems:
        console.print(f"problem: {problem}", style="red", markup=False)
    if not problems:
        console.print("no problems found", style="green")
    return problems


def _cache() -> str:
    if CACHE_FOLDER is None:
        return "none"
    size = sum(file.stat().st_size for file in CACHE_FOLDER.rglob("*") if file.is_file())
    return f"{CACHE_FOLDER} ({size / 1e6:.1f} MB)"
