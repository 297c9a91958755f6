"""Measure a pilot: the base model in a process of its own, then a few runs of the grid, which stay in the results store
for the grid to use.

Only a summary of the probe's responses and gradients is kept.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.llm.config import LLMRun, model_config
from rftlab.llm.probe_config import VERSION, ProbeConfig
from rftlab.llm.tasks.config import BENCHMARKS, OWN
from rftlab.shared.plumbing.errors import MAX, UserError, check
from rftlab.shared.plumbing.files import reported
from rftlab.shared.plumbing.folders import folder_below, remove
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.experiments import BASELINE
from rftlab.studies.data.paper.pairs import SIZES, start_at
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.finish import finish_points, start_worker
from rftlab.studies.data.runs.limits import NEEDS_LLM, has_llm
from rftlab.studies.data.runs.points import RunSpec, schedule
from rftlab.studies.data.runs.progress import Bar
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.forecast.pilot import store as pilot_store
from rftlab.studies.forecast.pilot.headroom import (
    GROUPS,
    TRIES,
    VOTES,
    Headroom,
    mean_rate,
    measure_credit,
    measure_entropy,
    measure_silence,
    measure_tries,
    measure_votes,
)
from rftlab.studies.forecast.pilot.noise import analyse, measure_ratios
from rftlab.studies.forecast.pilot.pilot import (
    CELLS,
    QUANTILES,
    Answers,
    Base,
    Lengths,
    Midway,
    PilotMeasurements,
    Spent,
    check_cells,
    midway_round,
    pilot_from,
)

if TYPE_CHECKING:
    from rftlab.llm.probe import Probed, ProbedGradients, SplitAnswers


def base_from(pair: str, probed: "Probed", temperature: float = 1.0) -> Base:
    """Return the summary that a pilot keeps of a probe at a temperature of training."""
    headroom, train, raw, centred = probed.headroom, probed.train, probed.raw, probed.centred
    asked = {"train": train, "test": probed.test}
    spent = {
        name: Spent(answers.lengths.size, int(answers.lengths.sum()), answers.seconds)
        for name, answers in asked.items()
        if answers is not None
    }
    spent["temperatures, tries"] = Spent(headroom.rollouts, headroom.tokens, headroom.seconds)
    if raw is not None:
        spent["gradients"] = Spent(0, 0, probed.seconds)
    return Base(
        pair,
        0 if train is None else train.available,
        probed.test.available,
        None if train is None else count_answers(train),
        count_answers(probed.test),
        None if raw is None else analyse(raw),
        None if centred is None else analyse(centred),
        spent,
        None if raw is None or centred is None else measure_ratios(raw, centred),
        summarize_headroom(probed, temperature),
    )


def summarize_headroom(probed: "Probed", temperature: float = 1.0) -> Headroom:
    """Return the abilities of the base model, from all of its responses: k tries and votes from all test questions
    where they have k responses, else from the few that have many. Zero-variance groups are those of the training
    questions where these were asked."""
    train, test, headroom = probed.train or probed.test, probed.test, probed.headroom
    counts, m = train.strict.sum(axis=1), train.strict.shape[1]
    few, many = test.strict.shape[1], headroom.many.shape[1]
    tries, votes = measure_tries(test.strict.sum(axis=1), few), measure_votes(test.answers, test.strict)
    if many:
        tries += measure_tries(headroom.many.sum(axis=1), many, tuple(k for k in TRIES if k > few))
        votes += measure_votes(headroom.many_answers, headroom.many, tuple(k for k in VOTES if k > few))
    return Headroom(
        tuple(mean_rate(at, right.mean(axis=1), right.shape[1]) for at, right in headroom.right.items()),
        votes,
        tries,
        measure_silence(counts, m),
        tuple(silent for k in GROUPS if (silent := measure_silence(counts, m, k))),
        measure_credit(test, headroom, temperature),
        measure_entropy(test.surprise, test.lengths, temperature),
    )


def count_answers(answers: "SplitAnswers") -> Answers:
    """Return counts and lengths of the responses to a split."""
    strict, flexible, well_formed = (
        np.asarray(column).sum(axis=1).astype(np.int64)
        for column in (answers.strict, answers.flexible, answers.well_formed)
    )
    lengths, is_right = answers.lengths.astype(np.float64), answers.strict == 1
    right, wrong = (float(lengths[part].mean()) if part.any() else float("nan") for part in (is_right, ~is_right))
    quantiles, cut = np.quantile(lengths, QUANTILES), float(1 - answers.finished.mean())
    spread = Lengths(float(lengths.mean()), float(lengths.std()), quantiles, right, wrong, cut)
    return Answers(lengths.shape[1], strict, flexible, well_formed, spread)


class Wanted(NamedTuple):
    """Measurements that a pilot is to make."""

    pair: str
    """Name of the pair, or of the folder that a custom model is kept in."""
    cells: tuple[str, ...]
    rounds: int | None
    """Rounds of the runs; None for the pair's own, so that the grid has these runs already."""
    probe: ProbeConfig
    midway: bool = True
    """Whether gradients are also measured half way through the baseline's run."""
    own: LLMRun | None = None
    """Run of a custom model on a task; None for the model of the pair."""

    @property
    def start(self) -> LLMRun:
        """Run whose model is measured."""
        return self.own or start_at(self.pair, "llm")

    def points(self) -> list[RunSpec]:
        """Return the runs, with seed 0, as any study specifies them."""
        if self.own is not None:
            return []
        start = start_at(self.pair, "llm")
        total, every = schedule(start.design, self.rounds)
        return [
            RunSpec(self.pair, replace(start, design=replace(CELLS[cell], rounds=total, eval_every=every), seed=0))
            for cell in self.cells
        ]

    def base_config(self) -> dict:
        """Return everything that the measurements of the base model depend on."""
        files = _model_files(self.own.model.source) if self.own else {}
        return _plain({"version": VERSION, "ask": asdict(self.probe), "run": model_config(self.start), **files})

    def config(self) -> dict:
        """Return everything that the pilot depends on."""
        later = {"midway": model_config(self.midway_run())} if self.midway else {}
        return _plain({"base": self.base_config(), "runs": [point.config for point in self.points()], **later})

    def midway_run(self) -> LLMRun:
        """Return the first half of the baseline's run. It hardly evaluates, because only its weights are needed."""
        start = start_at(self.pair, "llm")
        rounds = midway_round(start.design)
        return replace(
            start,
            design=replace(BASELINE, rounds=rounds, eval_every=rounds),
            evaluation=replace(start.evaluation, samples=1, greedy=False, train_subset=2, test_subset=2, pass_at=()),
            checkpoint_every=0,
        )


def _plain(config: dict) -> dict:
    """Return a configuration as it comes back from a file, with lists in the place of tuples."""
    return json.loads(json.dumps(config))


def _model_files(source: str) -> dict[str, Any]:
    """Return sizes and times of the files in a model's folder, so that other weights are measured again."""
    folder = Path(source)
    if not folder.is_dir():
        return {}
    stats = {path.name: path.stat() for path in sorted(folder.iterdir()) if path.is_file()}
    return {"files": {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}}


def own_name(run: LLMRun) -> str:
    """Return the name that a custom model is kept under: model, task, and a checksum of the whole run."""
    config = json.dumps(model_config(run), sort_keys=True, default=str)
    model = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(run.model.source).name).strip("-.") or "model"
    return f"{model[:60]}-{run.task.name}-{hashlib.sha256(config.encode()).hexdigest()[:8]}"


def wanted(pair: str, cells: tuple[str, ...], rounds: int | None, config: ProbeConfig, midway: bool = True) -> Wanted:
    """Return a checked request for a pilot."""
    planned = start_at(pair, "llm").design.rounds
    check_cells(cells)
    few = "train_questions = 0; allowed: with --model, whose gradients nobody asks for"
    check(config.train_questions > 0, few)
    check(rounds is None or 1 <= rounds <= planned, f"rounds = {rounds}; allowed: 1 to {planned}, the rounds of {pair}")
    return Wanted(pair, cells, rounds, config, midway)


def pilot(console: Console, what: Wanted, root: Path, threads: int, quiet: bool) -> PilotMeasurements:
    """Return the pilot, from its file where it is there, else measured now. An interrupted pilot goes on after its
    finished measurements."""
    place, config = pilot_store.pilot_path(store.open_store(root), what.pair), what.config()
    measured = _stored(console, place, PilotMeasurements, config)
    if measured is None:
        if not quiet:
            say(console, price_text(what), "dim")
        base = measure_base(console, what, root, quiet)
        measured = PilotMeasurements(base, (), 0, 0)
        if what.own is None:
            measured = pilot_from(_curves(console, what, root, threads, quiet), base, what.cells)
        pilot_store.write_measurements(place, measured, config)
    elif not quiet:
        say(console, f"{place} has it already")
    return measured


def _curves(console: Console, what: Wanted, root: Path, threads: int, quiet: bool) -> pd.DataFrame:
    """Return the curves of the runs, from the store or made now."""
    points = what.points()
    if not points:
        return pd.DataFrame(columns=["pair", "cell", "seed"])
    finish_points(console, root, points, threads, quiet)
    results = collect(root, points)
    for line in results.diverged:
        console.print(f"diverged: {line}", style="red", markup=False)
    return results.curves


def price_text(what: Wanted) -> str:
    """Say how many responses will be sampled at most."""
    start, runs = what.start, what.points()
    generated, name = start.task.sizes, start.task.name
    sizes = SIZES.get(name, (MAX, MAX) if name == OWN else (generated.train, generated.test))
    base = what.probe.rollouts(start.temperature, *sizes)
    if what.probe.shots and name in (*BENCHMARKS, OWN):
        base["with examples"] = min(sizes[1], what.probe.test_questions, what.probe.temperature_questions)
    parts = ", ".join(f"{name} {count:,}" for name, count in base.items() if count)
    if what.own is not None:
        return (
            f"At most {sum(base.values()):,} rollouts of up to {start.model.max_response_length:,} tokens ({parts}) on "
            f"{start.compute.device}; nothing is trained."
        )
    trained = sum(point.run.design.round_rollouts * point.run.design.rounds for point in runs)
    design = what.midway_run().design
    later = base["train"] + design.round_rollouts * design.rounds if what.midway else 0
    return (
        f"At most {sum(base.values()) + later + trained:,} rollouts: {sum(base.values()):,} of the base model "
        f"({parts}), "
        + f"{later:,} half way through the baseline's run, " * what.midway
        + f"{trained:,} in {len(runs)} runs, whose evaluations come on top. Stored measurements are not sampled again."
    )


def measure_base(console: Console, what: Wanted, root: Path, quiet: bool) -> Base:
    """Return the measurements of the base model and half way through the baseline's run, from their file or made."""
    place, config = pilot_store.pilot_path(root, what.pair, "base"), what.base_config()
    base = _stored(console, place, Base, config)
    whole = base is not None and (base.midway is not None or not what.midway)
    check(whole or has_llm(), f"a pilot {NEEDS_LLM}")
    if base is None:
        run = what.start
        probed = in_a_process(console, "base model", quiet, _work_probe, run, what.probe)
        base = base_from(what.pair, probed, run.temperature)
        pilot_store.write_measurements(place, base, config)
    if what.midway and base.midway is None:
        folder = folder_below(place.parent, "midway")
        base = base._replace(midway=_measure_midway(console, what, folder, quiet))
        pilot_store.write_measurements(place, base, config)
        remove(folder)
    return base if what.midway else base._replace(midway=None)


def _measure_midway(console: Console, what: Wanted, folder: Path, quiet: bool) -> Midway:
    """Train the baseline half way and measure gradients there. The folder keeps checkpoints to go on from."""
    run, title = what.midway_run(), "half way through the baseline's run"
    trained: Spent = in_a_process(console, f"{title}: training", quiet, _work_train, run, folder)
    probed: ProbedGradients = in_a_process(console, title, quiet, _work_probe_trained, run, folder, what.probe)
    spent = {"half a run": trained, "its gradients": Spent(probed.rollouts, probed.tokens, probed.seconds)}
    ratios = measure_ratios(probed.raw, probed.centred)
    return Midway(run.design.rounds, analyse(probed.raw), analyse(probed.centred), ratios, spent)


def _stored(console: Console, place: Path, kind: type[pilot_store.Stored], config: dict) -> pilot_store.Stored | None:
    """Return the content of a file if it has this configuration and is whole; a remark names a damaged one."""
    try:
        return pilot_store.read_measurements(place, kind, config)
    except pilot_store.DamagedPilot as damage:
        console.print(f"damaged, redone: {damage}", style="yellow", markup=False, soft_wrap=True)
        with reported(place):
            remove(place)
        return None


def in_a_process(
    console: Console, title: str, quiet: bool, work: Callable[..., Any], run: LLMRun, *arguments: Any
) -> Any:
    """Return the result of `work` on a run in a process of its own, which frees its memory, also that of an
    accelerator. Raises UserError where it fails or is killed."""
    ours, process = start_worker(_work, run.compute.device, work, run, *arguments)
    try:
        with Bar(console, quiet) as bar:
            task = bar.add_task(title, total=None)
            while True:
                kind, *values = ours.recv()
                if kind == "done":
                    return values[0]
                if kind == "failed":
                    raise UserError(str(values[0]))
                if kind == "remark":
                    console.print(values[0], style="yellow", markup=False, soft_wrap=True)
                elif kind == "step":
                    bar.update(task, description=title, completed=values[0], total=values[1])
                else:
                    bar.update(task, description="base model, step {}, validation Pass@1 {:.3f}".format(*values))
    except EOFError:
        process.join()
        raise UserError(f"{title} ended with status {process.exitcode}; run the same command again") from None
    finally:
        process.terminate()
        process.join()


def _work(connection: Connection, work: Callable[..., Any], *arguments: Any) -> None:
    """Do the work of the process, and send what it tells: a step done, pre-training, a remark, and its end."""

    def tell(kind: str, *values: Any) -> None:
        connection.send((kind, *values))

    try:
        tell("done", work(tell, *arguments))
    except UserError as error:
        tell("failed", error)
    except BrokenPipeError:
        pass  # the parent is gone


def _work_probe(tell: Callable[..., None], run: LLMRun, config: ProbeConfig) -> "Probed":
    """Return the measurements of `probe` on the base model of a run."""
    from rftlab.llm.probe import probe

    return probe(run, config, *(partial(tell, kind) for kind in ("step", "pretraining", "remark")))


def _work_probe_trained(tell: Callable[..., None], run: LLMRun, folder: Path, config: ProbeConfig) -> "ProbedGradients":
    """Return the measurements of `probe_trained` on the model of a run in a folder."""
    from rftlab.llm.probe import probe_trained

    return probe_trained(run, folder, config, partial(tell, "step"), partial(tell, "remark"))


def _work_train(tell: Callable[..., None], run: LLMRun, folder: Path) -> Spent:
    """Train in a folder, or go on with it, and return the cost. Raises UserError where the run diverged."""
    from rftlab.llm.train import TrainingCallbacks, train

    rounds, heard = run.design.rounds, {kind: partial(tell, kind) for kind in ("pretraining", "remark")}
    callbacks = TrainingCallbacks(rounds=lambda done: tell("step", done, rounds), **heard)
    outcome = train(run, folder, callbacks)
    check(
        outcome.diverged_at is None, f"the baseline's run diverged after round {outcome.diverged_at}; add --no-midway"
    )
    curve = outcome.curve
    return Spent(int(curve.rollouts[-1]), int(curve.tokens[-1]), float(curve.seconds[-1]))
