"""Which design choices of reinforcement fine-tuning matter for a model and its data: a simulator, a trainer, and
studies of both.

    import rftlab as rl

    run = rl.start_at("qwen-gsm8k", "sim")                 # a simulated language model on its data set
    designs = [rl.Design(batch_size=32, rollouts=k, estimator=rl.preset("rloo")) for k in (2, 4, 8)]
    curves = rl.sweep(run, designs, seeds=3)               # a data frame

**Estimators.** A map from rewards to one weight for each sampled token.

    CARDS, preset       the named estimators of the field, each with formula, bias and source; the estimator of a name
    Estimator           a combination of independent choices:
                        Advantage, Clip (and other surrogates), Ratio, KL, Aggregation, Correction, Length
    advantage, surrogate                decorators: a function of your own as an estimator with a name
    check_estimator                     what is wrong with it, and how biased and how noisy it is
    suite                               what it is sensitive to: its scores on tasks that each isolate one difficulty
    prepare, objective_and_weights      advantages and shares of a batch, once; then objective and weights at any
                                        policy, on NumPy arrays
    losses              the same on torch tensors, for a training loop of your own: losses.objective, losses.advantages
                        (extra `llm`)

**Designs and runs.** The model that is trained, and its task.

    Design, Sampling    how a run spends its rollouts, and its estimator
    start_at, PAIRS     the run from which those of a model-dataset pair start, simulated or real
    Simulation          a simulated run: Linear or Tabular environment, Optimizer, Sampler
    LLMRun              a run of a language model: TaskConfig (OwnData for data of your own), Model, AdamW,
                        Evaluation, Compute, LoRA

**Running.**

    simulate            one simulated run, in seconds
    sweep               simulated runs of several designs and seeds, side by side
    train               one run of a language model, in a folder from which it goes on (extra `llm`); reward= takes
                        functions of your own

**Results.**

    Curve               Pass@1, reward, tokens and more at each evaluation of a run; `to_frame()` makes it a data frame
    ResultsFolder       finished runs of a results folder, and their curves as one data frame

Bad input raises UserError, a line that says what is allowed. Names are imported when they are first used. All else is
in the subpackages: `rftlab.shared` (estimators, compiled), `rftlab.sim` (the simulator), `rftlab.llm` (the trainer),
`rftlab.studies` (experiments, reports, command line).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rftlab.llm import losses as losses
    from rftlab.llm.config import AdamW as AdamW
    from rftlab.llm.config import Compute as Compute
    from rftlab.llm.config import Evaluation as Evaluation
    from rftlab.llm.config import LLMRun as LLMRun
    from rftlab.llm.config import LoRA as LoRA
    from rftlab.llm.config import Model as Model
    from rftlab.llm.tasks.config import OwnData as OwnData
    from rftlab.llm.tasks.config import TaskConfig as TaskConfig
    from rftlab.llm.train import train as train
    from rftlab.shared.cards import CARDS as CARDS
    from rftlab.shared.cards import preset as preset
    from rftlab.shared.cards.custom import advantage as advantage
    from rftlab.shared.cards.custom import surrogate as surrogate
    from rftlab.shared.config.advantage import Advantage as Advantage
    from rftlab.shared.config.aggregation import Aggregation as Aggregation
    from rftlab.shared.config.correction import Correction as Correction
    from rftlab.shared.config.kl import KL as KL
    from rftlab.shared.config.ratio import Ratio as Ratio
    from rftlab.shared.config.sampling import Sampling as Sampling
    from rftlab.shared.config.shaping import Length as Length
    from rftlab.shared.config.surrogate import Clip as Clip
    from rftlab.shared.curve import Curve as Curve
    from rftlab.shared.design import Design as Design
    from rftlab.shared.estimator import Estimator as Estimator
    from rftlab.shared.objective import objective_and_weights as objective_and_weights
    from rftlab.shared.plumbing.errors import UserError as UserError
    from rftlab.shared.prepare import prepare as prepare
    from rftlab.sim.config import Linear as Linear
    from rftlab.sim.config import Optimizer as Optimizer
    from rftlab.sim.config import Sampler as Sampler
    from rftlab.sim.config import Simulation as Simulation
    from rftlab.sim.config import Tabular as Tabular
    from rftlab.sim.run import simulate as simulate
    from rftlab.studies.analysis.imported.own import ResultsFolder as ResultsFolder
    from rftlab.studies.data.paper.pairs import PAIRS as PAIRS
    from rftlab.studies.data.paper.pairs import start_at as start_at
    from rftlab.studies.data.runs.sweep import sweep as sweep
    from rftlab.studies.estimators.check import check_estimator as check_estimator
    from rftlab.studies.estimators.suite.run import suite as suite

_HOMES = {
    "rftlab.llm.config": ("AdamW", "Compute", "Evaluation", "LLMRun", "LoRA", "Model"),
    "rftlab.llm.tasks.config": ("OwnData", "TaskConfig"),
    "rftlab.llm.train": ("train",),
    "rftlab.shared.config.advantage": ("Advantage",),
    "rftlab.shared.config.aggregation": ("Aggregation",),
    "rftlab.shared.config.correction": ("Correction",),
    "rftlab.shared.config.kl": ("KL",),
    "rftlab.shared.config.ratio": ("Ratio",),
    "rftlab.shared.config.sampling": ("Sampling",),
    "rftlab.shared.config.shaping": ("Length",),
    "rftlab.shared.config.surrogate": ("Clip",),
    "rftlab.shared.curve": ("Curve",),
    "rftlab.shared.design": ("Design",),
    "rftlab.shared.plumbing.errors": ("UserError",),
    "rftlab.shared.estimator": ("Estimator",),
    "rftlab.shared.prepare": ("prepare",),
    "rftlab.shared.objective": ("objective_and_weights",),
    "rftlab.sim.config": ("Linear", "Optimizer", "Sampler", "Simulation", "Tabular"),
    "rftlab.sim.run": ("simulate",),
    "rftlab.llm": ("losses",),
    "rftlab.shared.cards": ("CARDS", "preset"),
    "rftlab.shared.cards.custom": ("advantage", "surrogate"),
    "rftlab.studies.estimators.check": ("check_estimator",),
    "rftlab.studies.estimators.suite.run": ("suite",),
    "rftlab.studies.analysis.imported.own": ("ResultsFolder",),
    "rftlab.studies.data.paper.pairs": ("PAIRS", "start_at"),
    "rftlab.studies.data.runs.sweep": ("sweep",),
}
"""Modules of the public names, as imported above for type checkers. Importing rftlab imports none of them, so that the
command line starts at once."""
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOME[name])
    value = globals()[name] = getattr(home, name) if hasattr(home, name) else import_module(f"{_HOME[name]}.{name}")
    return value


def __dir__() -> list[str]:
    return sorted({*_HOME, *(name for name in globals() if name.startswith("__"))})
