"""Curves equal sums worked out by hand: rates are captures over episodes, never means of means."""

import numpy as np
import pytest
from made_runs import write_group, write_lines

from outlast.report import curves
from outlast.report.read import read_run

CAPTURES, LENGTH = curves.QUANTITIES[0], curves.QUANTITIES[1]
ENTROPY = next(q for q in curves.QUANTITIES if q.name == "entropy")
LINES = [
    # steps, episodes, captures, episode/steps, entropy: one value per seed
    (10, [1, 0], [1, 0], [100, None], [2.0, 4.0]),
    (20, [9, 4], [0, 2], [200, 50], [1.0, None]),
    (30, [0, 2], [0, 2], [None, 80], [0.5, 3.0]),
    (40, [4, 0], [1, 0], [60, None], [0.5, 1.0]),
]


@pytest.fixture
def record(tmp_path):
    write_group(tmp_path / "small", [0, 1])
    write_lines(
        tmp_path / "small/metrics.jsonl",
        [
            {
                "iteration": steps // 10,
                "steps": steps,
                "metrics": {
                    "episodes": n,
                    "captures": c,
                    "episode/steps": length,
                    "learner/entropy": entropy,
                    "episodes/orbit": n,
                    "captures/orbit": c,
                },
            }
            for steps, n, c, length, entropy in LINES
        ],
    )
    return read_run(tmp_path / "small")


EDGES = np.array([0, 20, 40])


def test_a_rate_is_captures_over_episodes_of_the_bin(record):
    curve = curves.curve(record, CAPTURES, EDGES)
    assert curve.steps.tolist() == [10, 30]
    # Seed 0: 1 of 10 and 1 of 4; the mean of the means would be 1/2. Seed 1: 2 of 4 and 2 of 2.
    np.testing.assert_allclose(curve.per_seed, [[0.1, 0.25], [0.5, 1.0]])
    np.testing.assert_allclose(curve.mean, [0.3, 0.625])
    # t(1) = 12.706 times the standard error 0.2 leaves the possible range on both sides.
    np.testing.assert_allclose([curve.low, curve.high], [[0, 0], [1, 1]])


def test_a_mean_over_episodes_is_weighted_by_episodes(record):
    curve = curves.curve(record, LENGTH, EDGES)
    np.testing.assert_allclose(curve.per_seed, [[190, 60], [50, 80]])
    np.testing.assert_allclose(curve.high[0], 120 + 12.706204736174694 * 70)


def test_a_measure_of_the_learner_is_a_mean_over_iterations(record):
    np.testing.assert_allclose(curves.curve(record, ENTROPY, EDGES).per_seed, [[1.5, 0.5], [4.0, 2.0]])


def test_a_bin_without_episodes_is_a_gap_and_the_others_make_the_mean(record):
    curve = curves.curve(record, CAPTURES, np.array([0, 10, 20, 30, 40]))
    nan = np.nan
    np.testing.assert_allclose(curve.per_seed, [[1, 0, nan, 0.25], [nan, 0.5, 1, nan]])
    np.testing.assert_allclose(curve.mean, [1, 0.25, 1, 0.25])
    assert np.isnan(curve.low).tolist() == [True, False, True, True]


def test_the_final_value_is_that_of_the_last_tenth(record):
    assert curves.final(record, CAPTURES)["per_seed"] == [0.25, None]
    assert curves.final(record, ENTROPY)["per_seed"] == [0.5, 1.0]


def test_every_opponent_has_a_curve(record):
    assert curves.opponents(record) == ["orbit"]
    names = [quantity.name for quantity in curves.quantities(record)]
    assert names == ["capture_rate", "episode_steps", "entropy", "capture_rate/orbit"]


def test_bins_hold_whole_iterations(run, record):
    edges = curves.bin_edges([read_run(run)])
    # 123 iterations of 16,384 steps do not fit 60 bins of two, so each bin has three.
    assert edges.tolist() == [3 * 16_384 * i for i in range(42)]
    assert curves.bin_edges([record]).tolist() == [0, 10, 20, 30, 40]
    assert curves.bin_edges([read_run(run), record]).tolist() == edges.tolist()
