"""Test the law on curves of imported runs, how fast designs learn and which r / phi fits that: `python -m dev.paces
imported:NAME [RESULTS]`.

All curves of one model and task are fitted by one P = A expit(logit(p0 / A) + (pace t)^q) with a pace for each design.
Paces are compared with the law's, sqrt(B / (r + f / K)) x updates^(1/4) with f = K / (K - 1) and r in units of phi, and
with powers of B and K. The step size is that of the runs, so only runs of one learning rate are compared. "Critical
Batch Size for LLM Policy Optimization" (OpenReview uK4kMpNx0W) splits the same noise, on the runs that docs/forecast.md
fits. It finds that noise within prompts dominates and N = B K counts: r / phi near 0.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from scipy.optimize import least_squares
from scipy.special import expit, logit

from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios
from rftlab.shared.plumbing.errors import check
from rftlab.studies.analysis.imported.groups import Group, group_runs, mean_curve
from rftlab.studies.analysis.source import free_source
from rftlab.studies.console.table import Column, Table, say
from rftlab.studies.data.results.stats import Estimate
from rftlab.studies.forecast.forecasters import UPDATES, design_pace
from rftlab.studies.forecast.imported import TEST, simulated_design, unusable
from rftlab.studies.forecast.law.curve import NOISE
from rftlab.studies.forecast.law.limits import round_updates

COUNTED = 8
"""Number of values of a curve that count as independent."""
RATIOS = np.append(0.0, np.geomspace(1e-3, 10, 13))
"""Values of r / phi that are tried."""
INSIDE = 3.84
"""Rise of chi-square, in units of its minimum over the degrees of freedom, at the bounds of a 95% interval."""


class CurveFit(NamedTuple):
    """Fit of one curve to all designs: chi-square, and the parameters, which are logits of p0 / A and A, log q, log
    pace of the first design, and those of the others."""

    square: float
    x: np.ndarray
    errors: np.ndarray
    """Standard errors (n,), with noise as large as the residuals."""


class PaceFits(NamedTuple):
    """Fits of the curves of several designs."""

    designs: tuple[Design, ...]
    labels: tuple[str, ...]
    paces: np.ndarray
    """(designs,) pace of each design over that of the first, as free parameters."""
    errors: np.ndarray
    """(designs,) standard errors of the logarithms of paces; 0 for the first."""
    profile: np.ndarray
    """Chi-square at RATIOS minus its minimum, in units of its minimum over the degrees of freedom; nan where K does not
    vary, because then r / phi changes all paces alike."""
    powers: dict[str, Estimate]
    """Powers of B and of K, those that vary, fitted together."""
    squares: dict[str, float]
    """Chi-square over degrees of freedom of four models: free paces, the law, powers, and no difference."""


def fit_paces(groups: list[Group]) -> PaceFits:
    """Fit the curves of designs of one model, task and learning rate. Raises UserError for fewer than two designs that
    differ in B or K."""
    designs = tuple(simulated_design(group, group.last) for group in groups)
    sizes = np.log([[one.batch_size, one.rollouts] for one in designs])
    names = [name for name, column in zip("BK", sizes.T, strict=True) if np.ptp(column) > 0]
    check(bool(names), f"{groups[0].label}: one B and K; allowed: runs of two designs or more that differ in them")
    updates = UPDATES * np.log([round_updates(one) for one in designs])
    curves = [mean_curve(group.curves) for group in groups]
    points = [(curve["round"].to_numpy(dtype=float), curve["mean"].to_numpy()) for curve in curves]
    varied = sizes[:, [name in names for name in "BK"]]
    free = _fit(points, np.eye(len(designs))[:, 1:], np.zeros(len(designs)))
    power = _fit(points, varied - varied[0], updates - updates[0])
    nothing = np.zeros((len(designs), 0))
    none = _fit(points, nothing, np.zeros(len(designs)))
    varies, freedom = "K" in names, sum(min(len(at), COUNTED) for at, _ in points) - 4
    tried = RATIOS if varies else RATIOS[:1]
    squares = np.array([_fit(points, nothing, _law_paces(designs, ratio), power.x).square for ratio in tried])
    best = int(squares.argmin())
    profile = (squares - squares[best]) / (squares[best] / max(freedom - 1, 1))
    degrees = {"free paces": freedom - len(designs) + 1, "law": freedom - 1, "powers": freedom - len(names)}
    fitted = {"free paces": free.square, "law": squares[best], "powers": power.square}
    over = {name: float(square / max(degrees[name], 1)) for name, square in fitted.items()}
    ends = [
        Estimate(float(v), float(v - 1.96 * e), float(v + 1.96 * e))
        for v, e in zip(power.x[4:], power.errors[4:], strict=True)
    ]
    return PaceFits(
        designs,
        tuple(group.label for group in groups),
        np.exp(np.append(0.0, free.x[4:])),
        np.append(0.0, free.errors[4:]),
        profile if varies else np.full(len(RATIOS), np.nan),
        dict(zip(names, ends, strict=True)),
        over | {"no difference": float(none.square / freedom)},
    )


def believed_ratio(profiles: list[np.ndarray]) -> Estimate:
    """Return r / phi with its 95% interval for several fits together, from the sum of their profiles. Bounds are values
    of RATIOS."""
    total = np.sum(profiles, axis=0)
    inside = RATIOS[total <= total.min() + INSIDE]
    return Estimate(float(RATIOS[total.argmin()]), float(inside.min()), float(inside.max()))


def _law_paces(designs: tuple[Design, ...], ratio: float) -> np.ndarray:
    """Return the logarithms (designs,) of the law's paces over the first."""
    logs = np.log([design_pace(one, NoiseRatios(ratio)) for one in designs])
    return logs - logs[0]


def _fit(
    points: list[tuple[np.ndarray, np.ndarray]],
    slopes: np.ndarray,
    offsets: np.ndarray,
    start: np.ndarray | None = None,
) -> CurveFit:
    """Fit the curve, with log paces `slopes` (designs, n) @ x plus `offsets` (designs,). start: parameters where the
    search begins, by default several."""
    weights = np.concatenate([np.full(len(at), np.sqrt(min(1.0, COUNTED / len(at)))) for at, _ in points])
    values = np.concatenate([value for _, value in points])
    longest = max(float(at.max()) for at, _ in points)

    def residuals(x: np.ndarray) -> np.ndarray:
        logs, power = np.clip(x[3] + offsets + slopes @ x[4:], -30, 30), np.exp(np.clip(x[2], -3, 1.5))
        tau = np.concatenate([at / longest * np.exp(log) for (at, _), log in zip(points, logs, strict=True)])
        ceiling = expit(x[1])
        base = ceiling * expit(x[0])
        return weights * (ceiling * expit(logit(base / ceiling) + tau**power) - values) / NOISE

    top, low = float(np.clip(values.max(), 0.02, 0.98)), float(np.clip(values.min(), 0.002, 0.9))
    starts = [
        np.concatenate([[logit(min(low / top, 0.98)), logit(top), np.log(q), pace], np.zeros(slopes.shape[1])])
        for q in (0.6,)
        for pace in (0.5, 2.0)
    ]
    if start is not None:
        starts = [np.append(start[:4], np.zeros(slopes.shape[1]))]
    fits = [least_squares(residuals, x, x_scale="jac", max_nfev=60) for x in starts]
    best = min(fits, key=lambda fit: fit.cost)
    freedom = max(sum(min(len(at), COUNTED) for at, _ in points) - len(best.x), 1)
    covariance = np.linalg.pinv(best.jac.T @ best.jac) * (2 * best.cost / freedom)
    return CurveFit(2 * float(best.cost), best.x, np.sqrt(np.maximum(np.diag(covariance), 0.0)))


def show_paces(console: Console, title: str, fit: PaceFits) -> None:
    """Print the paces of designs, the powers of B and K, and the errors of each model."""
    law = NoiseRatios(0.0)
    first = design_pace(fit.designs[0], law)
    table = Table("design", "B", "K", "updates", Column("pace", ".2f"), "95%", Column("law, r = 0", ".2f"), title=title)
    for design, name, pace, error in zip(fit.designs, fit.labels, fit.paces, fit.errors, strict=True):
        low, high = pace * np.exp(-1.96 * error), pace * np.exp(1.96 * error)
        sizes = (str(design.batch_size), str(design.rollouts), str(round_updates(design)))
        table.add(name, *sizes, pace, f"{low:.2f} to {high:.2f}", design_pace(design, law) / first)
    console.print(table)
    for axis, one in fit.powers.items():
        interval = f"95% {one.low:.2f} to {one.high:.2f} (the law at r = 0: 0.5)"
        say(console, f"pace goes with {axis}^{one.value:.2f}, {interval}")
    squares = ", ".join(f"{name} {value:.3f}" for name, value in fit.squares.items())
    say(console, f"chi-square over degrees of freedom, errors of {NOISE:g}: {squares}", "dim")


def show_imported(console: Console, name: str, results: Path) -> None:
    """Print how fast the designs of imported runs learn, for each model, task and learning rate in which B or K varies,
    and r / phi of all. Raises UserError where there is none."""
    source = free_source(name)
    sets: dict[tuple, list[Group]] = {}
    for group in group_runs(source.runs(results), TEST, source.task):
        if not unusable(group):
            sets.setdefault((group.model, group.task, group.design.learning_rate), []).append(group)
    several = [groups for groups in sets.values() if len({(g.design.prompts, g.design.rollouts) for g in groups}) > 1]
    check(bool(several), f"{name} has no two designs of one model, task and learning rate that differ in B or K")
    fits = []
    for groups in several:
        fits.append(fit_paces(groups))
        show_paces(console, f"{groups[0].place}: rounds of the first design that a round is worth", fits[-1])
    better = [fit for fit in fits if fit.squares["law"] < fit.squares["no difference"]]
    profiles = [fit.profile for fit in better if np.isfinite(fit.profile).all()]
    if profiles:
        ratio = believed_ratio(profiles)
        text = f"r / phi = {ratio.value:.3g}, 95% {ratio.low:.3g} to {ratio.high:.3g}, from designs that differ in K"
        say(console, text)


if __name__ == "__main__":
    show_imported(Console(), sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "results"))
