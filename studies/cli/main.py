"""The console command `rftlab`. It imports the rest of rftlab only where an interrupt is handled."""

import sys

from rftlab.studies.console.terminal import end_process, give_up, guarded, prepare_streams


def main() -> None:
    """Run the console command and end the process."""
    prepare_streams()
    end_process(guarded(_status))


def _status() -> int:
    from rftlab.shared.custom.slow import on_hang
    from rftlab.studies.cli.commands import run

    on_hang(give_up)
    return run(sys.argv[1:])


if __name__ == "__main__":
    main()
