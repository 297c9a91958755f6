"""Where runs of a model end that nobody ran: a planted line comes back, and what is left out changes nothing."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.public import credit
from tests.support.machine.here import refused


def planted(noise: float = 0.0) -> pd.DataFrame:
    """Six sources of two families on two tasks: logit(end) = 0.5 + 1.5 log10(size), family b 1 lower, MATH 1 lower."""
    rng = np.random.default_rng(0)
    rows = [
        (f"s{i}", group, parameters, task, expit(0.5 + 1.5 * np.log10(parameters) - (group == "b") - (task == "math")
                                                 + noise * rng.standard_normal()))
        for i, parameters in enumerate((0.5, 1, 2, 4, 8, 16)) for group in "ab" for task in ("gsm8k", "math")
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["source", "group", "parameters", "task", "end"])
    return table.assign(reported=table["end"], base_in_harness=table["end"] - 0.2, credited=False)


@pytest.mark.parametrize(("family", "lower"), [("a", 0.0), ("b", 1.0)])
def test_a_planted_line_comes_back(monkeypatch, family, lower):
    monkeypatch.setattr(credit, "grouped_ends", planted)
    for parameters in (1.0, 3.0):
        one = credit.predict_end(parameters, family, "gsm8k")
        assert one.known and one.end.value == pytest.approx(expit(0.5 + 1.5 * np.log10(parameters) - lower), abs=0.02)
        assert one.error < 0.03 and one.format.value == pytest.approx(0.2)
    unknown = credit.predict_end(3.0, "c", "gsm8k")
    assert not unknown.known and unknown.error > 0.05 and unknown.end.high - unknown.end.low > 0.1
    # the width covers ends of sources that were left out
    monkeypatch.setattr(credit, "grouped_ends", lambda: planted(0.5))
    one = credit.predict_end(2.0, "a", "gsm8k")
    assert one.end.low < one.end.value < one.end.high and one.error > 0.05


def test_shuffled_ends_are_forecast_worse(monkeypatch):
    whole = credit.predict_end(1.5, "qwen", "gsm8k").error
    rows = credit.grouped_ends()
    own = rows["group"] == "qwen"
    rows.loc[own, "end"] = rows.loc[own, "end"].sample(frac=1, random_state=1).to_numpy()
    monkeypatch.setattr(credit, "grouped_ends", lambda: rows)
    assert credit.predict_end(1.5, "qwen", "gsm8k").error > whole + 0.05


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model-size", "1.5"), "go together"),
        (("--model-size", "0", "--family", "qwen", "--task", "gsm8k"), "model size = 0"),
        (("--model-size", "900", "--family", "qwen", "--task", "gsm8k"), "allowed: 0.25 to 144"),
        (("--model-size", "1", "--family", "qwen", "--task", "aime"), "allowed: gsm8k, math"),
        (("--model-size", "1", "--family", "qwen", "--task", "math", "--rounds", "5"), "rounds = 5"),
    ],
)
def test_what_nothing_is_known_of_is_a_line(flags, words):
    assert words in refused("predict", *flags)
    with pytest.raises(UserError):
        credit.predict_end(1.0, "qwen", "words")
