"""Plan a run before it starts: tokens and seconds of its rounds and evaluations, its memory against a device's, and the
smallest change that makes it fit.

Times are estimates: products at a share of a device's peak, decoding at a share of its bandwidth. No GPU was available
when this was written, so nothing here is fitted to a measurement except for a device of `--gpu measured`. Scoring
responses and writing files are not counted.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any, NamedTuple

from rftlab.llm.budget.devices import GPUS, Device
from rftlab.llm.budget.footprint import MemoryUse, memory_use, responses_in_sequence, sleeps
from rftlab.llm.budget.shapes import Shape, adapted, read_shape
from rftlab.llm.config import LLMRun
from rftlab.shared.config.mask import TopEntropy
from rftlab.shared.plumbing.errors import check

STREAMING = 0.6
"""Share of a device's bandwidth at which weights and caches are read while decoding; assumed."""
HF_BLOCK = 1e-3
"""Smallest seconds of a block in a decoding step of the Hugging Face engine; assumed."""
LAUNCHES = 1e-3
"""Smallest seconds of a block in a forward pass, the time to start its kernels; assumed."""
TAIL = 3
"""Length of the longest of the responses that are sampled side by side, as a multiple of the mean; assumed."""
ADAMW_BYTES = 28
"""Bytes that a step reads and writes for each parameter: weight and two moments both ways, the gradient one way."""

LENGTHS = {"gsm8k": (120, 200), "math": (130, 400), "words": (190, 16), "largest": (97, 8)}
"""Mean tokens of a prompt and of a response by task, chat template and format instructions included. These are
assumptions, good to a factor of about 1.5."""
SUMS = (8, 8)
"""Mean tokens of a prompt and of a response of the arithmetic tasks."""


class Assumed(NamedTuple):
    """Assumptions about a run that a plan cannot check."""

    prompt: int
    """Mean tokens of a prompt."""
    response: int
    """Mean tokens of a response."""
    train: int
    """Number of training questions."""
    test: int
    """Number of unseen questions."""


class Cost(NamedTuple):
    """Tokens and seconds of a phase of a round, or of an evaluation."""

    tokens: int
    seconds: float


class Duration(NamedTuple):
    """Costs of a run: by phase of a round, and of an evaluation."""

    phases: dict[str, Cost]
    evaluation: Cost
    rounds: int
    evaluations: int
    rollouts: int
    """Number of responses sampled in a round."""

    @property
    def sampled(self) -> int:
        """Tokens sampled in all rounds, including prompts but not evaluations."""
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
    """Return the costs of a run. Dynamic sampling counts with all its tries, and all responses count as different."""
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
    looks += design.epochs * isinstance(design.estimator.mask, TopEntropy)  # to compute the entropies
    passes = (
        2 if shape.rank else 3
    ) + run.compute.gradient_checkpointing  # frozen weights need no gradient, but their inputs do
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
    """Return the multiplications and additions per second that passes are assumed to reach."""
    return device.utilisation * (device.bf16 if run.compute.precision == "bf16" else device.fp32)


def _sampling(run: LLMRun, shape: Shape, device: Device, assumed: Assumed, prompts: int, responses: int) -> Cost:
    """Return the cost of sampling. Each prompt is read once, by products; then come decoding steps of up to
    `compute.sample_rows` tokens, each of which reads all weights and the rows' caches.

    vLLM samples no more rows side by side than its cache holds. A prompt that rollouts share is counted for each of
    them, which errs on the safe side.
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
    """Return the tokens that the model reads to train, prompts included, and the seconds of a forward pass over
    them."""
    design, count = run.design, responses_in_sequence(run, shape, assumed.prompt, assumed.response)
    sequences = design.batch_size * -(-design.group_size // count)
    answers = design.batch_size * design.group_size * assumed.response
    tokens = sequences * assumed.prompt + answers
    pairs = tokens * (assumed.prompt + count * assumed.response)
    products = 2 * tokens * shape.body_products + 2 * answers * shape.head + 4 * pairs * shape.queries * shape.layers
    least = -(-tokens // run.compute.micro_tokens) * shape.layers * LAUNCHES
    return tokens, max(products / _flops(run, device), least)


SLACK = 0.05
"""Share of a device's memory that stays free, for fragments that its allocator cannot use; assumed."""
MIN = {"cache_gb": 0.5, "logit_rows": 128, "micro_tokens": 512, "sample_rows": 16}
"""Smallest values of fields of `compute` that a change may set."""
FILL: dict[str, list] = {
    "sleep": [False],
    "gradient_checkpointing": [False],
    "micro_tokens": [8192, 16384, 32768, 65536],
    "sample_rows": [256, 512, 1024],
    "cache_gb": [2.0, 4.0, 8.0, 16.0, 32.0],
}
"""Values of fields of `compute` that are tried where a GPU has memory left."""


class CostPlan(NamedTuple):
    """Memory and costs of a run on a device."""

    run: LLMRun
    shape: Shape
    device: Device
    memory: MemoryUse
    duration: Duration
    assumed: Assumed

    @property
    def room(self) -> float:
        """Number of bytes that the run may use."""
        return (1 - SLACK) * self.device.memory

    @property
    def disk(self) -> float:
        """Bytes of checkpoints while the run trains: weights and two moments of each kept checkpoint, and of the one
        that is being written."""
        return (self.run.checkpoints_kept + 1) * 12.0 * self.shape.trained

    def memory_with(self, **change) -> MemoryUse:
        """Return the memory use with other values of fields of `compute`."""
        return memory_use(replace(self.run, compute=replace(self.run.compute, **change)), self.shape, self.assumed[:2])

    @property
    def fits(self) -> bool:
        """Whether the memory of every phase fits into the device."""
        return self.memory.peak <= self.room


def cost_plan(run: LLMRun, device: Device, assumed: Assumed, shape: Shape | None = None) -> CostPlan:
    """Return the plan of a run. Raises UserError for a model whose shape cannot be read, and for adapters of layers
    that the model does not have. shape: the model's, where it is known."""
    shape = adapted(shape or read_shape(run.model), run.lora)
    return CostPlan(
        run,
        shape,
        device,
        memory_use(run, shape, assumed[:2]),
        estimate_duration(run, shape, device, assumed),
        assumed,
    )


def smallest_change(plan: CostPlan, fixed: Collection[str] = ()) -> dict[str, float | int | bool] | None:
    """Return the fewest changes of fields of `compute`, none of them in `fixed`, with which the run fits, or None.

    Changes are tried in order: fewer fields first, then less harmful fields (`knobs`), then smaller changes.
    """
    tried = (change for change in changes(plan.run, plan.shape) if change.keys().isdisjoint(fixed))
    return next((change for change in tried if plan.memory_with(**change).peak <= plan.room), None)


def knobs(run: LLMRun, shape: Shape) -> dict[str, list]:
    """Return values of fields of `compute` that save memory, the smallest change first; the least harmful field is
    first.

    With less cache and fewer rows fewer responses are sampled side by side, shorter passes use an accelerator less, and
    checkpointing computes a third more.
    """
    compute, smaller = run.compute, {}
    if compute.engine == "vllm":
        longest = run.model.max_prompt_length + run.model.max_response_length
        least = max(MIN["cache_gb"], longest * shape.layers * shape.keys * 2 * compute.number_bytes / 1e9)
        smaller["cache_gb"] = [value for value in _lower(compute.cache_gb, lambda value: value - 0.5) if value >= least]
    for name in ("logit_rows", "micro_tokens", "sample_rows"):
        smaller[name] = [
            value for value in _lower(getattr(compute, name), lambda value: value // 2) if value >= MIN[name]
        ]
    smaller["gradient_checkpointing"] = [] if compute.gradient_checkpointing else [True]
    return smaller


def _lower(value: float, less: Callable[[float], float]) -> Iterator[float]:
    while (value := less(value)) > 0:
        yield value


def changes(run: LLMRun, shape: Shape) -> Iterator[dict[str, float | int | bool]]:
    """Yield every change that `smallest_change` tries, in order."""
    known = knobs(run, shape)
    for count in range(1, len(known) + 1):
        for names in combinations(known, count):
            places = product(*(range(len(known[name])) for name in names))
            for place in sorted(places, key=lambda place: (sum(place), place)):
                yield {name: known[name][i] for name, i in zip(names, place, strict=True)}


def fastest_settings(plan: CostPlan, fixed: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of `compute`, none of them in `fixed`, that make a run on a GPU fastest by the plan's
    estimates, among the values of FILL with which it fits. Equally fast settings are decided by least memory; {} if
    none saves 1%."""
    tried = {
        name: sorted({getattr(plan.run.compute, name), *(() if name in fixed else values)})
        for name, values in FILL.items()
    }
    fitting: list[tuple[float, float, dict[str, Any]]] = []
    for values in product(*tried.values()):
        change = dict(zip(tried, values, strict=True))
        peak = plan.memory_with(**change).peak
        if peak <= plan.room:
            run = replace(plan.run, compute=replace(plan.run.compute, **change))
            seconds = estimate_duration(run, plan.shape, plan.device, plan.assumed).seconds
            fitting.append((round(seconds / plan.duration.seconds, 3), peak, change))
    share, _, change = min(fitting, key=lambda each: each[:2], default=(1.0, 0.0, {}))
    now = {name: getattr(plan.run.compute, name) for name in change}
    return {name: value for name, value in change.items() if value != now[name]} if share < 0.99 else {}


def filled(plan: CostPlan, fixed: Collection[str] = ()) -> LLMRun:
    """Return the run of a plan with the fastest settings that fit, or with the smallest change that makes it fit.
    Raises UserError where no change does."""
    change = fastest_settings(plan, fixed) if plan.fits else smallest_change(plan, fixed)
    check(
        change is not None,
        f"fill: the run needs {plan.memory.peak / 1e9:.1f} GB, {plan.room / 1e9:.1f} may be used, and no setting that "
        "was left open makes it fit; allowed: a larger GPU, fewer --compute flags",
    )
    return replace(plan.run, compute=replace(plan.run.compute, **change or {}))


def where_it_fits(plan: CostPlan) -> list[str]:
    """Return the names of known GPUs on which the run fits unchanged."""
    return [gpu.name for gpu in GPUS.values() if plan.memory.peak <= (1 - SLACK) * gpu.memory]
