"""A project of its own, beside the checkout: a new environment that has rftlab from its wheel.

The wheel is built from a copy of what git tracks for it, since setuptools takes into a wheel what an older build left
in `build/`. All other packages come from the environment that runs the tests, so nothing is downloaded.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("rftlab", "shared", "sim", "llm", "studies", "pyproject.toml", "README.md", "LICENSE")
PAGES = {"04-your-own-estimator": (), "08-own-task": ("torch", "transformers"), "09-in-trl": ("trl",), "10-in-verl": ()}
"""Pages that run in a project of their own, and what they need beside the core."""
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
PROGRAM = """
import sys
from pathlib import Path

import rftlab

root, page = map(Path, sys.argv[1:])
sys.path.append(str(root / "tests" / "support" / "docs"))
import pages

pages.OWN_PROCESS.add("rftlab")
pages.COMMAND["rftlab"] = [str(Path(sys.executable).with_name("rftlab"))]
ran = pages.run_page(page.read_text(), Path.cwd())
files = [Path(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
ours = [path for path in files if path.is_relative_to(root) and "site-packages" not in path.parts]
print(rftlab.__file__, ran, *[path for path in ours if path.stem != "pages"], sep="\\n")
"""
"""Runs a page where it is started; prints where rftlab lies, how many blocks ran, and modules of the checkout. An
environment that lies in the checkout, as `.venv` does, is no part of it."""


def _run(command: list, folder: Path, **more: str) -> str:
    """What a command prints, without the paths that lead back into the checkout. Raises AssertionError if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-6000:]}"
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, in a folder. The build backend is the environment's own."""
    copy = folder / "source"
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    _run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy], folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, *more: Path) -> Path:
    """Python of a new environment. It sees the packages of the one that runs the tests, but not what that one's .pth
    files add, an editable rftlab among them; and the folders that are named."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "packages.pth").write_text("\n".join([*packages, *map(str, more)]) + "\n")
    return folder / "bin" / "python"


def install(wheel: Path, folder: Path) -> Path:
    """Python of a new environment that has the wheel."""
    python = environment(folder)
    _run([*PIP, "--python", python, "install", "--no-deps", "--no-index", "--ignore-installed", wheel], folder)
    return python


def run_page_with(python: Path, page: Path, folder: Path, warnings: str = "error") -> int:
    """Run a page in a folder with an environment's Python and its `rftlab`; returns how many blocks ran. Raises
    AssertionError where something else is printed, or where anything came from the checkout."""
    printed = _run([python, "-P", "-W", warnings, "-c", PROGRAM, ROOT, page], folder)
    where, ran, *ours = printed.splitlines()
    assert Path(where).is_relative_to(python.parents[1]) and not ours, f"not from the wheel: {where} {ours}"
    return int(ran)
