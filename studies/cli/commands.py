"""The commands of the command line: `rftlab --help`."""

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import check, check_choice
from rftlab.studies.cli.common import Common, PlanFlags
from rftlab.studies.cli.compare import Compare
from rftlab.studies.cli.compare_estimators import CompareEstimators
from rftlab.studies.cli.explore import Explore
from rftlab.studies.cli.export import Export
from rftlab.studies.cli.law import Law
from rftlab.studies.cli.pilot import Pilot
from rftlab.studies.cli.plugins import without_plugins
from rftlab.studies.cli.predict import Predict, Score
from rftlab.studies.cli.real_runs.advise import Advise
from rftlab.studies.cli.real_runs.diagnose import Diagnose
from rftlab.studies.cli.real_runs.import_logs import Import
from rftlab.studies.cli.real_runs.power import Power
from rftlab.studies.cli.real_runs.signal import Signal
from rftlab.studies.cli.rollouts import ShowRollouts
from rftlab.studies.cli.run import Run, parse_run
from rftlab.studies.cli.train import Train, parse_train
from rftlab.studies.console.table import Screen
from rftlab.studies.console.terminal import check_room, one_line
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import Level, pairs_at
from rftlab.studies.data.runs.limits import check_size
from rftlab.studies.integrations.cluster import Cluster

if TYPE_CHECKING:
    from rftlab.studies.data.runs.study import Study


@dataclass(frozen=True)
class Reproduce(Common):
    """Run the seven experiments and write their report.

    All are shown next to the published numbers, with verdicts.

    Safe to interrupt: run the same command again and it goes on where it stopped.

        rftlab reproduce --level llm --backend verl --pair qwen-gsm8k --verl.model Qwen/Qwen2.5-7B-Instruct

    With --backend verl nothing runs: RESULTS/verl/PAIR gets a folder for each run, with verl's configuration and the
    command, for a cluster of your own.
    """

    level: Level = "sim"
    """What runs: the simulator, or real language models (they need the extra `llm`)."""
    pairs: Annotated[tuple[str, ...] | None, tyro.conf.arg(aliases=("--pair",), metavar="STR [STR ...]")] = None
    """Model-dataset pairs; if left out all of the simulator, or the `tiny` ones."""
    seeds: int = 5
    """Seeds 0 .. N-1 of every run."""
    rounds: int | None = None
    """Training rounds of every run; each pair's own if left out: 2000 in the simulator, 600 of `tiny`."""
    whole_sets: bool = False
    """Evaluate language models on all training and unseen questions, as in the paper, instead of each pair's fixed
    parts of them."""
    plan: Annotated[PlanFlags, tyro.conf.arg(name="")] = field(default_factory=PlanFlags)
    """Whether to show the cost alone."""
    backend: Literal["rftlab", "verl"] = "rftlab"
    """What trains language models: our trainer; or verl, for which runs are written, not run."""
    verl: Cluster = field(default_factory=Cluster)
    """The cluster of --backend verl."""

    def __post_init__(self):
        super().__post_init__()
        check_size(self.seeds, self.rounds)
        check(
            self.backend == "rftlab" or (self.level == "llm" and self.engine == "local"),
            "backend = 'verl'; allowed: with --level llm, and without --engine: verl brings Ray itself",
        )
        check(self.backend == "verl" or self.verl == Cluster(), "verl.*; allowed: with --backend verl")

    def execute(self, console: Console) -> int:
        """Run the study and write its report, or show its plan."""
        from rftlab.studies.cli.execute.reproduce import reproduce
        from rftlab.studies.data.runs.study import study_of

        check(
            self.pairs != (),
            f"pairs names none; allowed: one or more of {', '.join(pairs_at(self.level))}, or no --pairs for "
            "the usual ones",
        )
        study = study_of(self.level, list(self.pairs or ()), self.seeds, self.rounds, self.whole_sets)
        if self.backend == "verl":
            return self._for_verl(console, study)
        if self.plan.dry_run:
            from rftlab.studies.cli.execute.plan import show_study

            return 0 if show_study(console, study, self.results, self.plan) else 1
        reproduce(console, study, self.results, self.threads, self.quiet, self.engine)
        return 0

    def _for_verl(self, console: Console, study: "Study") -> int:
        """Write the study for verl, or show what it would need there."""
        from rftlab.studies.cli.execute.write_verl import show_fleet, write_study_for

        if self.plan.dry_run:
            return 0 if show_fleet(console, study, self.verl, self.plan) else 1
        write_study_for(console, study, self.results, self.verl)
        return 0


@dataclass(frozen=True)
class Report:
    """Write the report of a results folder or of imported runs.

    Nothing is run.

        rftlab report                          # of the study of --level, or of what `rftlab run` left there
        rftlab report --results results/train  # of the folder of a run of `rftlab train`
        rftlab report imported:mine            # what `rftlab import` keeps; also imported:NAME/TASK, imported:NAME#RUN
        rftlab report public:pods/gsm8k        # a public source that comes with rftlab
        rftlab report train:results/train      # a run of `rftlab train`, or all that lie in a folder

    Of imported runs it writes RESULTS/report-imported-NAME/report.html: curves, ends, designs in our terms, repairs and
    what could not be told.
    """

    source: tyro.conf.Positional[str | None] = None
    """imported:NAME or public:SOURCE, or a part of it, or train:FOLDER; the study of --level if left out."""
    results: Path = Path("results")
    """Results folder, or the folder of one run. Without a study, the report is of the runs that are there."""
    level: Level = "sim"
    """Which of its studies."""
    quiet: bool = False
    """No progress bars (for logs)."""

    def execute(self, console: Console) -> int:
        """Write the report."""
        if self.source is not None:
            from rftlab.studies.analysis.imported.page import report

            report(console, self.source, self.results, self.quiet)
            return 0
        from rftlab.studies.cli.execute.reproduce import write
        from rftlab.studies.data.runs.study import has_study, read_study

        if not has_study(self.results, self.level):
            from rftlab.studies.analysis.imported.own import folders_of
            from rftlab.studies.analysis.imported.page import report_own

            if folders_of(self.results):
                report_own(console, self.results, self.quiet)
                return 0
        write(console, read_study(self.results, self.level), self.results, self.quiet)
        return 0


@dataclass(frozen=True)
class Status:
    """Show how far studies and trained runs are.

    Prints the runs that are done, running and to do, and the time left, also while they run.
    """

    results: Path = Path("results")
    """Results folder of `rftlab reproduce`, or a folder with runs of `rftlab train`."""

    def execute(self, console: Console) -> int:
        """Print the tables."""
        from rftlab.studies.cli.execute.status import show

        show(console, self.results)
        return 0


@dataclass(frozen=True)
class Estimators:
    """Show estimator cards: formula, constants, source.

    The constants are ddof, eps, and the rule for a group of one.
    """

    name: tyro.conf.Positional[str | None] = None
    """One estimator; all of them if left out."""

    def execute(self, console: Console) -> int:
        """Print the cards."""
        from rftlab.studies.estimators.show import show

        show(console, self.name)
        return 0


@dataclass(frozen=True)
class Public:
    """List public training logs and the claims they test.

    They are of pre-trained models, and are shown with their noise.

        rftlab dev public               # all sources and claims
        rftlab dev public pods          # one, with its traps
        rftlab compare public:pods public:kaip598   # its runs: also in report, diagnose, predict, power --imported
    """

    source: tyro.conf.Positional[str | None] = None
    """One of them, with its traps; all if left out."""

    def execute(self, console: Console) -> int:
        """Print the tables."""
        from rftlab.studies.analysis.public.show import show

        show(console, self.source)
        return 0


@dataclass(frozen=True)
class Doctor:
    """Check the installation: versions, threads, cache, disk."""

    results: Path = Path("results")
    """Where results would go."""

    def execute(self, console: Console) -> int:
        """Print the facts; status 1 where there is a problem."""
        from rftlab.studies.cli.execute.doctor import examine

        return 1 if examine(console, self.results) else 0


@dataclass(frozen=True)
class Theory:
    """Check statements about estimators by simulation.

    They are about estimators, variance, dynamics and regret; each is shown with its formula, its value, the simulated
    value with an interval, and a verdict. Status 1 where a verdict is FAIL. `rftlab theory T3 T14` shows every number
    of those two.
    """

    ids: tyro.conf.Positional[tuple[str, ...]] = ()
    """Checks to run, such as T14; all of them if left out."""
    tier: Literal["all", "fast", "slow"] = "all"
    """Only the fast or only the slow ones."""
    mutants: bool = False
    """Run each check's mutants instead, wrong estimators on which its claims must FAIL."""
    quiet: bool = False
    """No progress bars (for logs)."""

    def execute(self, console: Console) -> int:
        """Run the checks."""
        from rftlab.studies.theory.command import theory

        return theory(console, self.ids, self.tier, self.mutants, self.quiet)


GROUPS: dict[str, dict[str, type]] = {
    "Your runs": {"import": Import, "diagnose": Diagnose, "compare": Compare, "report": Report},
    "Plan": {"signal": Signal, "power": Power, "advise": Advise, "pilot": Pilot, "predict": Predict},
    "Simulate": {
        "reproduce": Reproduce,
        "run": Run,
        "explore": Explore,
        "estimators": Estimators,
        "compare-estimators": CompareEstimators,
        "theory": Theory,
    },
    "Train": {"train": Train, "rollouts": ShowRollouts, "export": Export, "status": Status},
}
"""The commands in the order of `rftlab --help`, which shows the first line of each docstring."""
DEV: dict[str, type] = {"score": Score, "law": Law, "doctor": Doctor, "public": Public}
"""The commands of `rftlab dev`."""
MOVED = {name: f"dev {name}" for name in DEV} | {"calibrate": "predict"}
"""Names of the version before, and what they are called now."""


def _lines(commands: dict[str, type]) -> list[str]:
    """A line for each command: its name and the first line of its docstring."""
    return [f"  {name:<20}{(kind.__doc__ or '').splitlines()[0]}" for name, kind in commands.items()]


def _overview() -> str:
    """The text of `rftlab --help`, which fits a screen of 40 lines and 80 columns."""
    lines = ["usage: rftlab COMMAND [FLAGS]"]
    for title, commands in GROUPS.items():
        lines += ["", title, *_lines(commands)]
    others = [name for name in pairs_at("llm") if name not in pairs_at("sim")]
    beside = (
        f"Pairs: {', '.join(pairs_at('sim'))}; with --level llm also {', '.join(others)}.",
        f"Studies: {', '.join(EXPERIMENTS)}.",
        "`rftlab COMMAND --help` explains a command; --plugins FILE adds estimators.",
    )
    lines += [f"  {'dev':<20}Commands that check rftlab: {', '.join(DEV)}.", ""]
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
    check(dev or name not in MOVED, f"`rftlab {name}` is now `rftlab {MOVED.get(name)}`")
    check_choice("command", name, tuple(commands) if dev else (*commands, "dev"))
    if name in ("run", "train"):
        return parse_run(rest) if name == "run" else parse_train(rest)
    return tyro.cli(commands[name], prog=f"rftlab {'dev ' if dev else ''}{name}", args=rest)


def _check_values(arguments: list[str]) -> None:
    """Raise UserError where a flag is given nothing, as by a variable of a shell that is not set; a folder of that
    name would be the present one."""
    for flag, value in zip(["", *arguments], arguments, strict=False):
        name, sign, given = (
            value.partition("=") if value.startswith("--") else (flag, "=" * flag.startswith("--"), value)
        )
        check(not sign or bool(given.strip()), f"{name} is given an empty value; allowed: one that is not empty")


def run(arguments: list[str]) -> int:
    """Run the command of a command line; returns the exit status. Raises what `rftlab.studies.console.terminal.guarded`
    says in a line."""
    _check_values(arguments)
    with one_line():
        command = parse(without_plugins(arguments))
    check_room()
    return command.execute(Screen())
