"""What `rftlab dev law` does."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from rftlab.shared.effective_batch import Costs
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import folder_below, path_kind
from rftlab.studies.analysis.imported.groups import Group, group_runs
from rftlab.studies.analysis.source import free_source
from rftlab.studies.data.paper.pairs import PAIRS, pairs_at
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.data.runs.study import has_study
from rftlab.studies.forecast.imported import TEST, unusable
from rftlab.studies.forecast.law import show
from rftlab.studies.forecast.law.collapse import believed_ratio, fit_paces
from rftlab.studies.forecast.law.figures import SHOWN, collapse
from rftlab.studies.forecast.law.score import (
    RankedPair,
    language_pairs,
    piloted_pair,
    public_pairs,
    published_pairs,
    score_law,
    simulated_noise,
    simulated_pairs,
)
from rftlab.studies.forecast.pilot.store import pilot_path, shipped_pairs
from rftlab.studies.report.draw import save


def score_all(console: Console, results: Path, quiet: bool) -> None:
    """Score the law wherever ranks are known, print it, and draw it."""
    root = open_store(results)
    scores = []
    with step_progress(console, "pairs", quiet) as step:
        for pair in _all_pairs(root):
            scores.append((pair, score_law(pair)))
            step(len(scores), len(scores) + 1)
    show.show_law_scores(console, scores)
    if not has_study(root, "sim"):
        show.say(console, f"no simulated pairs: {root} has no study (rftlab reproduce --results {root})", "yellow")
    folder, drawn = folder_below(root, "law"), _drawn([pair for pair, _ in scores])
    first = list({one.level: one for one in reversed(drawn)}.values())[::-1]
    for name, pairs in (("collapse", drawn), ("overview", first)):
        figure, numbers = collapse(pairs)
        show.say(console, f"figure: {save(figure, folder, name, numbers)}")


def _all_pairs(root: Path) -> Iterator[RankedPair]:
    yield from language_pairs()
    yield from simulated_pairs(root)
    yield from published_pairs()
    yield from public_pairs()


def _drawn(pairs: list[RankedPair]) -> list[RankedPair]:
    """Pairs of the figure: those with the most designs first."""
    measured = sorted((one for one in pairs if one.level == "language model"), key=lambda one: -len(one.designs))
    return measured + [one for one in pairs if SHOWN.get(one.level) == one.pair and one.split == "train"]


def show_pair(console: Console, pair: str, results: Path, costs: Costs, budget: float) -> None:
    """r, phi, designs, forecasts and the best split of a pair: of a pilot in the results folder, else of one that comes
    with rftlab, else of the simulator. Raises UserError for a pair that nobody measured."""
    own = path_kind(pilot_path(results, pair)) is not None if pair in PAIRS else False
    check(
        own or pair in (*shipped_pairs(), *pairs_at("sim")),
        f"pair = {pair!r} has no pilot in {results}; allowed: {', '.join((*shipped_pairs(), *pairs_at('sim')))}, "
        "or one of `rftlab pilot`",
    )
    if own or pair in shipped_pairs():
        known = piloted_pair(results, pair) if own else next(one for one in language_pairs() if one.pair == pair)
        assert known.error is not None
        where = "half way through the baseline's run" if known.base_noise else "base model"
        show.show_ratios(console, known.error, f"{where}, from the pilot's gradients")
        show.show_designs(console, known)
        show.show_split(console, known.noise[0], costs, budget)
        return
    base, midway = simulated_noise(pair)
    show.show_ratios(console, base, "base policy of the simulator")
    show.show_ratios(console, midway, "half way through the baseline's run")
    show.show_split(console, midway.ratios, costs, budget)


def show_imported(console: Console, name: str, results: Path) -> None:
    """How fast the designs of imported runs learn, for each model, task and learning rate of which B or K varies, and
    r / phi of all. Raises UserError where there is none."""
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
        show.show_paces(console, f"{groups[0].place}: rounds of the first design that a round is worth", fits[-1])
    better = [fit for fit in fits if fit.squares["law"] < fit.squares["no difference"]]
    profiles = [fit.profile for fit in better if np.isfinite(fit.profile).all()]
    if profiles:
        ratio = believed_ratio(profiles)
        text = f"r / phi = {ratio.value:.3g}, 95% {ratio.low:.3g} to {ratio.high:.3g}, from designs that differ in K"
        show.say(console, text)
