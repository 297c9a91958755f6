"""Check an estimator: its reaction to shifted and scaled rewards, its derivative, and its bias and variance on a
problem that is small enough to enumerate."""

from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.advantage import advantages
from rftlab.shared.cards import preset
from rftlab.shared.cards.custom import card_of
from rftlab.shared.config.advantage import Advantage, CustomAdvantage
from rftlab.shared.config.surrogate import CustomSurrogate
from rftlab.shared.custom.functions import group_advantages
from rftlab.shared.custom.groups import check_finite, checked
from rftlab.shared.custom.registry import configured
from rftlab.shared.estimator import Estimator
from rftlab.shared.objective import objective_and_weights
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import prepare
from rftlab.studies.theory.models import RLOO, along_gradient, gradient_moments, one_correct, reinforce_with

SIZES, PASS_RATES, GROUP = (1, 2, 3, 8), (0.1, 0.5, 0.9), 4
CLOSE = 1e-9
STEP, SLOPE = 1e-6, 1e-6


class Checked(NamedTuple):
    """Line of a report on an estimator."""

    what: str
    verdict: str
    """Verdict: ok, FAIL, or fact for a property that is neither right nor wrong."""
    said: str


class EstimatorReport(NamedTuple):
    """Result of all checks of an estimator."""

    name: str
    lines: tuple[Checked, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(line.verdict != "FAIL" for line in self.lines)

    def __str__(self) -> str:
        width = max(len(line.what) for line in self.lines)
        return "\n".join([self.name, *(f"  {line.verdict:4}  {line.what:{width}}  {line.said}" for line in self.lines)])


def check_estimator(estimator: Any, like: str | None = None) -> EstimatorReport:
    """Check an estimator.

    estimator: a function that `rl.advantage` or `rl.surrogate` registered, its name, or an `Estimator`. like: name of a
    card whose weights it claims to give; the package's tests compare that card with reference vectors. Raises UserError
    where `estimator` is none of these; a fault of the function is a line of the report.
    """
    name, spec = _known(estimator)
    lines: list[Checked] = []
    for battery in (_values, _again, _alone, _shifts, _surrogate, _moments):
        try:
            lines += battery(spec)
        except UserError as error:
            lines.append(Checked(battery.__name__[1:], "FAIL", str(error)))
        if any(line.what == "values" and line.verdict == "FAIL" for line in lines):
            return EstimatorReport(name, tuple(lines))
    if like is not None:
        lines.append(_like(spec, like))
    return EstimatorReport(name, tuple(lines))


def _known(estimator: Any) -> tuple[str, Estimator]:
    if isinstance(estimator, Estimator):
        return "estimator", estimator
    name = estimator if isinstance(estimator, str) else card_of(estimator)
    if name is None:
        raise UserError(
            "check_estimator takes a function under @rl.advantage or @rl.surrogate, a name, or an Estimator"
        )
    return name, preset(name)


def _given(spec: Advantage, n: int) -> np.ndarray | None:
    return np.linspace(0.2, 0.8, n) if spec.given else None


def _group(spec: Advantage, rewards: np.ndarray) -> np.ndarray:
    """Return the advantages (n,) of one group with rewards (n,)."""
    pool = Pool(rewards, np.array([0, rewards.size]))
    numbers = np.zeros(rewards.size, dtype=np.int64)
    return advantages(spec, rewards, numbers, pool, baseline=_given(spec, rewards.size))


def _groups(spec: Advantage) -> list[np.ndarray]:
    """Return the rewards of test groups: binary, graded, negative, and all equal."""
    rng = np.random.default_rng(0)
    groups = [rng.integers(0, 2, n).astype(np.float64) for n in SIZES for _ in range(4)]
    if spec.credit != "pass_at_k":
        groups += [rng.normal(size=n) for n in SIZES for _ in range(4)]
        groups += [np.full(n, value) for n in SIZES for value in (0.0, 0.1, 1.0, -3.0)]
    least = max(spec.k, 2 if spec.singleton == "error" else 1)
    return [rewards for rewards in groups if rewards.size >= least]


def _values(estimator: Estimator) -> list[Checked]:
    """Check that the advantages of groups of every kind are finite."""
    groups = _groups(estimator.advantage)
    for rewards in groups:
        try:
            check_finite(checked(_group(estimator.advantage, rewards), rewards.shape, ""), "")
        except UserError as error:
            return [Checked("values", "FAIL", f"rewards {rewards.round(3).tolist()}: {error}")]
    return [Checked("values", "ok", f"finite for {len(groups)} groups of 1 to {max(SIZES)} responses")]


def _again(estimator: Estimator) -> list[Checked]:
    """Check that a second call with the same rewards gives the same advantages."""
    spec = estimator.advantage
    if not isinstance(spec, CustomAdvantage):
        return []
    known = configured(spec)
    for rewards in _groups(spec):
        if not np.array_equal(group_advantages(known, rewards), group_advantages(known, rewards)):
            return [Checked("again", "FAIL", "a second call with the same rewards gives other advantages")]
    return [Checked("again", "ok", "a second call gives the same")]


def _alone(estimator: Estimator) -> list[Checked]:
    """Check that a group has the same advantages in a batch of groups as alone."""
    spec = estimator.advantage
    if not isinstance(spec, CustomAdvantage) or not configured(spec).batched:
        return []
    if configured(spec).of_batch:
        return [Checked("alone", "fact", "a group's advantages may depend on the others: scope is batch")]
    groups = _groups(spec)
    edges = np.cumsum([0, *(rewards.size for rewards in groups)])
    rewards, numbers = np.concatenate(groups), np.repeat(np.arange(len(groups)), np.diff(edges))
    together = np.split(advantages(spec, rewards, numbers, Pool(rewards, edges)), edges[1:-1])
    far = _farthest(together, [_group(spec, each) for each in groups])
    said = "a group's advantages are its own" if far < CLOSE else f"other groups move advantages by up to {far:.3g}"
    return [Checked("alone", "ok" if far < CLOSE else "FAIL", said)]


def _shifts(estimator: Estimator) -> list[Checked]:
    """Check the effects on advantages of a shift of the rewards, a factor, and another order."""
    spec = estimator.advantage
    groups = [rewards for rewards in _groups(spec) if rewards.size > 1 and rewards.std() > 0.1]
    own = [_group(spec, rewards) for rewards in groups]
    lines = []
    if spec.credit != "pass_at_k" and not spec.given:
        moved = _farthest(own, [_group(spec, rewards + 2.0) for rewards in groups])
        lines.append(
            Checked("shift", "fact", "none" if moved < CLOSE else f"r + 2 moves advantages by up to {moved:.3g}")
        )
        twice = [_group(spec, 2.0 * rewards) for rewards in groups]
        same, double = _farthest(own, twice), _farthest([2.0 * a for a in own], twice)
        eps = 1e-3
        said = "2 r gives the same" if same < eps else "2 r gives twice the advantages" if double < eps else "neither"
        lines.append(Checked("scale", "fact", said))
    turned = _farthest([a[::-1] for a in own], [_group(spec, rewards[::-1].copy()) for rewards in groups])
    if not spec.given:
        said = "moves with its rewards" if turned < CLOSE else f"another order changes advantages by up to {turned:.3g}"
        lines.append(Checked("order", "ok" if turned < CLOSE else "FAIL", said))
    centre = max(abs(float(a.mean())) for a in own)
    lines.append(Checked("mean", "fact", "0 in every group" if centre < CLOSE else f"up to {centre:.3g} in a group"))
    return lines


def _farthest(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


def _weights(estimator: Estimator, advantage: np.ndarray, logp: np.ndarray, old: np.ndarray):
    """Return the objective and the weight of each token, in responses of one token."""
    plain = Estimator(Advantage("none"), estimator.surrogate, ratio=estimator.ratio)
    n = advantage.size
    batch = prepare(plain, advantage, np.arange(n), np.arange(n + 1), old)
    # a batch for each token: the value of a whole batch would not give the derivative of a single token
    tokens = [type(batch)(*(column[i : i + 1] for column in batch)) for i in range(n)]
    results = [objective_and_weights(plain, token, logp[i : i + 1]) for i, token in enumerate(tokens)]
    return np.array([one.objective for one in results]) * n, np.array([one.weight[0] for one in results]) * n


def _surrogate(estimator: Estimator) -> list[Checked]:
    """Check the surrogate's derivative against finite differences, and whether it is the policy gradient on policy."""
    rng = np.random.default_rng(1)
    old, advantage = -rng.exponential(1.5, 200), rng.normal(size=200)
    logp = old + 0.3 * rng.normal(size=200)
    _, slope = _weights(estimator, advantage, logp, old)
    above, below = (_weights(estimator, advantage, logp + step, old)[0] for step in (STEP, -STEP))
    gap = np.abs((above - below) / (2 * STEP) - slope)
    far = int((gap > SLOPE * (1 + np.abs(slope)) * 100).sum())
    if isinstance(estimator.surrogate, CustomSurrogate) and far == 200:
        line = Checked("derivative", "FAIL", "differs from the value's on every token")
    elif far:
        said = f"differs from the value's on {far} of 200 tokens: something is held fixed"
        line = Checked("derivative", "fact", said)
    else:
        line = Checked("derivative", "ok", "equals differences of the value")
    _, start = _weights(estimator, advantage, old, old)
    gap = np.abs(start - advantage).max()
    said = "the advantage: the policy gradient" if gap < 1e-6 else f"off the advantage by up to {gap:.3g}"
    return [line, Checked("on policy", "ok" if gap < 1e-6 else "fact", said)]


def _moments(estimator: Estimator) -> list[Checked]:
    """Measure bias and variance of a group's gradient, by enumeration of every group of 4 of a softmax with 3 arms."""
    spec = estimator.advantage
    if spec.given or (spec.of_batch and not isinstance(spec, CustomAdvantage)):
        return []
    lines, factors = [], []
    for p in PASS_RATES:
        policy = one_correct(3, p)
        mean, variance = gradient_moments(policy, reinforce_with(spec), GROUP)
        _, other = gradient_moments(policy, RLOO, GROUP)
        factor, rest = along_gradient(policy, mean)
        factors.append(factor)
        said = f"mean gradient {factor:.3f} of grad p" + (f" (off its line: {rest:.1g})" if rest > CLOSE else "")
        lines.append(Checked(f"pass rate {p:g}", "fact", f"{said}, variance {variance / other:.2f} of RLOO's"))
    unbiased = max(abs(factor - 1.0) for factor in factors) < CLOSE
    constant = max(factors) - min(factors) < CLOSE * max(1.0, abs(factors[0]))
    said = f"unbiased up to the learning rate, times {factors[0]:.3f}" if constant else ""
    said = "unbiased" if unbiased else said or "biased: another objective than the pass rate"
    return [*lines, Checked("bias", "fact", said)]


def _like(estimator: Estimator, name: str) -> Checked:
    """Check that the weights are those of a card, on random groups at a policy that has moved."""
    other, rng, worst = preset(name), np.random.default_rng(2), 0.0
    check(not other.advantage.given, f"like = {name!r}; allowed: a card whose baseline comes from the group")
    for _ in range(50):
        lengths = rng.integers(1, 5, 12)
        starts, group = np.concatenate([[0], np.cumsum(lengths)]), np.repeat(np.arange(3), 4)
        rewards, old = rng.integers(0, 2, 12).astype(np.float64), -rng.exponential(1.5, starts[-1])
        logp = old + 0.2 * rng.normal(size=old.size)
        ours, theirs = (
            objective_and_weights(one, prepare(one, rewards, group, starts, old, old), logp).weight
            for one in (estimator, other)
        )
        worst = max(worst, float(np.abs(ours - theirs).max()))
    verdict, said = ("ok", f"the weights of {name}") if worst < CLOSE else ("FAIL", f"off {name} by up to {worst:.3g}")
    return Checked("like", verdict, said)
