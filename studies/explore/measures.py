"""Compute the numbers beside a curve: its gradient's signal and noise, its zero-variance groups, and the run's cost.

The gradient's signal-to-noise ratio of a round at the base policy is |E g|^2 / tr Cov(g), g the sum of the round's
updates by plain gradient ascent. Both are measured from n independent rounds on random contexts: (|sum g|^2 - sum
|g|^2) / (n (n - 1)) has expectation |E g|^2. The gradient noise scale of 1812.06162 takes it from two batch sizes.

A curve may begin at a pair of the simulator, or at a simulation that was calibrated to a pilot or to imported runs. A
calibration is many parameter sets; the explorer takes the one with the largest weight. Unfinished calibrations are left
out, because finishing one takes minutes. Runs of language models with the same design are drawn over simulated curves.
Modules that read calibrations and tables are imported when these are requested, so that the page opens fast.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rftlab.llm.budget.devices import GPUS
from rftlab.llm.budget.plan import LENGTHS, SUMS, Assumed, cost_plan
from rftlab.llm.config import LLMRun
from rftlab.shared.curve import Curve
from rftlab.shared.design import Design
from rftlab.shared.plumbing.callbacks import never
from rftlab.shared.plumbing.errors import UserError, check, check_choice, plain
from rftlab.shared.plumbing.folders import FILE, below, folders_in, path_kind, read_file
from rftlab.sim.config import Optimizer, Simulation
from rftlab.sim.run import GeneralLearner, PlainLearner, Stopped
from rftlab.sim.setup import is_general
from rftlab.sim.state import no_totals
from rftlab.sim.world import World
from rftlab.studies.analysis.source import RunSource, named_source
from rftlab.studies.data.paper.experiments import label, published
from rftlab.studies.data.paper.pairs import PAIRS, pair, pairs_at, start_at
from rftlab.studies.data.paper.questions import count_questions
from rftlab.studies.explore.chart import ShownCurve

if TYPE_CHECKING:
    import pandas as pd

    from rftlab.studies.forecast.evidence import Evidence


DRAWS, MOST_VISITS = 24, 8
"""Number of rounds whose gradients are compared, and most visits of each context that fill a replay window first."""
TINY_STEP = 1e-6
"""Learning rate at which several updates of a round still use the base policy."""


def gradient_signal(run: Simulation, world: World, stopped: Callable[[], bool] = never) -> tuple[float, float]:
    """Measure |E g|^2, without bias and therefore below 0 where noise dominates, and tr Cov(g), with the run's seed; a
    replay window is filled first. Raises Stopped where `stopped` returns True."""
    still = replace(run, optimizer=Optimizer("sgd", TINY_STEP))
    learner = (GeneralLearner if is_general(still, world) else PlainLearner)(still, world)
    an_epoch = world.train.base_format.shape[0] // run.design.batch_size
    epochs = _fill_window(learner, an_epoch, stopped)
    draws = []
    for epoch in range(epochs, epochs + DRAWS):
        if stopped():
            raise Stopped
        learner.state.theta[:] = 0
        if isinstance(learner, GeneralLearner):
            learner.memory.spent[2] = epoch * an_epoch
        learner.advance(epoch * an_epoch, 1, no_totals())  # each round begins an epoch, so contexts are drawn anew
        # the step from 0 is the gradient times the rate, which is too small to move the policy between updates
        draws.append(learner.state.theta.astype(np.float64) / TINY_STEP)
    gradients, n = np.array(draws), len(draws)
    own = float((gradients**2).sum())
    signal = (float((gradients.sum(axis=0) ** 2).sum()) - own) / (n * (n - 1))
    return signal, own / n - signal


def _fill_window(learner: PlainLearner, an_epoch: int, stopped: Callable[[], bool]) -> int:
    """Visit every context, without a step, until its replay window is as full as it may be. Returns the number of
    epochs."""
    design, plan = learner.run.design, learner.plan
    if design.replayed == 0:
        return 0
    epochs = min(MOST_VISITS, -(-design.replay_window // design.rollouts))
    # a rate of 0 fills the window with rollouts of the base policy
    learner.plan = plan._replace(optimizer=plan.optimizer._replace(learning_rate=0.0))
    learner.train(0, epochs * an_epoch, no_totals(), stopped)
    learner.plan = plan
    return epochs


class RunCost(NamedTuple):
    """Cost of a language model's run with this design, as a dry run estimates it."""

    rollouts: int
    tokens: int
    """Number of tokens of responses."""
    round_seconds: float
    seconds: float
    """Seconds of the whole run, including evaluations."""
    description: str
    """Assumptions of the estimate."""


def run_cost(start: str, run: Simulation, gpu: str) -> RunCost:
    """Return the cost of a run on one GPU of that name. Raises UserError where no model is known."""
    real = model_behind(start)
    if real is None:
        raise UserError(f"start = {start}: no model of ours is behind it; allowed: a pair")
    prompt, response = LENGTHS.get(real.task.name, SUMS)
    every = max(run.design.rounds // EVALUATED, 1)
    design = replace(run.design, eval_every=every if run.design.rounds % every == 0 else run.design.rounds)
    assumed = Assumed(prompt, response, *(split.there for split in count_questions(real).values()))
    duration = cost_plan(replace(real, design=design), GPUS[gpu], assumed).duration
    rollouts = run.design.rounds * duration.rollouts
    description = f"{real.model.source} on one {gpu}, responses of {response} tokens; an estimate, not measured"
    return RunCost(rollouts, rollouts * response, duration.round_seconds, duration.seconds, description)


EVALUATED = 20


def group_signal(curves: list[Curve], batch_size: int) -> tuple[float, float, float]:
    """Return the share of zero-variance contexts, whose advantages are all 0, up to the first evaluation and before the
    last, and the mean number of contexts of a round that teach anything. Curves need at least two evaluations; nan
    where none has."""
    shares = [curve.zero_signal_fraction[1:] for curve in curves if len(curve.round) > 1]
    if not shares:
        return (float("nan"),) * 3
    first, last = np.mean([share[0] for share in shares]), np.mean([share[-1] for share in shares])
    silent = np.mean([share.mean() for share in shares])
    return float(first), float(last), batch_size * (1 - float(silent))


CALIBRATED = "calibrated:"
PLAIN = "qwen-gsm8k"
"""Pair whose flags a copied command uses where the start is a calibration."""
SEED = 0
"""Seed of the calibrations that are offered: that of `rftlab predict` without --seed."""
_calibrated: dict[str, Simulation] = {}
"""Calibrations of the given results folder by name; they are set once, before pages are served."""


def start_names() -> tuple[str, ...]:
    """Return the names of all starts."""
    return (*pairs_at("sim"), *_calibrated)


def start_named(name: str) -> Simulation:
    """Return the simulation of a start. Raises UserError for an unknown name."""
    check_choice("start", name, start_names())
    return _calibrated[name] if name in _calibrated else start_at(name, "sim")


def plain_pair(name: str) -> str:
    """Return the pair of the simulator whose flags come nearest to a start."""
    return PLAIN if name in _calibrated else name


def model_behind(name: str) -> LLMRun | None:
    """Return the run of a language model behind a start; None where it is no pair of ours."""
    known = PAIRS.get(name.removeprefix(CALIBRATED))
    return known.llm if known else None


def take_calibrations(root: Path) -> list[str]:
    """Offer the finished calibrations of a results folder as starts. Returns what is wrong with the others."""
    wrong = []
    _calibrated.clear()
    for folder in folders_in(below(root, "calibrate")):
        try:
            best = _best(root, folder.name)
        except UserError as error:
            wrong.append(f"{folder.name}: {error}")
            continue
        if best is None:
            wrong.append(f"{folder.name}: not finished, or of another pilot; `rftlab predict` goes on with it")
        else:
            _calibrated[f"{CALIBRATED}{folder.name}"] = best
    return wrong


def _evidence(root: Path, name: str) -> "Evidence":
    from rftlab.studies.forecast.evidence import pilot_evidence
    from rftlab.studies.forecast.forecast import find_pilot
    from rftlab.studies.forecast.imported import imported_evidence

    if name in PAIRS:
        return pilot_evidence(find_pilot(root, name))
    return imported_evidence(f"imported:{name.removeprefix('imported-')}", root)


def _best(root: Path, name: str) -> Simulation | None:
    """Return the simulation with the parameter set of largest weight; None where the calibration is not finished."""
    from rftlab.studies.forecast.calibrate import calibrated, identity

    evidence = _evidence(root, name)
    path = below(root, "calibrate", name, f"{identity(evidence, SEED)}.bin")
    if not path_kind(path) or len(read_file(path)) < 32 + 8 * evidence.facts.family.effort.total:
        return None
    posterior = calibrated(root, name, evidence, SEED, 1, lambda *_: None, lambda _: None)
    return posterior.simulation(int(posterior.weights.argmax()))


NONE, PAPER = "none", "published"
REFERENCES = ("tiny-mix97", "tiny-mod97", "tiny-sign97", "smollm2-words", "smollm2-largest")
"""Pairs of the reference runs that come with rftlab."""
PUBLIC = ("public:pods/gsm8k", "public:pods/math500", "public:pods/amc23")
"""Public runs that come with rftlab and have a known B and K, one source per task."""
PAPER_ROUNDS = 2000
"""Number of rounds of the paper's runs."""
MOST = 12
"""Largest number of runs of one design that are shown."""


def sources_in(root: Path | None) -> tuple[str, ...]:
    """Return the sources of real curves that can be drawn: none, the paper's endpoints, pairs with reference runs or
    runs in a results folder, public runs and the folder's collections."""
    stored, imported = [], []
    if root is not None:
        from rftlab.studies.readers.store import collections

        stored = [folder.name for folder in folders_in(below(root, "llm")) if folder.name in pairs_at("llm")]
        imported = [f"imported:{name}" for name in collections(root)]
    pairs = dict.fromkeys((*REFERENCES, *stored))
    return (NONE, PAPER, *(f"llm:{name}" for name in pairs), *PUBLIC, *imported)


def real_runs(source: str, start: str, design: Design, root: Path | None) -> list[ShownCurve]:
    """Return the runs of a source with the design. For a pair they come from the results folder if it has any, else
    from rftlab's reference runs. Raises UserError where the source does not exist or cannot be trusted."""
    allowed = sources_in(root)
    check(source in allowed, f"runs = {plain(source)[:80]!r}; allowed: {', '.join(allowed)}")
    if source == NONE:
        return []
    if source == PAPER:
        return _published(start, design)
    named = named_source(source)
    if named.free:
        return _logged_runs(named, design, root)
    folder = below(root, "llm", named.place) if root is not None else None
    if folder is not None and folders_in(folder):
        curves = _stored(folder, label(design))
    else:
        from rftlab.studies.data.results.reference import shipped_runs

        frame = shipped_runs()
        rows = frame[(frame["pair"] == named.place) & (frame["cell"] == label(design))]
        curves = [_curve(own) for _, own in rows.groupby("seed")]
    return [ShownCurve(source, curves, measured=True)] if curves else []


def _point(rounds: int, design: Design, train: float, test: float) -> Curve:
    """Return a curve with one evaluation."""
    values: dict[str, float] = dict.fromkeys(Curve._fields, float("nan"))
    values |= {"seed": 0, "round": rounds, "rollouts": rounds * design.round_rollouts}
    values |= {"train_pass_at_1": train, "test_pass_at_1": test}
    return Curve(**{name: np.array([value]) for name, value in values.items()})


def _published(start: str, design: Design) -> list[ShownCurve]:
    """Return the paper's endpoint of one of its pairs; none for other pairs and designs."""
    if start not in pairs_at("sim"):
        return []
    known = pair(start)
    train, test = (published(known.model, known.dataset, split, design) for split in ("train", "test"))
    if test is None and train is None:
        return []
    ends = (float("nan") if value is None else value for value in (train, test))
    return [ShownCurve(PAPER, [_point(PAPER_ROUNDS, design, *ends)], measured=True)]


def _curve(rows: "pd.DataFrame") -> Curve:
    return Curve(*(rows[name].to_numpy() for name in Curve._fields))


def _stored(folder: Path, cell: str) -> list[Curve]:
    """Return the finished runs of a design in a results folder. Raises UserError where one was changed."""
    from rftlab.studies.analysis.imported.own import CURVE, DONE, check_checksums
    from rftlab.studies.data.runs.files import data_frame

    places = [place for place in folders_in(folder) if place.name.rsplit("-", 2)[0] == cell]
    done = [place for place in places if path_kind(place / DONE) == FILE][:MOST]  # others are still training
    for place in done:
        check_checksums(place)
    return [_curve(data_frame(read_file(place / CURVE))) for place in done]


def _logged_runs(source: RunSource, design: Design, root: Path | None) -> list[ShownCurve]:
    """Return imported or public runs with the same B and K, whatever their other settings. Each is a curve of its own,
    because their evaluations need not be at the same rounds. Only their test Pass@1 is known."""
    from rftlab.studies.analysis.imported.groups import group_runs

    unknown, shown = _point(0, design, float("nan"), float("nan"))._asdict(), []
    for group in group_runs(source.runs(root or Path()), ("test", "pass_at_1"), source.task):
        if (group.design.prompts, group.design.rollouts) == (design.batch_size, design.rollouts):
            for run, rows in group.curves.groupby("run", observed=True):
                rounds = rows["round"].to_numpy()
                values = {name: np.repeat(value, len(rounds)) for name, value in unknown.items()}
                known = {"round": rounds, "rollouts": rounds * design.round_rollouts}
                known["test_pass_at_1"] = rows["value"].to_numpy()
                name = f"{source.name} {plain(group.label)} {plain(str(run))}"
                shown.append(ShownCurve(name, [Curve(**values | known)], measured=True))
    return shown[:MOST]
