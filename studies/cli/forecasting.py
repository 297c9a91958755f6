"""The commands that forecast designs: pilot, predict, dev score."""

from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from rftlab.llm.budget.devices import device_at_hand
from rftlab.llm.config import Compute, EngineName, LLMRun, Model
from rftlab.llm.probe_config import ProbeConfig
from rftlab.llm.tasks.config import TaskConfig
from rftlab.shared.plumbing.errors import UserError, check, check_choice, check_count
from rftlab.studies.cli.common import TINY_PAIR, Common, check_named, parse_abridged, peek
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.experiments import BASELINE, PILOT_CELLS
from rftlab.studies.data.paper.pairs import PAIRS, start_at

SCORED = ("language", "smollm2", "paper", "public")
"""Sources of runs in rftlab on which forecasts can be scored."""


@dataclass(frozen=True)
class Pilot(Common):
    """Measure on a real model what the simulator needs.

        rftlab pilot --model FOLDER --task gsm8k --reported 0.496    # what training may claim; nothing is trained
        rftlab pilot --pair tiny-mix97                               # with the runs of a few designs

    That is pass rates, format, gradient noise, lengths, and the curves of a few designs; and what the base model can
    already do: with a lenient parser, greedily, with examples in the prompt, by a vote, in many tries. --model X and
    --task X are short for --model.source and --task.name: any model that `rftlab train` loads, any task it trains on.
    --help shows the usual flags, --help-all every flag.

    r, the noise between questions over that of a response, comes with an interval. Each number is printed with what it
    says. Before anything is sampled the command says how many rollouts it will take: by default 5.2% of those of the
    whole grid of `tiny`, 0.5% without the runs (--designs with nothing). The runs are those of the grid, which finds
    them in the results folder and does not run them again. Safe to interrupt: run the same command again and it goes on
    where it stopped.
    """

    pair: str = TINY_PAIR
    """Model-dataset pair of level llm."""
    task: TaskConfig = field(default_factory=lambda: start_at(TINY_PAIR, "llm").task)
    """Task and its problems, by default the pair's."""
    model: Model = field(default_factory=lambda: start_at(TINY_PAIR, "llm").model)
    """Model, by default the pair's: a folder, or a name on the hub."""
    compute: Compute = field(default_factory=lambda: start_at(TINY_PAIR, "llm").compute)
    """Device, sampler and sizes of the pieces of work; with --model on the GPU where there is one."""
    temperature: float = 1.0
    """Temperature of training."""
    designs: tuple[str, ...] = PILOT_CELLS
    """Designs of the grid that are run, by their labels."""
    rounds: int | None = None
    """Rounds of these runs; the pair's own if left out. A shorter run is a run of its own: the grid does not use it."""
    midway: bool = True
    """Train the baseline for half of its rounds and measure gradients there too, where r and phi are what the law
    takes."""
    reported: float | None = None
    """Score that the model's makers report for the task, 0 to 1; of a base model that of its instruct sibling. Says
    where such runs end and what a run must reach before anything was learned."""
    sibling: bool = False
    """The reported score is that of the instruct sibling."""
    config: Annotated[ProbeConfig, tyro.conf.arg(name="")] = field(default_factory=ProbeConfig)
    """The measurements on the base model."""
    alone: tyro.conf.Fixed[bool] = False
    """Whether a model was named, so that nothing is trained."""

    def __post_init__(self):
        super().__post_init__()
        if self.reported is not None:
            check(0 < self.reported < 1, f"reported = {self.reported:g}; allowed: above 0 and below 1, a Pass@1")
        check(self.reported is not None or not self.sibling, "sibling; allowed: with --reported, the sibling's score")

    def execute(self, console: Console) -> int:
        """Measure, or read what was measured, and print it."""
        from rftlab.studies.forecast.pilot.run import Wanted, own_name, pilot, wanted
        from rftlab.studies.forecast.pilot.show import claim_lines, show_pilot
        from rftlab.studies.forecast.pilot.store import pilot_path

        run = self._own()
        if run is None:
            asked = wanted(self.pair, self.designs, self.rounds, self.config, self.midway)
        else:
            trained = self.designs not in ((), PILOT_CELLS) or self.rounds is not None
            check(not trained, "designs and rounds: with --model nothing is trained; allowed: with --pair")
            asked = Wanted(own_name(run), (), None, self.config, False, run)
        measured = pilot(console, asked, self.results, self.threads, self.quiet)
        show_pilot(console, measured)
        kind = "base" if self.sibling else "instruct"
        if measured.base.headroom is not None:
            for line in claim_lines(measured.base.headroom, self.task.name, self.reported, kind):
                say(console, line)
        say(console, f"pilot: {pilot_path(self.results, asked.pair)}")
        return 0

    def _own(self) -> LLMRun | None:
        """Return the run whose model is measured, where a model is named or not the pair's; None for the pair's own."""
        start = start_at(self.pair, "llm")
        parts = {name: getattr(self, name) for name in ("task", "model", "compute", "temperature")}
        if not self.alone and all(getattr(start, name) == part for name, part in parts.items()):
            return None
        return LLMRun(design=replace(BASELINE, batch_size=1), **parts)


MODEL, TASK = "--model.source", "--task.name"


def parse_pilot(arguments: list[str]) -> Pilot:
    """Parse the arguments after `pilot`. `--pair`, or the pair of that model, decides the defaults of the other flags;
    where `--model` is of no pair, the default device is a GPU if there is one."""
    short = {"--model": MODEL, "--task": TASK}
    split = [word.partition("=") for word in arguments]
    arguments = [short.get(flag, flag) + sign + value for flag, sign, value in split]
    pair, source, task = peek(arguments, "--pair", ""), peek(arguments, MODEL, ""), peek(arguments, TASK, "")
    known = {name: each.llm for name, each in PAIRS.items() if each.llm is not None and each.llm.model.source == source}
    alike = sorted(known, key=lambda name: known[name].task.name != task)
    if pair or alike or not source:
        pair = pair or (alike or [TINY_PAIR])[0]
        start = start_at(pair, "llm")
    else:
        pair, start = TINY_PAIR, LLMRun(TaskConfig("gsm8k"), Model(source), compute=_usual_compute())
    default = Pilot(pair=pair, **{name: getattr(start, name) for name in ("task", "model", "compute", "temperature")})
    if source:
        few = ProbeConfig(0, 256, temperatures=(1.0, 0.0), many_questions=0)
        default = replace(default, config=few, alone=True)
    return parse_abridged(Pilot, "rftlab pilot", arguments, default)


def _usual_compute() -> Compute:
    """Return the settings for the GPU that torch sees, with vLLM where it is installed; else those for the CPU."""
    if device_at_hand("cuda") is None:
        return Compute()
    engine: EngineName = "vllm" if find_spec("vllm") else "hf"
    return Compute("cuda", precision="bf16", engine=engine, logit_rows=512)


@dataclass(frozen=True)
class _Forecasting(Common):
    """Flags of commands that make forecasts, also from imported runs without an evaluation at round 0."""

    results: Path = Path("results")
    """Results folder with the pilot, and for what is found."""
    seed: int = 0
    """Seed of the calibration: of its worlds, training runs and draws."""
    base: float | None = None
    """For imported runs: test Pass@1 of the untrained model, 0 to 1, where the log has no evaluation of it. Guessed
    from the first evaluations if left out."""
    questions: int | None = None
    """For imported and unfinished runs: responses behind a test Pass@1, where the log does not say."""

    def __post_init__(self):
        super().__post_init__()
        check_count("seed", self.seed, 0, 2**32 - 1)
        if self.base is not None:
            check(0 <= self.base <= 1, f"base = {self.base:g}; allowed: 0 to 1, a share of right answers")
        check_named(self, ("questions",), check_count, 1, 10**9)

    def _refuse(self, names: str, allowed: str) -> None:
        """Raise UserError where one of these flags is given."""
        for name in names.split():
            value = getattr(self, name)
            told = " ".join(value) if isinstance(value, tuple) else value
            check(value in ((), None), f"{name} = {told}; allowed: {allowed}")


@dataclass(frozen=True)
class Predict(_Forecasting):
    """Forecast designs from a pilot, or where a run ends.

    By the simulator and by the law of the effective batch, with intervals, next to three plain forecasts. Calibrates
    the simulator first where that was not done, and prints which of its parameters the pilot determines; the same
    command goes on where it stopped. A pair whose reference runs come with rftlab needs no pilot. Writes
    RESULTS/forecast/PAIR/forecast.csv, a figure and forecast.html.

        rftlab predict trainer_state.json --rounds 2000    # where this run ends; of two runs, which ends higher
        rftlab predict --pair imported:mine --designs 32x8 256x1
        rftlab predict --pair imported:mine --designs 32x8@2e-6 --quick    # at another learning rate
        rftlab predict --model-size 1.5 --family qwen --task gsm8k    # of a model that nobody ran
    """

    runs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Unfinished runs: a log, a run's folder, imported:NAME#RUN. In place of a pilot."""
    rounds: int | None = None
    """For unfinished runs: rounds that they will have."""
    pair: str = TINY_PAIR
    """Model-dataset pair of level llm; or imported:NAME, imported:NAME/TASK, imported:NAME#RUN; public:SOURCE."""
    budget: int | None = None
    """Rollouts that a run may spend; any if left out."""
    designs: tuple[str, ...] = ()
    """For imported runs: prompts x rollouts, such as 32x8, as long as the longest run, or with --quick at a learning
    rate, 32x8@1e-6; those of the runs if left out."""
    quick: bool = False
    """Use the law and the plain forecasts alone, which takes seconds; nothing is calibrated."""
    model_size: float | None = None
    """Size in billions of parameters of a model that nobody ran; --family and --task alone tell where its runs end."""
    family: str | None = None
    """With --model-size: beginning of model names, such as qwen or llama."""
    task: str | None = None
    """With --model-size: gsm8k or math."""
    pilot: Path | None = None
    """For imported runs: file with r and phi, results/pilot/NAME/run.json of the TRL callback or a pilot.json."""

    def execute(self, console: Console) -> int:
        """Forecast, print, write."""
        from rftlab.studies.analysis.source import is_free
        from rftlab.studies.forecast.forecast import find_pilot, request_from_pilot, request_from_runs, with_noise
        from rftlab.studies.forecast.run import run_forecast

        if (self.model_size, self.family, self.task) != (None, None, None):
            return self._predict_unknown(console)
        if self.runs:
            return self._predict_endings(console)
        check(
            self.rounds is None, f"rounds = {self.rounds}; allowed: with unfinished runs, rftlab predict LOG --rounds N"
        )
        if is_free(self.pair):
            told = self.designs, self.quick, self.base, self.questions
            request = request_from_runs(self.pair, self.results, *told)
            request = request if self.pilot is None else with_noise(request, self.pilot)
        else:
            self._refuse("designs base questions pilot", "with --pair imported:NAME or public:SOURCE")
            request = request_from_pilot(find_pilot(self.results, self.pair))
        run_forecast(console, request, self.budget, self.results, self.seed, self.threads, self.quiet, self.quick)
        return 0

    def _predict_unknown(self, console: Console) -> int:
        """Print where runs of a model that nobody ran would end."""
        from rftlab.studies.analysis.public.credit import size_lines

        size, family, task = self.model_size, self.family, self.task
        if size is None or family is None or task is None:
            raise UserError("--model-size, --family and --task go together; allowed: all three, as 1.5, qwen and gsm8k")
        allowed = "not with --model-size, of a model that nobody ran"
        self._refuse("runs rounds designs budget base questions pilot", allowed)
        for line in size_lines(size, family, task):
            say(console, line)
        return 0

    def _predict_endings(self, console: Console) -> int:
        """Print where unfinished runs end."""
        from rftlab.studies.analysis.source import read_run
        from rftlab.studies.forecast.ending import run_ending, show_endings

        self._refuse("designs budget base pilot", "with --pair, not with unfinished runs")
        planned = self.rounds or 0
        shown = "none" if self.rounds is None else self.rounds
        check(planned > 0, f"rounds = {shown}; allowed: --rounds N, the rounds that {self.runs[0]} will have")
        check_count("rounds", planned, 1, 10**9)
        read = [read_run(name, self.results) for name in self.runs]
        show_endings(console, [run_ending(run, planned, self.questions) for run in read], planned)
        return 0


@dataclass(frozen=True)
class Score(_Forecasting):
    """Score forecasts on runs that were held out.

    Pilots of language models are scored against their whole grids, the paper's numbers from experiment 1 alone, other
    people's runs from their cheapest design. Takes minutes for each pair, seconds where nothing is simulated (public,
    imported:NAME). Writes RESULTS/score/WHAT/: every cell with its forecasts, what was known and what was held out, and
    a figure; of other people's runs also how often the alarms of `rftlab diagnose` are right.

        rftlab dev score --what imported:mine
        rftlab dev score --what imported:mine --base 0.42 --questions 500    # a log without an evaluation at round 0
    """

    what: str = "language"
    """Runs to score on. language: tiny pairs, whose whole grids come with rftlab; smollm2: a pre-trained model, three
    designs; paper: six pairs of arXiv 2601.22532; public: runs of other people that come with rftlab; or imported:NAME,
    public:SOURCE."""

    def __post_init__(self):
        from rftlab.studies.analysis.source import is_free

        super().__post_init__()
        if not is_free(self.what):
            check_choice("what", self.what, (*SCORED, "imported:NAME", "public:SOURCE"))
            self._refuse("base questions", "with --what imported:NAME or public:SOURCE")

    def execute(self, console: Console) -> int:
        """Score, print, write."""
        from rftlab.studies.data.runs.store import open_store
        from rftlab.studies.forecast.score.score import run_scores

        asked = (self.what, open_store(self.results), self.seed, self.threads, self.quiet)
        run_scores(console, *asked, self.base, self.questions)
        return 0
