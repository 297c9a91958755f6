"""Findings of a check on a run, and the one table of thresholds; docs/lab/diagnose.md says which were chosen on
simulated runs."""

from typing import Literal, NamedTuple

from rftlab.shared.plumbing.notebook import table

Severity = Literal["stop", "change", "note"]
ORDER: tuple[Severity, ...] = ("stop", "change", "note")
"""stop: rounds from here on are lost. change: another setting would do better. note: what to know when reading it."""


class Finding(NamedTuple):
    """Something that is going on in a run."""

    kind: str
    """The check's name, as in `rftlab.studies.analysis.diagnose.CHECKS`."""
    severity: Severity
    what: str
    """One sentence."""
    evidence: tuple[str, ...]
    """Numbers and rounds, a sentence each."""
    threshold: str
    """The condition that was met, in words."""
    advice: str
    """Changes to try."""


class Unjudged(NamedTuple):
    """A check that the log does not allow."""

    kind: str
    needs: str
    """The metrics that the log would need."""


class Diagnosis(NamedTuple):
    """All that was found in a run."""

    name: str
    findings: tuple[Finding, ...]
    """The gravest first."""
    clear: tuple[str, ...]
    """Checks that found nothing."""
    unjudged: tuple[Unjudged, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        judged = len(self.clear) + len(self.findings)
        checks = f"{judged} of {judged + len(self.unjudged)} checks could be made"
        if not self.findings:
            return f"{self.name}: {'nothing wrong found' if judged else 'nothing can be said'}; {checks}"
        kinds = ", ".join(finding.kind for finding in self.findings)
        return f"{self.name}: {self.findings[0].severity}: {kinds}; {checks}"

    def _repr_html_(self) -> str:
        """A table for each finding, for notebooks."""
        tables = [
            table(f"{one.severity}: {one.kind}: {one.what}",
                  [*(("seen", seen) for seen in one.evidence), ("threshold", one.threshold), ("try", one.advice)])
            for one in self.findings
        ]  # fmt: skip
        rest = [("nothing found", ", ".join(self.clear)), *((f"{row.kind} needs", row.needs) for row in self.unjudged)]
        return "".join(tables) + table(self.verdict, rest)


class Threshold(NamedTuple):
    """A number that a check compares with."""

    value: float
    means: str
    why: str


THRESHOLDS = {
    "points": Threshold(
        12, "values that a trend needs", "with ten, Kendall's test does not separate a step from noise"
    ),
    "few_points": Threshold(8, "values that a fall needs", "three at the top, three at the end, and some between"),
    "silent_groups": Threshold(0.8, "share of groups without a signal, last quarter", "simulated: others stay below"),
    "silent_rare": Threshold(0.9, "share of groups without a signal where nothing is solved", "nearly all"),
    "format_low": Threshold(0.5, "format rate of the first value", "else format was not what was missing"),
    "start": Threshold(0.02, "Pass@1 of the first value that is almost nothing", "below what guessing among 50 gives"),
    "jump": Threshold(0.1, "part of the run that brings half of its gain", "format is learnt first"),
    "format_share": Threshold(0.6, "share of the gain that is format", "a clear majority; less is usual early on"),
    "fall": Threshold(0.5, "share of the best level that is lost", "simulated: no healthy run loses it"),
    "errors": Threshold(4.0, "standard errors of a fall", "one false alarm in 30,000 looks"),
    "fall_shrunk": Threshold(2.0, "standard errors off a peak, to choose one", "of many one is high by chance"),
    "entropy_burst": Threshold(3.0, "entropy in multiples of its start", "sampling, not learning, makes it grow so"),
    "entropy_gone": Threshold(0.05, "entropy as a share of its start", "20 times fewer choices, in nats"),
    "length_left": Threshold(0.3, "response length as a share of its start", "reasoning that is gone, not tightened"),
    "alarm_long": Threshold(0.85, "response length as a share of its limit", "most responses are about to be cut"),
    "alarm_gradient": Threshold(2.5, "gradient norm in multiples of its early median", "public runs"),
    "alarm_entropy": Threshold(1.6, "entropy in multiples of its start", "public runs"),
    "alarm_entropy_least": Threshold(0.8, "entropy that such a multiple must reach, in nats", "public runs"),
    "length_growth": Threshold(0.2, "relative growth of responses, last half", "a fifth more tokens a round"),
    "reward_still": Threshold(0.02, "gain of reward that counts as none", "the size of most claimed improvements"),
    "drawdown": Threshold(0.2, "share of the best level that is lost", "simulated: see docs/lab/diagnose.md"),
    "clip_fraction": Threshold(0.2, "share of tokens that are clipped, any tenth", "the step leaves its trust region"),
    "clip_range": Threshold(0.05, "half-width of a range that a large step leaves", "PPO's 0.1 to 0.3; not GSPO's"),
    "kl": Threshold(0.1, "KL to the policy that sampled, nats a token, any tenth", "ratios of e^0.1 and more"),
    "spike": Threshold(20.0, "gradient norm in multiples of its median", "far outside of what batches differ by"),
    "silent_early": Threshold(
        0.2, "part of the run by which groups may lose their variance", "later it is what was learnt"
    ),
    "silent_stuck": Threshold(
        0.85, "share of groups that have zero variance so early", "simulated: above most that are healthy"
    ),
    "silent_lost": Threshold(
        0.6,
        "share of the groups with a signal in round 1 that have zero variance so early",
        "simulated: between 0.56 and 0.62",
    ),
    "stuck": Threshold(0.1, "what the reward still gains after that", "a healthy run of zero-variance groups goes on"),
    "changed": Threshold(3.0, "standard deviations that count as progress", "one false alarm in 400"),
    "level": Threshold(0.05, "p value of Kendall's test", "usual"),
    "plateau": Threshold(
        0.15, "part of the gain that the last half brought", "simulated: most hits at the fewest alarms"
    ),
    "mismatch_logp": Threshold(0.05, "mean difference of log-probabilities", "ratios of 1.05, which NeMo RL allows"),
    "mismatch_probs": Threshold(0.02, "mean difference of probabilities", "judgement, not measured"),
    "seen": Threshold(1.96, "standard errors of a difference that is seen", "95%, both directions"),
}


def limit(name: str) -> float:
    """The number of a threshold."""
    return THRESHOLDS[name].value
