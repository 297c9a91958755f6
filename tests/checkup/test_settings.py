"""What is said of public runs' settings: the shipped table, learning rates with their width, and how runs are
counted."""

import numpy as np
import pandas as pd
import pytest

from dev.public_settings import KEYS, count_settings
from rftlab.studies.analysis.public import settings
from rftlab.studies.analysis.public.settings import RateAxis, advise_rate, alike_settings, judge_rate, public_settings


def axis(rates, ends, failed):
    """A source with one run a rate."""
    return RateAxis("s", "m", np.array(rates), np.array(ends), np.array(failed), np.ones(len(rates)))


def test_good_rates_hold_and_end_near_the_best():
    one = axis([1e-6, 1e-5, 3e-5, 1e-4], [0.3, 0.95, 1.0, 0.1], [0, 0, 0, 1])
    assert one.good.tolist() == [1e-5, 3e-5] and one.edge == 1e-4
    assert one.end_at(1e-5) == pytest.approx(0.95) and np.isnan(one.end_at(1e-3))
    assert one.end_at(np.sqrt(1e-5 * 3e-5)) == pytest.approx(0.975)


def test_the_advice_is_the_rate_that_or_above_which_each_source_did_well():
    """Taken from the table by hand: OLMo-2-1B does best at 1e-5 and fails in three of four runs at 2e-5."""
    advice = advise_rate(1.5)
    assert (advice.value, advice.low, advice.high, advice.edge) == (1e-5, 1e-5, 5e-5, 2e-5)
    assert {one.source for one in advice.axes} == {"kaip598", "shibukizero", "taoger_xu", "wedsonlin"}
    assert "between 1e-05 and 5e-05. In one source most runs failed from 2e-05 on" in settings.describe_advice(advice)
    judged = [judge_rate(rate, advice) for rate in (1e-6, 7e-6, 9e-6, 1e-5, 1.5e-5, 2e-5, 1e-3)]
    assert judged == ["low", "low", "usual", "usual", "usual", "dangerous", "dangerous"]


def test_precision_size_and_adapters_choose_the_runs_and_the_width_grows_with_the_distance():
    usual, small, large = (advise_rate(1.5, responses=n) for n in (256, 64, 1024))
    assert (small.low, small.high) == (usual.low / 2, usual.high) and small.value == usual.value
    assert "between 1e-05 and 5e-05 (5e-06 to 5e-05 at your batch, a guess)" in settings.describe_advice(small)
    assert (large.low, large.high) == (usual.low, 2 * usual.high)
    assert {one.source for one in advise_rate(1.5, precision="fp32").axes} == {"kaip598", "shibukizero"}
    assert advise_rate(7.0) is None and advise_rate(3.0, lora=True) is None
    assert set(alike_settings(1.0, False, "bf16")["precision"]) == {"bf16", ""}
    assert set(alike_settings(3.0, True, None)["source"]) == {"pods", "sunshine535"}


def test_the_shipped_table_is_whole_and_a_source_left_out_is_told_what_the_others_hold():
    ends = settings.left_out_ends()
    assert len(ends) == len(settings.rate_axes(public_settings())) == 4 and (np.diff(ends) >= 0).all()
    assert ends[0] == pytest.approx(0.31, abs=0.01) and ends[-1] == pytest.approx(0.84, abs=0.01)
    table = public_settings()
    assert table["runs"].sum() == 162 and (table["failed"] <= table["runs"]).all() and table["source"].nunique() == 10
    assert table["end"].between(0, 1).all() and table["reference"].notna().all()


def test_failures_are_counted_over_all_ways_to_deal_outcomes_within_sources():
    """Of a, one of two failures falls on many updates by 4 in 6 ways, and two by 1; b has no run with few."""
    rows = [("a", 1, 2, 1), ("a", 8, 2, 1), ("b", 8, 3, 2), ("c", np.nan, 9, 9)]
    table = pd.DataFrame(rows, columns=["source", "updates", "runs", "failed"])
    assert settings.shuffled_failures(table, 4) == pytest.approx(5 / 6)
    assert settings.shuffled_failures(table.assign(failed=[0, 2, 2, 9]), 4) == pytest.approx(1 / 6)
    assert settings.describe_shuffled(4) == "as many fail in 23% of shuffles of the outcomes within their sources"


def test_runs_are_counted_by_their_settings():
    row = dict.fromkeys(KEYS, 1) | {"source": "s", "model": "m", "precision": "", "commit": "c"}
    runs = [(1e-6, 0.4, 0.4), (1e-6, 0.42, 0.4), (1e-5, 0.8, 0.8), (1e-4, 0.5, 0.3), (1e-4, 0.9, 0.7)]
    ends = pd.DataFrame([row | {"rate": rate, "best": best, "end": end} for rate, best, end in runs])
    table = count_settings(ends).set_index("rate")
    assert table["runs"].tolist() == [2, 1, 2] and table["failed"].tolist() == [0, 0, 1]
    assert table["end"].tolist() == pytest.approx([0.5, 1.0, 0.625])  # slow is not failed
