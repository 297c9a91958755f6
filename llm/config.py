"""Configuration of a run of a real language model. Reading it needs no torch, so that a command line can show it at
once."""

import re
from dataclasses import field
from typing import Literal, get_args

from rftlab.llm.rewards.load import SECONDS, NamedReward, check_names, rewards_config
from rftlab.llm.tasks.arithmetic import KINDS
from rftlab.llm.tasks.config import OWN, TaskConfig, task_facts
from rftlab.llm.truncation import WHOLE, Truncation
from rftlab.shared.config.checked import config, identity
from rftlab.shared.config.mask import Unmasked
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import MAX, MAX_SEED, check, check_choice, check_count, check_finite

VERSION = 5
"""Version of the trainer. It is raised when a change makes equal configurations give other curves."""
TINY, SMOLLM2 = "tiny", "smollm2-135m"
"""Names of models that need no hub."""
PHASES = ("sample", "score", "log_probs", "update", "evaluate")
"""Phases of a run whose seconds and memory are measured."""
Precision = Literal["fp32", "bf16"]
EngineName = Literal["hf", "vllm"]
MAX_WIDTH, MAX_DEPTH = 2**21, 4096
"""Largest width of a layer, and largest number of layers or heads: above every model's, and small enough to build."""
MAX_OF_TINY = {
    "width": MAX_WIDTH,
    "layers": MAX_DEPTH,
    "heads": MAX_DEPTH,
    "hidden": MAX_WIDTH,
    "batch": MAX,
    "check_every": MAX,
    "max_steps": MAX,
}
_DEVICE = re.compile(r"cpu|mps|cuda(:[0-9]{1,3})?")


@config
class Tiny:
    """A small Llama that is pre-trained from a seed on the corpus of an arithmetic task, until it knows a little."""

    width: int = 64
    """Size of a hidden state."""
    layers: int = 2
    """Transformer blocks."""
    heads: int = 4
    """Attention heads; divides width into even parts."""
    hidden: int = 192
    """Size of the feed-forward layer."""
    seed: int = 0
    """Seed of the weights, of the corpus's styles and of the order of its problems."""
    target: float = 0.08
    """Strict Pass@1 on the validation split at which pre-training stops."""
    learning_rate: float = 1e-3
    """Learning rate of pre-training."""
    batch: int = 128
    """Problems in a step of pre-training."""
    check_every: int = 10
    """Steps of pre-training between two validations."""
    max_steps: int = 20000
    """Steps of pre-training after which the target counts as out of reach."""

    def __post_init__(self):
        for name, most in MAX_OF_TINY.items():
            check_count(f"tiny.{name}", getattr(self, name), 1, most)
        even = self.width % (2 * self.heads) == 0
        check(even, f"tiny.heads = {self.heads}; twice as many must divide tiny.width = {self.width}")
        check(0 <= self.target < 1, f"tiny.target = {self.target}; allowed: 0 to below 1")
        check_finite("tiny.learning_rate", self.learning_rate, above=0)
        check_count("tiny.seed", self.seed, 0, 2**32 - 1)


@config
class Model:
    """Which model is trained, and how long its prompts and responses may be."""

    source: str = TINY
    """`tiny`; `smollm2-135m`, which comes from the package registry; or a folder (or a name on the hub) with a
    causal language model and its tokenizer."""
    tiny: Tiny = field(default_factory=Tiny)
    """The model `tiny`; without effect on other models."""
    max_prompt_length: int = 512
    """Tokens of a prompt; problems with longer prompts are left out and counted."""
    max_response_length: int = 1024
    """Tokens of a response; a longer one is cut."""

    def __post_init__(self):
        for name in ("max_prompt_length", "max_response_length"):
            check_count(f"model.{name}", getattr(self, name))


@config
class AdamW:
    """The update rule: AdamW (1711.05101) with a constant rate, on fp32 weights."""

    learning_rate: float = 1e-6
    """Learning rate."""
    beta1: float = 0.9
    """Decay of the mean of gradients."""
    beta2: float = 0.999
    """Decay of the mean of squared gradients."""
    eps: float = 1e-8
    """Number added to the root of the mean of squared gradients."""
    weight_decay: float = 0.0
    """Weight decay: an update takes away this part of a weight, times the rate."""
    max_grad_norm: float = 1.0
    """Largest norm of a gradient; a longer one is shortened to it. inf turns it off."""
    warmup_steps: int = 0
    """Updates over which the learning rate grows from 0."""

    def __post_init__(self):
        for name in ("learning_rate", "weight_decay"):
            check_finite(f"optimizer.{name}", getattr(self, name), 0)
        check_count("optimizer.warmup_steps", self.warmup_steps, 0)
        check_finite("optimizer.eps", self.eps, above=0)
        for name in ("beta1", "beta2"):
            check(0 <= getattr(self, name) < 1, f"optimizer.{name} = {getattr(self, name)}; allowed: 0 to below 1")
        norm = self.max_grad_norm
        check(norm > 0, f"optimizer.max_grad_norm = {norm}; allowed: more than 0; inf turns it off")


@config
class LoRA:
    """Low-rank adapters (2106.09685): weights W are frozen and read as W + alpha / rank B A, and A and B alone are
    trained. Needs peft."""

    rank: int = 0
    """Rank of adapters B A; 0: none, all weights are trained."""
    alpha: float = 32.0
    """Scale of the adapters: alpha / rank B A is added to a weight."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers that get adapters, as q_proj. None: all linear layers of the blocks, neither the
    head nor embeddings."""

    def __post_init__(self):
        check_count("lora.rank", self.rank, 0, MAX_WIDTH)
        check_finite("lora.alpha", self.alpha, above=0)
        check(
            self.rank > 0 or not self.targets,
            f"lora.targets = {', '.join(self.targets)} with lora.rank = 0; allowed: none, or a lora.rank of 1 or more",
        )


@config
class Evaluation:
    """Measurements that are taken every `design.eval_every` rounds."""

    samples: int = 1
    """Responses sampled to each question, at the temperature of training."""
    greedy: bool = True
    """Whether the greedy response to each question is scored too."""
    train_subset: int = 500
    """Training questions in the evaluation, always the same; at most all of them. 0: all."""
    test_subset: int = 0
    """Unseen questions in the evaluation, always the same. 0: all."""
    split: str = "test"
    """The split of unseen questions: test, or validation for choices that the test split must not decide."""
    pass_at: tuple[int, ...] = ()
    """Each k whose pass@k is estimated; at most `samples`."""

    def __post_init__(self):
        check_count("evaluation.samples", self.samples)
        for name in ("train_subset", "test_subset"):
            check_count(f"evaluation.{name}", getattr(self, name), 0)
        check_choice("evaluation.split", self.split, ("test", "validation"))
        for k in self.pass_at:
            check_count("evaluation.pass_at", k)
            check(k <= self.samples, f"evaluation.pass_at = {k}; allowed: 1 to evaluation.samples = {self.samples}")


@config
class Compute:
    """The pieces that the work is cut into, so that it fits the machine. Every choice here but the engine changes
    results by rounding only."""

    device: str = "cpu"
    """Device of the model: cpu, cuda, or with the engine hf cuda:1, ..., mps."""
    threads: int = 0
    """Threads of a run on a CPU; 0: as many as there are cores. One is right for `tiny`, whose kernels are too short
    to share."""
    precision: Precision = "fp32"
    """bf16: forward and backward passes under bfloat16 autocast. Weights and log-probabilities are float32 in both."""
    engine: EngineName = "hf"
    """The sampler: the trained model itself, or vLLM beside it. They draw other random numbers, so curves are equal
    in distribution only."""
    cache_gb: float = 4.0
    """Memory for the keys and values of vLLM, in GB."""
    sample_rows: int = 256
    """Responses that are sampled side by side."""
    micro_tokens: int = 2048
    """Tokens, padding included, of a forward and backward pass; a longer sequence goes alone. More than 2048 pays on
    accelerators only."""
    logit_rows: int = 2048
    """Tokens whose logits exist at a time."""
    gradient_checkpointing: bool = False
    """Whether blocks are computed again in the backward pass, which saves memory."""
    compile: bool = False
    """Whether passes run through torch.compile; the first of them wait for it, and it needs a C compiler."""
    sleep: bool = True
    """Whether vLLM gives its GPU memory back while the policy is updated, for about two seconds a round."""

    def __post_init__(self):
        check_choice("compute.precision", self.precision, get_args(Precision))
        check_choice("compute.engine", self.engine, get_args(EngineName))
        check(
            _DEVICE.fullmatch(self.device) is not None,
            f"compute.device = {self.device!r}; allowed: cpu, cuda, cuda:0, cuda:1, ..., mps",
        )
        first = self.engine == "hf" or self.device in ("cpu", "cuda", "cuda:0")
        check(
            first,
            f"compute.device = {self.device!r}: vLLM takes the first GPU that it sees; allowed: cpu, cuda; "
            "CUDA_VISIBLE_DEVICES chooses a GPU",
        )
        check_finite("compute.cache_gb", self.cache_gb, above=0)
        check_count("compute.threads", self.threads, 0, 1024)
        for name in ("sample_rows", "micro_tokens", "logit_rows"):
            check_count(f"compute.{name}", getattr(self, name))

    @property
    def number_bytes(self) -> int:
        """Bytes of a number in matrix products."""
        return 2 if self.precision == "bf16" else 4


@config
class LLMRun:
    """A run of the trainer."""

    task: TaskConfig = field(default_factory=TaskConfig)
    """The problems."""
    model: Model = field(default_factory=Model)
    """The model."""
    design: Design = field(default_factory=Design)
    """The choices under study."""
    optimizer: AdamW = field(default_factory=AdamW)
    """The update rule."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """Measurements of the policy."""
    compute: Compute = field(default_factory=Compute)
    """The pieces that the work is cut into."""
    lora: LoRA = field(default_factory=LoRA)
    """Whether all weights are trained, or adapters beside them."""
    temperature: float = 1.0
    """Divides the logits of the policy, where it samples and where it is trained."""
    top_p: float = WHOLE.top_p
    """Training rollouts are sampled from the likeliest tokens with this sum of probabilities; 1 is all tokens."""
    top_k: int = WHOLE.top_k
    """Training rollouts are sampled from so many likeliest tokens; 0 is all."""
    min_p: float = WHOLE.min_p
    """Training rollouts are sampled from tokens with at least this share of the likeliest one's probability."""
    mask_truncated: bool = False
    """Whether responses that were cut at model.max_response_length are left out of the update, as TRL's
    mask_truncated_completions does. Their rewards stay in the baselines, and they count in means over responses."""
    max_mismatch: float | None = None
    """Largest mean difference between the sampler's and the trainer's log-probabilities of a round; None: 1e-3 in
    fp32, 0.06 in bf16."""
    checkpoint_every: int = 0
    """Rounds between two checkpoints; divides design.eval_every; 0 means design.eval_every."""
    checkpoints_kept: int = 2
    """Checkpoints that stay, each with weights and two moments; no part of a run's identity."""
    seed: int = 0
    """Seed of the order of prompts, of every sampled token and of adapters."""
    rewards: tuple[NamedReward, ...] = ()
    """Rewards to train on in place of the task's strict reward; `rftlab.llm.train.train` fills it from functions."""
    reward_timeout: float = SECONDS
    """Seconds that a call of a reward may take; no part of a run's identity."""

    def __post_init__(self):
        check_names(self.rewards)
        check_finite("reward_timeout", self.reward_timeout, above=0)
        check_finite("temperature", self.temperature, above=0)
        self.truncation.check()
        check(
            self.truncation == WHOLE or self.design.estimator.correction.kind != "none",
            f"top_p, top_k, min_p = {', '.join(map(str, self.truncation))}: rollouts from a part of the tokens are of "
            "another distribution than the policy; allowed: 1, 0, 0, or an estimator.correction other than none",
        )
        check(
            self.max_mismatch is None or self.max_mismatch > 0,
            f"max_mismatch = {self.max_mismatch}; allowed: None or more than 0",
        )
        check_count("seed", self.seed, 0, MAX_SEED)
        every, interval = self.checkpoint_every, self.design.eval_every
        check_count("checkpoint_every", every, 0)
        check_count("checkpoints_kept", self.checkpoints_kept)
        check(
            interval % (every or interval) == 0,
            f"checkpoint_every = {every}; allowed: 0, or a divisor of eval_every = {interval}",
        )
        self._check_task()
        baseline = self.design.estimator.advantage.baseline
        lacks = {"value": "critic", "optimal": "exact expectations"}
        check(
            baseline not in lacks,
            f"advantage.baseline = {baseline!r}: no {lacks.get(baseline)} in training; allowed: all but value, optimal",
        )
        tries = self.design.sampling.tries
        check(
            tries == 1 or not self.needs_averages,
            f"sampling.tries = {tries}; allowed: 1 with budget difficulty or baseline moving_average",
        )

    def _check_task(self) -> None:
        """Raise UserError where the model cannot be trained on the task."""
        tiny, name, own = self.model.source == TINY, self.task.name, self.task.own
        check(
            not tiny or name in (*KINDS, OWN),
            f"model.source = {TINY!r} knows arithmetic alone; task = {name!r}; allowed: {', '.join(KINDS)}, "
            f"and {OWN} in its symbols",
        )
        check(
            tiny or name not in KINDS,
            f"task = {name!r} is for model.source = {TINY!r}; {self.model.source!r} has no symbols for it",
        )
        check(
            not tiny or name != OWN or not (own.chat or own.system),
            f"model.source = {TINY!r} reads its symbols alone, no chat; allowed: --task.own.no-chat, no system "
            "message, and a template such as {question}",
        )

    @property
    def truncation(self) -> Truncation:
        """The tokens from which training rollouts are sampled."""
        return Truncation(self.top_p, self.top_k, self.min_p)

    @property
    def threshold(self) -> float:
        """Largest mean difference of the sampler's and the trainer's log-probabilities that a round may have."""
        return self.max_mismatch or {"fp32": 1e-3, "bf16": 0.06}[self.compute.precision]

    @property
    def idle_penalty(self) -> str:
        """A warning about a length penalty that starts beyond the longest response; empty where it does not."""
        length, longest = self.design.estimator.length, self.model.max_response_length
        first = length.limit - length.buffer
        if length.coef == 0 or longest > first:
            return ""
        return (
            f"the length penalty never acts: it begins beyond {first:g} tokens (length.limit - length.buffer), and "
            f"responses end at model.max_response_length = {longest}"
        )

    @property
    def interval(self) -> int:
        """Rounds between two checkpoints."""
        return self.checkpoint_every or self.design.eval_every

    @property
    def needs_reference(self) -> bool:
        """Whether the estimator has a KL penalty against the base policy."""
        return self.design.estimator.kl.against_base

    @property
    def needs_averages(self) -> bool:
        """Whether the run needs moving averages of the prompts' rewards."""
        baseline = self.design.estimator.advantage.baseline
        return self.design.sampling.budget == "difficulty" or baseline == "moving_average"

    @property
    def on_policy(self) -> bool:
        """Whether a round updates the policy that sampled, and nothing needs its log-probabilities before the
        update."""
        design, estimator = self.design, self.design.estimator
        needs_old_logp = (
            self.compares_tokens
            or estimator.advantage.reads_squares
            or design.sampling.replayed > 0
            or estimator.correction.kind != "none"
            or (self.needs_reference and estimator.kl.place == "reward")
        )
        return design.epochs * design.minibatches == 1 and not needs_old_logp

    @property
    def compares_tokens(self) -> bool:
        """Whether a mask needs the log-probabilities of a whole mini-batch before its update."""
        return not isinstance(self.design.estimator.mask, Unmasked)


LATER: dict[str, dict] = {
    "design.estimator": {"entropy_target": 0.0, "entropy_step": 0.005},
    "design.estimator.advantage": {"constant": 0.0, "combine": "rewards"},
    "design.estimator.aggregation": {"micro_batch": None},
    "design.sampling": {"replayed": 0},
    "compute": {"sleep": True, "compile": False},
}
"""Fields that were added after runs were stored, with the values at which they change nothing."""


def model_config(run: LLMRun) -> dict:
    """Return the canonical configuration as plain JSON values: everything that a curve depends on."""
    estimator = run.design.estimator
    kinds = {name: type(getattr(estimator, name)).__name__ for name in ("surrogate", "mask")}
    facts = {**identity(run, LATER), "task": task_facts(run.task)}
    unset = (*(WHOLE._fields if run.truncation == WHOLE else ()), *(() if run.mask_truncated else ("mask_truncated",)))
    for name in ("rewards", "reward_timeout", "checkpoints_kept", *unset):
        del facts[name]
    own = {"rewards": rewards_config(run.rewards)} if run.rewards else {}
    return {"level": "llm", "version": VERSION, "kinds": kinds, **facts, **own}
