"""The conformance vectors V1 to V8 and V18 of the specification, through the world's own step."""

import dataclasses
from math import pi

import numpy as np
import pytest

from . import games
from .games import RA, SOLID, arena, play

# The vectors are given to six or seven digits; a float32 of their size is exact to about one more.
SIX_DIGITS = {"rel": 2e-6, "abs": 1e-6}


def test_v1_a_step_into_the_wall_slides_and_keeps_turning():
    world = SOLID
    wide = games.level(world, width_m=20.0, height_m=20.0)
    first = games.state(world, (9.83, 0.0, 0.3), (-5.0, 0.0, 0.0), at=wide)
    after, turn = games.step(world)(first, games.commands(pursuer=(1.0, 1.0)))
    pose = (float(after.pursuer.x_m), float(after.pursuer.y_m), float(after.pursuer.heading_rad))
    assert pose == pytest.approx((9.85, 0.014776, 0.35), **SIX_DIGITS)
    assert bool(turn.contacts.pursuer_wall)
    assert not bool(turn.contacts.evader_wall)


def test_v2_an_obstacle_pushes_out_along_the_radius_and_keeps_the_heading():
    first = games.state(SOLID, (0.6, 0.0, 0.7), (-3.0, 0.0, 0.0), (1.0, 0.0, 0.5))
    after, turn = games.step(SOLID)(first, games.commands())
    pose = (float(after.pursuer.x_m), float(after.pursuer.y_m), float(after.pursuer.heading_rad))
    assert pose == pytest.approx((0.35, 0.0, 0.7), **SIX_DIGITS)
    assert bool(turn.contacts.pursuer_obstacle)
    assert not bool(turn.contacts.evader_obstacle)


V3 = [0.2, -0.3, 0.5, 0.5, -0.5, -0.4, 0.5, 0, 1.15, 0, 0.353553, 0.204833, 0.8, 0.7]
V3_OBSTACLES = [0.159099, -0.204833, 1, 0]


def v3_state(world):
    return games.state(world, (2.0, -3.0, pi / 2, 0.5, -1.42), (-4.0, 5.0, 0.0, 1.15, 0.0), (5.0, 1.0, 0.5))


def test_v3_full_observation():
    assert np.asarray(games.observe(RA)(v3_state(RA))[0]) == pytest.approx(V3 + V3_OBSTACLES, **SIX_DIGITS)


def test_v4_masked_observation():
    world = arena(**games.RA_FIXED, sensing={"mode": "partial", "radius_m": 3.0})
    masked = np.asarray(games.observe(world)(v3_state(world))[0])
    expected = V3[:5] + [0.0] * 7 + V3[12:] + [0.0] + V3_OBSTACLES
    assert masked.shape == (19,)
    assert masked == pytest.approx(expected, **SIX_DIGITS)


def rewards_of(world, first, **told):
    _, (turn,) = play(world, first, **told)
    return float(turn.pursuer_reward), float(turn.evader_reward)


# Distances of about 6 m carry a rounding of 5e-7 m; over the diagonal and times 50 that is 1e-6 of reward.
REWARD = {"abs": 3e-6}


def test_v5_hidden_evader_that_nears_pursuer_and_obstacle():
    first = games.state(RA, (0, 0, 0), (6.05, 0.0, pi), (3.5, 0.0, 0.5), step=60)
    assert rewards_of(RA, first, evader=(1.0, 0.0)) == pytest.approx((0.0017678, 0.2083883), **REWARD)


def test_v6_the_same_in_sight():
    fast = games.level(RA, pursuer_speed_mps=2.0)
    first = games.state(RA, (0, 0, 0), (6.05, 0.0, 0.0), (8.6, 0.0, 0.5), step=60, at=fast)
    told = {"pursuer": (2.0, 0.0), "evader": (1.0, 0.0)}
    assert rewards_of(RA, first, **told) == pytest.approx((0.0017678, 0.0083883), **REWARD)


def test_v7_capture():
    first = games.state(RA, (0, 0, 0), (0.52, 0.0, pi), (5.0, 5.0, 0.5), step=60)
    pursuer, evader = rewards_of(RA, first, evader=(0.6, 0.0))
    assert (pursuer, evader) == pytest.approx((10.0010607, -10.0010607), **SIX_DIGITS)


def test_v8_timeout_without_motion():
    first = games.state(RA, (0, 0, 0), (6.0, 0.0, 0.0), (3.0, 0.0, 0.5), step=599)
    assert rewards_of(RA, first) == (-10.0, 10.0)


SEARCH = arena(
    reward={"search": 1.0},
    sensing={"mode": "partial", "radius_m": 3.0},
    level={"pursuer_speed_mps": 1.0},
)


def test_v18_staleness_of_the_ground_around_the_centre():
    state = games.state(SEARCH, (0, 0, 0), (4.5, 4.5, 0.0))
    state, turns = play(SEARCH, state, n=1)
    assert float(turns[0].pursuer_reward) == 1.0
    assert int(np.sum(np.asarray(state.last_seen) == 1)) == 32
    # Nobody looks for nine steps; then the pursuer looks again, at step 11.
    aside = dataclasses.replace(state, step=state.step + 9)
    after, (turn,) = play(SEARCH, aside, n=1)
    assert int(after.step) == 11
    assert float(turn.pursuer_reward) == pytest.approx(0.2, abs=1e-7)
    assert int(np.sum(np.asarray(after.last_seen) == 11)) == 32
    assert int(np.sum(np.asarray(after.last_seen) == -50)) == 68
