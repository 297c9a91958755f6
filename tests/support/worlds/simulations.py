"""Small simulated runs."""

from dataclasses import replace

from rftlab import KL, Advantage, Aggregation, Clip, Design, Estimator, Linear, Optimizer, Ratio, Simulation, preset

SMALL = Linear(n_train=40, n_test=30, n_features=19, n_answers=3, n_styles=2, base_format=-1.0, nuisance=0.7)
CUSTOM = Estimator(
    Advantage("batch_mean"), Clip(low=0.1, high=0.3, dual=1.5), KL("k2", 0.3, place="reward"), Aggregation("token_mean")
)
TOLERANCE = 1e-5
"""float32 against float64 over 12 rounds of Adam, whose eps keeps tiny gradients from acting by their sign; the
tabular twin is equal to 1e-9."""
DESIGNS = {
    "raw": Design(8, 1, estimator=preset("minimalist")),
    "support": Design(8, 1, 7, estimator=preset("paper_text")),
    "group": Design(7, 20, estimator=preset("grpo")),
    "window": Design(8, 2, 3, replay_window=5, estimator=preset("paper_text")),
    "updates": Design(8, 4, estimator=preset("paper_code"), epochs=3, minibatches=2),
    "micro-batches": Design(7, 2, estimator=preset("paper_code")),
    "sequence": Design(
        8, 4, estimator=Estimator(ratio=Ratio("sequence"), surrogate=Clip(0.02, 0.02)), epochs=3, minibatches=2
    ),
    "kl in reward": Design(8, 3, 2, replay_window=4, estimator=CUSTOM, epochs=2),
}


def run_of(design, environment=SMALL, rounds=12, **more):
    design = replace(design, rounds=rounds, eval_every=rounds // 4)
    return Simulation(environment, design, Optimizer(learning_rate=0.02, eps=1e-3), **more)
