"""A plug-in of pytest, `-p tests.support.adapters.in_verl`: verl's own tests then meet rftlab's advantages.

The names of verl's functions that a card equals lead to ours. The vectorised forms that verl's tests compare with stay
verl's. With RFTLAB_PLANTED set, RLOO is GRPO, which these tests must see.
"""

import os

from verl.trainer.ppo import core_algos

CARDS = {
    "compute_grpo_outcome_advantage": "grpo",
    "compute_rloo_outcome_advantage": "grpo" if os.environ.get("RFTLAB_PLANTED") else "rloo",
    "compute_opo_outcome_advantage": "opo",
}
for name, card in CARDS.items():
    assert hasattr(core_algos, name), f"verl has no {name} any more"
    setattr(core_algos, name, core_algos.ADV_ESTIMATOR_REGISTRY[f"rftlab_{card}"])
