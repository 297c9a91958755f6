"""Checks that are made up, and what the checks of the theory measure."""

from functools import cache

from rftlab.studies.theory import ALL_CHECKS
from rftlab.studies.theory.check import Check, MeasuredValue, Mutant, exact

BY_ID = {check.id: check for check in ALL_CHECKS}


@cache
def measured(check_id: str, mutant: int = 0) -> tuple[MeasuredValue, ...]:
    """The comparisons of a check or of its n-th mutant, run once for all tests of a session."""
    return tuple(BY_ID[check_id].experiment(mutant))


def expected(check_id: str) -> dict[str, float]:
    """The formula's value of each comparison of a check."""
    return {comparison.name: comparison.expected for comparison in measured(check_id)}


def made(name, good=True, caught=True, tier="fast", corrects=""):
    """A check of two comparisons; the second decides, and the second of two mutants breaks the first."""

    def experiment(mutant):
        right = not caught if mutant == 1 else good
        return [exact("first", 2.0, 3.0 if mutant == 2 else 2.0), exact("second", 0.5, 0.5 if right else 0.75)]

    mutants = (Mutant("a wrong b", "second"), Mutant("a wrong a", "first"))
    return Check(name, f"Statement {name}.", "a = b", "somebody 2020", "exact", mutants, experiment, tier, corrects)
