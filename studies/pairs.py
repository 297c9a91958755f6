"""The six model-dataset pairs: simulator presets whose learning curves resemble those the paper reports.

The GSM8K parameters were fitted to the published GSM8K endpoints (docs/simulator.md says how), the MATH parameters chosen with the
base model and experiment 1 in view, so agreement with published numbers is in-sample. Parameters trade off against each other: do not
interpret them one by one.
"""

from dataclasses import dataclass

from shared.errors import check_choice
from sim.environments import Linear
from sim.optimizer import Optimizer

GSM8K, MATH = (7473, 1319), (7500, 5000)


@dataclass(frozen=True)
class Pair:
    """A language model on a data set, as the paper names them, and its stand-in in the simulator."""

    model: str
    dataset: str
    environment: Linear
    optimizer: Optimizer


def _pair(model: str, dataset: str, sizes: tuple[int, int], rate: float, **parameters: float) -> Pair:
    return Pair(model, dataset, Linear(n_train=sizes[0], n_test=sizes[1], **parameters), Optimizer(rate=rate))


_QWEN, _LLAMA, _OLMO = "Qwen2.5-0.5B-Instruct", "Llama-3.2-1B-Instruct", "OLMo-2-0425-1B-Instruct"

PAIRS: dict[str, Pair] = {
    "qwen-gsm8k": _pair(_QWEN, "gsm8k", GSM8K, 5.845e-3, nuisance=1.074, kappa=6.326, align=0.8228, rho=0.9258, base_format=-4.297),
    "llama-gsm8k": _pair(_LLAMA, "gsm8k", GSM8K, 4.882e-3, nuisance=0.3462, kappa=5.725, align=0.8016, rho=0.6897, base_format=-3.899),
    "olmo-gsm8k": _pair(_OLMO, "gsm8k", GSM8K, 1.925e-3, nuisance=0.3548, kappa=4.095, align=0.935, rho=0.9752, base_format=-4.6),
    "qwen-math": _pair(_QWEN, "math", MATH, 0.88e-3, nuisance=1.09, kappa=3.63, align=0.455, rho=0.858, base_format=4.0, unsolvable=0.08),
    "llama-math": _pair(_LLAMA, "math", MATH, 1.72e-3, nuisance=0.446, kappa=1.64, align=0.376, rho=0.821, base_format=4.0, unsolvable=0.36),
    "olmo-math": _pair(_OLMO, "math", MATH, 0.81e-3, nuisance=1.42, kappa=6.84, align=0.307, rho=0.983, base_format=4.0, unsolvable=0.24),
}


def pair(name: str) -> Pair:
    """The pair of that name; an unknown name is an error that lists the known ones."""
    check_choice("pair", name, tuple(PAIRS))
    return PAIRS[name]
