"""What the base model could already do, as a table, and in a sentence each what it says."""

from collections.abc import Iterator

from rftlab.studies.console.table import Table
from rftlab.studies.forecast.pilot.headroom import GROUP, Headroom, RateAt, RewardCorrelation
from rftlab.studies.forecast.pilot.noise import ENOUGH, GradientRatios
from rftlab.studies.forecast.pilot.pilot import EARLY, Base, PilotRun

VOTE = 16
"""Responses of the vote that tells what sharpening can gain."""
SURE = 2.0
"""Errors by which two shares must differ to be called different."""


def headroom_table(base: Base, runs: tuple[PilotRun, ...]) -> Table | None:
    """A row for each number; None where nothing of it was measured."""
    later = base.midway and base.midway.ratios
    rows = [
        *_ratio_rows(base.ratios, ""),
        *_ratio_rows(later, ", midway"),
        *_headroom_rows(base.headroom),
        *_early_rows(runs),
    ]
    if not rows:
        return None
    title = "what it could already do, and how alike questions are"
    table = Table("measure", "value", "questions", "responses", title=title)
    for row in rows:
        table.add(*row)
    return table


def _ratio_rows(found: GradientRatios | None, where: str) -> Iterator[tuple[str, ...]]:
    if found is not None:
        for name, one in (("r of the effective batch", found.between), ("phi of a baseline", found.gain)):
            value = f"{one.value:.3f} ± {one.error:.3f}"
            yield (
                f"{name}{where} (95%: {one.low:.3f} to {one.high:.3f})",
                value,
                str(found.questions),
                str(found.responses),
            )


def _headroom_rows(found: Headroom | None) -> Iterator[tuple[str, ...]]:
    if found is None:
        return
    for rate in found.temperatures:
        yield _row(f"Pass@1 at temperature {rate.at:g}", rate)
    for rate in found.majority:
        yield _row(f"maj@{rate.at:g}: most of {rate.at:g} votes right", rate)
    for rate in found.tries:
        if rate.at > 1:
            yield _row(f"pass@{rate.at:g}: right once in {rate.at:g}", rate)
    for name, one in (("one question", found.within_question), ("one kind of question", found.within_kind)):
        if one is not None:
            yield f"correlation of rewards, {name}", f"{one.value:.3f} ± {one.error:.3f}", str(one.groups), ""
    if found.silent is not None:
        yield _row(f"silent groups of {found.silent.at:g}, base model", found.silent)


def _early_rows(runs: tuple[PilotRun, ...]) -> Iterator[tuple[str, ...]]:
    for run in runs:
        if run.early_silent is not None:
            name = f"silent groups of {run.early_silent.at:g}, rounds {EARLY[0]} to {EARLY[1]} of {run.cell}"
            yield _row(name, run.early_silent)


def _row(name: str, rate: RateAt) -> tuple[str, ...]:
    return name, f"{rate.value:.3f} ± {rate.error:.3f}", str(rate.questions), str(rate.responses)


def sentences(base: Base, runs: tuple[PilotRun, ...]) -> list[str]:
    """What each of the numbers says, in a sentence."""
    found = base.headroom
    measured = base.midway.ratios if base.midway else base.ratios
    said = [] if measured is None else [_of_ratio(measured)]
    if base.midway:
        said.append(
            f"midway: after {base.midway.round} rounds of the baseline. The law takes r and phi from there, because "
            "training soon leaves the base policy."
        )
    if found is None:
        return [*said, "Votes and temperatures were not measured: run `rftlab pilot` again for them."]
    if len(found.temperatures) > 1:
        said.append(_of_temperatures(found.temperatures))
    if found.majority:
        said.append(_of_votes(found))
    if found.tries:
        most = found.tries[-1]
        said.append(
            f"pass@{most.at:g}: {most.value:.0%} of questions are right at least once in {most.at:g}; the others give "
            "no reward to learn from at that many rollouts."
        )
    if found.within_question is not None:
        said.append(_of_question(found.within_question))
    if found.within_kind is not None:
        said.append(_of_kind(found.within_kind))
    return [*said, *_of_silence(found, runs)]


def _of_ratio(found: GradientRatios) -> str:
    r = found.between
    if r.low <= 0:
        said = "r is not told from 0: as far as this pilot knows, another rollout is as good as another prompt."
    else:
        said = (
            f"r: up to about K = 1/r = {1 / r.value:.0f} rollouts of a prompt do much against noise; beyond that more "
            "prompts do."
        )
    if found.few:
        said += (
            f" From {found.questions} questions x {found.responses} responses, fewer than the {ENOUGH[0]} x {ENOUGH[1]}"
            " that r needs."
        )
    return said


def _of_temperatures(rates: tuple[RateAt, ...]) -> str:
    hot, cold = max(rates, key=lambda rate: rate.at), min(rates, key=lambda rate: rate.at)
    gain, error = cold.value - hot.value, (cold.error**2 + hot.error**2) ** 0.5
    both = f"{cold.value:.3f} at {cold.at:g}, {hot.value:.3f} at {hot.at:g}"
    if abs(gain) < SURE * error:
        return f"Temperature: no sure difference ({both}); sharpening as a whole neither helps nor hurts."
    if gain > 0:
        return f"Temperature: colder is better ({both}); sharpening as a whole raises Pass@1."
    return f"Temperature: colder is worse ({both}); what is likeliest is wrong, and sharpening as a whole does harm."


def _of_votes(found: Headroom) -> str:
    """The larger of the vote and the coldest temperature: where answers are many, a vote of few misses the likeliest
    one, and temperature 0 takes likely tokens, not likely answers."""
    vote, most = found.vote(VOTE) or found.majority[-1], found.majority[-1]
    cold = min(found.temperatures, key=lambda rate: rate.at, default=vote)
    also = "" if cold is vote else f", temperature {cold.at:g} {cold.value:.2f}"
    said = (
        f"maj@{vote.at:g}: sharpening alone, which makes likely answers likelier, can take Pass@1 up to about "
        f"{max(vote.value, cold.value):.2f} (a vote of {vote.at:g} has {vote.value:.2f}{also}); what is above must be "
        "learnt from rare right responses."
    )
    if most.value - vote.value > SURE * (vote.error**2 + most.error**2) ** 0.5:
        said += f" The vote is not settled: {most.value:.2f} of {most.at:g} votes."
    return said


def _of_question(found: RewardCorrelation) -> str:
    return (
        f"Correlation within a question: {max(0.0, found.value):.0%} of the variance of a reward lies between "
        "questions; at 100% each is always or never right, and no group teaches."
    )


def _of_kind(found: RewardCorrelation) -> str:
    if found.value < SURE * found.error:
        return "Correlation within a kind: none for sure; how a question goes says little about others of its kind."
    return (
        f"Correlation within a kind: {found.value:.0%}; questions of a kind are right together, so what one teaches "
        "may help the others."
    )


def _of_silence(found: Headroom, runs: tuple[PilotRun, ...]) -> Iterator[str]:
    same = [run for run in runs if run.early_silent is not None and run.early_silent.at == GROUP]
    if found.silent is not None:
        silence = f"Silence: {found.silent.value:.0%} of groups of {GROUP} of the base model teach nothing"
        after = [f"{run.early_silent.value:.0%} in {run.cell}" for run in same if run.early_silent is not None]
        later = f", after five to ten rounds {', '.join(after)}" if after else ""
        yield f"{silence}{later}; a share that rises while rewards rise says that questions polarise."
