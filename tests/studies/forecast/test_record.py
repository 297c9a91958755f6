"""What the shipped scores say of a forecast: by hand on planted records, and both answers of each rule."""

import numpy as np
import pandas as pd
import pytest

from rftlab.studies.forecast import record
from rftlab.studies.forecast.record import DESIGNS, ENDS, LEADERS


def planted_designs(gain: float) -> pd.DataFrame:
    """Two sources of ten designs, each forecast twice; `steps` is `gain` further off than `curve`."""
    rng = np.random.default_rng(0)
    rows = [(source, f"d{i}", rng.uniform(0.3, 0.6)) for source in "ab" for i in range(10) for _ in range(2)]
    table = pd.DataFrame(rows, columns=["source", "cell", "truth"]).assign(task="t", outside=0, other_rate=1)
    off = rng.normal(0, 0.02, len(table))
    table = table.assign(curve=table["truth"] + off, low=table["truth"] - 0.1, high=table["truth"] + 0.1)
    return table.assign(
        steps=table["curve"] + np.sign(off) * gain, still=table["curve"] + np.sign(off) * 0.3, law=0.5, sigmoid=0.9
    )


@pytest.mark.parametrize(("gain", "said"), [(0.1, "It is ahead of every plain forecast, by 0.100"), (0.0, "`steps`")])
def test_a_forecast_is_ahead_where_the_interval_says_so(monkeypatch, gain, said):
    table = planted_designs(gain)
    monkeypatch.setattr(record, "record", {DESIGNS: table}.get)
    lead = record.ahead(table, "curve", "steps")
    assert lead.value == pytest.approx(gain) and (lead.low > 0) == (gain > 0)
    lines = record.design_lines(True)
    assert said in lines[1] and "20 held-out designs of 2 public sources" in lines[0] and "held 100%" in lines[0]


def test_a_lead_of_one_design_is_no_lead_and_sources_count_alike():
    table = planted_designs(0.0)
    table.loc[table["cell"] == "d3", "steps"] += 0.5
    assert record.ahead(table, "curve", "steps").low <= 0
    table = pd.DataFrame({"source": ["a"] * 9 + ["b"], "task": "t"})
    assert record.source_mean(table, pd.Series([0.0] * 9 + [1.0])) == 0.5


@pytest.mark.parametrize("known", [True, False])
def test_more_is_said_to_come_only_where_that_is_known(monkeypatch, known):
    truth = np.tile([0.5, 0.6], 50)
    forecast = truth if known else np.full(100, 0.6)
    table = pd.DataFrame({"source": "a", "task": "t", "part": 0.3, "last": 0.5, "sigmoid": 0.5, "truth": truth})
    table = table.assign(split="test", forecast=forecast)
    monkeypatch.setattr(record, "record", {ENDS: pd.concat([table, table[:7].assign(split="train")])}.get)
    lines = record.ending_lines(0.25)
    assert lines[0].startswith("From 30% of a run the ends of 100 curves")
    assert ("It is unknown whether" in " ".join(lines)) is not known
    assert "the ends of 7 curves" in record.ending_lines(0.25, "train")[0]
    assert "expect larger errors" in record.ending_lines(0.01)[1] and "expect larger" not in " ".join(lines)


def test_the_plan_has_its_cost_and_its_record(monkeypatch):
    table = pd.DataFrame({"source": "a", "task": "t", "part": [0.2] * 4 + [0.3], "gap": [0.1, 0.2, -0.1, 0.01, -1.0]})
    monkeypatch.setattr(record, "record", {LEADERS: table}.get)
    line = record.plan_line()
    assert "for 20% of their rounds" in line and "costs 60% of running both" in line
    assert "Of 3 pairs" in line and "better one in 67%; over all 4 pairs it lost 0.025" in line


def test_the_shipped_record_is_whole():
    rows = record.record(DESIGNS)
    assert rows["source"].nunique() >= 6 and rows["truth"].between(0, 1).all()
    assert (rows["low"] <= rows["high"]).all() and set(rows["other_rate"]) == {0, 1} == set(rows["outside"])
    assert record.record(ENDS)["part"].nunique() == 4 and len(record.record(LEADERS)) > 100
    for other_rate in (True, False):
        assert len(record.design_lines(other_rate)) == 2
