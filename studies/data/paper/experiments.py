"""The seven experiments of arXiv 2601.22532 as data: which designs, along which axis, and the question they answer.

The cells are the paper's, but for two: (256, 1) with replay in experiment 5 is ours, to tell its missing baseline from
its batch; 6a and 6b are two readings of one experiment, its text and its released scripts. That every run has 2,000
rounds, that experiment 7 has one current rollout and a window of 8 (its published cells replay 7), and that the KL term
stands in the loss, are our reading: what we have of the paper does not settle them. The studies in FOLLOW_UPS are ours.
"""

from dataclasses import dataclass, replace

from rftlab.shared.cards import estimator_name, preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check_choice

BASELINE = Design(batch_size=32, rollouts=1, estimator=preset("minimalist"))
GRPO = Design(estimator=preset("paper_text"))


def _cell(batch_size: int, rollouts: int, support: int = 0, window: int = 0) -> Design:
    return replace(GRPO, batch_size=batch_size, rollouts=rollouts, support_rollouts=support, replay_window=window)


@dataclass(frozen=True)
class Experiment:
    """Designs that differ along one axis."""

    name: str
    title: str
    question: str
    axis: str
    """What the trade-off curve is drawn against."""
    cells: tuple[Design, ...]
    """In the order of the axis."""
    ticks: tuple[str, ...]
    """One label per cell."""


_PRODUCT = 256
_SPLITS = tuple(2**i for i in range(9))

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "baseline",
            "1  Minimalist baseline",
            "How far does one rollout per query and the raw reward go?",
            "design",
            (BASELINE,),
            ("(32, 1) raw",),
        ),
        Experiment(
            "advantage",
            "2  Role of the advantage",
            "Does a group advantage help, with the same rollouts trained on?",
            "advantage",
            (BASELINE, _cell(32, 1, support=7)),
            ("raw reward", "GRPO (1 + 7)"),
        ),
        Experiment(
            "rollouts",
            "3  Scaling rollouts",
            "What do more rollouts per query buy?",
            "rollouts per query",
            (_cell(32, 1, support=7), _cell(32, 8), _cell(32, 16), _cell(32, 32), _cell(32, 64)),
            ("1 (+7)", "8", "16", "32", "64"),
        ),
        Experiment(
            "batch",
            "4  Scaling batch size",
            "What do more queries per round buy?",
            "batch size",
            (_cell(32, 8), _cell(64, 8), _cell(128, 8)),
            ("32", "64", "128"),
        ),
        Experiment(
            "tradeoff",
            "5  Batch size against rollouts",
            "How should 256 rollouts per round be split?",
            "(batch size, rollouts)",
            (*(_cell(b, _PRODUCT // b) for b in _SPLITS), _cell(256, 1, window=8)),
            (*(f"({b}, {_PRODUCT // b})" for b in _SPLITS), "(256, 1) replay"),
        ),
        Experiment(
            "replay_text",
            "6a  Replay, as the text says",
            "Can replayed rewards replace current rollouts, at 32 queries per round?",
            "(current, replayed) rollouts",
            (_cell(32, 8), _cell(32, 4, window=8), _cell(32, 2, window=8), _cell(32, 1, window=8)),
            ("(8, 0)", "(4, 4)", "(2, 6)", "(1, 7)"),
        ),
        Experiment(
            "replay_code",
            "6b  Replay, as the released scripts do",
            "Can replayed rewards replace current rollouts, at 256 rollouts per round?",
            "(batch size, current, replayed)",
            (_cell(32, 8), _cell(64, 4, window=8), _cell(128, 2, window=8), _cell(256, 1, window=8)),
            ("(32, 8, 0)", "(64, 4, 4)", "(128, 2, 6)", "(256, 1, 7)"),
        ),
        Experiment(
            "ceiling",
            "7  Ceiling of batch scaling",
            "How far does batch size scale with replay?",
            "batch size",
            tuple(_cell(b, 1, window=8) for b in (256, 512, 1024, 2048)),
            ("256", "512", "1024", "2048"),
        ),
    )
}


_EDGES = (1, 8, 32, 128, 256)
FOLLOW_UPS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "first",
            "First runs",
            "What do three runs say of the many that one has not made?",
            "design",
            (BASELINE, _cell(32, 8), _cell(256, 1)),
            ("(32, 1) raw", "(32, 8)", "(256, 1)"),
        ),
        Experiment(
            "next_checks",
            "Next checks",
            "Do the findings stay with other rewards, staleness, rates and sizes?",
            "(batch size, rollouts)",
            tuple(_cell(b, _PRODUCT // b) for b in _EDGES),
            tuple(f"({b}, {_PRODUCT // b})" for b in _EDGES),
        ),
    )
}
"""Studies beyond the seven experiments: what to run first, and what to check next."""


def experiment(name: str) -> Experiment:
    """The study of that name; an unknown name is an error that lists the known ones."""
    known = EXPERIMENTS | FOLLOW_UPS
    check_choice("study", name, tuple(known))
    return known[name]


def distinct_cells(experiments: list[Experiment]) -> list[Design]:
    """Every design of the experiments once, in order of first appearance."""
    return list(dict.fromkeys(cell for e in experiments for cell in e.cells))


def label(design: Design) -> str:
    """Short name of a design, made from the fields that ran.

    It is 32x8-paper_text; with support rollouts 32x1+7-..., with a window 256x1w8-..., with epochs and mini-batches
    u2x4, dynamic sampling t5, group filtering k4, budgets by difficulty d.
    """
    support = f"+{design.support_rollouts}" if design.support_rollouts else ""
    window = f"w{design.replay_window}" if design.replay_window else ""
    updates = f"u{design.epochs}x{design.minibatches}" if design.epochs * design.minibatches > 1 else ""
    sampling = design.sampling
    tries = f"t{sampling.tries}" if sampling.tries > 1 else ""
    keep = f"k{sampling.keep}" if sampling.keep else ""
    budget = "d" if sampling.budget == "difficulty" else ""
    spent = f"{design.batch_size}x{design.rollouts}{support}{window}{updates}{tries}{keep}{budget}"
    return f"{spent}-{estimator_name(design.estimator)}"
