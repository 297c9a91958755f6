"""Whether our packages are the ones that get imported. Needs the standard library alone, because it runs before anything of ours is imported."""

import importlib.util
import sys
from pathlib import Path

OURS = ("shared", "sim", "llm", "studies")
HOME = Path(__file__).resolve().parent.parent


def hidden() -> list[str]:
    """A line for each of our packages in whose place another one is imported."""
    lines = []
    for name in OURS:
        found = importlib.util.find_spec(name)
        origin = Path(found.origin).resolve().parent if found and found.origin else None
        if origin != HOME / name:
            lines.append(f"package `{name}` is imported from {origin}, not from {HOME / name}: uninstall what brought it, or use a fresh environment")
    return lines


def rivals() -> list[str]:
    """A line for each folder on the import path, other than ours, with a package or module of one of our names."""
    folders = [folder for folder in dict.fromkeys(Path(entry or ".").resolve() for entry in sys.path) if folder != HOME]
    found = [(name, folder) for name in OURS for folder in folders if (folder / name / "__init__.py").exists() or (folder / f"{name}.py").exists()]
    return [f"another package `{name}` lies in {folder}: it can be imported instead of ours" for name, folder in found]
