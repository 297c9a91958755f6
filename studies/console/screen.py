"""The console on which commands print."""

from typing import Any

from rich.console import Console


class Screen(Console):
    """A console that leaves a closed pipe to `rftlab.studies.console.terminal`, as every other error. It is a terminal
    only where lines can be drawn again: FORCE_COLOR, which notebooks set, gives a pipe colours, but no bars."""

    _colours_known = False

    def __init__(self, **settings: Any):
        super().__init__(**{"emoji": False} | settings)
        self._colours_known = True

    @property
    def is_terminal(self) -> bool:
        """Whether bars may move. What rich asks before colours are known is about these."""
        return super().is_terminal and (not self._colours_known or self.file.isatty())

    def on_broken_pipe(self) -> None:
        """Nobody reads any more."""
        self.quiet = True
        raise BrokenPipeError
