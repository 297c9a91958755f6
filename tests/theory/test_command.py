"""The theory command and the theory page: what they run, print and return."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

import rftlab.studies.theory.command as command
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.theory.check import FAIL, INCONCLUSIVE, PASS, MeasuredValue, estimated, exact, positive
from rftlab.studies.theory.command import headline, run_all, run_check, selected_checks, theory
from tests.support.theory import made


@pytest.fixture
def groups(monkeypatch):
    """Installs groups of made checks."""
    return lambda **groups: monkeypatch.setattr(
        command, "GROUPS", {title: tuple(checks) for title, checks in groups.items()}
    )


def shown(ids=(), tier="all", mutants=False):
    console = Console(width=110, record=True, file=StringIO())
    status = theory(console, tuple(ids), tier, mutants, quiet=True)
    return status, console.export_text()


def unsure(mutant):
    return [estimated("mean", 1.0, 1.0, 0.5)]


def test_all_pass_is_status_0_with_a_count_line(groups):
    groups(Algebra=[made("T1"), made("T2")], Variance=[made("T10")])
    status, text = shown()
    assert status == 0
    assert re.search(r"3 checks: 3 PASS, 0 FAIL, 0 INCONCLUSIVE in \d+\.\d s", text)
    assert text.index("Algebra") < text.index("T1 ") < text.index("T2 ") < text.index("Variance") < text.index("T10")
    assert "Statement T2." in text and "a = b" in text and "and 1 more" in text and "somebody" not in text


@pytest.mark.parametrize(
    ("checks", "mutants", "status", "words"),
    [
        ([made("T1"), made("T2", good=False)], False, 1, ("1 PASS, 1 FAIL", "0.5", "0.75")),
        ([replace(made("T1"), experiment=unsure)], False, 0, ("1 INCONCLUSIVE", "[0.02, 1.98]")),
        ([made("T1")], True, 0, ("a wrong b", "a wrong a", "2 mutants: 2 FAIL as they must; claims that no mutant b")),
        ([made("T1"), made("T2", caught=False)], True, 1, ("4 mutants: 3 FAIL as they must, not so T2", "T2: second")),
        ([replace(made("T1"), mutants=made("T1").mutants[:1])], True, 1, ("claims that no mutant breaks: T1: first",)),
        ([replace(made("T1"), experiment=unsure)], True, 1, ("T1",)),
    ],
    ids=["a failure", "inconclusive", "mutants fail", "a mutant passes", "an unbroken claim", "inconclusive mutants"],
)
def test_the_status_is_that_of_what_was_found(groups, checks, mutants, status, words):
    groups(Algebra=checks)
    found, text = shown(mutants=mutants)
    assert found == status and [word for word in words if word not in text] == []


def test_named_checks_show_everything(groups):
    groups(Algebra=[made("T1"), made("T2", corrects="a book says c")])
    status, text = shown(["t2"])
    assert status == 0 and "T1 " not in text
    told = ("mutants: a wrong b; a wrong a", "corrects the literature: a book says c")
    assert all(word in text for word in ("first", "second", "somebody 2020", *told))


def test_tiers_select(groups):
    groups(Algebra=[made("T1"), made("T2", tier="slow")], Derived=[made("D1")])
    assert [check.id for check in selected_checks(())] == ["T1", "T2", "D1"]
    assert [check.id for check in selected_checks((), "fast")] == ["T1", "D1"]
    assert [check.id for check in selected_checks((), "slow")] == ["T2"]
    for ids, tier, said in (
        (("T1",), "slow", "tier = 'slow' with T1 leaves no check; allowed: all, fast"),
        (("T1", "T99"), "all", "check = 'T99' is unknown; allowed: T1, T2"),
    ):
        with pytest.raises(UserError, match=said):
            selected_checks(ids, tier)


def test_a_bar_runs_and_tells_of_every_check(groups):
    groups(Algebra=[made("T1"), made("T2", tier="slow")])
    heard = []
    run_all(selected_checks(()), tell=lambda check, done: heard.append((check.id, done)))
    assert heard == [("T1", False), ("T1", True), ("T2", False), ("T2", True)]
    console = Console(width=100, force_terminal=True, record=True, file=StringIO())
    assert theory(console, (), "all", False, False) == 0


def test_headline_decides():
    result = run_check(made("T1", good=False))
    assert result.verdict == FAIL and headline(result).name == "second"
    assert headline(run_check(made("T1"))).name == "first"
    assert headline(run_check(replace(made("T1"), experiment=lambda mutant: []))) is None
    assert run_check(replace(made("T1"), experiment=lambda mutant: [])).verdict == INCONCLUSIVE


def test_inequalities_print_as_such():
    assert positive("a > b", 0.3, 0.01).expected_text == "> 0"
    assert positive("a > b", 0.3).expected_text == "> 0"
    assert exact("a = 0", 0.0, 1e-14).expected_text == "0"
    assert exact("a", 1.0, 1.0).interval_text == ""
    assert MeasuredValue("a", 1.0, 1.0, 0.9, 1.1, PASS).interval_text == "[0.9, 1.1]"
    assert MeasuredValue("a", 0.5, 0.5, 0.49998, 0.50003, PASS).interval_text == "[0.49998, 0.50003]"
