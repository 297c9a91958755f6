"""The command line of `rftlab advise`."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from rich.console import Console

from rftlab.shared.plumbing.errors import UserError, check, check_choice, check_count, check_finite
from rftlab.studies.console.table import say
from rftlab.studies.integrations.cluster import EngineChoice

MAX_DESIGNS = 60
_HOURS = re.compile(
    r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?nan|[-+]?inf) *(?:GPU-?)?(?:h|hours?)?", re.IGNORECASE
)


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
    """A folder with a config.json, that file, a known name, one in the hub's local cache, or a number of parameters
    (7e9, 7B); that of --config if left out."""
    config: Path | None = None
    """Configuration of TRL or verl to start from (YAML, JSON, script): designs keep its estimator, rate and lengths,
    and what the first one changes is printed."""
    task: str = "gsm8k"
    """gsm8k, math or words; another name needs --prompt-tokens and --response-tokens."""
    gpus: str = "8xH100"
    """COUNTxNAME, of A100-40, A100-80, H100, H200."""
    budget: tuple[str, ...] = ("200",)
    """GPU-hours for the first runs together: 200, or 200 GPU-hours."""
    designs: tuple[str, ...] = ()
    """Labels of the grid, or BxK; the 25 designs of the grid if left out."""
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
    """Trainer in whose words the first run is told; that of --config where there is one."""
    learning_rate: float | None = None
    """That the engine is told; that of --config, or 1e-6, if left out."""

    def __post_init__(self):
        check_finite("budget", self._gpu_hours(), above=0)
        if self.learning_rate is not None:
            check_finite("learning_rate", self.learning_rate, above=0)
        check(bool(self.model or self.config), "--model is missing; allowed: a model, or --config with one")
        check_count("rounds", self.rounds, 1, 1_000_000)
        for name in ("prompt_tokens", "response_tokens"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1, 1_000_000)
        check_choice("engine", self.engine, get_args(EngineChoice))
        check(len(self.designs) <= MAX_DESIGNS, f"designs names {len(self.designs)}; allowed: at most {MAX_DESIGNS}")

    def _gpu_hours(self) -> float:
        """The budget as a number."""
        found = _HOURS.fullmatch(" ".join(self.budget))
        check(found is not None, f"--budget {' '.join(self.budget)[:80]}; allowed: GPU-hours, as 200 or 200 GPU-hours")
        assert found is not None
        return float(found[1])

    def execute(self, console: Console) -> int:
        """Print the advice; status 1 where no design fits."""
        from rftlab.studies.forecast.advise import show
        from rftlab.studies.forecast.advise.evidence import gather_evidence
        from rftlab.studies.forecast.advise.fleet import parse_fleet
        from rftlab.studies.forecast.advise.models import shape_named

        fleet, assumed = parse_fleet(self.gpus), self._assumed()
        start = self._start(fleet.count)
        name = self.model or (start.known.model if start else None)
        if not name:
            raise UserError(f"{self.config} names no model; allowed: --model with one beside it")
        model = shape_named(name)
        evidence = gather_evidence(self.results, self.pair, self.imported, self.rates)
        options = self._options(fleet, model, assumed, evidence, start)
        show.show_head(console, model, options[0].plan, assumed)
        if start:
            show.show_start(console, start)
        show.show_evidence(console, evidence)
        self._warn(console, model.name)
        show.show_options(console, options, self._gpu_hours())
        fitting = [option for option in options if option.plan.fits]
        if fitting:
            self._propose(console, fitting, model.path, start)
        else:
            self._enlarge(console, options, model.shape, assumed)
        show.show_trust(console, evidence)
        return 0 if fitting else 1

    def _start(self, gpus: int):
        """The user's configuration; None where none is named."""
        from rftlab.studies.forecast.advise.start import read_start

        return read_start(self.config, gpus) if self.config else None

    def _options(self, fleet, model, assumed, evidence, start) -> list:
        """The designs, planned and in their order."""
        from rftlab.studies.forecast.advise.fleet import planned_on
        from rftlab.studies.forecast.advise.options import advised_run, designs_named, make_option, rank_options

        options = []
        for label, named in designs_named(self.designs, self.rounds).items():
            design = start.changed(named) if start else named
            plan = planned_on(advised_run(model.name, design, assumed), model.shape, fleet, assumed)
            options.append(make_option(label, design, plan, evidence))
        return rank_options(options)

    def _propose(self, console: Console, fitting: list, path: str, start) -> None:
        """The first runs, the memory of the first, and how an engine is told it."""
        from rftlab.studies.forecast.advise import show
        from rftlab.studies.forecast.advise.options import first_runs

        first = first_runs(fitting, self._gpu_hours())
        show.show_first(console, first, self._gpu_hours(), min(fitting, key=lambda option: option.plan.gpu_hours))
        chosen, _ = first[0] if first else (fitting[0], "")
        show.show_memory(console, chosen)
        told = self._told(chosen, path, start)
        if start:
            show.show_changes(console, start.tool, chosen.label, start, told)
        else:
            show.show_engine(console, self.engine, chosen.label, told)

    def _enlarge(self, console: Console, options: list, shape, assumed) -> None:
        """On how many GPUs the smallest design would fit."""
        from rftlab.studies.forecast.advise import show
        from rftlab.studies.forecast.advise.fleet import least_gpus

        smallest = min(options, key=lambda option: option.plan.memory.peak)
        show.show_memory(console, smallest)
        fleet = smallest.plan.fleet
        show.show_unfit(console, least_gpus(smallest.plan.run, shape, fleet, assumed), fleet.device.name)

    def _warn(self, console: Console, name: str) -> None:
        """Say so where a pilot is of another model or task than the one that is asked about."""
        from rftlab.studies.data.paper.pairs import start_at

        if self.pair is not None:
            run = start_at(self.pair, "llm")
            if (run.model.source, run.task.name) != (name, self.task):
                text = f"the pilot is of {run.model.source} on {run.task.name}; it stands in for {name} on {self.task}"
                say(console, text, "yellow")

    def _assumed(self):
        """Mean lengths and numbers of questions."""
        from rftlab.llm.budget.duration import LENGTHS, Assumed
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

    def _told(self, option, path: str, start):
        """The engine's flags for a design."""
        from rftlab.studies.forecast.advise.engines import EngineSettings, engine_flags

        run, plan = option.plan.run, option.plan
        known = start.known if start else None
        wanted = EngineSettings(
            replace(option.design, rounds=self.rounds),
            (known.model if known and not self.model else None) or path,
            plan.fleet.count,
            run.model.max_prompt_length,
            (known.response_limit if known else None) or run.model.max_response_length,
            self.learning_rate or (known.learning_rate if known else None) or 1e-6,
            plan.tensor_parallel,
            (known.temperature if known else None) or 1.0,
        )
        return engine_flags(start.tool if start else self.engine, wanted)
