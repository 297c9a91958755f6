"""What `rftlab dev law` does."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from rftlab.shared.effective_batch import Costs
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import folder_below, path_kind
from rftlab.studies.data.paper.pairs import PAIRS, pairs_at
from rftlab.studies.data.runs.progress import step_progress
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.data.runs.study import has_study
from rftlab.studies.forecast.law import show
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
