"""The console command: `rftlab --help`. It imports the rest of us where it is sure to be ours, and where an interrupt is heard."""

import sys

from studies.shadow import hidden
from studies.terminal import guarded, leave, prepare


def main() -> None:
    """Entry point of the console command; another package in the place of one of ours is a line and status 2, a problem that `rftlab doctor` finds status 1."""
    prepare()
    leave(guarded(lambda: _status(sys.argv[1:])))


def _status(arguments: list[str]) -> int:
    lines = hidden()
    if lines:
        diagnosed = arguments[:1] == ["doctor"]
        for line in lines:
            print(f"problem: {line}" if diagnosed else f"rftlab: {line}", file=sys.stdout if diagnosed else sys.stderr)
        return 1 if diagnosed else 2
    from studies.cli_commands import run

    return run(arguments)


if __name__ == "__main__":
    main()
