"""The command line: `rftlab --help`."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from shared.advantage import Advantage
from shared.design import Design
from shared.errors import UserError, check
from sim.environments import Linear
from sim.optimizer import Optimizer
from sim.responses import Sampler
from studies.cards import PRESETS, preset
from studies.experiments import EXPERIMENTS, Experiment, experiment, label
from studies.pairs import PAIRS, pair

BAD_INPUT, INTERRUPTED = 2, 130
SINGLE = "cell"
_ABOUT = f"""Which design choices of reinforcement fine-tuning matter: the seven ablations of arXiv 2601.22532.

Pairs: {", ".join(PAIRS)}.

Studies: {", ".join(EXPERIMENTS)}.

Estimators: {", ".join(PRESETS)}.
"""


@dataclass(frozen=True)
class Common:
    """Options of every command that runs something."""

    results: Path = Path("results")
    """Results folder; finished runs in it are not run again."""
    threads: int = 0
    """Threads; 0 means all cores. Results do not depend on it."""
    quiet: bool = False
    """No progress bars (for logs)."""


@dataclass(frozen=True)
class Reproduce(Common):
    """All seven experiments, next to the published numbers, with verdicts and a report.

    Safe to interrupt: run the same command again and it goes on where it stopped.
    """

    level: Literal["sim"] = "sim"
    """What runs: the simulator."""
    pairs: tuple[str, ...] = tuple(PAIRS)
    """Model-dataset pairs."""
    seeds: int = 5
    """Seeds 0 .. N-1 of every run."""
    rounds: int = 2000
    """Training rounds of every run."""

    def execute(self, console: Console) -> int:
        """Run the study and write its report."""
        from studies.reproduce import reproduce, study_of

        reproduce(console, study_of(list(self.pairs), self.seeds, self.rounds), self.results, self.threads, self.quiet)
        return 0


@dataclass(frozen=True)
class Run(Common):
    """One study with an estimator of your choice: `rftlab run rollouts --preset dr_grpo --estimator.surrogate.high 0.28`.

    A study sets batch size, rollouts, support rollouts and window of its cells; study `cell` is the single design of these flags.
    """

    study: tyro.conf.Positional[str] = SINGLE
    """Study, or `cell` for one design."""
    level: Literal["sim"] = "sim"
    """What runs: the simulator."""
    pair: str = "qwen-gsm8k"
    """Model-dataset pair."""
    seeds: int = 5
    """Seeds 0 .. N-1 of every run."""
    preset: str = "paper_text"
    """Estimator that the --estimator flags start from (`rftlab estimators` lists them); it decides the kind of surrogate and mask."""
    design: Annotated[Design, tyro.conf.arg(name="")] = field(default_factory=Design)
    """The design."""
    sampler: Sampler = field(default_factory=Sampler)
    """How the policy that samples differs from the one that is trained."""
    environment: Linear = field(default_factory=Linear)
    """The pair's problem, to change."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """The pair's update rule, to change."""

    def execute(self, console: Console) -> int:
        """Run the study and print its endpoints."""
        from sim.run import Simulation
        from studies.points import Point
        from studies.reproduce import finish_points, threads_of
        from studies.runner import collect
        from studies.store import open_store

        check(self.seeds >= 1, f"seeds = {self.seeds}; allowed: 1 or more")
        chosen = self._experiment()
        runs = [Simulation(self.environment, cell, self.optimizer, self.sampler, seed=seed) for cell in chosen.cells for seed in range(self.seeds)]
        points = [Point(self.pair, run) for run in runs]
        finish_points(console, open_store(self.results), points, threads_of(self.threads), self.quiet)
        results = collect(self.results, points)
        _show_endpoints(console, chosen, self.pair, results.curves)
        for line in results.diverged:
            console.print(f"diverged: {line}", style="red", markup=False)
        return 0

    def _experiment(self) -> Experiment:
        """The study with this command's estimator and rounds; a cell that uses the raw reward keeps it."""
        if self.study == SINGLE:
            return Experiment(SINGLE, "One design", "", "design", (self.design,), (label(self.design).split("-")[0],))
        check(self.study in EXPERIMENTS, f"study = {self.study!r} is unknown; allowed: {', '.join([*EXPERIMENTS, SINGLE])}")
        known, default = experiment(self.study), Design()
        for name in ("batch_size", "rollouts", "support_rollouts", "replay_window"):
            given = getattr(self.design, name)
            check(given == getattr(default, name), f"{name} = {given}: study {self.study} sets it for each of its cells; use study {SINGLE} for one design")
        return replace(known, cells=tuple(self._adapted(cell) for cell in known.cells))

    def _adapted(self, cell: Design) -> Design:
        estimator = self.design.estimator
        if cell.estimator.advantage.baseline == "none":
            estimator = replace(estimator, advantage=Advantage("none"))
        own = {name: getattr(cell, name) for name in ("batch_size", "rollouts", "support_rollouts", "replay_window")}
        return replace(self.design, estimator=estimator, **own)


@dataclass(frozen=True)
class Report:
    """Make the report of a results folder again, without running anything."""

    results: Path = Path("results")
    """Results folder of `rftlab reproduce`."""
    quiet: bool = False
    """No progress bars (for logs)."""

    def execute(self, console: Console) -> int:
        """Write the report."""
        from studies.reproduce import read_study, write

        write(console, read_study(self.results), self.results, self.quiet, {})
        return 0


@dataclass(frozen=True)
class Estimators:
    """Estimator cards: formula, ddof, eps, rule for a group of one, source."""

    name: tyro.conf.Positional[str | None] = None
    """One estimator; all of them if left out."""

    def execute(self, console: Console) -> int:
        """Print the cards."""
        from studies.cards.show import show

        show(console, self.name)
        return 0


@dataclass(frozen=True)
class Doctor:
    """Check the installation: versions, threads, compile cache, free disk, packages that shadow ours."""

    results: Path = Path("results")
    """Where results would go."""

    def execute(self, console: Console) -> int:
        """Print the facts; status 1 where there is a problem."""
        from studies.doctor import examine

        return 1 if examine(console, self.results) else 0


@dataclass(frozen=True)
class Theory:
    """Check statements about estimators, variance, dynamics and regret: formula, value, simulated value with interval, verdict.

    Status 1 where a verdict is FAIL. `rftlab theory T3 T14` shows every number of those two.
    """

    ids: tyro.conf.Positional[tuple[str, ...]] = ()
    """Checks to run, such as T14; all of them if left out."""
    tier: Literal["all", "fast", "slow"] = "all"
    """Only the fast or only the slow ones."""
    mutants: bool = False
    """Run each check's mutant instead, a wrong estimator on which it must FAIL."""
    quiet: bool = False
    """No progress bars (for logs)."""

    def execute(self, console: Console) -> int:
        """Run the checks."""
        from studies.theory.command import theory

        return theory(console, self.ids, self.tier, self.mutants, self.quiet)


COMMANDS = (Reproduce, Run, Theory, Report, Estimators, Doctor)


def _show_endpoints(console: Console, chosen: Experiment, pair_name: str, curves) -> None:
    from studies.endpoints import endpoint_table

    table = Table(title=f"{chosen.title}: {pair_name}", title_justify="left")
    for column in ("cell", "split", "Pass@1", "95% interval", "published"):
        table.add_column(column)
    rows = endpoint_table(curves, [chosen], [pair_name])
    for row in rows[rows["experiment"] == chosen.name].itertuples():
        interval = "" if row.low != row.low else f"{row.low:.3f} to {row.high:.3f}"
        table.add_row(row.cell, row.split, f"{row.mean:.3f}", interval, "" if row.published != row.published else f"{row.published:.2f}")
    console.print(table)


def _peek(arguments: list[str], flag: str, default: str) -> str:
    """Value of a flag before the command line is parsed as a whole."""
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(flag + "="):
            return argument.split("=", 1)[1]
    return default


def _run_defaults(arguments: list[str]) -> Run:
    """What the flags of `run` start from: the preset's estimator and sampling, the pair's problem."""
    name, of = _peek(arguments, "--preset", "paper_text"), pair(_peek(arguments, "--pair", "qwen-gsm8k"))
    design = Design(estimator=preset(name))
    return Run(preset=name, design=design, environment=of.environment, optimizer=of.optimizer)


def _parse(arguments: list[str]):
    """The command of a command line; `--preset` and `--pair` decide what other flags of `run` start from."""
    commands = {kind.__name__.lower(): kind for kind in COMMANDS}
    name = arguments[0]
    if name in commands:
        default = _run_defaults(arguments) if name == "run" else None
        return tyro.cli(commands[name], prog=f"rftlab {name}", args=arguments[1:], default=default, config=(tyro.conf.AvoidSubcommands,))
    return tyro.extras.subcommand_cli_from_dict(commands, prog="rftlab", description=_ABOUT, args=arguments)


def _guarded(work: Callable[[], int], console: Console) -> int:
    """Run a command; bad input is one line and status 2."""
    from studies.store import reason

    try:
        return work()
    except UserError as error:
        console.print(f"rftlab: {error}", style="red", markup=False, soft_wrap=True)
    except OSError as error:
        console.print(f"rftlab: {error.filename or 'a file'}: {reason(error)}", style="red", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("rftlab: interrupted; finished runs are kept, run the same command again to go on", style="yellow", markup=False)
        return INTERRUPTED
    return BAD_INPUT


def main() -> None:
    """Entry point of the console command."""
    arguments, errors = sys.argv[1:], Console(stderr=True)
    sys.exit(_guarded(lambda: _parse(arguments or ["--help"]).execute(Console()), errors))


if __name__ == "__main__":
    main()
