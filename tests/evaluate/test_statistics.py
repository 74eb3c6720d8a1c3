"""Intervals over seeds equal those of scipy 1.17 and rliable, whose numbers are written here."""

import json
import math

import numpy as np
import pytest

from outlast.evaluate.statistics import (
    bootstrap_iqm,
    interquartile_mean,
    mean_interval,
    paired_difference,
    summary,
    t_quantile,
    wilson,
)

FIVE = [0.91, 0.95, 0.93, 0.97, 0.9]
SCORES = np.array([[0.1, 0.9, 0.4], [0.2, 0.8, 0.5], [0.15, 0.95, 0.3], [0.3, 0.7, 0.6], [0.25, 0.85, 0.45]])


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (1, 12.706204736174694),
        (2, 4.302652729749462),
        (3, 3.1824463052837078),
        (4, 2.7764451051977934),
        (5, 2.5705818356363146),
        (9, 2.262157162798205),
        (10, 2.228138851986274),
        (29, 2.045229642132703),
        (30, 2.0422724563012378),
        (99, 1.9842169515864174),
        (1000, 1.9623390808264083),
    ],
)
def test_t_quantiles_are_exact(degrees, expected):
    # scipy.stats.t.ppf(0.975, degrees); both are right to about 13 digits.
    assert t_quantile(0.95, degrees) == pytest.approx(expected, rel=1e-12)


def test_t_quantile_at_another_confidence():
    assert t_quantile(0.99, 4) == pytest.approx(4.604094871349992, rel=1e-12)
    with pytest.raises(ValueError, match="confidence 1"):
        t_quantile(1.0, 4)
    with pytest.raises(ValueError, match="0 degrees"):
        t_quantile(0.95, 0)


def test_summary_is_the_t_interval_of_the_mean():
    found = summary(FIVE)
    assert found["mean"] == pytest.approx(0.932, rel=1e-12)
    assert found["ci95"] == pytest.approx([0.8964441541060125, 0.9675558458939876], rel=1e-12)
    assert found["per_seed"] == FIVE


def test_summary_of_one_seed_has_no_interval():
    assert summary([0.5]) == {"mean": 0.5, "ci95": [None, None], "per_seed": [0.5]}
    assert summary([]) == {"mean": None, "ci95": [None, None], "per_seed": []}


def test_a_seed_without_a_value_is_left_out_and_kept_visible():
    with_gap = summary([0.91, None, 0.95, math.nan, 0.93, 0.97, 0.9])
    assert with_gap["ci95"] == summary(FIVE)["ci95"]
    assert with_gap["per_seed"] == [0.91, None, 0.95, None, 0.93, 0.97, 0.9]
    assert summary([None, None]) == {"mean": None, "ci95": [None, None], "per_seed": [None, None]}


def test_bounds_cut_the_interval_only():
    assert summary([1.0, 1.0, 0.9])["ci95"][1] > 1.1
    cut = summary([1.0, 1.0, 0.9], bounds=(0.0, 1.0))
    assert cut["ci95"] == [summary([1.0, 1.0, 0.9])["ci95"][0], 1.0]
    assert cut["mean"] == pytest.approx(29 / 30)


def test_summary_takes_arrays_and_is_strict_json():
    text = json.dumps(summary(np.array([1, np.nan, np.inf], np.float32)), allow_nan=False)
    assert json.loads(text) == {"mean": 1.0, "ci95": [None, None], "per_seed": [1.0, None, None]}


def test_mean_interval_works_column_by_column():
    columns = np.array([FIVE, [1.0, 2.0, math.nan, math.nan, math.nan], [math.nan] * 5]).T
    mean, low, high = mean_interval(columns)
    assert mean[:2] == pytest.approx([0.932, 1.5])
    assert [low[0], high[0]] == summary(FIVE)["ci95"]
    assert high[1] == pytest.approx(1.5 + 12.706204736174694 * 0.5)
    assert np.isnan([mean[2], low[2], high[2]]).all()


def test_the_interval_covers_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(0.3, 2.0, (5, 20_000))
    _, low, high = mean_interval(draws)
    # The standard error of this share is 0.0015.
    assert np.mean((low <= 0.3) & (high >= 0.3)) == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [
        (0, 10, [0.0, 0.27753279986288926]),
        (7, 10, [0.39677814746114526, 0.892208732593699]),
        (10, 10, [0.7224672001371109, 1.0]),
        (930, 1000, [0.9124853518487166, 0.944223635853706]),
        (0, 0, [0.0, 1.0]),
    ],
)
def test_wilson_is_exact(successes, n, expected):
    # scipy.stats.binomtest(successes, n).proportion_ci(0.95, "wilson")
    assert wilson(successes, n) == pytest.approx(expected, rel=1e-12)


def test_wilson_refuses_more_successes_than_trials():
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        wilson(3, 2)


def test_paired_difference_is_the_paired_t_interval():
    # scipy.stats.ttest_rel(a, b).confidence_interval(0.95)
    found = paired_difference(FIVE, [0.88, 0.9, 0.94, 0.91, 0.89])
    assert found["mean"] == pytest.approx(0.028)
    assert found["ci95"] == pytest.approx([-0.007555845893987487, 0.0635558458939875], rel=1e-9)
    assert paired_difference([1.0, None, 3.0], [0.5, 2.0, 2.5])["per_seed"] == [0.5, None, 0.5]
    with pytest.raises(ValueError, match="cannot pair 2 seeds with 1"):
        paired_difference([1.0, 2.0], [1.0])


def test_interquartile_mean_is_the_trimmed_mean_over_runs_and_tasks():
    # scipy.stats.trim_mean(SCORES, 0.25, axis=None), which is rliable's aggregate_iqm
    assert interquartile_mean(SCORES) == pytest.approx(0.47777777777777775, rel=1e-12)
    assert interquartile_mean(np.array([[0.0, 1.0, 2.0, 100.0]])) == 1.5


def test_the_bootstrap_resamples_seeds_within_each_task():
    constant_tasks = np.tile([0.1, 0.4, 0.5, 0.9], (6, 1))
    # Resampling seeds cannot change tasks whose seeds agree; mixing tasks would.
    assert bootstrap_iqm(constant_tasks)["ci95"] == pytest.approx([0.45, 0.45])
    found = bootstrap_iqm(SCORES)
    assert found == bootstrap_iqm(SCORES)
    assert found["ci95"][0] < found["iqm"] < found["ci95"][1]
    assert bootstrap_iqm(SCORES[:1]) == {"iqm": interquartile_mean(SCORES[:1]), "ci95": [None, None]}


def test_the_bootstrap_interval_of_two_seeds_is_known():
    # One task, seeds 0 and 1: a resample has mean 0, 1/2 or 1 with chances 1/4, 1/2, 1/4.
    assert bootstrap_iqm(np.array([[0.0], [1.0]]))["ci95"] == [0.0, 1.0]


def test_the_bootstrap_refuses_a_table_with_holes():
    with pytest.raises(ValueError, match="finite"):
        bootstrap_iqm(np.array([[0.1, np.nan]]))
