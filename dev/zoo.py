"""Make a zoo of `tiny` models, forecasts of their runs from pilots alone, and the runs: `python -m dev.zoo FOLDER`.

This takes some hours of one core. FOLDER keeps finished parts, and the same command goes on. Base models and their
pilots come first, then the forecasts, which are written once with their date, then the runs of (32, 8), and those of
(32, 1) last. The finished runs become the files that come with rftlab; `python -m dev.zoo_scores` scores them.
"""

import json
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, product
from pathlib import Path

import numpy as np
import pandas as pd

from dev.zoo_scores import DESIGNS, PREDICTIONS, ROUNDS, RUNS, predict_ends
from rftlab.llm.config import AdamW, Compute, Evaluation, LLMRun, Model, Tiny
from rftlab.llm.engines.rollouts import Draws, HFEngine
from rftlab.llm.models.load import load_data, load_model
from rftlab.llm.models.tiny import LAST, _identity, read_corpus
from rftlab.llm.policy.policy import Policy
from rftlab.llm.random import PROBE
from rftlab.llm.rewards.answers import last_integer
from rftlab.llm.rewards.verify import score
from rftlab.llm.tasks.arithmetic import KINDS
from rftlab.llm.tasks.config import TaskConfig
from rftlab.llm.tasks.task import Sizes
from rftlab.llm.train import train
from rftlab.llm.training.evaluate import UNSEEN
from rftlab.shared.design import Design
from rftlab.shared.evalstats import pass_at_k
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import cache_folder
from rftlab.studies.forecast.pilot.headroom import majority

SHAPES = {"32x1": (32, 1), "64x2": (64, 2)}
"""Width and number of layers by size."""
MARKED = {"taught": 1.0, "rare": 0.1}
"""Share of the corpus's answers that are in the rewarded format, by name."""
STEPS = {
    ("mod97", "64x2"): (300, 400, 600, 1000, 1400),
    ("mod97", "32x1"): (500, 700, 1000, 1500, 3000),
    ("sign97", "64x2"): (1000, 1400, 1800, 2200, 2600),
}
"""Lengths of pre-training by task and size, from nearly no learning to nearly all that a size learns."""
EVERY, QUESTIONS, SAMPLES = 100, 250, 64


@dataclass(frozen=True)
class ZooModel:
    """A base model of the zoo."""

    task: str
    format: str
    size: str
    steps: int

    @property
    def name(self) -> str:
        """Name of the model's row and folder."""
        return f"{self.task}-{self.format}-{self.size}-{self.steps}"

    def tiny(self) -> Tiny:
        """Return the model's pre-training, which a target of 0 ends at the first validation."""
        width, layers = SHAPES[self.size]
        shape = Tiny(width=width, layers=layers, hidden=3 * width, seed=self.seed)
        return replace(shape, target=0.0, check_every=self.steps, max_steps=self.steps)

    @property
    def seed(self) -> int:
        """Seed of the pre-training, the same for all its lengths, so that a longer one continues a shorter one."""
        return list(product(STEPS, MARKED)).index(((self.task, self.size), self.format))

    def run(self, design: Design) -> LLMRun:
        """Return a run of the model, at the rate of the pairs `tiny-mod97` and `tiny-sign97`. As a side effect, the
        task's corpus gets the model's format."""
        marked = MARKED[self.format]
        KINDS[self.task] = KINDS[self.task]._replace(styles={"unmarked": 1 - marked, "direct": marked, "worked": 0.0})
        return LLMRun(
            TaskConfig(self.task, sizes=Sizes(train=2048, test=QUESTIONS)),
            Model(tiny=self.tiny(), max_response_length=12),
            replace(design, rounds=ROUNDS, eval_every=ROUNDS // 4),
            AdamW(learning_rate=3e-4),
            Evaluation(samples=4, greedy=False, train_subset=1),
            Compute(threads=1, sample_rows=1024),
            seed=self.seed,
        )


def zoo() -> list[ZooModel]:
    """Return all models."""
    return [
        ZooModel(task, style, size, steps)
        for (task, size), lengths in STEPS.items()
        for style in MARKED
        for steps in lengths
    ]


def read_ahead(models: list[ZooModel]) -> None:
    """Pre-train models that differ only in length, all at once. Each later finds the checkpoint before its last steps,
    and equals, bit for bit, a model trained alone."""
    longest = models[-1]
    task, cache = longest.run(Design()).task, cache_folder("tiny")
    own = replace(longest.tiny(), target=0.9999, check_every=EVERY)
    last = cache / f"{longest.name}.ahead" / LAST
    places = {model.steps: cache / f"{_identity(task, model.tiny())}.reading" / LAST for model in models}
    if all(place.parent.is_dir() for place in places.values()):
        return

    def keep(step: int, reached: float) -> None:
        if step in places:  # the checkpoint of this step is not written yet
            shutil.copytree(last, places[step], dirs_exist_ok=True)

    with suppress(UserError):  # the target is never reached
        read_corpus(task, own, keep, last, noop)


def measure(model: ZooModel) -> dict:
    """Return the pilot of a base model: its responses to unseen questions, without training."""
    run = model.run(Design())
    base, codec = load_model(run)
    problems = load_data(run, codec).test
    engine, n = HFEngine(Policy(base, run.compute), codec.stops), len(problems.answers)

    def ask(samples: int, temperature: float) -> list[np.ndarray]:
        """Return strict and flexible rewards and answers (n, samples)."""
        draws, counts = Draws(0, PROBE, int(temperature)), np.full(n, samples)
        limit = run.model.max_response_length
        rollouts = engine.sample(problems.prompts, np.arange(n) + UNSEEN, counts, draws, temperature, limit)
        responses = rollouts.responses
        texts = [codec.decode(responses.response(i)) for i in range(len(responses.group))]
        scores = score("arithmetic", texts, [problems.answers[g] for g in responses.group], None)
        numbers: dict[str | None, int] = {None: -1}
        answers = np.array([numbers.setdefault(last_integer(text), len(numbers) - 1) for text in texts])
        return [part.reshape(n, samples) for part in (scores.strict, scores.flexible, answers)]

    strict, flexible, answers = ask(SAMPLES, 1.0)
    counts = strict.sum(axis=1).astype(int)
    return {
        "parameters": sum(parameter.numel() for parameter in base.parameters()),
        "strict": strict.mean(),
        "flexible": flexible.mean(),
        "greedy": ask(1, 0.0)[1].mean(),
        "majority": majority(answers, flexible, SAMPLES).mean(),
        "pass_at_8": pass_at_k(SAMPLES, counts, 8).mean(),
        "pass_at_64": pass_at_k(SAMPLES, counts, 64).mean(),
        "silent": (2 - pass_at_k(SAMPLES, counts, 8) - pass_at_k(SAMPLES, SAMPLES - counts, 8)).mean(),
    }


def make_pilots(folder: Path) -> pd.DataFrame:
    """Return a row for each base model with its description and its pilot."""
    rows = []
    for _, group in groupby(zoo(), lambda model: model.seed):
        models = list(group)
        read_ahead(models)
        for model in models:
            place = folder / "pilots" / f"{model.name}.json"
            if not place.is_file():
                place.parent.mkdir(parents=True, exist_ok=True)
                write_file(place, json.dumps(measure(model)).encode())
            rows.append({"model": model.name, **vars(model), **json.loads(place.read_bytes())})
            print(f"{model.name}: strict {rows[-1]['strict']:.3f}, flexible {rows[-1]['flexible']:.3f}", flush=True)
    return pd.DataFrame(rows)


def write_predictions(folder: Path, pilots: pd.DataFrame) -> None:
    """Write pilots and forecasts, once: the date in the first line, then a table."""
    place = folder / PREDICTIONS
    if not place.is_file():
        table = pilots.join(predict_ends(pilots).add_prefix("end_"))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = table.to_csv(index=False, float_format="%.5f", lineterminator="\n")
        write_file(place, f"# written {now}, before the runs\n{text}".encode())


def make_runs(folder: Path) -> None:
    """Train every model with every design, one design after the other, and write the curves so far after each."""
    tables = []
    for label, design in DESIGNS.items():
        for model in zoo():
            result = train(model.run(design), folder / "runs" / f"{model.name}-{label}")
            curve = result.curve.to_frame()[["round", "reward", "test_pass_at_1", "test_flexible"]]
            tables.append(curve.assign(model=model.name, design=label))
            print(f"{model.name} {label}: {curve['test_pass_at_1'].iloc[-1]:.3f}", flush=True)
            rows = pd.concat(tables, ignore_index=True)[["model", "design", *curve]]
            write_file(folder / RUNS, rows.to_csv(index=False, float_format="%.4f", lineterminator="\n").encode())


def main(arguments: list[str]) -> None:
    """Make all missing parts, and copy them into the package."""
    from rftlab.studies.analysis.public.store import DATA

    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    write_predictions(folder, make_pilots(folder))
    make_runs(folder)
    for name in (PREDICTIONS, RUNS):
        write_file(Path(str(DATA)) / name, (folder / name).read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
