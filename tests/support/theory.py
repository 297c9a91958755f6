"""Checks that are made up."""

from rftlab.studies.theory.check import Check, exact


def made(name, good=True, caught=True, tier="fast", corrects=""):
    """A check of two comparisons; the second decides."""

    def experiment(mutant):
        right = not caught if mutant else good
        return [exact("first", 2.0, 2.0), exact("second", 0.5, 0.5 if right else 0.75)]

    return Check(
        name, f"Statement {name}.", "a = b", "a = b", "somebody 2020", "exact", "a wrong b", experiment, tier, corrects
    )
