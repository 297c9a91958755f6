"""Tokens and seconds of a run's rounds and evaluations. Estimates: products at a part of a device's peak, decoding at a
part of its bandwidth.

No GPU was at hand when this was written: nothing here is fitted to a measurement but what a device of
`--gpu measured` brings. Scoring responses and writing files are not counted.
"""

from typing import NamedTuple

from rftlab.llm.budget.devices import Device
from rftlab.llm.budget.footprint import responses_in_sequence, sleeps
from rftlab.llm.budget.shapes import Shape, adapted
from rftlab.llm.config import LLMRun
from rftlab.shared.config.mask import TopEntropy

STREAMING = 0.6
"""Part of a device's bandwidth at which weights and caches are read while decoding; assumed."""
HF_BLOCK = 1e-3
"""Least seconds of a block in a decoding step of the model itself, assumed."""
LAUNCHES = 1e-3
"""Least seconds of a block in a forward pass, assumed: so long it takes to start its kernels."""
TAIL = 3
"""The longest of the responses that are sampled side by side, in mean lengths; assumed."""
ADAMW_BYTES = 28
"""Read and written for each parameter by a step: weight, gradient and two moments, all but the gradient both ways."""

LENGTHS = {"gsm8k": (120, 200), "math": (130, 400), "words": (190, 16), "largest": (97, 8)}
"""Mean tokens of a prompt and of a response, chat template and format instructions included: assumptions, good to a
factor of 1.5 or so."""
SUMS = (8, 8)
"""The same of arithmetic."""


class Assumed(NamedTuple):
    """Assumptions about a run that a plan cannot check."""

    prompt: int
    """Tokens of a prompt, mean."""
    response: int
    """Tokens of a response, mean."""
    train: int
    """Training questions there are."""
    test: int
    """Unseen questions there are."""


class Cost(NamedTuple):
    """Of a part of a round, or of an evaluation."""

    tokens: int
    seconds: float


class Duration(NamedTuple):
    """A run's costs: by phase of a round, and of an evaluation."""

    phases: dict[str, Cost]
    evaluation: Cost
    rounds: int
    evaluations: int
    rollouts: int
    """Responses sampled in a round."""

    @property
    def sampled(self) -> int:
        """Tokens sampled in all rounds, prompts included, evaluations not."""
        return self.rounds * self.phases["sample"].tokens

    @property
    def round_seconds(self) -> float:
        """Seconds of a round."""
        return sum(cost.seconds for cost in self.phases.values())

    @property
    def seconds(self) -> float:
        """Seconds of the run."""
        return self.rounds * self.round_seconds + self.evaluations * self.evaluation.seconds


def estimate_duration(run: LLMRun, shape: Shape, device: Device, assumed: Assumed) -> Duration:
    """The costs of a run. Dynamic sampling counts with all its tries, and every response as different from the
    others."""
    design, shape = run.design, adapted(shape, run.lora)
    sampled = design.batch_size * (design.rollouts + design.support_rollouts) * design.sampling.tries
    greedy = design.batch_size if design.estimator.advantage.baseline == "greedy" else 0
    phases = {
        "sample": _sampling(run, shape, device, assumed, design.batch_size * design.sampling.tries, sampled + greedy)
    }
    reads = (0 if run.on_policy else 1) + run.needs_reference
    tokens, forward = _forward(run, shape, device, assumed)
    if reads:
        phases["log_probs"] = Cost(reads * tokens, reads * forward)
    looks = run.compares_tokens * (design.epochs * design.minibatches - 1) / design.minibatches
    looks += design.epochs * isinstance(design.estimator.mask, TopEntropy)  # for the entropies
    passes = (
        2 if shape.rank else 3
    ) + run.compute.gradient_checkpointing  # frozen weights need no gradient, what they read does
    steps = design.epochs * design.minibatches * ADAMW_BYTES * shape.trained / (STREAMING * device.bandwidth)
    phases["update"] = Cost(design.epochs * tokens, (design.epochs * passes + looks) * forward + steps)
    if sleeps(run):
        phases["sleep"] = Cost(0, device.sleep)
    questions = (run.evaluation.train_subset or assumed.train, run.evaluation.test_subset or assumed.test)
    evaluated = min(questions[0], assumed.train) + min(questions[1], assumed.test)
    answers = evaluated * (run.evaluation.samples + run.evaluation.greedy)
    evaluation = _sampling(run, shape, device, assumed, evaluated, answers)
    return Duration(phases, evaluation, design.rounds, design.rounds // design.eval_every + 1, sampled + greedy)


def _flops(run: LLMRun, device: Device) -> float:
    """Multiplications and additions a second that passes are assumed to reach."""
    return device.utilisation * (device.bf16 if run.compute.precision == "bf16" else device.fp32)


def _sampling(run: LLMRun, shape: Shape, device: Device, assumed: Assumed, prompts: int, responses: int) -> Cost:
    """Reading prompts once each, by products; then steps of up to `compute.sample_rows` tokens, each of which reads all
    weights and the rows' caches.

    vLLM samples no more rows side by side than its cache holds; prompts that rollouts share count for each of them, so
    this is on the safe side.
    """
    narrow, vllm = run.compute.number_bytes, run.compute.engine == "vllm"
    token = 2 * (narrow if vllm else 4) * shape.layers * shape.keys
    held = (
        max(1, int(run.compute.cache_gb * 1e9 / (token * (assumed.prompt + assumed.response)))) if vllm else responses
    )
    rows, waves = min(run.compute.sample_rows, responses, held), -(-responses // run.compute.sample_rows)
    longest = min(run.model.max_response_length, TAIL * assumed.response)
    steps = max(longest, responses * assumed.response / rows) if vllm else waves * longest
    alive = responses * assumed.response / steps
    cache = alive * (assumed.prompt + assumed.response / 2) * token
    weights = (narrow if vllm else 4) * (shape.body_products + shape.head)
    products = 2 * alive * (shape.body_products + shape.head)
    least = device.step + device.row * alive if vllm else HF_BLOCK * shape.layers
    step = max((weights + cache) / (STREAMING * device.bandwidth), products / _flops(run, device), least)
    reading = 2 * prompts * assumed.prompt * shape.body_products / _flops(run, device)
    return Cost(prompts * assumed.prompt + responses * assumed.response, reading + steps * step)


def _forward(run: LLMRun, shape: Shape, device: Device, assumed: Assumed) -> tuple[int, float]:
    """Tokens that the model reads of what is trained on, prompts included, and seconds of a forward pass over them."""
    design, count = run.design, responses_in_sequence(run, shape, assumed.prompt, assumed.response)
    sequences = design.batch_size * -(-design.group_size // count)
    answers = design.batch_size * design.group_size * assumed.response
    tokens = sequences * assumed.prompt + answers
    pairs = tokens * (assumed.prompt + count * assumed.response)
    products = 2 * tokens * shape.body_products + 2 * answers * shape.head + 4 * pairs * shape.queries * shape.layers
    least = -(-tokens // run.compute.micro_tokens) * shape.layers * LAUNCHES
    return tokens, max(products / _flops(run, device), least)
