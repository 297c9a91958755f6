"""The commands that run studies and designs: reproduce, run, explore."""

import operator
import threading
import webbrowser
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from rftlab.llm.config import LLMRun
from rftlab.shared.cards import CARDS, find_name, preset
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check, check_finite
from rftlab.sim.config import Evaluation, Linear, Optimizer, Sampler, Simulation
from rftlab.studies.cli.common import Common, LLMFlags, PlanFlags, RewardFlags, check_named, llm_flags, peek
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.experiments import EXPERIMENTS, FOLLOW_UPS, Experiment, experiment, label
from rftlab.studies.data.paper.pairs import Level, known_level, linear_environment, pairs_at, start_at, usual_pairs
from rftlab.studies.data.runs.limits import CHANGED_PARTS, check_size, check_threads
from rftlab.studies.integrations.cluster import Cluster

SINGLE, ALL = "cell", "all"
MAX_PORT = 65535


@dataclass(frozen=True)
class Reproduce(Common):
    """Run the seven experiments and write their report.

    All are shown next to the published numbers, with verdicts.

    Safe to interrupt: run the same command again and it goes on where it stopped.

        rftlab reproduce --level llm --backend verl --pair qwen-gsm8k --verl.model Qwen/Qwen2.5-7B-Instruct

    With --backend verl nothing runs: RESULTS/verl/PAIR gets a folder for each run, with verl's configuration and the
    command, for a cluster of your own.

    --environment.NAME, --optimizer.NAME and --sampler.NAME change a field of every pair, as for `rftlab run cell
    --help`. Such a study has a results folder of its own, RESULTS/changed-HASH.

        rftlab reproduce --pair qwen-gsm8k --environment.reward-noise 0.5
    """

    level: Level = "sim"
    """The kind of runs: the simulator, or real language models (they need the extra `llm`)."""
    pairs: Annotated[tuple[str, ...] | None, tyro.conf.arg(aliases=("--pair",), metavar="STR [STR ...]")] = None
    """Model-dataset pairs; if left out all of the simulator, or the `tiny` ones. all: the paper's six, with --level
    llm."""
    seeds: int = 5
    """Seeds 0 .. N-1 of every run."""
    rounds: int | None = None
    """Training rounds of every run; each pair's own if left out: 2000 in the simulator, 600 of `tiny`."""
    whole_sets: bool = False
    """Evaluate language models on all training and unseen questions, as in the paper, instead of each pair's fixed
    parts of them."""
    hours: float | None = None
    """Hours of the device that language models may take: the runs that decide most verdicts within them, by the
    pairs' simulations, in order. All runs if left out."""
    plan: Annotated[PlanFlags, tyro.conf.arg(name="")] = field(default_factory=PlanFlags)
    """Whether to show the cost alone."""
    backend: Literal["rftlab", "verl"] = "rftlab"
    """The trainer of language models: rftlab's; or verl, for which runs are written, not run."""
    verl: Cluster = field(default_factory=Cluster)
    """The cluster of --backend verl."""
    changes: Annotated[dict[str, float | str], tyro.conf.Fixed, tyro.conf.Suppress] = field(default_factory=dict)
    """The values of --environment, --optimizer and --sampler."""

    def __post_init__(self):
        super().__post_init__()
        check_size(self.seeds, self.rounds)
        check(
            self.backend == "rftlab" or self.level == "llm",
            "backend = 'verl'; allowed: with --level llm",
        )
        check(self.backend == "verl" or self.verl == Cluster(), "verl.*; allowed: with --backend verl")
        ours = self.level == "llm" and self.backend == "rftlab"
        check(self.hours is None or ours, "hours; allowed: with --level llm, without --backend")
        check_named(self, ("hours",), check_finite, above=0)

    def execute(self, console: Console) -> int:
        """Run the study and write its report, or show its plan."""
        from rftlab.studies.data.runs.store import open_store
        from rftlab.studies.data.runs.study import checked_study

        check(
            self.pairs != (),
            f"pairs names none; allowed: one or more of {', '.join(pairs_at(self.level))}, or no --pairs for "
            "the usual ones",
        )
        every = [name for name in pairs_at("llm") if name in pairs_at("sim")]
        pairs = every if self.pairs == (ALL,) and self.level == "llm" else list(self.pairs or ())
        study = checked_study(self.level, pairs, self.seeds, self.rounds, self.whole_sets, self.changes)
        results = study.folder(self.results)
        if self.hours is not None:
            from rftlab.studies.cli.execute.pick import reproduce_within

            done = reproduce_within(console, study, results, self.hours, self.plan, self.threads, self.quiet)
            return 0 if done else 1
        if self.backend == "verl":
            from rftlab.studies.cli.execute.write_verl import show_fleet, write_study_for

            if self.plan.dry_run:
                return 0 if show_fleet(console, study, self.verl, self.plan) else 1
            write_study_for(console, study, results, self.verl)
        elif self.plan.dry_run:
            from rftlab.studies.cli.execute.plan import show_study

            return 0 if show_study(console, study, results, self.plan) else 1
        else:
            from rftlab.studies.cli.execute.study import reproduce

            if study.changes:
                open_store(self.results)
            reproduce(console, study, results, self.threads, self.quiet)
        return 0


@dataclass(frozen=True)
class StudyCommand(Common):
    """Flags of a study at every level."""

    study: tyro.conf.Positional[str] = SINGLE
    """Study, or `cell` for one design."""
    pair: str = "qwen-gsm8k"
    """Model-dataset pair."""
    seeds: int = 5
    """Seeds 0 .. N-1 of every run."""
    preset: str = "paper_text"
    """Estimator that the --estimator flags start from (`rftlab estimators` lists them); it decides the kind of
    surrogate and mask."""
    design: Annotated[Design, tyro.conf.arg(name="")] = field(default_factory=Design)
    """The design."""

    def __post_init__(self):
        super().__post_init__()
        check_size(self.seeds, self.design.rounds)

    def start(self) -> Simulation | LLMRun:
        """Return the run whose design and seed the study changes."""
        raise NotImplementedError

    def execute(self, console: Console) -> int:
        """Run the study and print its endpoints."""
        from rftlab.studies.cli.execute.study import run_next_checks, run_study, show_first

        chosen = self._experiment()
        for cell in chosen.cells:
            check_filter(cell)
        changed = self._not_its_own(chosen.cells)
        if chosen.name == "next_checks":
            run_next_checks(console, self, chosen, self.start(), changed)
        else:
            curves = run_study(console, self, chosen, self.start(), changed)
            if chosen.name == "first":
                show_first(console, self, chosen, curves, changed)
        return 0

    def _not_its_own(self, cells: tuple[Design, ...]) -> list[str]:
        """Return the settings that differ from the pair's, so that the numbers published for the pair are no
        comparison."""
        start = self.start()
        own = start_at(self.pair, "sim" if isinstance(start, Simulation) else "llm")
        if isinstance(start, Simulation) and start.evaluation == "full":  # as exact, with more measures
            start = replace(start, evaluation="exact")
        names = [field.name for field in fields(own) if field.name not in ("design", "seed", "compute")]
        changed = [
            name
            for name in ("rounds", "sampling")
            if any(getattr(cell, name) != getattr(own.design, name) for cell in cells)
        ]
        return changed + [name for name in names if getattr(start, name) != getattr(own, name)]

    def _experiment(self) -> Experiment:
        """Return the study with this command's estimator and rounds; a cell that uses the raw reward keeps it."""
        if self.study == SINGLE:
            return Experiment(SINGLE, "One design", "", "design", (self.design,), (label(self.design).split("-")[0],))
        known = [*EXPERIMENTS, *FOLLOW_UPS, SINGLE]
        check(self.study in known, f"study = {self.study!r} is unknown; allowed: {', '.join(known)}")
        chosen, default = experiment(self.study), preset_design(self.preset)
        for name in ("batch_size", "rollouts", "support_rollouts", "replay_window"):
            given = getattr(self.design, name)
            check(
                given == getattr(default, name),
                f"{name} = {given}: study {self.study} sets it for each of its cells; use study {SINGLE} for "
                "one design",
            )
        return replace(chosen, cells=tuple(self._adapted(cell) for cell in chosen.cells))

    def _adapted(self, cell: Design) -> Design:
        estimator = self.design.estimator
        if cell.estimator.advantage.baseline == "none":
            estimator = replace(estimator, advantage=Advantage("none"))
        own = {name: getattr(cell, name) for name in ("batch_size", "rollouts", "support_rollouts", "replay_window")}
        return replace(self.design, estimator=estimator, **own)


@dataclass(frozen=True)
class Run(StudyCommand):
    """Run one study or one design with any estimator.

        rftlab run rollouts --preset dr_grpo --estimator.surrogate.high 0.28

    A study sets batch size, rollouts, support rollouts and window of its cells; study `cell` is the single design of
    these flags. With --level llm language models run, and other flags apply: `rftlab run cell --level llm --help`.
    """

    level: Literal["sim"] = "sim"
    """The kind of runs: the simulator, or with llm a language model."""
    sampler: Sampler = field(default_factory=Sampler)
    """Differences between the policy that samples and the one that is trained."""
    environment: Linear = field(default_factory=Linear)
    """Contexts and base policy, by default the pair's."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """Update rule, by default the pair's."""
    evaluation: Evaluation = "exact"
    """Measured: Pass@1, exact or sampled; with full also pass@k, entropy, format, zero-variance groups, lengths."""

    def start(self) -> Simulation:
        """Return the pair's simulation with this command's changes."""
        changed = {name: getattr(self, name) for name in ("sampler", "environment", "optimizer", "evaluation")}
        return replace(start_at(self.pair, "sim"), **changed)


@dataclass(frozen=True)
class RunModel(RewardFlags, LLMFlags, StudyCommand):
    """One study on a language model: `rftlab run tradeoff --level llm --pair tiny-mix97 --seeds 1
    --optimizer.learning-rate 3e-4`.

    A study sets batch size, rollouts, support rollouts and window of its cells; study `cell` is the single design of
    these flags.
    Kill it at any moment: the same command goes on from the last checkpoints.
    """

    level: Literal["llm"] = "llm"
    """The kind of runs: a language model, or with sim the simulator."""

    def start(self) -> LLMRun:
        """Return the pair's run with this command's changes."""
        named = tuple(self.loaded)
        return replace(self.changed(start_at(self.pair, "llm")), rewards=named, reward_timeout=self.reward_timeout)


def preset_design(name: str) -> Design:
    """Return the design that a preset's card runs on."""
    estimator, card = preset(name), CARDS[find_name(name)]
    return Design(rollouts=card.rollouts, replay_window=card.replay_window, estimator=estimator, sampling=card.sampling)


def check_filter(design: Design) -> None:
    """Raise UserError where a filter of rollouts keeps them all, and so the run would not be what its label says."""
    keep, rollouts = design.sampling.keep, design.rollouts
    check(
        keep == 0 or keep < rollouts,
        f"sampling.keep = {keep} of rollouts = {rollouts} filters nothing; allowed: fewer than rollouts, or 0 "
        "for no filter",
    )


def parse_reproduce(arguments: list[str]) -> Reproduce:
    """Parse the arguments after `reproduce`. Flags of the parts that a study may change are those of `run`."""
    prefixes = tuple(f"--{part}." for part in CHANGED_PARTS)
    given: list[str] = []
    others: list[str] = []
    waiting = False
    for argument in arguments:
        new = argument.startswith(prefixes)
        (given if new or waiting else others).append(argument)
        waiting = new and "=" not in argument  # then the next word is its value
    command = tyro.cli(Reproduce, prog="rftlab reproduce", args=others)
    if not given:
        return command
    pair = (command.pairs or usual_pairs(command.level))[0]
    run = parse_run([SINGLE, "--level", command.level, "--pair", pair, *given])
    names = [argument[2:].partition("=")[0].replace("-", "_") for argument in given if argument.startswith(prefixes)]
    return replace(command, changes={name: operator.attrgetter(name)(run) for name in sorted(names)})


def parse_run(arguments: list[str]) -> StudyCommand:
    """Parse the arguments after `run`. `--level`, `--preset` and `--pair` decide the defaults of the other flags."""
    level, name = known_level(peek(arguments, "--level", "sim")), peek(arguments, "--preset", "paper_text")
    chosen = peek(arguments, "--pair", usual_pairs(level)[0])
    default = _defaults(level, chosen, name)
    return tyro.cli(
        type(default), prog="rftlab run", args=arguments, default=default, config=(tyro.conf.AvoidSubcommands,)
    )


def _defaults(level: Level, chosen: str, name: str) -> StudyCommand:
    start = start_at(chosen, level)
    design = replace(preset_design(name), rounds=start.design.rounds, eval_every=start.design.eval_every)
    if isinstance(start, Simulation):
        return Run(
            pair=chosen, preset=name, design=design, environment=linear_environment(start), optimizer=start.optimizer
        )
    return RunModel(pair=chosen, preset=name, design=design, **llm_flags(start))


@dataclass(frozen=True)
class Explore:
    """Move the sliders of a design beside its learning curve.

    The page is of this machine alone (127.0.0.1) at an address with a secret, loads nothing from elsewhere, and writes
    nothing. Ctrl-C ends it. Needs the extra `explore`.

        rftlab explore
        rftlab explore results --state 'start=olmo-math&B=256&K=1'
    """

    results: tyro.conf.Positional[Path | None] = None
    """Results folder whose real runs are laid over simulated ones; if left out, those that come with rftlab alone."""
    state: str = ""
    """The state that the page begins with: the part behind the question mark of a link that it gave."""
    port: int = 0
    """Port of the page; 0 takes a free one."""
    threads: int = 0
    """Threads that simulate; 0 means all cores."""
    browser: bool = True
    """Open the page in the browser; otherwise its address is printed alone."""

    def __post_init__(self):
        check_threads(self.threads)
        check(
            self.port == 0 or 1024 <= self.port <= MAX_PORT,
            f"port = {self.port}; allowed: 0 for any, or 1024 to {MAX_PORT}",
        )

    def execute(self, console: Console) -> int:
        """Serve the page until Ctrl-C."""
        from rftlab.studies.data.runs.store import check_format
        from rftlab.studies.explore.choices import chosen_run, from_address
        from rftlab.studies.explore.measures import take_calibrations
        from rftlab.studies.explore.server import check_installed, serve

        check_installed()
        if self.results is not None:
            check_format(self.results)
            for line in take_calibrations(self.results):
                say(console, f"left out: {line}", "yellow")
        scene = from_address(self.state)
        from rftlab.studies.data.runs.runner import available_threads
        from rftlab.studies.explore.jobs import Bench
        from rftlab.studies.explore.page import Setting, pages

        def ready(address: str) -> None:
            whole = f"{address}?{self.state}" if self.state else address
            say(console, f"explore: {whole}")
            console.print("Ctrl-C ends it", style="dim")
            if self.browser:
                webbrowser.open(whole)

        setting = Setting(Bench(self.threads or available_threads()), self.results)
        setting.bench.warm(chosen_run(scene.choices))
        serve(pages(setting), self.port, ready, threading.Event())
        return 0
