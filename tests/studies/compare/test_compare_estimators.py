"""`rftlab compare-estimators`: paired differences, their intervals, and what so many seeds would find."""

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.cli.commands import run
from rftlab.studies.cli.estimators import CompareEstimators
from rftlab.studies.data.results.stats import interval
from rftlab.studies.estimators.compare import difference_rows
from rftlab.studies.forecast.signal.power import smallest_difference


def scored(values: dict[str, list[float]], pairs=("p",)) -> pd.DataFrame:
    """The same values in both budgets; seeds go on from pair to pair."""
    rows = [
        (name, budget, pairs[i * len(pairs) // len(numbers)], i, number)
        for name, numbers in values.items()
        for budget in ("rounds", "rollouts")
        for i, number in enumerate(numbers)
    ]
    return pd.DataFrame(rows, columns=["entrant", "budget", "pair", "seed", "value"])


def test_differences_are_paired_by_seed():
    """The spread over seeds, ten times the difference, is common and cancels."""
    rng = np.random.default_rng(0)
    base, gain = 0.3 * rng.random(6), 0.02 + 0.005 * rng.normal(size=6)
    (first, second, *_) = difference_rows(scored({"a": list(base), "b": list(base + gain)}), ("a", "b"))
    expected = interval(gain)
    assert np.isnan(first.difference) and first.value == pytest.approx(base.mean())
    assert (second.difference, second.low, second.high) == pytest.approx(tuple(expected)) and second.low > 0
    assert second.smallest == pytest.approx(smallest_difference(gain.std(ddof=1), 6, paired=True))
    shuffled = difference_rows(scored({"a": list(base), "b": list((base + gain)[::-1])}), ("a", "b"))[1]
    assert shuffled.low < 0 < shuffled.high, "and with the pairing broken nothing is told apart"


def test_intervals_hold_together_and_pairs_have_means_of_their_own():
    rng = np.random.default_rng(1)
    values = {name: list(np.repeat([0.2, 0.7], 4) + 0.01 * rng.normal(size=8)) for name in "abc"}
    (_, alone, *_) = difference_rows(scored({k: values[k] for k in "ab"}, ("p", "q")), ("a", "b"))
    (_, among, *_) = difference_rows(scored(values, ("p", "q")), ("a", "b", "c"))
    assert among.high - among.low > 1.1 * (alone.high - alone.low) and among.smallest == alone.smallest < 0.05


def test_a_run_that_diverged_leaves_no_difference():
    rows = difference_rows(scored({"a": [0.1, 0.2], "b": [0.1, np.nan]}), ("a", "b"))
    assert rows[1].diverged == 1 and np.isnan(rows[1].difference) and np.isnan(rows[1].value)


def test_the_command(tmp_path):
    console = Console(file=StringIO(), width=150)
    command = CompareEstimators(
        names=("dr_grpo", "rloo", "gspo_token"), cell="4x4", seeds=2, rounds=10, results=tmp_path / "r", quiet=True
    )
    assert command.execute(console) == 0
    text = console.file.getvalue()
    assert "At equal rounds: qwen-gsm8k, 4x4, 2 seeds" in text and "At equal rollouts" in text
    data = pd.read_csv(tmp_path / "r" / "compare-estimators" / "4x4-dr_grpo-rloo-gspo_token.csv")
    assert data["name"].tolist() == ["dr_grpo", "rloo", "gspo_token"] * 2 and set(data["budget"]) == {
        "rounds",
        "rollouts",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("grpo", "names = grpo; allowed: two or more estimators, each once"),
        ("", "names = none; allowed: two or more"),
        ("grpo grpo", "allowed: two or more estimators, each once"),
        ("grpo grop", "estimator = 'grop' is unknown"),
        ("grpo prime", "estimator = 'prime' cannot run here"),
        ("grpo rloo --cell 64", "cell = '64'; allowed: contexts x rollouts, such as 64x8"),
        ("grpo rloo --cell 4x1", "rollouts = 1; allowed: 2 or more"),
        ("grpo rloo --seeds 1", "seeds = 1; allowed: 2 or more"),
        ("grpo rloo --pair nothing", "pair = 'nothing'"),
    ],
)
def test_bad_input_is_one_line(arguments, message, tmp_path):
    with pytest.raises(UserError, match=message):
        run(["compare-estimators", *arguments.split(), "--results", str(tmp_path / "r")])
