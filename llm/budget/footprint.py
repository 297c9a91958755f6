"""Compute the peak memory of a run, by phase and part, from the shapes of the tensors that it keeps. Numbers are bytes;
reading them needs no torch.

MemoryUse covers the longest prompts and responses that the limits allow, side by side: the worst case rather than the
usual one. Shorter responses share longer sequences, whose attention masks are larger, so usual lengths count too where
they are given.
"""

from typing import NamedTuple

from rftlab.llm.budget.shapes import Shape, adapted
from rftlab.llm.config import LLMRun
from rftlab.llm.policy.packing import PAIRS, pays

PARTS = (
    "weights",
    "reference",
    "optimiser",
    "gradients",
    "vLLM weights",
    "cache",
    "activations",
    "bf16 copies",
    "logits",
    "libraries",
)
LOGIT_COPIES, VLLM_COPIES = 2, 3
"""Number of float32 that are held at a time for each entry of the vocabulary: for a token of a chunk of
`compute.logit_rows` tokens, and for a row that vLLM samples."""
PICK_BYTES = 24
"""Bytes that `rftlab.llm.engines.rollouts.pick` holds for each logit: float32 logits and log-probabilities, and two
arrays of float64."""
LIBRARIES = {"cpu": 0.55e9, "cuda": 0.7e9}
"""Bytes of a process without a model: torch and transformers, as measured on a CPU, and an assumption for a GPU's
context and its libraries' workspaces."""
READERS = ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"})
"""Groups of a block's projections that read the same input, as wide as a token's hidden state."""
VLLM, ASLEEP = {"cpu": 1e9, "cuda": 2e9}, 1e9
"""Bytes that vLLM needs besides weights and cache, and those of them that stay while it sleeps (graphs). The number for
a CPU is what SmolLM2 took; that for a GPU is assumed, for graphs and the computation of a batch of prompts."""


class Pass(NamedTuple):
    """Size of the largest forward and backward pass of an update."""

    tokens: int
    """Number of tokens, padding included."""
    length: int
    """Number of tokens of a sequence."""
    shared: bool
    """Whether a sequence has several responses, and so an attention mask of its own."""


class MemoryUse(NamedTuple):
    """Bytes at the peak of each phase, as phase -> part -> bytes."""

    phases: dict[str, dict[str, float]]

    def total(self, phase: str) -> float:
        """Return the bytes of all parts of a phase."""
        return sum(self.phases[phase].values())

    @property
    def peak_phase(self) -> str:
        """The phase with the largest total."""
        return max(self.phases, key=self.total)

    @property
    def peak(self) -> float:
        """The largest total, bytes."""
        return self.total(self.peak_phase)


def sleeps(run: LLMRun) -> bool:
    """Whether a run's engine frees its memory while the policy is updated."""
    return run.compute.device != "cpu" and run.compute.engine == "vllm" and run.compute.sleep


def memory_use(run: LLMRun, shape: Shape, usual: tuple[int, int] | None = None) -> MemoryUse:
    """Return the peaks of the phases sample, log_probs (where the run has it) and update. usual: mean tokens of a
    prompt and of a response."""
    shape = adapted(shape, run.lora)
    limits = run.model.max_prompt_length, run.model.max_response_length
    passes = [pass_memory(run, shape, *lengths) for lengths in (limits, usual or limits)]
    largest = Pass(passes[0].tokens, max(read.length for read in passes), any(read.shared for read in passes))
    cuda, vllm = run.compute.device != "cpu", run.compute.engine == "vllm"
    steady = {
        "weights": 4.0 * (shape.parameters + shape.adapters),
        "optimiser": 8.0 * shape.trained,
        "libraries": LIBRARIES["cuda" if cuda else "cpu"],
    }
    reference = {"reference": 4.0 * shape.parameters} if run.needs_reference and not shape.rank else {}
    if cuda:
        steady |= reference  # on a CPU it is in memory only while it is read
    engine = (
        {
            "vLLM weights": float(run.compute.number_bytes * shape.parameters),
            "cache": run.compute.cache_gb * 1e9,
            "libraries": steady["libraries"] + VLLM["cuda" if cuda else "cpu"],
        }
        if vllm
        else {}
    )
    asleep = {"libraries": steady["libraries"] + ASLEEP} if sleeps(run) else engine  # while the policy is updated
    phases = {"sample": steady | (engine | _vllm_logits(run, shape) if vllm else _sampling(run, shape))}
    if not run.on_policy or run.needs_reference:
        phases["log_probs"] = steady | reference | engine | _reading(run, shape, largest)
    phases["update"] = steady | asleep | {"gradients": 4.0 * shape.trained} | _updating(run, shape, largest)
    return MemoryUse(
        {phase: {part: parts[part] for part in PARTS if parts.get(part)} for phase, parts in phases.items()}
    )


def responses_in_sequence(run: LLMRun, shape: Shape, prompt: int, response: int) -> int:
    """Return the number of different responses of these lengths that `rftlab.llm.policy.packing` packs behind one
    prompt."""
    count, total = 1, prompt + response
    while (
        count < run.design.group_size
        and total + response <= run.compute.micro_tokens
        and pays(prompt, total, response, PAIRS * shape.hidden)
    ):
        count, total = count + 1, total + response
    return count


def pass_memory(run: LLMRun, shape: Shape, prompt: int, response: int) -> Pass:
    """Return the size of a full pass with prompts and responses of these lengths, all different."""
    design, count = run.design, responses_in_sequence(run, shape, prompt, response)
    length = prompt + count * response
    sequences = -(-design.batch_size // design.minibatches) * -(-design.group_size // count)
    return Pass(min(sequences * length, max(run.compute.micro_tokens, length)), length, count > 1)


def block_bytes(shape: Shape, read: Pass, narrow: int) -> float:
    """Return the bytes that a block keeps for its backward pass, without copies of its weights.

    A norm keeps its input and its normalised input, in float32, and a projection keeps its input. Attention keeps its
    arguments, whose keys and values are repeated for all heads where there is a mask, and one number per head. The
    feed-forward layer keeps four arrays. In bf16 each projection reads a copy of its own. Where weights are frozen, a
    norm keeps its input alone, and a projection keeps only the input of its adapter and the few numbers between A and
    B.
    """
    reads = [group & set(shape.targets or shape.linear) for group in READERS]
    norms = sum((4 if shape.rank else 8) * width + 4 for width in shape.norms)
    inputs = narrow * (
        shape.queries + shape.hidden * sum(bool(group) if narrow == 4 else len(group) for group in reads)
    )
    between = narrow * shape.rank * len(shape.targets)
    feeding = narrow * shape.ffn * (4 if not shape.rank or "down_proj" in shape.targets else 3)
    attention = narrow * (shape.queries + 2 * (shape.queries if read.shared else shape.keys)) + 4 * shape.heads
    return read.tokens * (norms + inputs + attention + between + feeding)


def outer_bytes(shape: Shape, read: Pass, narrow: int) -> float:
    """Return the bytes that are kept outside of blocks: ids, the last norm (only its input where weights are frozen),
    sines and cosines, and the mask."""
    known = 4 * shape.hidden if shape.rank else 8 + 8 * shape.hidden
    positions = 8 * shape.head_dim * (read.tokens if read.shared else read.length)
    return read.tokens * (known + 4 + (narrow * read.length if read.shared else 0)) + positions


def saved_bytes(shape: Shape, read: Pass, narrow: int, checkpointing: bool) -> float:
    """Return the bytes that the body's forward pass keeps for the backward pass; with checkpointing these are the
    inputs of the blocks."""
    block = 4 * read.tokens * shape.hidden if checkpointing else block_bytes(shape, read, narrow)
    return outer_bytes(shape, read, narrow) + shape.layers * block


def _logits(run: LLMRun, shape: Shape, tokens: int) -> float:
    return 4.0 * min(run.compute.logit_rows, tokens) * shape.vocabulary


def _copies(run: LLMRun, shape: Shape, kept: bool = False, trained: bool = True) -> float:
    """Return the bytes of bfloat16 copies of weights under autocast. A trained weight has its copy until the pass ends,
    a frozen one only during its product unless `kept`."""
    if run.compute.precision != "bf16":
        return 0.0
    return (
        2.0 * (shape.body_products + shape.head)
        if kept or (trained and not shape.rank)
        else 2.0 * max(shape.block_products, shape.head)
    )


def _beside(shape: Shape, tokens: int, narrow: int) -> float:
    """Return the bytes of temporary sums of adapters: the widest layer's output, its adapter's output, and their sum in
    the place of the first alone."""
    return 2.0 * narrow * tokens * shape.ffn if shape.rank else 0.0


def _updating(run: LLMRun, shape: Shape, read: Pass) -> dict[str, float]:
    """Return the parts of an update's memory at the larger of two moments: the head's backward pass, and that of the
    last block, which follows."""
    narrow, checkpointing = run.compute.number_bytes, run.compute.gradient_checkpointing
    kept = saved_bytes(shape, read, narrow, checkpointing)
    states = 8.0 * read.tokens * shape.hidden  # the states that predict tokens, and their gradient
    head = {
        "activations": kept + states,
        "logits": LOGIT_COPIES * _logits(run, shape, read.tokens) + (0.0 if shape.rank else 4.0 * shape.head),
    }
    again = block_bytes(shape, read, narrow) if checkpointing else 0.0
    gradients = narrow * read.tokens * 2 * (shape.ffn + shape.hidden) + (
        _beside(shape, read.tokens, narrow) or 4.0 * shape.hidden * shape.ffn
    )
    block = {"activations": kept + again + states + gradients, "logits": 0.0}
    return {"bf16 copies": _copies(run, shape, kept=not checkpointing)} | max(
        head, block, key=lambda parts: sum(parts.values())
    )


def _forward(run: LLMRun, shape: Shape, tokens: int) -> float:
    """Return the bytes of a block's temporary arrays where nothing is kept for a backward pass."""
    return tokens * (3 * run.compute.number_bytes * shape.ffn + 16 * shape.hidden) + _beside(
        shape, tokens, run.compute.number_bytes
    )


def _reading(run: LLMRun, shape: Shape, read: Pass) -> dict[str, float]:
    """Return the parts of memory of log-probabilities without a gradient, the larger of a block and the head. On policy
    only the reference is read, whose weights are frozen."""
    mask = float(run.compute.number_bytes) * read.tokens * read.length if read.shared else 0.0
    block = {"activations": _forward(run, shape, read.tokens) + mask, "logits": 0.0}
    head = {
        "activations": 8.0 * read.tokens * shape.hidden + mask,
        "logits": LOGIT_COPIES * _logits(run, shape, read.tokens),
    }
    copies = _copies(run, shape, trained=not run.on_policy)
    return {"bf16 copies": copies} | max(head, block, key=lambda parts: sum(parts.values()))


def cache_bytes(shape: Shape, tokens: int) -> float:
    """Return the most bytes that keys and values of `tokens` tokens take in the cache of the Hugging Face engine. They
    are float32 under autocast too, because keys are rotated in float32. transformers from 5.24 on keeps values in
    bfloat16."""
    return 8.0 * tokens * shape.layers * shape.keys


def _sampling(run: LLMRun, shape: Shape) -> dict[str, float]:
    """Return the parts of memory where the Hugging Face engine samples, with as many rows as in evaluations: the
    largest of reading prompts, attention at the last token, and the choice of a token."""
    rows, prompt, narrow = run.compute.sample_rows, run.model.max_prompt_length, run.compute.number_bytes
    tokens = rows * (prompt + run.model.max_response_length)
    cache, logits = cache_bytes(shape, tokens), float(rows * shape.vocabulary)
    repeated = 8 * tokens * shape.queries if shape.heads > shape.kv_heads and run.compute.device != "cpu" else 0.0
    moments = (
        {"cache": cache_bytes(shape, rows * prompt), "activations": _forward(run, shape, rows * prompt), "logits": 0.0},
        {"cache": cache, "activations": float(repeated), "logits": 4 * logits},
        {"cache": cache, "activations": 0.0, "logits": (PICK_BYTES + (2 if narrow == 2 else 0)) * logits},
    )
    return {"bf16 copies": _copies(run, shape)} | max(moments, key=lambda parts: sum(parts.values()))


def _vllm_logits(run: LLMRun, shape: Shape) -> dict[str, float]:
    return {"logits": 4.0 * VLLM_COPIES * run.compute.sample_rows * shape.vocabulary}
