"""What tests do to the processes that they start, and what these do."""

import multiprocessing
import os
import signal


def hear_interrupts() -> None:
    """For `preexec_fn`: tests that run side by side ignore Ctrl-C, and a process inherits that; one from a terminal
    does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def tell_variable(connection, name):
    """The work of a process that tells a variable of its environment, and how it was started."""
    connection.send((os.environ.get(name), type(multiprocessing.current_process()).__name__))
