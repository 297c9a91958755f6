"""Tables of the model-dataset pairs, with the run that stands for each pair at the levels sim and llm.

sim: a simulator preset whose learning curves resemble those that the paper reports. Its parameters were fitted to all
     published endpoints of the pair (docs/simulator.md says how): agreement with those numbers is in-sample. Parameters
     trade off against each other: do not interpret them one by one.
llm: a real language model and how it is trained. Models of the paper run with its hyper-parameters, on a GPU; they are
     evaluated on fixed parts of the train and test sets, the paper on all of them. The learning rates of `tiny` were
     chosen on the validation split (docs/llm.md).
"""

import csv
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal, get_args, overload

from rftlab.llm.config import SMOLLM2, TINY, AdamW, Compute, Evaluation, LLMRun, Model
from rftlab.llm.tasks.config import TaskConfig
from rftlab.llm.tasks.task import Sizes
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check, check_choice
from rftlab.sim.config import Linear, Optimizer, Simulation

Level = Literal["sim", "llm"]
LEVELS: tuple[Level, ...] = get_args(Level)
SIZES = {"gsm8k": (7473, 1319), "math": (7500, 5000)}
"""Number of training and of test problems of each data set."""


@dataclass(frozen=True)
class Pair:
    """Language model on a data set, with the run from which the runs of each level start. Those runs set the design and
    the seed."""

    model: str
    dataset: str
    sim: Simulation | None = None
    llm: LLMRun | None = None


def _paper(name: str) -> Pair:
    """Return a pair of the paper with its fitted simulation and the run of the model from the hub on one GPU."""
    model, _, dataset = name.partition("-")
    owner, model = _MODELS[model]
    n_train, n_test = SIZES[dataset]
    rate, fitted = FITTED[name]
    environment = Linear(n_train=n_train, n_test=n_test, sharpening=0.3, **fitted)
    simulation = Simulation(environment, optimizer=Optimizer(learning_rate=rate))
    run = LLMRun(
        TaskConfig(dataset),
        Model(f"{owner}/{model}"),
        Design(rounds=2000, eval_every=100),
        AdamW(learning_rate=1e-6),
        Evaluation(greedy=False, train_subset=500, test_subset=1319),
        Compute(
            "cuda", precision="bf16", engine="vllm", micro_tokens=8192, logit_rows=512, gradient_checkpointing=True
        ),
    )
    return Pair(model, dataset, simulation, run)


def _tiny(task: str, rate: float) -> Pair:
    """Return a pair of the tiny model on 2,048 training problems: the largest batch of the experiments is an epoch, and
    600 rounds of 32 are nine (in the paper 2,000 are eight and a half)."""
    run = LLMRun(
        TaskConfig(task, sizes=Sizes(train=2048)),
        Model(TINY, max_response_length=32),
        Design(rounds=600, eval_every=50),
        AdamW(learning_rate=rate),
        compute=Compute(threads=1),
    )
    return Pair(TINY, task, llm=run)


_SMOLLM2 = LLMRun(
    TaskConfig("words", sizes=Sizes(train=2048, validation=200, test=200)),
    Model(SMOLLM2, max_prompt_length=256, max_response_length=32),
    Design(rounds=20, eval_every=5),
    AdamW(learning_rate=3e-5),
    Evaluation(samples=2, greedy=False, train_subset=200),
    Compute(precision="bf16", cache_gb=0.8, micro_tokens=512, logit_rows=256),
)
_SMOLLM2_LARGEST = replace(
    _SMOLLM2,
    task=replace(_SMOLLM2.task, name="largest"),
    model=Model(SMOLLM2, max_prompt_length=128, max_response_length=16),
)
_MODELS = {
    "qwen": ("Qwen", "Qwen2.5-0.5B-Instruct"),
    "llama": ("meta-llama", "Llama-3.2-1B-Instruct"),
    "olmo": ("allenai", "OLMo-2-0425-1B-Instruct"),
}
"""Owner and name of each model on the hub."""


def _fitted() -> dict[str, tuple[float, dict[str, Any]]]:
    """Read the learning rate and the environment's fields of each simulated pair from assets/pairs.csv (dev/fit.py)."""
    text = (files("rftlab.studies") / "assets" / "pairs.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return {
        row.pop("pair"): (float(row.pop("learning_rate")), {name: float(value) for name, value in row.items()})
        for row in rows
    }


FITTED = _fitted()
PAIRS: dict[str, Pair] = {name: _paper(name) for name in FITTED if "fragile" not in name} | {
    "tiny-mix97": _tiny("mix97", 1e-4),
    "tiny-mod97": _tiny("mod97", 3e-4),
    "tiny-sign97": _tiny("sign97", 3e-4),
    "smollm2-words": Pair("SmolLM2-135M-Instruct", "words", llm=_SMOLLM2),
    "smollm2-largest": Pair("SmolLM2-135M-Instruct", "largest", llm=_SMOLLM2_LARGEST),
}

EDGE = 0.004
"""Damage times the squared learning rate of a fragile pair: its runs begin to fail at 4 to 16 times its rate."""


def _fragile(name: str) -> Pair:
    """Return a pair of the paper, fitted again in a simulated environment whose runs can fail."""
    rate, fitted = FITTED[name]
    usual = PAIRS[name.removesuffix("-fragile")]
    assert usual.sim is not None
    environment = replace(
        linear_environment(usual.sim),
        damage=EDGE / rate**2,
        sharpening=3.0,
        verbosity=10.0,
        verbosity_noise=6.0,
        short_right=0.3,
        length_by_style=0.9,
        **fitted,
    )
    return replace(usual, sim=replace(usual.sim, environment=environment, optimizer=Optimizer(learning_rate=rate)))


def pair(name: str) -> Pair:
    """Return the pair of this name. Raises UserError, which lists the known ones."""
    check_choice("pair", name, (*PAIRS, *FRAGILE))
    return PAIRS[name] if name in PAIRS else FRAGILE[name]


def pairs_at(level: Level) -> tuple[str, ...]:
    """Return the names of the pairs that a level has."""
    return tuple(name for name, known in PAIRS.items() if getattr(known, level) is not None)


def known_level(name: str) -> Level:
    """Return the level of this name. Raises UserError, which lists the known ones."""
    check_choice("level", name, LEVELS)
    return next(level for level in LEVELS if level == name)


def linear_environment(run: Simulation) -> Linear:
    """Return the linear environment of a run, which every pair has. Raises UserError for another environment."""
    if not isinstance(run.environment, Linear):
        raise UserError(f"environment = {type(run.environment).__name__}; allowed: Linear")
    return run.environment


def usual_pairs(level: Level) -> tuple[str, ...]:
    """Return the pairs of a study that names none: all that need neither a GPU nor an hour for a cell."""
    return pairs_at("sim") if level == "sim" else tuple(name for name in pairs_at("llm") if PAIRS[name].model == TINY)


@overload
def start_at(name: str, level: Literal["sim"]) -> Simulation: ...
@overload
def start_at(name: str, level: Literal["llm"]) -> LLMRun: ...
@overload
def start_at(name: str, level: Level) -> Simulation | LLMRun: ...
def start_at(name: str, level: Level) -> Simulation | LLMRun:
    """Return the run from which the runs of a pair start at a level. Raises UserError for an unknown pair or level, and
    for a pair that the level does not have."""
    check_choice("level", level, LEVELS)
    run = getattr(pair(name), level)
    check(run is not None, f"pair = {name!r} does not run at level {level}; allowed: {', '.join(pairs_at(level))}")
    return run


FRAGILE: dict[str, Pair] = {name: _fragile(name) for name in FITTED if "fragile" in name}
"""The paper's pairs in simulated environments whose runs can fail (docs/simulator.md)."""
