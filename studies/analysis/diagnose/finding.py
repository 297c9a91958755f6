"""What a check says of a run."""

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
    """What had to be reached."""
    advice: str
    """What to try."""


class Unjudged(NamedTuple):
    """A check that the log does not allow."""

    kind: str
    needs: str
    """What the log would have to hold."""


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
        kinds = ", ".join(found.kind for found in self.findings)
        return f"{self.name}: {self.findings[0].severity}: {kinds}; {checks}"

    def _repr_html_(self) -> str:
        """A table for each finding, for notebooks."""
        tables = [
            table(f"{found.severity}: {found.kind}: {found.what}",
                  [*(("seen", seen) for seen in found.evidence), ("threshold", found.threshold), ("try", found.advice)])
            for found in self.findings
        ]  # fmt: skip
        rest = [("nothing found", ", ".join(self.clear)), *((f"{row.kind} needs", row.needs) for row in self.unjudged)]
        return "".join(tables) + table(self.verdict, rest)
