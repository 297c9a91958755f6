"""A user's own importer: a function in a file of theirs. Naming it on the command line is what allows that file to
be run."""

import importlib.util
from pathlib import Path
from typing import Any

from rftlab.shared.plumbing.errors import blaming, check
from rftlab.studies.readers.read import Reader
from rftlab.studies.readers.run import RawRun


def load_reader(named: str) -> Reader:
    """The function FILE.py:FUNCTION. Raises UserError where there is none."""
    place, _, name = named.rpartition(":")
    path = Path(place)
    check(
        path.suffix == ".py" and path.is_file() and name.isidentifier(),
        f"reader = {named!r}; allowed: FILE.py:FUNCTION, a function in a file that exists",
    )
    spec = importlib.util.spec_from_file_location(f"rftlab_reader_{path.stem}", path)
    assert spec and spec.loader  # there are for any file named .py
    module = importlib.util.module_from_spec(spec)
    with blaming(f"{path} cannot be imported: "):
        spec.loader.exec_module(module)
    found: Any = getattr(module, name, None)
    check(
        callable(found),
        f"{path} has no function {name}; allowed: "
        f"{', '.join(n for n in vars(module) if callable(getattr(module, n)))[:200] or 'none'}",
    )

    def read(path: Path) -> RawRun | list[RawRun]:
        with blaming(f"reader {named} on {path}: "):
            runs = found(path)
        listed = runs if isinstance(runs, list) else [runs]
        check(
            all(isinstance(run, RawRun) for run in listed),
            f"reader {named} on {path}: it returns {type(runs).__name__}; allowed: a RawRun, or a list of them",
        )
        return runs

    return read
