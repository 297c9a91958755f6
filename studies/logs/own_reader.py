"""A user's own importer: a function in a file of theirs. Naming it on the command line is what allows that file to
be run."""

import importlib.util
from pathlib import Path
from typing import Any

from rftlab.shared.errors import UserError, check
from rftlab.studies.logs.read import Reader


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
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        raise UserError(
            f"{path} raises {type(error).__name__}: {error}; allowed: a file that can be imported"
        ) from None
    found: Any = getattr(module, name, None)
    check(
        callable(found),
        f"{path} has no function {name}; allowed: "
        f"{', '.join(n for n in vars(module) if callable(getattr(module, n)))[:200] or 'none'}",
    )
    return found
