"""The console on which commands print."""

from rich.console import Console


class Screen(Console):
    """A console that leaves a closed pipe to `rftlab.studies.console.terminal`, as every other error."""

    def on_broken_pipe(self) -> None:
        """Nobody reads any more."""
        self.quiet = True
        raise BrokenPipeError
