"""Train runs of the `tiny` language model with a planted fault: `python -m dev.planted_tiny FOLDER [RUN ...]`.

This takes a quarter of an hour of one core, a minute a run. FOLDER keeps finished runs. Without names all runs are
made, and their tables become the file that comes with rftlab; `dev.diagnose_cases` scores it.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from rftlab.llm.config import Evaluation, LLMRun
from rftlab.shared.cards import preset
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check_choice
from rftlab.studies.data.paper.pairs import start_at

if TYPE_CHECKING:
    from rftlab.llm.engines.rollouts import Rollouts

FILE = files("rftlab.studies") / "assets" / "planted_tiny.parquet"
COLUMNS = (
    "run",
    "round",
    "reward",
    "test_pass_at_1",
    "test_flexible",
    "kl",
    "clip_fraction",
    "zero_signal_fraction",
    "grad_norm",
    "length",
    "mismatch",
)
QUESTIONS = 500
"""Number of questions in an evaluation, with one response to each."""


class PlantedRun(NamedTuple):
    """A configuration with a planted fault, and an engine or reward where that is the fault."""

    name: str
    planted: tuple[str, ...]
    """Kinds of findings that are planted."""
    clear: tuple[str, ...]
    """Kinds of findings that are certainly absent. A kind in neither is not scored."""
    run: LLMRun
    engine: Callable[..., Any] | None = None
    reward: Callable[..., Any] | None = None
    """Reward in place of the task's."""

    @property
    def truth(self) -> dict[str, bool]:
        """Truth by kind of finding."""
        return dict.fromkeys(self.planted, True) | dict.fromkeys(self.clear, False)


COLLAPSE, STEP, SILENT, FORMAT, APART = (
    "collapse",
    "step too large",
    "no signal",
    "format only",
    "sampler and trainer apart",
)
HEALTHY = (COLLAPSE, STEP, SILENT, FORMAT, APART, "noise above progress")


def planted_runs() -> list[PlantedRun]:
    """Return all runs: one fault each, with the settings of the pair otherwise."""
    usual, several, pairs = _design(), _design(minibatches=16), _design(rollouts=2)
    short, still = _design(rounds=60, eval_every=2), (COLLAPSE, STEP, APART)
    found = []
    for seed in (0, 1):
        mix: list[tuple[str, tuple[str, ...], tuple[str, ...], float, Design, Any]] = [
            ("usual", (), HEALTHY, 1e-4, usual, None),
            ("rate 1e-3", (STEP,), (APART,), 1e-3, usual, None),
            ("16 updates at 1e-3", (COLLAPSE, STEP), (APART,), 1e-3, several, None),
            ("pairs", (SILENT,), still, 1e-5, pairs, None),
            ("short", (), still, 3e-5, short, None),
            ("sampler at 1.3", (APART,), (COLLAPSE,), 1e-4, usual, warmer),
            ("sampler 10 rounds old", (APART,), (COLLAPSE,), 3e-4, usual, older),
        ]
        found += [
            PlantedRun(f"mix97 {name} s{seed}", planted, clear, _run("tiny-mix97", rate, design, seed), engine)
            for name, planted, clear, rate, design, engine in mix
        ]
    ruined = _run("tiny-mix97", 1e-2, usual, 0)
    found.append(PlantedRun("mix97 rate 1e-2 s0", (COLLAPSE, STEP), (APART,), ruined))
    for seed in range(3):
        for kind in ("seq_mean_token_mean", "token_mean"):
            raw = Estimator(Advantage("none"), aggregation=Aggregation(kind))
            found.append(
                PlantedRun(f"mix97 raw {kind} s{seed}", (), (), _run("tiny-mix97", 1e-4, _design(estimator=raw), seed))
            )
    for seed in range(4):
        alone = _run("tiny-mix97", 1e-4, short, seed)
        found.append(PlantedRun(f"mix97 marker alone s{seed}", (FORMAT,), (APART,), alone, reward=marked))
    return found


def _design(rollouts: int = 8, rounds: int = 150, eval_every: int = 5, **more: Any) -> Design:
    return Design(32, rollouts, rounds=rounds, eval_every=eval_every, **{"estimator": preset("grpo")} | more)


def _run(pair: str, rate: float, design: Design, seed: int) -> LLMRun:
    start = start_at(pair, "llm")
    asked = Evaluation(greedy=False, train_subset=1, test_subset=QUESTIONS)
    optimizer = replace(start.optimizer, learning_rate=rate)
    # a fault of the sampler must show in the log instead of stopping the run
    return replace(start, design=design, optimizer=optimizer, evaluation=asked, max_mismatch=100.0, seed=seed)


def marked(responses: list[str]) -> list[float]:
    """Return 1 where a response has the marker and text behind it, right or wrong, so that right answers are not
    rewarded."""
    from rftlab.llm.rewards.answers import marked_symbol

    return [float(marked_symbol(response) is not None) for response in responses]


def warmer(policy, codec):
    """Return an engine that samples at 1.3 times the temperature that the trainer assumes."""
    from rftlab.llm.engines.rollouts import HFEngine

    class Warmer(HFEngine):
        def sample(self, prompts, contexts, counts, draws, temperature, *rest) -> "Rollouts":
            return super().sample(prompts, contexts, counts, draws, 1.3 * temperature, *rest)

    return Warmer(policy, codec.stops)


def older(policy, codec):
    """Return an engine that takes over the trainer's weights only every tenth round."""
    from copy import deepcopy

    from rftlab.llm.engines.rollouts import HFEngine

    class Older(HFEngine):
        syncs = 0

        def sync(self, policy) -> None:
            if self.syncs % 10 == 0:
                self.policy = deepcopy(policy)
            self.syncs += 1

    return Older(policy, codec.stops)


def make(folder: Path, each: PlantedRun) -> pd.DataFrame:
    """Train a run in the folder, or read it there; return its rows with COLUMNS."""
    from rftlab.llm.train import train

    done = train(each.run, folder / each.name.replace(" ", "-"), engine_of=each.engine, reward=each.reward)
    rows = done.curve.to_frame().merge(done.metrics.drop(columns="seed"), on="round").assign(run=each.name)
    return rows[list(COLUMNS)]


def shipped() -> pd.DataFrame:
    """Return the tables that come with rftlab: rows with COLUMNS."""
    with FILE.open("rb") as file:
        return pd.read_parquet(file)


def main(arguments: list[str]) -> None:
    """Make all runs, or the named ones."""
    folder, runs = Path(arguments[0]), {each.name: each for each in planted_runs()}
    for name in arguments[1:]:
        check_choice("run", name, tuple(runs))
    tables = []
    for name in arguments[1:] or runs:
        tables.append(make(folder, runs[name]))
        print(f"{name}: Pass@1 {tables[-1]['test_pass_at_1'].tail(5).mean():.3f} at the end", flush=True)
    if not arguments[1:]:
        pd.concat(tables, ignore_index=True).to_parquet(Path(str(FILE)), index=False, compression="zstd")


if __name__ == "__main__":
    main(sys.argv[1:])
