"""Configuration of a simulated run. Nothing here is compiled, so that a command line can show it at once."""

from dataclasses import field
from typing import Literal, get_args

from rftlab.shared.config.checked import config
from rftlab.shared.config.mask import Unmasked
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import MAX_SEED, check, check_choice, check_count, check_finite

MAX_TOKENS = 1000
"""Largest mean number of style tokens of a response."""
MAX_LOGIT = 1e20
"""Largest logit of the base policy; arms that do not exist have the logit -1e30."""
MAX_ARMS = 16
"""Largest number of arms, the columns of a block of logits (`rftlab.sim.lanes.simd.LANES`)."""
MAX_PARTS = MAX_ARMS - 1
"""Largest number of parts of correctness. The noise of all parameters that contexts share comes from one block of
LANES."""
DAMAGE_PARTS = 4
"""Number of parameters whose mean square is the damage of a policy."""
FLIPS = ("false_positive", "false_negative")
"""Fields of the linear environment with the error rates of a verifier."""
SHORT_RARE = 1.0
"""Amount by which the base policy's logits of short answers are lower, where not all of them can be right."""


def check_nuisance(surprise: float, style_tokens: float) -> None:
    """Raise UserError where both surprise and style tokens are set: surprise splits the variance of the Gaussian
    nuisance, which style tokens replace."""
    message = (
        f"environment.surprise = {surprise} with environment.style_tokens = {style_tokens}; allowed: one or the other"
    )
    check(surprise == 0 or style_tokens == 0, message + ", style tokens take the place of the Gaussian nuisance")


@config
class Linear:
    """Contexts with Gaussian features, a correct answer that is partly linear in them, and a base policy that knows
    part of it.

    score    = sqrt(rho) t + sqrt(1-rho) xi per answer; t linear in the features, xi idiosyncratic; the correct answer
             is its argmax
    base     = kappa (align score + sqrt(1-align^2) g) + noise per arm; g linear in the features and unrelated to the
             score
    policy   = softmax(base + features W) over arms (answer, style), W shared by all contexts; format =
             sigmoid(base_format + c theta)
    """

    n_train: int = 7473
    """Training contexts."""
    n_test: int = 1319
    """Test contexts."""
    n_features: int = 448
    """Features of a context."""
    n_answers: int = 8
    """Answers; one is correct. With several tokens: choices of each token."""
    n_styles: int = 2
    """Ways to say each answer; answers x styles x tokens is at most 16."""
    answer_tokens: int = 1
    """Tokens of an answer, all of which must be right: two tokens of 8 choices make 64 answers."""
    rho: float = 0.9
    """Share of the score's variance that is linear in the features (what can generalise)."""
    margin: float = 0.0
    """Least distance of the correct answer's score from the next one, for every token; scores have variance 1.
    Contexts with less are not drawn."""
    kappa: float = 5.0
    """Sharpness of the base policy: factor of its logits, large where it is nearly sure of one answer."""
    align: float = 0.85
    """Correlation of the base policy's logits with the score."""
    unsolvable: float = 0.0
    """Fraction of contexts without any correct answer."""
    unknown: float = 0.0
    """Fraction of contexts of a second task, of whose answers the base policy knows nothing (align 0)."""
    base_format: float = -4.0
    """Mean logit of the base policy's format; its standard deviation over contexts is 1."""
    format_scale: float = 30.0
    """c: how much the format's logit moves per unit of its parameter."""
    nuisance: float = 1.0
    """Standard deviation of each component of a rollout's score in style dimensions that no reward depends on."""
    surprise: float = 0.0
    """Share of the nuisance's variance that is in proportion to |e_a - pi|^2, small where the policy is sure of its
    response."""
    interference: float = 0.0
    """How much of what is learnt on a context leaks to an unrelated one, as a multiple of what it does to its own."""
    forgetting: float = 0.0
    """How fast the base policy fades: its logits shrink by exp(-forgetting D), D the mean square of what training
    changed of a logit."""
    sharpening: float = 0.0
    """How much a learnt number, the same for all contexts, multiplies the base policy's logits, per unit of it."""
    correctness: float = 0.0
    """How much learnt numbers, the same for all contexts, raise the logits of correct arms, per unit of them."""
    correctness_parts: int = 4
    """Numbers that correctness is learnt in, each with gradient noise of its own."""
    damage: float = 0.0
    """How much the format's logit falls with the mean square of four learnt numbers, the same for all contexts, whose
    gradients are noise alone. Steps that are too large or too many then destroy the policy."""
    verbosity: float = 0.0
    """How much a learnt number, the same for all contexts, raises the logits of answers in all styles but the first,
    the shortest, per unit of it."""
    verbosity_noise: float = 1.0
    """Noise in the gradient of verbosity's number, as a multiple of that of other numbers that contexts share."""
    short_right: float = 1.0
    """Share of contexts in which an answer of the first style can be right; below 1 the base policy's logits of these
    answers are lower by 1."""
    familiarity: float = 0.0
    """Bonus of correct arms in the base policy's logits of training contexts, which the model has seen."""
    style_tokens: float = 0.0
    """Mean number of style tokens after the answer token; 0 has Gaussian nuisance in their place
    (sim/policy/style.py)."""
    length_by_style: float = 0.0
    """How much longer the last style's responses are, and shorter the first's, relative to the mean. Without style
    tokens responses have virtual lengths (sim/round/answers.py)."""
    length_jitter: float = 0.0
    """Spread of the number of style tokens: uniform within this fraction of its mean."""
    exploration: float = 0.0
    """How much a learnt number, the same for all contexts, raises the logits of style tokens, per unit of it. The base
    policy's logits of these are then -1.5 instead of 0."""
    partial_credit: float = 0.0
    """Part of the reward that a well-formed answer gets in proportion to its right tokens, the rest where all are
    right; Pass@1 asks for all."""
    reward_noise: float = 0.0
    """Standard deviation of normal noise on every reward; Pass@1 has none."""
    format_reward: float = 0.0
    """A second reward, which a well-formed response gets beside the first; `advantage.combine` says how the two become
    advantages. Pass@1 has none of it."""
    false_positive: float = 0.0
    """Chance that a reward of 0 is given as 1; Pass@1 knows the truth."""
    false_negative: float = 0.0
    """Chance that a reward of 1 is given as 0."""
    sticky_flips: bool = False
    """Whether false positives and negatives are drawn once for each training context and answer, as errors in the
    labels are, instead of for each rollout."""
    world_seed: int = 0
    """Seed of the contexts, the teacher and the base policy (the data set and the model; not of a training run)."""

    def __post_init__(self):
        for name in ("n_train", "n_test", "n_features", "n_answers", "n_styles", "answer_tokens"):
            check_count(f"environment.{name}", getattr(self, name))
        parts = MAX_PARTS - DAMAGE_PARTS * (self.damage > 0) - (self.verbosity > 0) - (self.exploration > 0)
        check_count("environment.correctness_parts", self.correctness_parts, 1, parts)
        arms = "environment.n_answers x environment.n_styles x environment.answer_tokens"
        check(self.n_arms <= MAX_ARMS, f"{arms} = {self.n_arms}; allowed: at most {MAX_ARMS}")
        rates = (
            "rho",
            "align",
            "unsolvable",
            "unknown",
            "length_by_style",
            "length_jitter",
            "surprise",
            "partial_credit",
        )
        for name in (*rates, "short_right", *FLIPS):
            check(0 <= getattr(self, name) <= 1, f"environment.{name} = {getattr(self, name)}; allowed: 0 to 1")
        check(0 <= self.margin <= 0.5, f"environment.margin = {self.margin}; allowed: 0 to 0.5")
        check(
            self.margin == 0 or self.n_answers > 1,
            f"environment.margin = {self.margin} with n_answers = 1; allowed: 0, or 2 answers and more",
        )
        scales = (
            "kappa",
            "nuisance",
            "interference",
            "forgetting",
            "format_scale",
            "sharpening",
            "correctness",
            "damage",
            "verbosity",
            "verbosity_noise",
            "exploration",
        )
        for name in (*scales, "reward_noise", "format_reward"):
            check_finite(f"environment.{name}", getattr(self, name), 0)
        check(
            self.partial_credit == 0 or self.answer_tokens > 1,
            f"environment.partial_credit = {self.partial_credit} with answer_tokens = 1; allowed: 0, or 2 and more",
        )
        graded = max(self.partial_credit, self.reward_noise, self.format_reward) > 0
        check(
            not (graded and any(getattr(self, name) for name in FLIPS)),
            "environment.false_positive, false_negative with partial_credit, reward_noise, format_reward; allowed: one "
            "kind, because flips are of rewards that are 0 or 1",
        )
        for name in ("base_format", "familiarity"):
            check_finite(f"environment.{name}", getattr(self, name))
        for name in ("kappa", "base_format", "familiarity"):
            value = getattr(self, name)
            check(abs(value) <= MAX_LOGIT, f"environment.{name} = {value}; allowed: a size of at most {MAX_LOGIT:g}")
        check(
            0 <= self.style_tokens <= MAX_TOKENS,
            f"environment.style_tokens = {self.style_tokens}; allowed: 0 to {MAX_TOKENS}",
        )
        check_nuisance(self.surprise, self.style_tokens)
        self._check_styles()
        check_count("environment.world_seed", self.world_seed, 0, MAX_SEED)

    def _check_styles(self) -> None:
        """Raise UserError where an option needs several styles or style tokens and the environment has none."""
        for name, off in (("verbosity", 0.0), ("short_right", 1.0)):
            value = getattr(self, name)
            check(
                value == off or self.n_styles > 1,
                f"environment.{name} = {value} with n_styles = 1; allowed: {off:g}, or 2 styles and more",
            )
        check(
            self.exploration == 0 or self.style_tokens > 0,
            f"environment.exploration = {self.exploration} with style_tokens = 0; allowed: 0, or style tokens above 0",
        )
        check(
            self.length_by_style < 1 or self.style_tokens > 0,
            f"environment.length_by_style = {self.length_by_style} with style_tokens = 0; allowed: below 1, or style "
            "tokens above 0",
        )

    @property
    def n_arms(self) -> int:
        """Number of arms of all tokens together."""
        return self.n_answers * self.n_styles * self.answer_tokens


@config
class Tabular:
    """Contexts that share nothing: one logit per context and arm, in float64. Small enough to enumerate; serves
    theory checks."""

    n_contexts: int = 16
    """Contexts; the test set is the training set."""
    n_arms: int = 4
    """Arms, at most 16."""
    n_correct: int = 1
    """Correct arms of each context: the first ones."""
    base_scale: float = 1.0
    """Standard deviation of the base policy's logits."""
    nuisance: float = 0.0
    """As in the linear environment."""
    world_seed: int = 0
    """Seed of the base policy."""

    def __post_init__(self):
        check_count("environment.n_contexts", self.n_contexts)
        check(2 <= self.n_arms <= MAX_ARMS, f"environment.n_arms = {self.n_arms}; allowed: 2 to {MAX_ARMS}")
        check(
            0 <= self.n_correct <= self.n_arms,
            f"environment.n_correct = {self.n_correct}; allowed: 0 to n_arms = {self.n_arms}",
        )
        for name in ("nuisance", "base_scale"):
            check_finite(f"environment.{name}", getattr(self, name), 0)
        check_count("environment.world_seed", self.world_seed, 0, MAX_SEED)


Environment = Linear | Tabular


def n_train(environment: Environment) -> int:
    """Return the number of training contexts."""
    return environment.n_train if isinstance(environment, Linear) else environment.n_contexts


OptimizerKind = Literal["adam", "sgd"]


@config
class Optimizer:
    """Update rule with a constant rate."""

    kind: OptimizerKind = "adam"
    """Update rule. adam: Kingma & Ba, 1412.6980, with bias correction. sgd: theta += rate grad."""
    learning_rate: float = 2e-3
    """Step size of an update."""
    beta1: float = 0.9
    """Adam: decay of the mean of gradients."""
    beta2: float = 0.999
    """Adam: decay of the mean of squared gradients."""
    eps: float = 1e-8
    """Adam: number added to the root of the mean of squared gradients."""
    bf16_rate: float = 0.0
    """Adam: the learning rate of the real run with bf16 weights that `learning_rate` stands for, which loses the small
    steps (sim/round/optimizer.py); 0: fp32 weights, which lose none."""

    def __post_init__(self):
        check_choice("optimizer.kind", self.kind, get_args(OptimizerKind))
        check(
            self.bf16_rate == 0 or (self.kind == "adam" and self.learning_rate > 0),
            f"optimizer.bf16_rate = {self.bf16_rate} with optimizer.kind = {self.kind}, learning_rate = "
            f"{self.learning_rate}; allowed: 0, or adam with a rate above 0",
        )
        for name in ("beta1", "beta2"):
            check(0 <= getattr(self, name) < 1, f"optimizer.{name} = {getattr(self, name)}; allowed: 0 to below 1")
        for name in ("learning_rate", "eps", "bf16_rate"):
            check_finite(f"optimizer.{name}", getattr(self, name), 0)


@config
class Sampler:
    """The difference between the policy that samples and the one that is trained (as with an inference engine)."""

    lag: int = 0
    """Rounds by which the weights of the policy that samples are stale."""
    noise: float = 0.0
    """Standard deviation of the noise on the logits of the policy that samples."""
    every: int = 1
    """Rounds from one synchronization to the next: rollouts of so many rounds come from a queue that one policy
    filled."""

    def __post_init__(self):
        check_count("sampler.lag", self.lag, 0)
        check_count("sampler.every", self.every)
        check_finite("sampler.noise", self.noise, 0)


def general_options(run, style_tokens: float) -> list[str]:
    """Return the names of a run's options that only `rftlab.sim.round.general` supports."""
    estimator = run.design.estimator
    options = {
        "sampler": run.sampler != Sampler(),
        "sampling": run.design.sampling != Sampling(),
        "environment.style_tokens": style_tokens != 0,
        "estimator.entropy": estimator.has_bonus,
        "estimator.mask": not isinstance(estimator.mask, Unmasked),
        f"advantage.baseline = {estimator.advantage.baseline}": estimator.advantage.given,
        f"advantage.combine = {estimator.advantage.combine}": estimator.advantage.combine != "rewards",
        f"kl.anchor = {estimator.kl.anchor}": estimator.kl.anchor == "old",
    }
    return [name for name, wanted in options.items() if wanted]


Evaluation = Literal["exact", "sampled", "full"]
OF_REWARDS = ("partial_credit", "reward_noise", "format_reward")
"""Fields of the linear environment that make rewards other numbers than 0 and 1. All other fields are older."""


@config
class Simulation:
    """A simulated run."""

    environment: Environment = field(default_factory=Linear)
    """The problem."""
    design: Design = field(default_factory=Design)
    """The choices under study."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """The update rule."""
    sampler: Sampler = field(default_factory=Sampler)
    """The difference between the policy that samples and the one that is trained."""
    critic_learning_rate: float = 0.1
    """Step of the critic (advantage.baseline value): the part of its error that one visit of a context takes away."""
    evaluation: Evaluation = "exact"
    """Pass@1 as the exact probability, or from one sampled response per context (as with a real model); full: exact,
    with a table of further measures (`rftlab.sim.round.measures`)."""
    seed: int = 0
    """Seed of the order of contexts, the rollouts and the nuisance."""

    def __post_init__(self):
        check_choice("evaluation", self.evaluation, get_args(Evaluation))
        check(
            0 < self.critic_learning_rate < 2,
            f"critic_learning_rate = {self.critic_learning_rate}; allowed: more than 0, less than 2",
        )
        advantage = self.design.estimator.advantage
        check(
            advantage.gamma == 1 and advantage.lam == 1,
            f"advantage.gamma, lam = {advantage.gamma}, {advantage.lam}; allowed: 1 in the simulator",
        )
        check_count("seed", self.seed, 0, MAX_SEED)
        uneven = self.design.sampling.budget == "difficulty" and getattr(self.environment, "length_by_style", 0) > 0
        check(
            not uneven or self.design.estimator.aggregation.kind != "prompt_mean",
            "aggregation.kind = prompt_mean with environment.length_by_style and sampling.budget difficulty; allowed: "
            "two of them",
        )
        self._check_rewards()
        contexts = n_train(self.environment)
        check(
            self.design.batch_size <= contexts,
            f"batch_size = {self.design.batch_size} is larger than the training set; allowed: 1 to {contexts}",
        )

    def _check_rewards(self) -> None:
        """Raise UserError where an option needs rewards of 0 or 1 and the environment has others."""
        advantage, world = self.design.estimator.advantage, self.environment
        graded = [name for name in OF_REWARDS if isinstance(world, Linear) and getattr(world, name) > 0]
        exact = f"advantage.baseline = {advantage.baseline}" if advantage.baseline in ("optimal", "greedy") else ""
        flips = [name for name in FLIPS if isinstance(world, Linear) and getattr(world, name) > 0]
        check(
            not (flips and exact) or getattr(world, "sticky_flips", False),
            f"environment.{', '.join(flips)} with {exact}, which knows true rewards; allowed: one of "
            "them, or sticky_flips",
        )
        exact = "advantage.credit = pass_at_k" if advantage.credit == "pass_at_k" else exact
        check(
            not graded or not exact,
            f"environment.{', '.join(graded)} with {exact}, which takes rewards for 0 or 1; allowed: one of them",
        )
