"""The console command: `rftlab --help`. It imports the rest of us where an interrupt is heard."""

import sys

from rftlab.studies.console.terminal import end_process, give_up, guarded, prepare_streams


def main() -> None:
    """Entry point of the console command."""
    prepare_streams()
    end_process(guarded(_status))


def _status() -> int:
    from rftlab.shared.custom.slow import on_hang
    from rftlab.studies.cli.commands import run

    on_hang(give_up)
    return run(sys.argv[1:])


if __name__ == "__main__":
    main()
