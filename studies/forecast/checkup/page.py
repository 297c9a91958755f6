"""The answer of `rftlab check`: a run's batch, unusual settings, health, forecast end, and changes worth trying. It is
printed on the terminal, and written as a page with its sentences as CSV and JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.plumbing.errors import UserError, plain
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.studies.analysis.diagnose import CHECKS, diagnose
from rftlab.studies.analysis.diagnose.alarms import ALARM_CHECKS, ANY, describe_rates
from rftlab.studies.analysis.diagnose.stability import COLLAPSE
from rftlab.studies.analysis.public.settings import (
    alike_settings,
    describe_advice,
    describe_shuffled,
    judge_rate,
    public_settings,
    rate_evidence,
    setting_lines,
)
from rftlab.studies.console.table import say, write_numbers
from rftlab.studies.data.results.language import PLANNED
from rftlab.studies.data.runs.about import commit, versions
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.forecast.advise.show import cost_lines
from rftlab.studies.forecast.checkup.changes import name_changes, name_unknowns
from rftlab.studies.forecast.checkup.subject import Sentence, Subject, counted
from rftlab.studies.forecast.ending import MEASURES, leader_text, run_ending
from rftlab.studies.forecast.law.curve import LEVEL
from rftlab.studies.forecast.law.limits import UPDATES
from rftlab.studies.forecast.record import ending_lines
from rftlab.studies.readers.run import FACTS
from rftlab.studies.readers.show import TERMS
from rftlab.studies.readers.store import name_for
from rftlab.studies.report.report import template


def describe_time(seconds: float) -> str:
    """Return a time in seconds below two minutes, in minutes below a tenth of an hour, in hours from there on."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1g} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 360 else f"{seconds / 3600:.1f} hours"


def describe_batch(subject: Subject) -> Iterator[Sentence]:
    """Yield sentences on prompts, rollouts, updates, tokens, memory and hours that leave no other reading."""
    design, plan, model = subject.design, subject.plan(), subject.shape()
    known = [f"{TERMS[name]}: {getattr(design, name)}" for name in FACTS if getattr(design, name) is not None]
    origin = (*known, *(f"taken: {text}" for text in design.assumed), *(f"note: {note}" for note in subject.notes))
    prompts = counted(design.prompts, "prompt") if design.prompts else "an unknown number of prompts"
    rollouts = counted(design.rollouts, "rollout") if design.rollouts else "an unknown number of rollouts"
    total = (
        f": {design.prompts} x {design.rollouts} = {subject.responses:,} responses in all" if subject.responses else ""
    )
    yield Sentence(
        f"Each step samples {prompts} with {rollouts} for each prompt{total}.",
        origin or ("the files say nothing of B and K",),
    )
    if updates := design.updates_per_round:
        share = "all of them" if updates == 1 else "mini-batches of them, or several passes over them"
        yield Sentence(f"The optimizer takes {counted(updates, 'update')} a step, on {share}.", origin)
    if not subject.responses:
        return
    assumed, lengths = subject.lengths()
    tokens = subject.responses * (assumed.prompt + assumed.response)
    prompt_guess = "" if subject.asked.prompt_tokens else " (a guess)"
    response_guess = " (a guess)" * lengths.startswith("assumed")
    each = f"{assumed.prompt:,} of a prompt{prompt_guess} and {assumed.response:,} of a response{response_guess}"
    yield Sentence(f"A step has about {tokens:,} tokens: on average {each}.", (lengths,))
    if plan and model:
        seconds, steps, room = plan.duration.round_seconds, subject.planned or 100, plan.fleet.device.memory / 1e9
        phases = (f"{PLANNED.get(name, name)} {cost.seconds:.1f} s" for name, cost in plan.duration.phases.items())
        rank = f"{subject.rank}{'' if design.adapter_rank else ' (a guess)'}"
        trained = f"adapters of rank {rank}" if subject.rank else "all weights are trained"
        yield Sentence(
            f"On {plan.fleet.name} it {'fits' if plan.fits else 'does not fit without offloading'}: it needs "
            f"{plan.memory.peak / 1e9:.0f} of the {room:.0f} GB of a GPU. A step takes about "
            f"{describe_time(seconds)}, and {steps:,} steps take "
            f"{describe_time(seconds * steps)}.",
            (
                f"{model.name}: {model.note or 'its shape is known'}",
                trained,
                ", ".join(phases),
                *map(str.strip, cost_lines(plan)),
            ),
        )
    k, silence = design.rollouts or 1, subject.silence
    if k > 1 and silence is not None:
        yield Sentence(
            f"{silence:.0%} of the groups have zero variance and teach nothing: of {subject.responses:,} responses a "
            f"step about {(1 - silence) * subject.responses:.0f} teach.",
            ("share of zero-variance groups: median of the last quarter of the log",),
        )
    elif k > 1:
        shares = [f"{p**k + (1 - p) ** k:.0%} where a prompt is solved in {p:.0%} of tries" for p in (0.05, 0.2, 0.5)]
        yield Sentence(
            f"Groups whose {k} rewards are equal teach nothing. Expected are {', '.join(shares)}.",
            ("p^K + (1-p)^K of groups of K responses are all right or all wrong (docs/plan.md)",),
        )


def compare_settings(subject: Subject) -> Iterator[Sentence]:
    """Yield sentences that compare learning rate, K, updates and KL with those of public runs."""
    design, every = subject.design, public_settings()
    if design.learning_rate:
        yield _compare_rate(subject, design.learning_rate)
    alone = " None varies it alone: its effect is unknown."
    used = (
        ("K", design.rollouts, every[every["rollouts"] > 1], "rollouts", ""),
        ("KL coefficient", design.kl_coefficient, every, "kl", alone),
    )
    for name, value, table, column, more in used:
        if value is None or (name == "K" and design.advantage in ("gae", "raw")):
            continue
        least, most = table[column].min(), table[column].max()
        usual = "usual" if least <= value <= most else "unusual"
        counts = table.groupby(column)[["runs", "failed"]].sum().itertuples()
        yield Sentence(
            f"{name} = {value:g} is {usual}: public runs have {least:g} to {most:g}.{more}",
            tuple(f"{name} = {row.Index:g}: {row.runs} runs, {row.failed} failed" for row in counts),
        )
    if updates := design.updates_per_round:
        counts = every.groupby("updates")[["runs", "failed"]].sum()
        few, many = counts[counts.index <= UPDATES].sum(), counts[counts.index > UPDATES].sum()
        yield Sentence(
            f"{counted(updates, 'update')} a step {'is' if updates == 1 else 'are'} "
            f"{'usual' if updates <= UPDATES else 'many'}: {many['failed']} of {many['runs']} public runs with more "
            f"than {UPDATES} failed, and {few['failed']} of {few['runs']} with {UPDATES} or fewer.",
            (*(f"{row.Index:g} updates: {row.runs} runs, {row.failed} failed" for row in counts.itertuples()),
             f"trust: {describe_shuffled(UPDATES)}"),
        )  # fmt: skip


def _compare_rate(subject: Subject, rate: float) -> Sentence:
    advice, model, design = subject.rate_advice(), subject.shape(), subject.design
    billions = model.shape.parameters / 1e9 if model else None
    alike = alike_settings(billions, subject.rank > 0, design.precision)
    size = f" of {billions:.2g}B" if billions else ""
    guessed = design.adapter_rank is None and design.trained_share is None
    kind = "adapters" if subject.rank else "full weights" + " (a guess)" * guessed
    whose = f"{kind}{size}{f' in {design.precision}' * bool(design.precision)}"
    if advice is None:
        held = alike[alike["failed"] * 2 < alike["runs"]]["rate"]
        at = f"{held.min():g}" + f" to {held.max():g}" * (held.nunique() > 1)
        used = f"runs like it held at {at}" if len(held) else "no public run is like it"
        text = f"The learning rate {rate:.3g} cannot be judged for {whose}: {used}, and none varied it alone."
        return Sentence(text, tuple(setting_lines(alike)) or ("no run of like size is in the table",))
    near = alike[np.abs(np.log(alike["rate"] / rate)) < np.log(1.5)]
    counts = f"{near['failed'].sum()} of {near['runs'].sum()}"
    held = f" Of public runs near {rate:.3g} {counts} failed." if len(near) else ""
    return Sentence(
        f"The learning rate {rate:.3g} is {judge_rate(rate, advice)} for {whose}: {describe_advice(advice)}.{held}",
        (*rate_evidence(advice), *setting_lines(alike)),
    )


def describe_health(subject: Subject) -> Iterator[Sentence]:
    """Yield whether each run is healthy, the findings of `rftlab diagnose`, and tested error rates of its alarms."""
    for run in subject.runs:
        said, name = diagnose(run, subject.asked.questions), f"{run.name}: " if len(subject.runs) > 1 else ""
        grave = [finding.kind for finding in said.findings if finding.severity != "note"]
        judged = len(CHECKS) - len(said.unjudged)
        known = COLLAPSE not in (one.kind for one in said.unjudged)
        quiet = "Healthy as far as the log shows" if known else "Whether it is healthy the log does not show"
        verdict = f"Not healthy: {', '.join(grave)}" if grave else quiet
        yield Sentence(
            f"{name}{verdict}. {judged} of {len(CHECKS)} checks could be made.",
            (*(f"checked and not there: {kind}" for kind in said.clear),
             *(f"not judged: {one.kind} needs {one.needs}" for one in said.unjudged)),
        )  # fmt: skip
        for finding in said.findings:
            tested = finding.kind in ALARM_CHECKS
            rates = f" Of {describe_rates(finding.kind).replace(': ', ' it ', 1)}." if tested else ""
            evidence = (*finding.evidence, f"threshold: {finding.threshold}", f"try: {finding.advice}")
            yield Sentence(f"{name}{finding.severity.capitalize()}: {finding.kind}: {finding.what}.{rates}", evidence)
        if silent := [kind for kind in said.clear if kind in ALARM_CHECKS]:
            kinds = ", ".join(kind.removeprefix("alarm: ") for kind in silent)
            yield Sentence(
                f"{name}No alarm of {kinds}. Of {describe_rates(ANY).replace(': ', ' alarms ', 1)}.",
                tuple(f"{kind}: {describe_rates(kind)}" for kind in silent),
            )


def describe_ends(subject: Subject) -> Iterator[Sentence]:
    """Yield the forecast end of each run, and of two runs which one ends higher."""
    ends = []
    for run in subject.runs:
        planned = subject.planned or 2 * run.rounds
        told = "" if subject.planned else ", twice its length so far"
        try:
            ends.append(one := run_ending(run, planned, subject.asked.questions))
        except UserError as error:
            yield Sentence(f"{run.name}: no forecast, {str(error).partition('; allowed')[0]}.", (str(error),))
            continue
        guess = "" if one.split == "test" else " Take it as a guess, for batches of training tell less than a test."
        yield Sentence(
            f"{run.name} is forecast to end at {MEASURES[one.split]} {one.end.value:.2f} [{one.end.low:.2f}, "
            f"{one.end.high:.2f}] ({LEVEL:.0%} interval) after {planned:,} steps{told}. At step {one.known:,} it has "
            f"{one.last:.2f}.{guess}",
            (f"rftlab predict LOG --rounds {planned}", *ending_lines(one.known / planned, one.split)),
        )
    if len(ends) == 2:
        first, second = sorted(ends, key=lambda one: -one.last)
        alike = (first.known, first.task) == (second.known, second.task)
        yield Sentence(
            f"{first.run} is ahead of {second.run} by {first.last - second.last:.2f} and ends higher with probability "
            f"{leader_text(first, second)}"
            f"{'' if alike else ', a guess: they are evaluated at other rounds or on other tasks'}.",
            ("rftlab power --a .. --b .. tells whether finished runs differ", *ending_lines(0.3)),
        )


PARTS = {
    "Your batch": describe_batch,
    "Unusual": compare_settings,
    "Health": describe_health,
    "Where it ends": describe_ends,
    "Worth trying": name_changes,
    "Unknown": name_unknowns,
}
WIDTH, INDENT = 96, 14


def make_sections(subject: Subject) -> dict[str, list[Sentence]]:
    """Return all sentences on a run by the title of their section; sections without a sentence are left out."""
    return {title: sentences for title, part in PARTS.items() if (sentences := list(part(subject)))}


def show_sections(console: Console, sections: dict[str, list[Sentence]], evidence: bool) -> None:
    """Print the sentences beside the titles of their sections, and with `evidence` what each sentence rests on."""
    width = max(40, min(console.width, WIDTH)) - INDENT
    for title, sentences in sections.items():
        for number, (text, rests_on) in enumerate(sentences):
            lines = wrap(plain(text), width, break_on_hyphens=False)
            for reason in rests_on if evidence else ():
                lines += wrap(f"  - {plain(reason)}", width, subsequent_indent="    ", break_on_hyphens=False)
            for i, line in enumerate(lines):
                say(console, f"{title if number == i == 0 else '':<{INDENT}}{line}")
    if not evidence:
        say(console, "\n--evidence prints what each sentence rests on; --page writes a page to send.", "dim")


def write_check(subject: Subject, sections: dict[str, list[Sentence]], root: Path) -> Path:
    """Write root/check-NAME/check.html, check.csv and check.json; return the page's path."""
    open_store(root)
    folder = folder_below(root, f"check-{name_for(Path(subject.name[:60]))}")
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(title, text, " | ".join(evidence)) for title, own in sections.items() for text, evidence in own]
    write_numbers(folder / "check.csv", pd.DataFrame(rows, columns=["section", "sentence", "evidence"]))
    content = {title: [one._asdict() for one in own] for title, own in sections.items()}
    write_file(folder / "check.json", (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    about = {"commit": commit(), **versions()}
    text = template("check.html.j2").render(title=subject.name, sections=sections, about=about)
    write_file(folder / "check.html", text.encode())
    return folder / "check.html"
