"""The commands of the command line: `rftlab --help`."""

import textwrap
from pathlib import Path

import tyro

from rftlab.shared.custom.plugins import name_plugins
from rftlab.shared.plumbing.errors import check, check_choice
from rftlab.studies.cli.estimators import Doctor, Estimators, Law, Public, Suite, Theory, TheoryFacts
from rftlab.studies.cli.forecasting import Pilot, Predict, Score, parse_pilot
from rftlab.studies.cli.planning import Advise, Power, Signal
from rftlab.studies.cli.simulate import Explore, Reproduce, Run, parse_reproduce, parse_run
from rftlab.studies.cli.trained import Export, ShowRollouts, Status, Train, parse_train
from rftlab.studies.cli.your_runs import CheckRun, Compare, Diagnose, Import, Report
from rftlab.studies.console.table import Screen
from rftlab.studies.console.terminal import check_room, one_line
from rftlab.studies.data.paper.experiments import EXPERIMENTS, FOLLOW_UPS
from rftlab.studies.data.paper.pairs import pairs_at

PLUGINS = "--plugins"
"""The flag of every command that names a file with custom estimators."""
FACTS = "facts"
"""The word after `theory` that asks for facts of published studies."""
GROUPS: dict[str, dict[str, type]] = {
    "Your runs": {"check": CheckRun, "import": Import, "diagnose": Diagnose, "compare": Compare, "report": Report},
    "Plan": {"signal": Signal, "power": Power, "advise": Advise, "pilot": Pilot, "predict": Predict},
    "Simulate": {
        "reproduce": Reproduce,
        "run": Run,
        "explore": Explore,
        "estimators": Estimators,
        "suite": Suite,
        "theory": Theory,
    },
    "Train": {"train": Train, "rollouts": ShowRollouts, "export": Export, "status": Status},
}
"""The commands in the order of `rftlab --help`, which shows the first line of each docstring."""
DEV: dict[str, type] = {"score": Score, "law": Law, "doctor": Doctor, "public": Public}
"""The commands of `rftlab dev`."""
MOVED = {name: f"dev {name}" for name in DEV} | {"calibrate": "predict", "compare-estimators": "suite"}
"""Former names of commands, and their present ones."""


def _lines(commands: dict[str, type]) -> list[str]:
    """Return a line for each command: its name and the first line of its docstring."""
    return [f"  {name:<20}{(kind.__doc__ or '').splitlines()[0]}" for name, kind in commands.items()]


def _overview() -> str:
    """Return the text of `rftlab --help`, which fits a screen of 40 lines and 80 columns."""
    story = (
        "Give it your configuration and your log. It says what your batch really is, whether the run is healthy, "
        "whether a difference is real, and what to try next."
    )
    lines = ["usage: rftlab COMMAND [FLAGS]", "", *textwrap.wrap(story, 80)]
    for title, commands in GROUPS.items():
        lines += ["", title, *_lines(commands)]
    others = [name for name in pairs_at("llm") if name not in pairs_at("sim")]
    beside = (
        f"Pairs: {', '.join(pairs_at('sim'))}, all also with -fragile, where runs can fail; with --level llm also "
        f"{', '.join(others)}.",
        f"Studies: {', '.join([*EXPERIMENTS, *FOLLOW_UPS])}.",
        "`rftlab COMMAND --help` explains a command; --plugins FILE adds estimators.",
    )
    lines += [f"  {'dev':<20}Checks of rftlab: {', '.join(DEV)}.", ""]
    return "\n".join([*lines, *(textwrap.fill(text, 80, break_on_hyphens=False) for text in beside)])


def parse(arguments: list[str]):
    """Return the command of a command line. Raises SystemExit after printing the help that is asked for, UserError for
    a name that is no command."""
    dev = arguments[:1] == ["dev"]
    commands = DEV if dev else {name: kind for group in GROUPS.values() for name, kind in group.items()}
    name, *rest = arguments[dev:] or ["--help"]
    if name in ("-h", "--help"):
        print("\n".join(["usage: rftlab dev COMMAND [FLAGS]", "", *_lines(DEV)]) if dev else _overview())
        raise SystemExit(0)
    check(dev or name not in MOVED, f"`rftlab {name}` is `rftlab {MOVED.get(name)}`")
    check_choice("command", name, tuple(commands) if dev else (*commands, "dev"))
    parsers = {"reproduce": parse_reproduce, "run": parse_run, "train": parse_train, "pilot": parse_pilot}
    if not dev and name in parsers:
        return parsers[name](rest)
    if name == "theory" and rest[:1] == [FACTS]:
        return tyro.cli(TheoryFacts, prog=f"rftlab theory {FACTS}", args=rest[1:])
    return tyro.cli(commands[name], prog=f"rftlab {'dev ' if dev else ''}{name}", args=rest)


def _without_plugins(arguments: list[str]) -> list[str]:
    """Return the arguments without `--plugins FILE`, which may come several times. The files are read, so that flags
    may name the estimators in them."""
    left, paths, waiting = [], [], False
    for argument in arguments:
        if waiting or argument.startswith(f"{PLUGINS}="):
            paths.append(Path(argument.removeprefix(f"{PLUGINS}=")))
            waiting = False
        elif argument == PLUGINS:
            waiting = True
        else:
            left.append(argument)
    check(not waiting, f"{PLUGINS} names no file; allowed: a Python file with estimators of your own")
    name_plugins(paths)
    return left


def _check_values(arguments: list[str]) -> None:
    """Raise UserError where the value of a flag is empty, as from an unset variable of a shell. An empty name of a
    folder would be the current one."""
    for flag, value in zip(["", *arguments], arguments, strict=False):  # each word with the one before it
        name, sign, given = (
            value.partition("=") if value.startswith("--") else (flag, "=" * flag.startswith("--"), value)
        )
        check(not sign or bool(given.strip()), f"{name} is given an empty value; allowed: one that is not empty")


def run(arguments: list[str]) -> int:
    """Run the command of a command line and return its exit status. `rftlab.studies.console.terminal.guarded` turns
    what it raises into a line."""
    _check_values(arguments)
    with one_line():
        command = parse(_without_plugins(arguments))
    check_room()
    return command.execute(Screen())
