"""Facts about a run that are recorded beside its results: commit, versions, machine."""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
    """Commit of the checkout that runs, with + where files differ from it; `unknown` outside a checkout."""
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
    """Versions of Python and of the packages in use; `missing` where one is not installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def machine() -> str:
    """Operating system and processor architecture."""
    return f"{platform.system()} {platform.machine()}"
