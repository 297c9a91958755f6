"""What is known of the paper's pairs, as evidence: the base model and the minimalist baseline, train and test,
rounded to 0.01."""

from dataclasses import replace

import numpy as np

from rftlab.shared.curve import SPLITS
from rftlab.studies.data.paper.experiments import BASELINE
from rftlab.studies.data.paper.pairs import PAIRS, linear_of, pair, start_at
from rftlab.studies.data.paper.published import published
from rftlab.studies.forecast.evidence import Evidence, Observed
from rftlab.studies.forecast.knobs import LONG, Facts, informed

ROUNDING = 0.01 / np.sqrt(12)


def paper_evidence(name: str) -> Evidence:
    """The base model and experiment 1 of a pair; the prior is that of the other pairs with the same data set, whose
    presets were fitted to their own cells."""
    known, run = pair(name), start_at(name, "sim")
    others = [
        other.sim
        for key, other in PAIRS.items()
        if other.sim is not None and other.dataset == known.dataset and key != name
    ]
    values = np.array(
        [[published(known.model, known.dataset, split, design) for split in SPLITS] for design in (None, BASELINE)]
    )
    environment = linear_of(run)
    questions = np.array([environment.n_train, environment.n_test])
    inner = np.clip(values, 0.01, 0.99)
    errors = np.sqrt(inner * (1 - inner) / questions + ROUNDING**2)
    design = replace(BASELINE, rounds=run.design.rounds, eval_every=run.design.rounds)
    facts = Facts(informed(LONG, others), environment.n_train, environment.n_test)
    return Evidence(facts, (Observed(design, np.array([0, run.design.rounds]), values, errors),))
