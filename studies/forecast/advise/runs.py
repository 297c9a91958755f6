"""The runs that are planned: designs by name, and one run of each."""

import re
from dataclasses import replace

from rftlab.llm.budget.duration import TAIL, Assumed
from rftlab.llm.config import Compute, Evaluation, LLMRun, Model
from rftlab.llm.tasks.config import TaskConfig
from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check, check_count
from rftlab.studies.forecast.pilot.grid import CELLS

QUESTIONS = (500, 500)
"""Training and unseen questions of an evaluation; assumed."""
EVALUATIONS = 10
"""In a run, beside the first."""
MAX_RESPONSES = 1 << 20
"""Of a round."""
_PLAIN = re.compile(r"([0-9]{1,7})x([0-9]{1,7})")


def designs_named(names: tuple[str, ...], rounds: int) -> dict[str, Design]:
    """Designs by label. BxK is GRPO as in the paper, or the raw reward for K = 1. Raises UserError for a name that is
    no design, or twice there."""
    check(len(set(names)) == len(names), f"designs: {', '.join(names)} names one twice")
    found = {name: _design(name) for name in names} or CELLS
    every = max(d for d in range(1, rounds + 1) if rounds % d == 0 and (d * EVALUATIONS <= rounds or d == 1))
    return {name: replace(design, rounds=rounds, eval_every=every) for name, design in found.items()}


def _design(name: str) -> Design:
    if name in CELLS:
        return CELLS[name]
    plain = _PLAIN.fullmatch(name)
    if plain is None:
        raise UserError(f"design = {name!r}; allowed: BxK as 32x8, or {', '.join(CELLS)}")
    batch, rollouts = int(plain[1]), int(plain[2])
    check_count("B", batch)
    check_count("K", rollouts)
    check(batch * rollouts <= MAX_RESPONSES, f"design = {name}: allowed: at most {MAX_RESPONSES} responses a round")
    return Design(batch, rollouts, estimator=preset("paper_text" if rollouts > 1 else "minimalist"))


def run_of(model: str, design: Design, assumed: Assumed) -> LLMRun:
    """A run for several GPUs: bf16 passes, vLLM, checkpointed activations."""
    return LLMRun(
        TaskConfig("gsm8k"),
        Model(
            model,
            max_prompt_length=max(512, TAIL * assumed.prompt),
            max_response_length=max(1024, TAIL * assumed.response),
        ),
        design,
        evaluation=Evaluation(greedy=False, train_subset=QUESTIONS[0], test_subset=QUESTIONS[1]),
        compute=Compute(
            "cuda", precision="bf16", engine="vllm", micro_tokens=8192, logit_rows=512, gradient_checkpointing=True
        ),
    )
