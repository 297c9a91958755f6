"""The command as a process: encodings, widths, closed pipes, interrupts while it starts, limits on memory, the line
where code is compiled."""

import errno
import fcntl
import gc
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import termios
import time
from types import SimpleNamespace

import pytest

from rftlab.shared.plumbing.jit import Announcer
from rftlab.studies.console import terminal
from rftlab.studies.data.runs.runner import workers
from tests.support.estimators.vectors import ROOT
from tests.support.machine.processes import hear_interrupts

COMMAND = [sys.executable, "-m", "rftlab.studies.cli.main"]
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
PARSED = (*(f"{command}--help" for command in ("", "run ", "run cell --level llm ", "suite ", "train ", "pilot ")),
          "nonsense", "run cell --rollouts 0", "reproduce --seeds 0")  # fmt: skip


ENDING = "from rftlab.studies.console.terminal import end_process, guarded"


def rftlab(*arguments, **changes):
    return subprocess.run([*COMMAND, *arguments], timeout=1200, env=os.environ | changes, **PIPES)


def python(code, environment=None, **options):
    """A program in a process of its own, with these changes of the environment."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, timeout=1200, env=os.environ | (environment or {}), **PIPES | options)


@pytest.fixture
def closed():
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as file:
        yield file


@pytest.fixture
def prepared(monkeypatch):
    """`terminal.prepare_streams` in this process, whose reaction to Ctrl-C is put back."""
    heard, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    yield terminal.prepare_streams
    signal.signal(signal.SIGINT, heard)
    sys.unraisablehook = hook


def test_a_command_line_is_parsed_without_heavy_packages():
    heavy = ("numba", "pandas", "scipy", "seaborn", "matplotlib", "pyarrow", "torch", "transformers")
    code = f"""
import sys
from rftlab.studies.cli.commands import run
from rftlab.studies.console.terminal import guarded
for line in {PARSED!r}:
    guarded(lambda: run(line.split()))
    print(line, [name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
    done = python(code)
    assert [line for line in done.stderr.splitlines() if line[-1:] == "]"] == [f"{line} []" for line in PARSED]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_encoding_will_do(encoding):
    code = """
import sys
from rftlab.studies.cli.commands import run
from rftlab.studies.console.terminal import guarded, prepare_streams
prepare_streams()
for line in ("estimators", "estimators gspo", "theory T1", "--help"):
    status = guarded(lambda: run(line.split()))
    print("status", status)
"""
    done = python(code, {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C"})
    parts = done.stdout.split("status 0\n")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert len(parts) == 5 and all(len(part) > 100 for part in parts[:4])


def test_a_pipe_that_wants_colours_gets_no_bars():
    """Notebooks set FORCE_COLOR: a bar would be printed line below line."""
    done = rftlab("theory", "T1", FORCE_COLOR="1", TERM="xterm-color")
    assert done.returncode == 0 and re.search(r"\x1b\[[0-9;]*m", done.stdout)
    assert not re.search(r"\x1b\[[0-9;?]*[A-Za-ln-z]", done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("width", "taken"), [*((none, None) for none in ("0", "-1", "", "²", "wide", "9" * 30)), ("1", "20"), ("19", "20")]
)
def test_a_width_that_is_none_is_not_set_and_one_for_nothing_is_taken_for_more(width, taken, prepared, monkeypatch):
    """With five columns and fewer, `--help` had no end."""
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(terminal, "_columns", lambda: 80)
    prepared()
    assert os.environ.get("COLUMNS") == taken


def test_a_narrow_terminal_is_taken_for_a_little_more():
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 5, 0, 0))
    plain = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with os.fdopen(reader), os.fdopen(writer) as narrow:
        done = subprocess.run([*COMMAND, "run", "--help"], stdin=narrow, timeout=1200, env=plain, **PIPES)
    assert done.returncode == 0 and done.stdout == rftlab("run", "--help", COLUMNS="20").stdout


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_streams_that_the_caller_closed_are_not_missed(closed):
    """Nor do files that the command opens get their numbers."""
    close = lambda: [os.close(number) for number in closed]  # noqa: E731
    done = subprocess.run([*COMMAND, "estimators", "grpo"], preexec_fn=close, timeout=1200, **PIPES)
    assert (done.returncode, done.stderr, len(done.stdout) > 100) == (0, "", 1 not in closed)


@pytest.mark.parametrize("command", ["run --help", "estimators"])
def test_a_closed_pipe_is_a_quiet_end(command, closed):
    done = subprocess.run([*COMMAND, *command.split()], timeout=1200, **PIPES | {"stdout": closed})
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_output_is_named():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "estimators"], **PIPES | {"stdout": full})
    line = "rftlab: standard output, or a file without a name: the disk is full\n"
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.parametrize("end", ["0", "sys.exit(0)"])
def test_a_few_words_into_a_closed_pipe_are_a_quiet_end(end, closed):
    """They wait in a buffer until the end."""
    code = f"import sys; {ENDING}; end_process(guarded(lambda: (print('few'), {end})[1]))"
    done = python(code, {"PYTHONUNBUFFERED": ""}, stdout=closed)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("delay", [0.15, 0.8, 3.0])
def test_an_interrupt_of_the_start_is_one_line(delay, tmp_path):
    """While it imports and compiles, into an empty cache: not at a certain place, but no place may answer with a
    traceback."""
    cold = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [*COMMAND, "run", "cell", "--quiet", "--results", str(tmp_path / "results")]
    begin = "from rftlab.studies.cli.main import main; print('ready', flush=True); main()"
    waiting = f"import sys; sys.argv = {['rftlab', *command[3:]]!r}; {begin}"
    process = subprocess.Popen([sys.executable, "-c", waiting], env=cold, preexec_fn=hear_interrupts, **PIPES)
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=1200)
    said = [line for line in errors.splitlines() if "rftlab: compiling" not in line]
    assert process.returncode == 130 and len(said) == 1 and "interrupted" in said[0], errors


def test_an_interrupt_where_nothing_can_be_raised_is_heard_all_the_same():
    code = f"""
import signal, time
{ENDING}, prepare_streams
class Ending:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def work():
    Ending()
    time.sleep(100)
prepare_streams()
end_process(guarded(work))
"""
    done = python(code, preexec_fn=hear_interrupts)
    assert done.returncode == 130 and done.stderr.count("\n") == 1 and "interrupted" in done.stderr


def test_an_interrupted_pool_does_not_wait_for_its_threads():
    began, jobs = time.monotonic(), []
    with pytest.raises(KeyboardInterrupt), workers(1) as pool:
        jobs += [pool.submit(time.sleep, 5), pool.submit(print)]
        raise KeyboardInterrupt
    assert not jobs[0].done() and jobs[1].cancelled(), f"left after {time.monotonic() - began:.1f} s"
    computing = "threading.Thread(target=time.sleep, args=(100,)).start(); end_process(130)"
    assert python(f"import threading, time; {ENDING}; {computing}").returncode == 130


@pytest.mark.parametrize("megabytes", [100, 800])
def test_a_low_limit_on_memory_is_one_line(megabytes, tmp_path):
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes * 10**6,) * 2)  # noqa: E731
    command = [*COMMAND, "run", "cell", "--results", str(tmp_path / "results")]
    done = subprocess.run(command, preexec_fn=limit, timeout=1200, **PIPES)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "ulimit -v" in done.stderr and "allowed: 2 GB or more" in done.stderr


@pytest.mark.parametrize(
    "error",
    [MemoryError(), ImportError("x.so: failed to map segment from shared obj"), RuntimeError("can't start new thread")],
)
def test_memory_that_is_missing_has_a_line_that_says_so(error, capsys):
    def work():
        raise error

    assert terminal.guarded(work) == 2
    said = capsys.readouterr().err
    assert said.startswith("rftlab: not enough memory: ") and len(said) > 40 and said.count("\n") == 1


def test_names_in_system_errors_are_shown_and_not_obeyed_and_a_defect_of_ours_is_not_hidden(capsys):
    def work():
        raise OSError(errno.EACCES, "no", "a\nb\x1b[2J\udcff")

    assert terminal.guarded(work) == 2
    assert capsys.readouterr().err == "rftlab: a\\nb\\x1b[2J\\udcff: no permission\n"
    with pytest.raises(ZeroDivisionError):
        terminal.guarded(lambda: 1 // 0)


def event_of(module):
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


def test_compilation_is_announced_once_for_each_purpose_and_only_ours(capsys, tmp_path):
    announcer = Announcer(tmp_path)
    ours = ("sim.round.plain", "sim.lanes.random", "sim.round.general", "shared.kl")
    for module in ("numba.core", "simple", "__main__", *(f"rftlab.{name}" for name in ours)):
        announcer.on_start(event_of(module))
        announcer.on_start(event_of("rftlab.sim.lanes.random"))  # a part of it
        announcer.on_end(None)
        announcer.on_end(None)
    said = capsys.readouterr().err.splitlines()
    purposes = ["the simulator", "the simulator's general round", "the estimators"]
    assert [line.split(" for this processor")[0] for line in said] == [f"rftlab: compiling {one}" for one in purposes]
    assert all("once, and kept in" in line for line in said)


def test_garbage_is_collected_seldom_during_a_compilation_alone(tmp_path):
    before, announcer = gc.get_threshold(), Announcer(tmp_path)
    during = []
    for turn in (announcer.on_start, announcer.on_start):
        turn(event_of("numba.core"))
        during.append(gc.get_threshold())
    announcer.on_end(None)
    during.append(gc.get_threshold())
    announcer.on_end(None)
    assert all(first > 10 * before[0] for first, *_ in during)
    assert gc.get_threshold() == before


def test_a_compilation_in_a_fresh_cache_is_said_and_one_from_the_cache_is_not(tmp_path):
    code = "from rftlab.shared.config import kl; from rftlab.shared.kl import kl_penalty; "
    code += "kl_penalty(kl.kl_rule(kl.KL('k3')), -1.0, -2.0)"
    first, second = (python(code, {"NUMBA_CACHE_DIR": str(tmp_path)}) for _ in range(2))
    assert (first.returncode, first.stderr.count("\n"), second.returncode, second.stderr) == (0, 1, 0, "")
    assert first.stderr.startswith("rftlab: compiling the estimators")
