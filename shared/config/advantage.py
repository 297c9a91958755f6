"""Configuration of advantages: a credit, minus a baseline, divided by a scale, and whitened where asked for."""

from typing import Any, ClassVar, Literal, NamedTuple, get_args

from rftlab.shared.config.checked import config
from rftlab.shared.custom.registry import configured
from rftlab.shared.plumbing.errors import check, check_choice, check_finite, code_for

CreditKind = Literal["reward", "set_mean", "pass_at_k"]
GroupBaseline = Literal["group_mean", "leave_one_out", "length_weighted", "second_best", "james_stein"]
"""Baselines from the group's own baseline set; `singleton` decides where that set holds one reward."""
GivenBaseline = Literal["greedy", "moving_average", "value", "optimal", "optimal_token"]
"""Baselines that the simulator or the trainer computes and hands over, because they need more than the rewards of the
batch."""
PER_TOKEN = ("value", "optimal_token")
"""Given baselines that have one number for each token."""
BaselineKind = Literal["none", GroupBaseline, "batch_mean", "constant", GivenBaseline]
ScaleKind = Literal["none", "group_std", "others_std", "group_mean", "batch_std", "nonzero"]
GROUP_SCALES = ("group_std", "others_std", "group_mean")
"""Scales that are computed from the group's own baseline set."""
WhitenKind = Literal["none", "tokens", "responses"]
SingletonRule = Literal["raw", "zero", "error"]
CombineKind = Literal["rewards", "advantages"]
REWARD = code_for(CreditKind, "reward")
SET_MEAN = code_for(CreditKind, "set_mean")
PASS_AT_K = code_for(CreditKind, "pass_at_k")
NONE = code_for(BaselineKind, "none")
GROUP_MEAN = code_for(BaselineKind, "group_mean")
LEAVE_ONE_OUT = code_for(BaselineKind, "leave_one_out")
LENGTH_WEIGHTED = code_for(BaselineKind, "length_weighted")
SECOND_BEST = code_for(BaselineKind, "second_best")
JAMES_STEIN = code_for(BaselineKind, "james_stein")
BATCH_MEAN = code_for(BaselineKind, "batch_mean")
CONSTANT = code_for(BaselineKind, "constant")
GREEDY = code_for(BaselineKind, "greedy")
MOVING_AVERAGE = code_for(BaselineKind, "moving_average")
VALUE = code_for(BaselineKind, "value")
OPTIMAL = code_for(BaselineKind, "optimal")
OPTIMAL_TOKEN = code_for(BaselineKind, "optimal_token")
UNSCALED = code_for(ScaleKind, "none")
GROUP_STD = code_for(ScaleKind, "group_std")
OTHERS_STD = code_for(ScaleKind, "others_std")
BY_MEAN = code_for(ScaleKind, "group_mean")
BATCH_STD = code_for(ScaleKind, "batch_std")
NONZERO = code_for(ScaleKind, "nonzero")
PLAIN = code_for(WhitenKind, "none")
BY_TOKENS = code_for(WhitenKind, "tokens")
BY_RESPONSES = code_for(WhitenKind, "responses")
RAW = code_for(SingletonRule, "raw")
ZERO = code_for(SingletonRule, "zero")
ERROR = code_for(SingletonRule, "error")
OF_SUM = code_for(CombineKind, "rewards")
OF_EACH = code_for(CombineKind, "advantages")
"""Integer codes by which kernels know these choices."""


@config
class Advantage:
    """The map from rewards to advantages: A = (credit - baseline) / scale, then whitened."""

    baseline: BaselineKind = "group_mean"
    """From the group's set: group_mean, leave_one_out (mean of the others), second_best (only the best response
    counts), length_weighted, james_stein (leave_one_out, shrunk to other groups' means: 2511.03710, eq. 16).
    batch_mean: mean of all sets. constant: the number below. From elsewhere: greedy (reward of the greedy response),
    moving_average (of the context), value (critic), optimal (exact), optimal_token (estimated from the group, for each
    token)."""
    scale: ScaleKind = "none"
    """group_std, batch_std: divide by the deviation plus eps of the group's set or of all sets. others_std: by that of
    the group's other rewards, unless it is 0. group_mean: by the mean plus eps of the group's set; no signal unless the
    mean is above 0. nonzero: by the share of nonzero rewards."""
    whiten: WhitenKind = "none"
    """Scale at the end to mean 0 and deviation 1 over the batch, where each token counts once, or each response."""
    credit: CreditKind = "reward"
    """Credit. reward: r. set_mean: mean of the group's set. pass_at_k: the response's part in pass@k (0/1 rewards)."""
    k: int = 1
    """k of pass_at_k."""
    ddof: int = 1
    """Degrees of freedom taken off in a standard deviation: 1 sample, 0 population."""
    eps: float = 1e-6
    """Number added to a standard deviation."""
    singleton: SingletonRule = "raw"
    """Baseline set of one reward. raw: mean 0, std 1, so the reward survives. zero: no signal. error: refuse."""
    combine: CombineKind = "rewards"
    """Use of several rewards. rewards: the weighted sum of rewards has an advantage. advantages: each reward has one,
    and their weighted sum is whitened (GDPO, 2601.05242)."""
    constant: float = 0.0
    """Baseline that is the same for all responses; 1 with 0/1 rewards trains on wrong responses alone."""
    decay: float = 0.9
    """Moving average: part of the weight of earlier rewards that a visit leaves."""
    gamma: float = 1.0
    """Discount per token."""
    lam: float = 1.0
    """Lambda of generalised advantage estimation (value)."""

    def __post_init__(self):
        for name, kind in (
            ("baseline", BaselineKind),
            ("scale", ScaleKind),
            ("whiten", WhitenKind),
            ("credit", CreditKind),
            ("singleton", SingletonRule),
            ("combine", CombineKind),
        ):
            check_choice(f"advantage.{name}", getattr(self, name), get_args(kind))
        check(self.ddof in (0, 1), f"advantage.ddof = {self.ddof!r}; allowed: 0, 1")
        check_finite("advantage.eps", self.eps, 0)
        check_finite("advantage.constant", self.constant)
        check(
            self.constant == 0 or self.baseline == "constant",
            f"advantage.constant = {self.constant!r}; allowed: 0 where baseline is {self.baseline}",
        )
        check(self.k >= 1, f"advantage.k = {self.k!r}; allowed: 1 or more")
        check(
            self.k == 1 or self.credit == "pass_at_k",
            f"advantage.k = {self.k!r}; allowed: 1 where credit is {self.credit}",
        )
        for name in ("decay", "gamma", "lam"):
            check(0 <= getattr(self, name) <= 1, f"advantage.{name} = {getattr(self, name)!r}; allowed: 0 to 1")
        check(
            self.of_tokens or not self.by_token,
            f"advantage.gamma below 1 or baseline {' or '.join(PER_TOKEN)}: allowed with scale none, credit reward, no "
            "group's baseline",
        )
        check(
            self.lam == 1 or self.baseline == "value",
            f"advantage.lam = {self.lam!r}; allowed: 1 where baseline is {self.baseline}",
        )
        check(
            self.combine == "rewards" or not (self.given or self.by_token or self.credit != "reward"),
            f"advantage.combine = {self.combine}; allowed: rewards where credit is {self.credit}, baseline "
            f"{self.baseline}, gamma {self.gamma:g}",
        )
        refused = {"second_best": GROUP_SCALES[1:], "james_stein": GROUP_SCALES}
        refused |= dict.fromkeys(get_args(GivenBaseline), GROUP_SCALES)
        check(
            self.scale not in refused.get(self.baseline, ()),
            f"advantage.scale = {self.scale}; allowed: the others where baseline is {self.baseline}",
        )
        if self.credit != "reward":
            allowed = ("none",) if self.credit == "set_mean" else ("none", "leave_one_out")
            check_choice(f"advantage.baseline (credit {self.credit})", self.baseline, allowed)
            check(
                self.scale in ("none", "batch_std"),
                f"advantage.scale = {self.scale!r}; allowed: none, batch_std where credit is {self.credit}",
            )

    @property
    def given(self) -> bool:
        """Whether the baseline is computed by the simulator or the trainer and handed over."""
        return self.baseline in get_args(GivenBaseline)

    @property
    def of_group(self) -> bool:
        """Whether the singleton rule applies to a baseline set of one reward."""
        return self.baseline in get_args(GroupBaseline) or self.scale in GROUP_SCALES

    @property
    def of_lengths(self) -> bool:
        """Whether advantages depend on the lengths of responses."""
        return self.baseline == "length_weighted" or self.whiten == "tokens"

    @property
    def of_tokens(self) -> bool:
        """Whether advantages can be computed from rewards at single tokens."""
        return (
            (self.given or self.baseline == "none")
            and self.scale == "none"
            and self.whiten != "responses"
            and self.credit == "reward"
            and self.combine == "rewards"
        )

    @property
    def by_token(self) -> bool:
        """Whether advantages vary within a response."""
        return self.baseline in PER_TOKEN or self.gamma < 1

    @property
    def reads_squares(self) -> bool:
        """Whether its baseline reads sum_v pi(v)^2 of each token's distribution."""
        return self.baseline == "optimal_token"

    @property
    def of_batch(self) -> bool:
        """Whether an advantage depends on other groups of the batch."""
        of_all = self.baseline in ("batch_mean", "james_stein")
        return of_all or self.scale in ("batch_std", "nonzero") or self.whiten != "none"


@config
class CustomAdvantage(Advantage):
    """Advantages of a group as a custom function finds them; `scale` and `whiten` may follow, where they look
    at the whole batch."""

    kind: ClassVar[str] = "advantage"
    baseline: Any = "none"
    """Baseline of the batch: none, because the function sets its own."""
    name: str = ""
    """Name under which the function was registered."""
    source: str = ""
    """Identity of the function, a checksum. Results of one function are never used for another."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("advantage.baseline (a function of your own)", self.baseline, ("none",))
        check_choice("advantage.credit (a function of your own)", self.credit, ("reward",))
        check_choice("advantage.scale (a function of your own)", self.scale, ("none", "batch_std", "nonzero"))
        check(self.gamma == 1, "advantage.gamma; allowed: 1 with a function of your own")
        check(self.combine == "rewards", "advantage.combine; allowed: rewards with a function of your own")

    @property
    def of_tokens(self) -> bool:
        """Always False: the rewards at tokens are summed over a response before the function gets them."""
        return False

    @property
    def of_batch(self) -> bool:
        """Always True: the function gets all groups of a round at once."""
        return True


class AdvantageRule(NamedTuple):
    """The numbers of an `Advantage` that kernels take."""

    credit: int
    k: int
    baseline: int
    constant: float
    given: bool
    by_group: bool
    of_group: bool
    scale: int
    whiten: int
    ddof: int
    eps: float
    singleton: int
    combine: int
    custom: int
    """Address of a custom function; 0 where there is none."""


def advantage_rule(spec: Advantage) -> AdvantageRule:
    """Return the numbers of an advantage's configuration that kernels take."""
    return AdvantageRule(
        credit=code_for(CreditKind, spec.credit),
        k=spec.k,
        baseline=code_for(BaselineKind, spec.baseline),
        constant=float(spec.constant),
        given=spec.given,
        by_group=spec.baseline in get_args(GroupBaseline),
        of_group=spec.of_group,
        scale=code_for(ScaleKind, spec.scale),
        whiten=code_for(WhitenKind, spec.whiten),
        ddof=spec.ddof,
        eps=float(spec.eps),
        singleton=code_for(SingletonRule, spec.singleton),
        combine=code_for(CombineKind, spec.combine),
        custom=configured(spec).address if isinstance(spec, CustomAdvantage) else 0,
    )
