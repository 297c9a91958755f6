"""Collect the facts that are recorded beside results: commit, versions and machine of one run or of many."""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.points import RunSpec

PACKAGES = (
    "rftlab",
    "numpy",
    "scipy",
    "numba",
    "llvmlite",
    "pandas",
    "pyarrow",
    "seaborn",
    "matplotlib",
    "tyro",
    "rich",
    "jinja2",
)


@cache
def commit() -> str:
    """Return the commit of the running checkout, with + where files differ from it; `unknown` outside a checkout."""
    here = Path(__file__).resolve().parents[3]
    try:
        head = subprocess.run(
            ["git", "-C", here, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "-C", here, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages in use; `missing` where one is not installed."""
    known = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "missing"
    return known


def machine() -> str:
    """Return the operating system and processor architecture."""
    return f"{platform.system()} {platform.machine()}"


UNKNOWN = "unknown"


def provenance(root: Path, points: list[RunSpec]) -> dict[str, str]:
    """Return commit, run time and versions of finished runs by name; where runs differ, every value that occurs. Raises
    store.DamagedPoint."""
    done = [facts for point in points if (facts := store.read_facts(root, point))]
    versions = [facts["versions"] for facts in done]
    facts_by_name = {"commit": [facts["commit"] for facts in done]}
    facts_by_name |= {
        name: [of_run.get(name, UNKNOWN) for of_run in versions]
        for name in dict.fromkeys(name for of_run in versions for name in of_run)
    }
    listed = {name: "; ".join(dict.fromkeys(values)) for name, values in facts_by_name.items()}
    seconds = sum(facts["seconds"] for facts in done)
    return {"commit": listed.pop("commit"), "run time": f"{seconds:.1f} s, the sum over {len(done)} runs"} | listed
