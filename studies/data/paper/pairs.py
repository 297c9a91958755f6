"""The model-dataset pairs, and what stands for them at each level.

sim: a simulator preset whose learning curves resemble those that the paper reports. Its parameters were fitted to all
     published endpoints of the pair (docs/simulator.md says how): agreement with those numbers is in-sample. Parameters
     trade off against each other: do not interpret them one by one.
llm: a real language model and how it is trained. Models of the paper run with its hyper-parameters, on a GPU; they are
evaluated on fixed parts of
     the train and test sets, the paper on all of them. The learning rates of `tiny` were chosen on the validation split
     (docs/llm.md).
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, overload

from rftlab.llm.config import SMOLLM2, TINY, AdamW, Compute, Evaluation, LLMRun, Model
from rftlab.llm.tasks.config import TaskConfig
from rftlab.llm.tasks.pools import Sizes
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check, check_choice
from rftlab.sim.config import Linear, Optimizer, Simulation

Level = Literal["sim", "llm"]
LEVELS: tuple[Level, ...] = get_args(Level)
SIZES = {"gsm8k": (7473, 1319), "math": (7500, 5000)}
"""Problems to train and to test on."""


@dataclass(frozen=True)
class Pair:
    """A language model on a data set, with the run from which those of each level start; they set the design and the
    seed."""

    model: str
    dataset: str
    sim: Simulation | None = None
    llm: LLMRun | None = None


def _paper(owner: str, model: str, dataset: str, rate: float, environment: Linear) -> Pair:
    """A pair of the paper: a fitted simulation, and the model from the hub on one GPU."""
    n_train, n_test = SIZES[dataset]
    simulation = Simulation(
        replace(environment, n_train=n_train, n_test=n_test), optimizer=Optimizer(learning_rate=rate)
    )
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
    """2,048 training problems: the largest batch of the experiments is an epoch, and 600 rounds of 32 are nine (in
    the paper 2,000 are eight and a half)."""
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
_QWEN, _LLAMA, _OLMO = (
    ("Qwen", "Qwen2.5-0.5B-Instruct"),
    ("meta-llama", "Llama-3.2-1B-Instruct"),
    ("allenai", "OLMo-2-0425-1B-Instruct"),
)

PAIRS: dict[str, Pair] = {
    "qwen-gsm8k": _paper(
        *_QWEN,
        "gsm8k",
        3.053e-3,
        Linear(
            nuisance=0.7028,
            kappa=7.537,
            align=0.7472,
            rho=0.989,
            base_format=-4.614,
            unsolvable=0.0788,
            familiarity=2.094,
            sharpening=0.3,
        ),
    ),
    "llama-gsm8k": _paper(
        *_LLAMA,
        "gsm8k",
        8.437e-3,
        Linear(
            nuisance=0.4437,
            kappa=6.149,
            align=0.7843,
            rho=0.5804,
            base_format=-3.883,
            unsolvable=0.02133,
            familiarity=1.227,
            sharpening=0.3,
        ),
    ),
    "olmo-gsm8k": _paper(
        *_OLMO,
        "gsm8k",
        1.512e-3,
        Linear(
            nuisance=0.6207,
            kappa=3.719,
            align=0.92,
            rho=0.9857,
            base_format=-4.897,
            unsolvable=0.03417,
            familiarity=0.7679,
            sharpening=0.3,
        ),
    ),
    "qwen-math": _paper(
        *_QWEN,
        "math",
        1.281e-3,
        Linear(
            nuisance=0.591,
            kappa=4.291,
            align=0.6354,
            rho=0.6085,
            base_format=2.241,
            unsolvable=0.3282,
            familiarity=0.3397,
            sharpening=0.3,
        ),
    ),
    "llama-math": _paper(
        *_LLAMA,
        "math",
        3.255e-3,
        Linear(
            nuisance=0.2413,
            kappa=1.076,
            align=0.04208,
            rho=0.5597,
            base_format=3.53,
            unsolvable=0.01639,
            familiarity=0.1531,
            sharpening=0.3,
        ),
    ),
    "olmo-math": _paper(
        *_OLMO,
        "math",
        0.8696e-3,
        Linear(
            nuisance=1.425,
            kappa=6.139,
            align=0.4526,
            rho=0.6598,
            base_format=4.071,
            unsolvable=0.3782,
            familiarity=2.083,
            sharpening=0.3,
        ),
    ),
    "tiny-mix97": _tiny("mix97", 1e-4),
    "tiny-mod97": _tiny("mod97", 3e-4),
    "tiny-sign97": _tiny("sign97", 3e-4),
    "smollm2-words": Pair("SmolLM2-135M-Instruct", "words", llm=_SMOLLM2),
    "smollm2-largest": Pair("SmolLM2-135M-Instruct", "largest", llm=_SMOLLM2_LARGEST),
}

EDGE = 0.004
"""Damage times the squared rate of a fragile pair: its runs begin to fail at 4 to 16 times its rate."""


def _fragile(name: str, rate: float, **fitted: Any) -> Pair:
    """A pair of the paper, fitted again in a world whose runs can fail."""
    simulation = PAIRS[name].sim
    assert simulation is not None
    environment = replace(
        linear_environment(simulation),
        damage=EDGE / rate**2,
        sharpening=3.0,
        verbosity=10.0,
        short_right=0.3,
        length_by_style=0.9,
        **fitted,
    )
    return replace(
        PAIRS[name], sim=replace(simulation, environment=environment, optimizer=Optimizer(learning_rate=rate))
    )


def pair(name: str) -> Pair:
    """The pair of that name; an unknown name is an error that lists the known ones."""
    check_choice("pair", name, (*PAIRS, *FRAGILE))
    return PAIRS[name] if name in PAIRS else FRAGILE[name]


def pairs_at(level: Level) -> tuple[str, ...]:
    """Names of the pairs that a level has."""
    return tuple(name for name, known in PAIRS.items() if getattr(known, level) is not None)


def check_level(name: str) -> Level:
    """The level of that name; an unknown name is an error that lists the known ones."""
    check_choice("level", name, LEVELS)
    return next(level for level in LEVELS if level == name)


def linear_environment(run: Simulation) -> Linear:
    """The linear environment of a run, which those of all pairs have. Raises UserError for another."""
    if not isinstance(run.environment, Linear):
        raise UserError(f"environment = {type(run.environment).__name__}; allowed: Linear")
    return run.environment


def usual_pairs(level: Level) -> tuple[str, ...]:
    """The pairs of a study that names none: all that need neither a GPU nor an hour for a cell."""
    return pairs_at("sim") if level == "sim" else tuple(name for name in pairs_at("llm") if PAIRS[name].model == TINY)


@overload
def start_at(name: str, level: Literal["sim"]) -> Simulation: ...
@overload
def start_at(name: str, level: Literal["llm"]) -> LLMRun: ...
@overload
def start_at(name: str, level: Level) -> Simulation | LLMRun: ...
def start_at(name: str, level: Level) -> Simulation | LLMRun:
    """The run from which those of a pair start at a level. Raises UserError for a pair that the level does not have."""
    run = getattr(pair(name), level)
    check(run is not None, f"pair = {name!r} does not run at level {level}; allowed: {', '.join(pairs_at(level))}")
    return run


FRAGILE: dict[str, Pair] = {
    "qwen-gsm8k-fragile": _fragile(
        "qwen-gsm8k",
        2.537e-3,
        nuisance=0.6685,
        kappa=7.128,
        align=0.756,
        rho=0.9896,
        base_format=-3.821,
        unsolvable=0.1015,
        familiarity=2.49,
    ),
    "llama-gsm8k-fragile": _fragile(
        "llama-gsm8k",
        13.44e-3,
        nuisance=0.2461,
        kappa=1.862,
        align=0.7831,
        rho=0.5984,
        base_format=-3.087,
        unsolvable=0.009815,
        familiarity=0.5176,
    ),
    "olmo-gsm8k-fragile": _fragile(
        "olmo-gsm8k",
        1.818e-3,
        nuisance=0.4128,
        kappa=2.054,
        align=0.9134,
        rho=0.977,
        base_format=-5.499,
        unsolvable=0.01994,
        familiarity=0.3848,
    ),
    "qwen-math-fragile": _fragile(
        "qwen-math",
        2.471e-3,
        nuisance=0.9134,
        kappa=4.002,
        align=0.6749,
        rho=0.4583,
        base_format=3.527,
        unsolvable=0.3504,
        familiarity=0.5443,
    ),
    "llama-math-fragile": _fragile(
        "llama-math",
        3.667e-3,
        nuisance=0.358,
        kappa=0.6485,
        align=0.1802,
        rho=0.5478,
        base_format=4.625,
        unsolvable=0.03334,
        familiarity=0.4343,
    ),
    "olmo-math-fragile": _fragile(
        "olmo-math",
        0.8286e-3,
        nuisance=1.203,
        kappa=8.776,
        align=0.5323,
        rho=0.1701,
        base_format=5.734,
        unsolvable=0.4034,
        familiarity=2.599,
    ),
}
"""The paper's pairs in worlds whose runs can fail (docs/simulator.md)."""
