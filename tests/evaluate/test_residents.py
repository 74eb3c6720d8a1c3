"""Scripted residents against the published figures: the cells that are quick to live and the page."""

import numpy as np
import pytest

from outlast.evaluate import residents
from outlast.programs.survive import Survive
from outlast.programs.survive_config import SurviveConfig
from outlast.worlds.town import load_pack


def test_one_who_waits_lives_as_long_as_published():
    town = load_pack("L1").model_dump(mode="json")
    survival, worth = residents.lived(Survive(SurviveConfig(pack="L1", town=town, learner="wait")), 8)
    # Where one was born makes no difference to who only waits.
    assert survival.std(axis=1).tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(survival[:, 0], residents.REFERENCE["L1"]["wait"], atol=0.5)
    assert worth[3].mean() == pytest.approx(residents.REFERENCE_RETURN["L1"]["wait"], abs=0.5)


def test_a_verdict_asks_that_both_intervals_meet():
    values = np.array([99.0, 101.0] * 50)
    assert residents.compared(values, 100, "random")["agrees"]
    # 0.2 of its own, and of the published mean 0.14 for 200 lives and 0.5 for rounding.
    assert residents.compared(values, 100.8, "random")["agrees"]
    assert not residents.compared(values, 100.9, "random")["agrees"]
    assert "agrees" not in residents.compared(values, None, "random")


def test_the_page_counts_the_verdicts():
    found = residents.compared(np.array([1.0, 3.0]), 2, "rule")
    rows = [
        {"world": "L1", "resident": "rule", "difficulty": k, "survival": found, "return": found}
        for k in residents.DIFFICULTIES
    ]
    document = {"lives": 2, "difficulties": list(residents.DIFFICULTIES), "rows": rows}
    page = residents.markdown(document)
    assert "8 of 8 figures agree" in page
    assert page.splitlines()[-1].startswith("| L1 | rule | 2.0 [")
