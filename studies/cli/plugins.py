"""`--plugins FILE`, which every command takes: estimators of the user's, before flags that name them are read."""

from pathlib import Path

from rftlab.shared.custom.plugins import name_plugins
from rftlab.shared.plumbing.errors import check

FLAG = "--plugins"


def without_plugins(arguments: list[str]) -> list[str]:
    """The arguments without the flag; what it names is read. It may come several times."""
    left, paths, waiting = [], [], False
    for argument in arguments:
        if waiting or argument.startswith(f"{FLAG}="):
            paths.append(Path(argument.removeprefix(f"{FLAG}=")))
            waiting = False
        elif argument == FLAG:
            waiting = True
        else:
            left.append(argument)
    check(not waiting, f"{FLAG} names no file; allowed: a Python file with estimators of your own")
    name_plugins(paths)
    return left
