"""The command line as a user meets it: bad input, interruption at any moment, two runs at once."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pandas as pd
import pytest
from rich.console import Console

from rftlab import preset, start_at
from rftlab.studies.cli.commands import DEV, GROUPS, MOVED, parse, run
from rftlab.studies.cli.execute import study
from rftlab.studies.cli.simulate import parse_run
from rftlab.studies.cli.trained import parse_train
from rftlab.studies.console.table import Table
from rftlab.studies.console.terminal import guarded
from tests.support.estimators.vectors import ROOT
from tests.support.machine.command import rftlab as rftlab_process
from tests.support.machine.here import printed
from tests.support.machine.processes import hear_interrupts

FEW = ("--pairs", "llama-gsm8k", "--seeds", "2", "--rounds", "20", "--quiet")
PROGRAM = """
import sys
from rftlab.studies.cli.main import main
{change}
sys.argv = ["rftlab", *sys.argv[1:]]
main()
"""
WITHOUT_REPORT = "from rftlab.studies.cli.execute import study; study.write_study_report = lambda *arguments: None"
WITHOUT_THEORY = "from tests.studies.cli.test_cli import no_theory; no_theory(setattr)"


def no_theory(set_part):
    """Reports that run no check of theory: part 6 of the tutorial makes a whole one."""
    set_part(study, "ProcessPoolExecutor", lambda processes, context: ThreadPoolExecutor(processes))
    set_part(study, "_theory", lambda *asked: ("", ""))


def simulate(folder, change=WITHOUT_REPORT):
    """A process of `rftlab reproduce`, by default one that ends where the report would begin."""
    command = [sys.executable, "-c", PROGRAM.format(change=change), "reproduce", *FEW, "--results", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)


def curves_in(folder):
    """The measurements of every run of a results folder but its seconds, as text with every digit."""
    tables = {str(path.relative_to(folder)): pd.read_parquet(path) for path in folder.glob("sim/*/*/*.parquet")}
    return {name: table.drop(columns="seconds", errors="ignore").to_csv() for name, table in tables.items()}


def report_of(folder):
    """The tables of a report, and its section on the configuration."""
    tables = [(folder / "report" / name).read_bytes() for name in ("endpoints.csv", "findings.csv")]
    page = (folder / "report" / "report.html").read_text()
    return tables, page.partition("<h2>Configuration</h2>")[2].partition("</section>")[0]


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """A finished study, and what the command printed."""
    folder = tmp_path_factory.mktemp("study") / "results"
    process = simulate(folder, WITHOUT_THEORY)
    printed, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, printed
    return folder, printed


@pytest.fixture
def rftlab(tmp_path, monkeypatch, capsys):
    """The command in this process and an empty folder: its status, and what it prints."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        status = guarded(lambda: run([str(argument) for argument in arguments]))
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=status, stdout=printed.out, stderr=printed.err)

    return command


@pytest.mark.parametrize(
    "flags", ["--environment.n-train 1000000000", "--rollouts 1000000000", "--quiet --sampler.lag 100000000"]
)
def test_memory_that_is_not_there_is_one_line(flags, rftlab, tmp_path):
    done = rftlab("run", "cell", *flags.split())
    (said,) = [line for line in done.stderr.splitlines() if "rftlab: compiling" not in line]
    assert done.returncode == 2 and said.startswith("rftlab: not enough memory: Unable to allocate")
    assert not list(tmp_path.rglob("*.parquet"))


def test_errors_of_the_command_line_need_no_frame(tmp_path):
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "COLUMNS": "40"}
    done = rftlab_process("run", "cell", "--sampler.lag", "often", cwd=tmp_path, env=os.environ | environment)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "--sampler.lag: invalid literal for int() with base 10: 'often'; --sampler.lag INT " in done.stderr
    assert done.stderr.endswith("--help\n")


def test_of_a_repeated_flag_the_last_counts_and_a_study_takes_the_flags_of_a_run():
    twice = ["--pair=qwen-gsm8k", "--pair", "olmo-math", "--preset", "grpo", "--preset=rloo"]
    once, start = parse_run(["cell", *twice]), start_at("olmo-math", "sim")
    assert (once.pair, once.environment, once.optimizer) == ("olmo-math", start.environment, start.optimizer)
    assert (once.preset, once.design.estimator) == ("rloo", preset("rloo"))
    assert parse_train(["--pair", "tiny-mod97", "--pair=tiny-mix97"]).run.task == start_at("tiny-mix97", "llm").task
    flags = ["--environment.reward-noise", "0.5", "--seeds", "2", "--optimizer.learning-rate=1e-3"]
    changed = parse(["reproduce", "--pairs", "olmo-math", "qwen-math", *flags])
    assert changed.changes == {"environment.reward_noise": 0.5, "optimizer.learning_rate": 1e-3}
    assert (changed.pairs, changed.seeds) == (("olmo-math", "qwen-math"), 2)
    trained = parse(["reproduce", "--level", "llm", "--optimizer.warmup-steps", "3"])
    assert trained.changes == {"optimizer.warmup_steps": 3} and parse(["reproduce"]).changes == {}


def test_help_teaches_and_fits_one_screen(rftlab):
    shown, inside = rftlab("--help"), rftlab("dev", "--help")
    assert (shown.returncode, inside.returncode) == (0, 0) and rftlab().stdout == shown.stdout
    words = ("Your runs", "Plan", "Simulate", "Train", "reproduce", "report", "doctor", "qwen-gsm8k", "tradeoff")
    assert all(word in shown.stdout for word in words)
    lines = shown.stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert all(name in inside.stdout for name in DEV) and inside.stdout.count("\n") <= 40


@pytest.mark.parametrize("name", MOVED)
def test_an_old_name_says_the_new_one(name, rftlab):
    done = rftlab(name, "--help")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"rftlab: `rftlab {name}` is `rftlab {MOVED[name]}`\n"


def test_a_second_run_does_nothing_and_report_alone_gives_the_same(uninterrupted, rftlab, monkeypatch):
    no_theory(monkeypatch.setattr)
    folder, printed = uninterrupted
    assert str(folder / "report" / "report.html") in printed.replace("\n", "")
    assert len(list((folder / "report" / "figures").glob("*.svg"))) >= 16
    before, stamps = report_of(folder), {path: path.stat().st_mtime_ns for path in folder.glob("sim/*/*/done.json")}
    assert "s, the sum over 50 runs" in before[1] and len(stamps) == 50
    again = simulate(folder)
    assert again.communicate(timeout=1200) and again.returncode == 0
    assert rftlab("report", "--results", folder, "--quiet").returncode == 0
    assert report_of(folder) == before
    assert stamps == {path: path.stat().st_mtime_ns for path in folder.glob("sim/*/*/done.json")}


def test_killed_at_random_moments_nothing_is_lost_and_the_curves_are_the_same(uninterrupted, tmp_path):
    folder, kept = tmp_path / "results", 0
    rng = random.Random(time.time_ns())
    for _ in range(5):
        process = simulate(folder)
        delay = rng.uniform(0.5, 3.0)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        finished = len(list(folder.glob("sim/*/*/done.json")))
        assert finished >= kept, f"killed after {delay:.3f} s: finished work was lost"
        kept = finished
    process = simulate(folder)
    printed, _ = process.communicate(timeout=1200)
    assert process.returncode == 0 and "damaged" not in printed
    assert curves_in(folder) == curves_in(uninterrupted[0])


def test_two_runs_into_one_folder_at_once(uninterrupted, tmp_path):
    processes = [simulate(tmp_path / "results") for _ in range(2)]
    assert [process.communicate(timeout=1200) and process.returncode for process in processes] == [0, 0]
    assert curves_in(tmp_path / "results") == curves_in(uninterrupted[0])


def test_an_interrupt_is_one_line_and_resumable(tmp_path):
    slow = ("reproduce", "--pairs", "llama-gsm8k", "--seeds", "3", "--quiet", "--results", tmp_path / "results")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "rftlab.studies.cli.main", *map(str, slow)]
    process = subprocess.Popen(command, cwd=tmp_path, preexec_fn=hear_interrupts, **pipes)
    while not list(tmp_path.glob("results/sim/*/*/done.json")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=1200)
    assert process.returncode == 130
    assert "interrupted; finished runs are kept" in errors and "Traceback" not in errors


def test_doctor_is_content_here(rftlab):
    done = rftlab("dev", "doctor")
    assert done.returncode == 0 and "no problems found" in done.stdout


def test_packages_of_a_user_may_bear_the_names_of_our_folders(tmp_path):
    """They stay the user's own, and ours are found beside them."""
    for name in ("shared", "sim", "llm", "studies"):
        (tmp_path / f"{name}.py").write_text("MINE = True")
    names = "import shared, sim, llm, studies, rftlab.sim, rftlab.shared.cards; "
    code = names + "print(*(one.MINE for one in (shared, sim, llm, studies)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "True True True True\n"), done.stderr
    done = rftlab_process("estimators", "grpo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    code = "from importlib.util import find_spec; print([find_spec(n) for n in ('shared', 'sim', 'llm', 'studies')])"
    (elsewhere := tmp_path / "elsewhere").mkdir()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=elsewhere)
    assert done.stdout == f"{[None] * 4}\n", "the folders are no packages of their own"


def test_a_damaged_study_is_redone_and_a_link_is_refused_as_a_user_sees_it(uninterrupted, rftlab, tmp_path):
    folder = tmp_path / "results"
    shutil.copytree(uninterrupted[0], folder)
    first, second, third = sorted((folder / "sim" / "llama-gsm8k").iterdir())[:3]
    for name in ("curve.parquet", "done.json"):
        shutil.copyfile(second / name, first / name)
    shutil.rmtree(third)
    os.mkfifo(third)
    refused = rftlab("report", "--results", folder, "--quiet")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert any(str(damaged) in refused.stderr for damaged in (first, third))
    told = rftlab("status", "--results", folder)
    assert told.returncode == 0 and str(first) in told.stdout and str(third) in told.stdout
    process = simulate(folder)
    printed, _ = process.communicate(timeout=1200)
    assert process.returncode == 0 and printed.count("damaged, redone") == 2
    assert curves_in(folder) == curves_in(uninterrupted[0])
    shutil.move(folder / "report", tmp_path / "outside")
    (folder / "report").symlink_to(tmp_path / "outside")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "outside").rglob("*")}
    linked = rftlab("report", "--results", folder, "--quiet")
    assert linked.returncode == 2 and linked.stderr.count("\n") == 1
    assert f"{folder / 'report'} is a symbolic link; allowed: a folder" in linked.stderr
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "outside").rglob("*")}


@pytest.mark.parametrize("command", [name for group in GROUPS.values() for name in group])
def test_examples_in_help_stand_on_lines_of_their_own(command, capsys):
    with pytest.raises(SystemExit):
        parse([command, "--help"])
    text = capsys.readouterr().out.partition("options ")[0]
    examples = [line for line in text.splitlines() if line.lstrip().startswith(f"rftlab {command} ")]
    assert [line for line in examples if line.count(f"rftlab {command} ") > 1] == []
    assert len(examples) > 2 or command not in ("power", "check", "import", "signal", "predict")


def test_a_long_name_in_a_narrow_terminal_is_whole():
    shown = Table("name", "what it says")
    shown.add("clipped_ratio_of_a_very_long_estimator", "many words " * 5)
    text = printed(Console.print, shown, width=30)
    assert "…" not in text and "".join(text.split()).count("_") == 6 and text.count("words") == 5
