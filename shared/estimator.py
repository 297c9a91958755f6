"""What an estimator is made of: five independent choices, each a frozen dataclass, and named combinations of them."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from shared.errors import check, check_choice

AdvantageKind = Literal["reward", "group_mean", "group_zscore", "leave_one_out", "batch_mean"]
SingletonRule = Literal["raw", "zero", "error"]
SurrogateKind = Literal["reinforce", "clip"]
KLKind = Literal["none", "k1", "k2", "k3", "abs"]
KLPlace = Literal["loss", "reward"]
AggregationKind = Literal["token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean"]
EmptyRule = Literal["skip", "count"]


def _code(literal, value: str) -> int:
    """Integer code of a choice inside compiled kernels: its place in the Literal."""
    return get_args(literal).index(value)


@dataclass(frozen=True)
class Advantage:
    """How the rewards of a baseline set turn a response's reward into its advantage."""

    kind: AdvantageKind = "group_zscore"
    """reward: r. group_mean: r - mean. group_zscore: (r - mean)/(std + eps). leave_one_out: r - mean of the others. batch_mean: r - mean of all groups."""
    ddof: int = 1
    """Degrees of freedom taken off in the standard deviation: 1 sample, 0 population."""
    eps: float = 1e-6
    """Added to the standard deviation."""
    singleton: SingletonRule = "raw"
    """Baseline set of one reward. raw: mean 0, std 1, so the reward survives. zero: no signal. error: refuse."""

    def __post_init__(self):
        check_choice("advantage.kind", self.kind, get_args(AdvantageKind))
        check_choice("advantage.singleton", self.singleton, get_args(SingletonRule))
        check(self.ddof in (0, 1), f"advantage.ddof = {self.ddof!r}; allowed: 0, 1")
        check(self.eps >= 0, f"advantage.eps = {self.eps!r}; allowed: 0 or more")


@dataclass(frozen=True)
class Surrogate:
    """The objective of one token as a function of its log-probability."""

    kind: SurrogateKind = "clip"
    """reinforce: A logp. clip: min(A ratio, A clip(ratio, 1-low, 1+high)), PPO (1707.06347)."""
    low: float = 0.2
    """Lower clip range, from 0 (nothing may fall) to 1 (no lower clip)."""
    high: float = 0.2
    """Upper clip range; inf means no upper clip."""
    dual: float | None = None
    """Dual clip c > 1: for A < 0 the objective is at least c A (1912.09729). None means off."""

    def __post_init__(self):
        check_choice("surrogate.kind", self.kind, get_args(SurrogateKind))
        check(0 <= self.low <= 1, f"surrogate.low = {self.low!r}; allowed: 0 to 1")
        check(self.high >= 0, f"surrogate.high = {self.high!r}; allowed: 0 or more")
        check(self.dual is None or self.dual > 1, f"surrogate.dual = {self.dual!r}; allowed: None or more than 1")


@dataclass(frozen=True)
class KL:
    """Penalty that keeps the policy near the base policy, estimated from the sampled tokens (joschu.net/blog/kl-approx.html)."""

    kind: KLKind = "none"
    """With d = logp - ref_logp. k1: d. k2: d^2/2. k3: exp(-d) + d - 1. abs: |d|."""
    coef: float = 0.001
    """Coefficient of the penalty."""
    place: KLPlace = "loss"
    """loss: subtracted from the objective per token. reward: the sampled value is subtracted from the reward."""
    straight_through: bool = False
    """Value of `kind`, gradient of k2 (the gradient of the reverse KL)."""

    def __post_init__(self):
        check_choice("kl.kind", self.kind, get_args(KLKind))
        check_choice("kl.place", self.place, get_args(KLPlace))
        check(self.coef >= 0, f"kl.coef = {self.coef!r}; allowed: 0 or more")


@dataclass(frozen=True)
class Aggregation:
    """How the objectives of tokens become the objective of a batch."""

    kind: AggregationKind = "seq_mean_token_sum"
    """Mean or sum over all tokens, or mean over responses of their token sums or token means."""
    length: float | None = None
    """Constant that divides token sums (Dr. GRPO's constant length, 2503.20783). None means 1."""
    eps: float = 0.0
    """Added to every token count that a mean divides by (some libraries add 1e-8)."""
    empty: EmptyRule = "skip"
    """Whether responses without tokens count in the mean over responses."""

    def __post_init__(self):
        check_choice("aggregation.kind", self.kind, get_args(AggregationKind))
        check_choice("aggregation.empty", self.empty, get_args(EmptyRule))
        check(self.length is None or self.kind.endswith("token_sum"), f"aggregation.length = {self.length!r}; allowed: None where kind is {self.kind}")
        check(self.length is None or self.length > 0, f"aggregation.length = {self.length!r}; allowed: None or more than 0")
        check(self.eps >= 0, f"aggregation.eps = {self.eps!r}; allowed: 0 or more")


@dataclass(frozen=True)
class Estimator:
    """One estimator: a value for each of the independent choices."""

    advantage: Advantage = field(default_factory=Advantage)
    surrogate: Surrogate = field(default_factory=Surrogate)
    kl: KL = field(default_factory=KL)
    aggregation: Aggregation = field(default_factory=Aggregation)


class Rule(NamedTuple):
    """An `Estimator` as plain numbers, for compiled kernels: closed dispatch on integer codes."""

    advantage: int
    ddof: int
    eps: float
    singleton: int
    surrogate: int
    low: float
    high: float
    dual: float
    kl: int
    kl_straight_through: bool
    kl_in_loss: float
    kl_in_reward: float
    aggregation: int
    length: float
    count_eps: float
    count_empty: bool


def rule_of(estimator: Estimator) -> Rule:
    """The numbers that kernels take instead of an `Estimator`."""
    advantage, surrogate, kl, aggregation = estimator.advantage, estimator.surrogate, estimator.kl, estimator.aggregation
    return Rule(
        advantage=_code(AdvantageKind, advantage.kind),
        ddof=advantage.ddof,
        eps=float(advantage.eps),
        singleton=_code(SingletonRule, advantage.singleton),
        surrogate=_code(SurrogateKind, surrogate.kind),
        low=float(surrogate.low),
        high=float(surrogate.high),
        dual=float("inf") if surrogate.dual is None else float(surrogate.dual),
        kl=_code(KLKind, kl.kind),
        kl_straight_through=kl.straight_through,
        kl_in_loss=float(kl.coef) if kl.place == "loss" else 0.0,
        kl_in_reward=float(kl.coef) if kl.place == "reward" else 0.0,
        aggregation=_code(AggregationKind, aggregation.kind),
        length=1.0 if aggregation.length is None else float(aggregation.length),
        count_eps=float(aggregation.eps),
        count_empty=aggregation.empty == "count",
    )
