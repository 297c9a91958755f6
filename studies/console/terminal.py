"""The surroundings of a command: errors as one line, interrupts, closed pipes, terminals of any width and encoding."""

import contextlib
import errno
import io
import os
import re
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reason

BAD_INPUT, INTERRUPTED, CLOSED = 2, 130, 141
"""Exit statuses of bad input, an interrupt and a closed pipe. The last two are those that a shell shows of a command
that SIGINT or SIGPIPE ended."""
NO_MEMORY = ("cannot allocate memory", "failed to map segment", "can't start new thread", "out of memory")
"""Messages of packages that report a lack of memory without a MemoryError."""
MIN_ROOM = 2 * 10**9
"""Bytes of address space below which a compiler or a thread may end the process with no chance to say so."""
NARROWEST = 20
"""Fewest columns that a terminal is taken to have: in fewer, tables and help cannot be laid out, or not in an hour."""
_SIZE = re.compile(r"[1-9][0-9]{0,3}")
_SOON = 0.05
"""Seconds until an interrupt that could not be raised is sent again."""
_interrupted = threading.Event()
_FRAME = str.maketrans("", "", "╭╮╰╯│─")
"""The frame that tyro draws around an error; where a terminal lacks these signs it is |, + and -."""
_ASIDE, _MEANT = "Argument helptext:", "Perhaps you meant:"


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Raise a UserError in the place of an error that tyro, parsing a command line inside this context, prints before
    it exits. The exit after `--help` stays as it is."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as end:
        if end.code:
            raise UserError(flat(said.getvalue())) from None
        sys.stderr.write(said.getvalue())
        raise


def flat(box: str) -> str:
    """Return the parts of a framed text of tyro in one line, separated by "; " and without the title. Suggested flags
    keep only their names."""
    parts = [""]
    for line in box.splitlines()[1:]:
        text = line.translate(_FRAME).strip("| ")
        suggests = parts[-1].startswith(f" {_MEANT}")
        if not text.strip("-+"):
            parts.append("")
        elif not suggests or text.startswith("--"):  # a flag's help stands below the flag
            parts[-1] += f", {text}" if suggests and not parts[-1].endswith(":") else f" {text}"
    return "; ".join(part.removeprefix(f" {_ASIDE}").strip(" .") for part in parts if part)


def prepare_streams() -> None:
    """Prepare the process's streams, width and reaction to Ctrl-C for a command. Call it before anything else."""
    _open_streams()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # one ? for one character, so columns stay
    for name in ("COLUMNS", "LINES"):
        if not _SIZE.fullmatch(os.environ.get(name, "80")):
            del os.environ[name]
    if int(os.environ.get("COLUMNS") or _columns()) < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _hear)
        sys.unraisablehook = _send_again


def _open_streams() -> None:
    """Open standard streams that the caller closed on the null device. Otherwise the next file that is opened would get
    the number of a closed stream, and with it what is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for number, name in enumerate(("stdout", "stderr"), 1):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))


def _columns() -> int:
    """Return the width of the terminal in columns; NARROWEST where there is no terminal or it tells none."""
    for number in range(3):
        with contextlib.suppress(OSError):
            return os.get_terminal_size(number).columns or NARROWEST
    return NARROWEST


def _hear(number: int, frame) -> None:
    """Handle SIGINT: raise KeyboardInterrupt and note it, because a package may catch the exception or rename it."""
    _interrupted.set()
    raise KeyboardInterrupt


def _send_again(lost) -> None:
    """Send an interrupt again that came where no exception can be raised, such as in a finalizer. Python would print
    and forget it."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        return sys.__unraisablehook__(lost)
    again = threading.Timer(_SOON, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def guarded(work: Callable[[], int]) -> int:
    """Run a command and return its exit status. An exception meant for a user becomes one line on standard error."""
    try:
        status = work()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _interrupt()
    except SystemExit as end:
        return _flushed(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except Exception as error:
        if _interrupted.is_set():
            return _interrupt()
        if isinstance(error, BrokenPipeError) and _reader_gone():
            return CLOSED
        line = _line_of(error)
        if line is None:
            raise
        say_error(line)
        return BAD_INPUT


def _flushed(status: int) -> int:
    """Return the status of a command after writing what is left of its output; CLOSED where nobody reads it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return CLOSED
    return status


def _interrupt() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say_error("interrupted; finished runs are kept, run the same command again to go on")
    return INTERRUPTED


def _line_of(error: Exception) -> str | None:
    """Return the message of an exception that is meant for a user; None for one that is a defect of rftlab."""
    text = str(error)
    if (
        isinstance(error, MemoryError)
        or any(words in text.lower() for words in NO_MEMORY)
        or getattr(error, "errno", None) == errno.ENOMEM
    ):
        return f"not enough memory: {text or 'allowed: a smaller problem, or a higher limit (ulimit -v)'}"
    if isinstance(error, OSError):
        return f"{error.filename or 'standard output, or a file without a name'}: {reason(error)}"
    return text if isinstance(error, UserError) else None


def say_error(text: str) -> None:
    """Print a line on standard error. A character that could move the cursor or break the line is shown as its code."""
    plain = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    red, end = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"{red}rftlab: {plain}{end}", file=sys.stderr, flush=True)


def check_room() -> None:
    """Raise UserError where the process may use too little memory (`ulimit -v`) to load and compile what a command
    runs."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    enough = limit == resource.RLIM_INFINITY or limit >= MIN_ROOM
    check(
        enough,
        f"not enough memory: the limit on address space (ulimit -v) is {limit / 1e9:.2g} GB; allowed: "
        f"{MIN_ROOM / 1e9:g} GB or more, or none",
    )


def _reader_gone() -> bool:
    """Whether nobody reads standard output any more."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def give_up(line: str) -> None:
    """End the process at once with an error, from any thread, where a computation hangs and cannot be stopped."""
    if sys.stdout.isatty():
        print("\033[?25h", end="", flush=True)  # a progress bar hides the cursor
    say_error(f"{line}; finished runs are kept, and a language model goes on from its last checkpoint")
    os._exit(BAD_INPUT)


def end_process(status: int) -> None:
    """End the process with a status. After an interrupt or a closed pipe it waits for nothing: neither for threads in
    compiled code nor for output that nobody reads."""
    if status in (INTERRUPTED, CLOSED):
        os._exit(status)
    try:
        sys.stdout.flush()
    except OSError:  # printed already; Python 3.14 would print it again and exit with another status
        os._exit(status)
    sys.exit(status)
