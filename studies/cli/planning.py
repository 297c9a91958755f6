"""The commands that plan runs: signal, power, advise."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, get_args

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import UserError, check, check_choice, check_count, check_finite, plain
from rftlab.studies.cli.common import check_named
from rftlab.studies.console.table import say
from rftlab.studies.integrations.cluster import EngineChoice

MAX_DESIGNS = 60
_HOURS = re.compile(
    r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?nan|[-+]?inf) *(?:GPU-?)?(?:h|hours?)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Signal:
    """Compute how many groups of a round teach anything.

    From pass rates: zero-variance groups, effective batch, tries of dynamic sampling, prompts worth dropping.

        rftlab signal rates.csv                     # a question a row: right,responses (or pass_rate)
        rftlab signal --pair tiny-mix97             # a pilot, or the measurements that come with rftlab
        rftlab signal --imported mine               # groups of an imported run, where its log has a response a row
        rftlab signal --p 0.3 --spread 0.2          # pass rates from a Beta of this mean and deviation
    """

    file: tyro.conf.Positional[Path | None] = None
    """CSV or JSON with a question a row: right and responses, or pass_rate."""
    column: str | None = None
    """Column of the pass rates, where its name is not understood."""
    responses: int | None = None
    """Responses behind each rate, where the file does not say it."""
    pair: str | None = None
    """Model-dataset pair whose base model a pilot measured."""
    imported: str | None = None
    """Collection of rftlab import, NAME or NAME#RUN, from a log with a response a row."""
    rounds: tuple[int, int] | None = None
    """First and last round of the imported run that are looked at; its last quarter if left out."""
    results: Path = Path("results")
    """Results folder with the pilot or the collection."""
    p: float | None = None
    """Mean pass rate, instead of measurements."""
    spread: float = 0.0
    """With --p: standard deviation of pass rates over questions."""
    batch: tuple[int, ...] = (8, 32, 128, 256)
    """B: prompts of a round."""
    rollouts: tuple[int, ...] = (2, 4, 8, 16, 32)
    """K: responses to each prompt."""

    def __post_init__(self):
        given = [name for name in ("file", "pair", "imported", "p") if getattr(self, name) is not None]
        check(
            len(given) == 1,
            f"pass rates from {' and '.join(given) or 'nowhere'}; allowed: one of a file, --pair NAME, --imported "
            "NAME, --p P",
        )
        for name, least in (("batch", 1), ("rollouts", 2)):  # a group of one always has zero variance
            check(bool(getattr(self, name)), f"{name} names none; allowed: one number or more")
            check(len(getattr(self, name)) <= 12, f"{name} names {len(getattr(self, name))}; allowed: at most 12")
            for value in getattr(self, name):
                check_count(name, value, least, 100_000)
        check(self.spread == 0 or self.p is not None, f"spread = {self.spread:g}; allowed: with --p")
        imported = self.rounds is None or self.imported is not None
        check(imported, "rounds are of an imported run; allowed: with --imported")
        for value in self.rounds or ():
            check_count("rounds", value, 0)
        only = self.file is not None or (self.responses is None and self.column is None)
        check(only, "column and responses describe a file; allowed: with a file")
        check_named(self, ("responses",), check_count, 1, 100_000)

    def execute(self, console: Console) -> int:
        """Print the tables."""
        from rftlab.studies.forecast.signal import show
        from rftlab.studies.forecast.signal.signal import Fitted, fit_rates, match_beta

        measured, origin = self._measured()
        if measured:
            rates = fit_rates(measured)
        else:
            mean = self.p or 0.0
            text = f"Beta with mean {mean:g} and deviation {self.spread:g}, as given" if self.spread else "all alike"
            rates = Fitted(match_beta(mean, self.spread), None, text)
        if origin:
            say(console, origin)
        say(console, f"pass rates: {rates.origin}")
        say(console, f"mean {rates.rates.mean:.3f}, deviation {max(0.0, rates.rates.variance) ** 0.5:.3f}")
        show.show_silent(console, rates, measured, self.rollouts)
        show.show_groups(console, rates.rates, self.batch, self.rollouts)
        if measured and measured.gradient:
            show.show_noise(console, measured.gradient, self.batch, self.rollouts)
        else:
            text = "B_eff = B / (r + 1/K) needs r from a pilot's gradients (rftlab pilot): groups with signal alone."
            say(console, text, "dim")
        show.show_tries(console, rates.rates, self.batch[min(1, len(self.batch) - 1)], self.rollouts)
        if measured:
            show.show_drops(console, rates, measured, self.rollouts)
        text = "Pass rates are those of the measured model; they move as it learns. Prompts are drawn independently."
        say(console, text, "dim")
        return 0

    def _measured(self):
        """Return what the file, the pilot or the log measured, None where a mean and a spread are given, and a line on
        its source."""
        from rftlab.studies.forecast.signal.signal import imported_rates, pilot_rates, read_rates

        if self.imported is not None:
            return imported_rates(self.results, self.imported, self.rounds)
        if self.file is not None:
            return read_rates(self.file, self.column, self.responses), ""
        return (pilot_rates(self.results, self.pair) if self.pair is not None else None), ""


@dataclass(frozen=True)
class Power:
    """Compute seeds and questions that a difference needs.

    Or say whether a measured difference is real.

        rftlab power --sigma 0.015 --difference 0.02           # seeds an arm, paired and unpaired
        rftlab power --difference 0.02 --p 0.4 --spread 0.3    # test questions
        rftlab power --a 0.41 0.43 0.40 --b 0.44 0.46 0.45     # is it real?
        rftlab power --imported sweep --a run1 run2 --b run3 run4
    """

    difference: float | None = None
    """Difference of Pass@1 that is to be found, with chance 0.8."""
    sigma: float | None = None
    """Standard deviation of a run's Pass@1 over seeds."""
    correlation: float = 0.0
    """Correlation of two designs' runs of one seed; pairing gains from it."""
    questions: int | None = None
    """Number of test questions."""
    p: float | None = None
    """Mean Pass@1 over questions."""
    spread: float = 0.0
    """Standard deviation of pass rates over questions (rftlab signal prints it)."""
    responses: int = 1
    """Sampled responses to each test question."""
    a: tuple[str, ...] = ()
    """Pass@1 of the runs of one design; names of runs with --imported, * for any letters."""
    b: tuple[str, ...] = ()
    """Pass@1, or names, of the runs of the other design."""
    paired: bool = False
    """Whether the first of a and the first of b have one seed, and so on."""
    imported: str | None = None
    """Collection of `rftlab import`, NAME, NAME/TASK or NAME#RUN, or public:SOURCE; alone it gives sigma from runs that
    repeat a design."""
    results: Path = Path("results")
    """Results folder with the collection."""

    def __post_init__(self):
        check(bool(self.a) == bool(self.b), "a and b are two sides; allowed: both, or neither")
        check_named(self, ("difference", "sigma"), check_finite, above=0)
        small = self.difference is not None and not 1e-6 <= self.difference <= 1
        check(not small, f"difference = {self.difference}; allowed: 1e-6 to 1, a difference of Pass@1")
        check_named(self, ("questions",), check_count)
        asked = (
            self.a
            or (self.difference is not None and (self.sigma or self.p or self.imported))
            or (self.questions is not None and self.p is not None)
            or self.imported
        )
        check(
            bool(asked),
            "nothing to compute; allowed: --a .. --b .., --sigma S --difference D, --p P --difference D, "
            "--questions N --p P, or --imported NAME",
        )
        check(not self.paired or bool(self.a), "paired is of measured runs; allowed: with --a and --b")

    def execute(self, console: Console) -> int:
        """Print whether measured runs differ, and the seeds and questions that a difference needs."""
        from rftlab.studies.forecast.signal import show
        from rftlab.studies.forecast.signal.power import (
            checked_questions,
            chosen_sides,
            final_scores,
            selected,
            tasks_told,
        )

        sigma = self.sigma
        runs = selected(self.results, self.imported) if self.imported else None
        if runs and (several := tasks_told(*runs)):
            say(console, several)
        if self.a:
            if runs:
                a, b = chosen_sides(final_scores(*runs), self.a, self.b)
            else:
                a, b = self._numbers("a"), self._numbers("b")
            if runs and self.paired:
                say(console, f"pairs: {plain(', '.join(map(' with '.join, zip(a, b, strict=False))))}")
            show.show_compared(console, [*a.values()], [*b.values()], self.paired, sigma)
        elif runs and sigma is None:
            sigma = show.show_repeats(console, *runs)
        if sigma is not None and self.difference is not None:
            show.show_seeds(console, sigma, self.difference, self.correlation)
        if self.p is not None:
            questions = checked_questions(self.p, self.spread, self.responses)
            show.show_questions(console, questions, self.difference, self.questions)
        return 0

    def _numbers(self, name: str) -> dict[str, float]:
        """Return the Pass@1 of the runs of side a or b by their index. Raises UserError for a text that is no
        Pass@1."""
        values = {}
        for place, text in enumerate(getattr(self, name)):
            try:
                value = float(text)
            except ValueError:
                allowed = "numbers from 0 to 1, or names of runs with --imported"
                raise UserError(f"{name} = {text!r}; allowed: {allowed}") from None
            check(0 <= value <= 1, f"{name} = {text}; allowed: 0 to 1")
            values[str(place)] = value
        return values


@dataclass(frozen=True)
class Advise:
    """Rank the first runs of a model to make.

    Prints memory and hours of each design, what the evidence says, and a ranked table.

        rftlab advise --model ./my-7b --gpus 8xH100 --budget 200
        rftlab advise --model 7e9 --designs 32x8 256x2 --engine trl
        rftlab advise --model ./config.json --task mine --prompt-tokens 300 --response-tokens 2000

    Needs neither a GPU nor the hub. Without evidence it ranks costs, and says so.
    """

    model: str = ""
    """Model: a folder with a config.json, that file, a known name, one in the hub's local cache, or a number of
    parameters (7e9, 7B); that of --config if left out."""
    config: Path | None = None
    """Configuration of TRL or verl to start from (YAML, JSON, script): designs keep its estimator, rate and lengths,
    and what the first one changes is printed."""
    task: str = "gsm8k"
    """Task: gsm8k, math or words; another name needs --prompt-tokens and --response-tokens."""
    gpus: Annotated[str, tyro.conf.arg(aliases=("--gpu",))] = "8xH100"
    """GPUs as COUNTxNAME, of A100-40, A100-80, H100, H200, and measured[:FILE], a report of `make gpu-check`."""
    budget: tuple[str, ...] = ("200",)
    """GPU-hours for the first runs together: 200, or 200 GPU-hours."""
    designs: tuple[str, ...] = ()
    """Designs by their labels in the grid, or as BxK; the 25 designs of the grid if left out."""
    rounds: int = 500
    """Training rounds of a run."""
    prompt_tokens: int | None = None
    """Mean tokens of a prompt."""
    response_tokens: int | None = None
    """Mean tokens of a response."""
    pair: str | None = None
    """Evidence: the pilot of this pair (rftlab pilot)."""
    imported: str | None = None
    """Evidence: this collection of rftlab import, NAME, NAME/TASK or NAME#RUN, or public:SOURCE."""
    rates: Path | None = None
    """Evidence: a file of pass rates, as rftlab signal reads it."""
    results: Path = Path("results")
    """Results folder with the evidence."""
    engine: EngineChoice = "verl"
    """Trainer for which the settings of the first run are written; that of --config where there is one."""
    learning_rate: float | None = None
    """Learning rate in these settings; that of --config, or 1e-6, if left out."""

    def __post_init__(self):
        check_finite("budget", self._gpu_hours(), above=0)
        check_named(self, ("learning_rate",), check_finite, above=0)
        check(bool(self.model or self.config), "--model is missing; allowed: a model, or --config with one")
        check_count("rounds", self.rounds, 1, 1_000_000)
        check_named(self, ("prompt_tokens", "response_tokens"), check_count, 1, 1_000_000)
        check_choice("engine", self.engine, get_args(EngineChoice))
        check(len(self.designs) <= MAX_DESIGNS, f"designs names {len(self.designs)}; allowed: at most {MAX_DESIGNS}")

    def _gpu_hours(self) -> float:
        """Return the budget as a number. Raises UserError where it is none."""
        match = _HOURS.fullmatch(" ".join(self.budget))
        if match is None:
            raise UserError(f"--budget {' '.join(self.budget)[:80]}; allowed: GPU-hours, as 200 or 200 GPU-hours")
        return float(match[1])

    def execute(self, console: Console) -> int:
        """Print the advice; status 1 where no design fits."""
        from rftlab.studies.forecast.advise import show
        from rftlab.studies.forecast.advise.engines import read_start
        from rftlab.studies.forecast.advise.evidence import gather_evidence
        from rftlab.studies.forecast.advise.fleet import least_gpus, parse_fleet, planned_on
        from rftlab.studies.forecast.advise.options import advised_run, designs_named, make_option, rank_options
        from rftlab.studies.forecast.models import shape_named

        fleet, assumed = parse_fleet(self.gpus), self._assumed()
        start = read_start(self.config, fleet.count) if self.config else None
        name = self.model or (start.known.model if start else None)
        if not name:
            raise UserError(f"{self.config} names no model; allowed: --model with one beside it")
        model = shape_named(name)
        evidence = gather_evidence(self.results, self.pair, self.imported, self.rates)
        options = []
        for label, named in designs_named(self.designs, self.rounds).items():
            design = start.changed(named) if start else named
            plan = planned_on(advised_run(model.name, design, assumed), model.shape, fleet, assumed)
            options.append(make_option(label, design, plan, evidence))
        options = rank_options(options)
        show.show_head(console, model, options[0].plan, assumed)
        if start:
            show.show_start(console, start)
        show.show_evidence(console, evidence)
        self._warn(console, model.name)
        show.show_options(console, options, self._gpu_hours())
        fitting = [option for option in options if option.plan.fits]
        if fitting:
            self._propose(console, fitting, model, start)
        else:
            smallest = min(options, key=lambda option: option.plan.memory.peak)
            show.show_memory(console, smallest)
            show.show_unfit(console, least_gpus(smallest.plan.run, model.shape, fleet, assumed), fleet.device.name)
        show.show_trust(console, evidence, options[0].plan)
        return 0 if fitting else 1

    def _propose(self, console: Console, fitting: list, model, start) -> None:
        """Print the first runs, the memory of the first, and its settings for an engine."""
        from rftlab.studies.forecast.advise import show
        from rftlab.studies.forecast.advise.engines import EngineSettings, engine_flags
        from rftlab.studies.forecast.advise.options import first_runs

        first = first_runs(fitting, self._gpu_hours())
        show.show_first_runs(console, first, self._gpu_hours(), min(fitting, key=lambda option: option.plan.gpu_hours))
        chosen, _ = first[0] if first else (fitting[0], "")
        show.show_rate(console, chosen.plan, model, start.known.precision if start else None)
        show.show_memory(console, chosen)
        run, known = chosen.plan.run, start.known if start else None
        settings = EngineSettings(
            replace(chosen.design, rounds=self.rounds),
            (known.model if known and not self.model else None) or model.path,
            chosen.plan.fleet.count,
            run.model.max_prompt_length,
            (known.response_limit if known else None) or run.model.max_response_length,
            self.learning_rate or (known.learning_rate if known else None) or 1e-6,
            chosen.plan.tensor_parallel,
            (known.temperature if known else None) or 1.0,
        )
        engine = start.tool if start else self.engine
        try:
            told = engine_flags(engine, settings)
        except UserError as error:
            say(console, f"{chosen.label} on {engine}: {error}", "yellow")
            return
        if start:
            show.show_changes(console, chosen.label, start, told)
        else:
            show.show_engine(console, engine, chosen.label, told)

    def _warn(self, console: Console, name: str) -> None:
        """Warn where a pilot measured another model or task than the one that is asked about."""
        from rftlab.studies.data.paper.pairs import start_at

        if self.pair is not None:
            run = start_at(self.pair, "llm")
            if (run.model.source, run.task.name) != (name, self.task):
                text = f"the pilot is of {run.model.source} on {run.task.name}; it stands in for {name} on {self.task}"
                say(console, text, "yellow")

    def _assumed(self):
        """Return mean lengths and numbers of questions. Raises UserError where the task tells no lengths."""
        from rftlab.llm.budget.plan import LENGTHS, Assumed
        from rftlab.studies.forecast.advise.options import QUESTIONS

        given = self.prompt_tokens, self.response_tokens
        check(
            self.task in LENGTHS or None not in given,
            f"task = {self.task!r} is not known; allowed: {', '.join(LENGTHS)}, or --prompt-tokens and "
            "--response-tokens",
        )
        usual = LENGTHS.get(self.task, (0, 0))
        prompt, response = (own or known for own, known in zip(given, usual, strict=True))
        return Assumed(prompt, response, *QUESTIONS)
