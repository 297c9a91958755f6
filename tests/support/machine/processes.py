"""What tests do to the processes that they start."""

import signal


def hear_interrupts() -> None:
    """For `preexec_fn`: tests that run side by side ignore Ctrl-C, and a process inherits that; one from a terminal
    does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
