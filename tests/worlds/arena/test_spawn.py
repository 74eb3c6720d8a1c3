"""Where games begin: obstacles with margins, distances in the band by either law, and never outside."""

import functools

import jax
import numpy as np
import pytest
from scipy import stats

from outlast.worlds.arena.dynamics import wrapped

from . import games
from .games import arena

N = 2048
RADIUS, MARGIN = 0.15, 0.5
# Starts may miss the band by the float32 rounding that the world forgives itself.
ROUNDING_M = 2e-4
BANDS = {"10 m arena": {}, "RA": games.RA_LEVEL | {"obstacles_min": 0, "obstacles_max": 3}}
LAWS = ("distance", "area")


@functools.cache
def world_of(law):
    return arena(obstacle_slots=3, spawn=law)


@functools.cache
def drawn(law, band="10 m arena", **changes):
    """Draw many first states; numpy leaves with the world axis last."""
    world = world_of(law)
    at = games.level(world, **(BANDS[band] | changes))
    return jax.tree.map(np.asarray, games.resets(world)(jax.random.split(jax.random.key(7), N), at))


def positions(state):
    return ((b.x_m, b.y_m) for b in (state.pursuer, state.evader))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("band", BANDS)
def test_distances_stay_in_the_band_and_robots_in_the_arena(law, band):
    state = drawn(law, band)
    level = games.level(world_of(law), **BANDS[band])
    distance = np.hypot(state.evader.x_m - state.pursuer.x_m, state.evader.y_m - state.pursuer.y_m)
    assert distance == pytest.approx(state.distance_m, abs=1e-5)
    assert distance.min() >= float(level.spawn_min_m) - ROUNDING_M
    assert distance.max() <= float(level.spawn_max_m) + ROUNDING_M
    for x, y in positions(state):
        assert np.abs(x).max() <= float(level.width_m) / 2 - RADIUS
        assert np.abs(y).max() <= float(level.height_m) / 2 - RADIUS


# The Kolmogorov-Smirnov distance of a true sample passes 1.95 / sqrt(n) once in a thousand times; keys are fixed.
ONE_IN_A_THOUSAND = 1.95


@pytest.mark.parametrize("band", BANDS)
def test_the_distance_law_is_uniform_over_the_band(band):
    state = drawn("distance", band)
    low, high = float(state.level.spawn_min_m[0]), float(state.level.spawn_max_m[0])
    statistic = stats.kstest(state.distance_m, stats.uniform(low, high - low).cdf).statistic
    assert statistic < ONE_IN_A_THOUSAND / np.sqrt(N)


def test_the_area_law_is_uniform_positions_given_the_band():
    state = drawn("area", obstacles_max=0)
    limit = 5.0 - RADIUS
    rng = np.random.default_rng(0)
    points = rng.uniform(-limit, limit, (200_000, 4))
    apart = np.hypot(points[:, 0] - points[:, 2], points[:, 1] - points[:, 3])
    kept = apart[(apart >= 2) & (apart <= 10)]
    assert stats.ks_2samp(state.distance_m, kept).statistic < ONE_IN_A_THOUSAND * np.sqrt(
        1 / N + 1 / len(kept)
    )
    # And it is not the other law.
    assert stats.kstest(state.distance_m, stats.uniform(2, 8).cdf).statistic > 0.1


@pytest.mark.parametrize("law", LAWS)
def test_headings_are_uniform_and_independent(law):
    state = drawn(law)
    for heading in (state.pursuer.heading_rad, state.evader.heading_rad):
        statistic = stats.kstest(heading, stats.uniform(-np.pi, 2 * np.pi).cdf).statistic
        assert statistic < ONE_IN_A_THOUSAND / np.sqrt(N)
        assert heading == pytest.approx(np.asarray(wrapped(heading)), abs=1e-6)
    gap = np.mod(state.pursuer.heading_rad - state.evader.heading_rad, 2 * np.pi)
    assert stats.kstest(gap, stats.uniform(0, 2 * np.pi).cdf).statistic < ONE_IN_A_THOUSAND / np.sqrt(N)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("band", BANDS)
def test_robots_start_clear_of_obstacles(law, band):
    state = drawn(law, band, obstacles_max=3)
    for x, y in positions(state):
        centre = np.hypot(state.obstacles.x_m - x, state.obstacles.y_m - y)
        gap = np.where(state.obstacles.radius_m > 0, centre - state.obstacles.radius_m - RADIUS, np.inf)
        assert gap.min() >= -1e-5


def test_obstacles_keep_their_margins_and_radii():
    obstacles = drawn("distance", obstacles_min=3, obstacles_max=3).obstacles
    x, y, r = obstacles.x_m, obstacles.y_m, obstacles.radius_m
    assert (r > 0).all()  # three always fit into 10 x 10 m
    assert r.min() >= 0.3
    assert r.max() <= 1.0
    assert (np.abs(x) + r).max() <= 5.0 - MARGIN + 1e-5
    assert (np.abs(y) + r).max() <= 5.0 - MARGIN + 1e-5
    for i, j in ((0, 1), (0, 2), (1, 2)):
        edges = np.hypot(x[i] - x[j], y[i] - y[j]) - r[i] - r[j]
        assert edges.min() >= MARGIN - 1e-5
    # The first is free of its neighbours: uniform radius, and centre uniform in what the radius leaves.
    assert stats.kstest(r[0], stats.uniform(0.3, 0.7).cdf).statistic < ONE_IN_A_THOUSAND / np.sqrt(N)
    share = x[0] / (5.0 - MARGIN - r[0])
    assert stats.kstest(share, stats.uniform(-1, 2).cdf).statistic < ONE_IN_A_THOUSAND / np.sqrt(N)


@pytest.mark.parametrize(("low", "high"), [(0, 3), (1, 2), (2, 2), (0, 0)])
def test_the_count_of_obstacles_is_uniform_and_inclusive(low, high):
    radius = drawn("distance", obstacles_min=low, obstacles_max=high).obstacles.radius_m
    counts = np.bincount((radius > 0).sum(axis=0), minlength=4)
    expected = np.zeros(4)
    expected[low : high + 1] = N / (high - low + 1)
    assert (counts[expected == 0] == 0).all()
    kinds = high - low + 1
    if kinds > 1:
        statistic = ((counts - expected)[expected > 0] ** 2 / expected[expected > 0]).sum()
        assert statistic < stats.chi2(kinds - 1).ppf(0.999)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "changes",
    [
        {"spawn_min_m": 50.0, "spawn_max_m": 60.0},
        {"spawn_min_m": 0.0, "spawn_max_m": 0.0},
        {"width_m": 2.0, "height_m": 2.0, "spawn_min_m": 5.0, "obstacles_min": 3, "obstacles_max": 3},
    ],
    ids=["too far", "on the same spot", "no room"],
)
def test_an_impossible_level_falls_back_to_a_start_inside_the_arena(law, changes):
    state = drawn(law, **changes)
    half = {"x": changes.get("width_m", 10.0) / 2, "y": changes.get("height_m", 10.0) / 2}
    for x, y in positions(state):
        assert np.abs(x).max() <= half["x"] - RADIUS + 1e-6
        assert np.abs(y).max() <= half["y"] - RADIUS + 1e-6
    # The best of 1,024 tries: about as far (or near) as the arena allows, not just anywhere.
    reach = np.hypot(2 * half["x"] - 2 * RADIUS, 2 * half["y"] - 2 * RADIUS)
    if changes["spawn_min_m"] > reach:
        assert np.median(state.distance_m) > 0.8 * reach
    else:
        assert np.median(state.distance_m) < 0.3


def test_obstacles_that_do_not_fit_are_left_out():
    # Centres of the smallest obstacle have 2.6 - 2 (0.3 + 0.5) = 1 m of play, and two need 1.1 m between them
    # along a diagonal of 1.41 m; a third would be 1.1 m from both.
    side = {"width_m": 2.6, "height_m": 2.6}
    radius = drawn("distance", **side, obstacles_min=3, obstacles_max=3).obstacles.radius_m
    counts = np.bincount((radius > 0).sum(axis=0), minlength=4)
    assert counts[3] == 0
    assert counts[1] > 0
    # Slots fill from the front, so a gap never hides an obstacle behind an empty slot.
    assert ((radius[:-1] > 0) | (radius[1:] == 0)).all()


def test_the_first_state_is_at_rest_at_step_zero():
    state = drawn("distance")
    assert (state.step == 0).all()
    for robot in (state.pursuer, state.evader):
        assert (robot.speed_mps == 0).all()
        assert (robot.turn_radps == 0).all()
