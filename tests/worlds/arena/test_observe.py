"""Observations: their fields, hand numbers, one frame, masks."""

import dataclasses
import itertools
from math import atan2, cos, hypot, pi, sin

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import assume, given

from outlast.worlds.arena import Role, level_of
from outlast.worlds.arena.observe import observation_fields

from . import games
from .games import BOTH, arena, seen

P, E = Role.PURSUER, Role.EVADER
EGO = arena(obstacle_slots=3, observed_obstacles=2)
FLAT = arena(obstacle_slots=3, observed_obstacles=2, observation="absolute")

OPTIONS = list(itertools.product(("absolute", "egocentric"), ("full", "partial"), (True, False), (0, 1, 3)))


@pytest.mark.parametrize(("layout", "mode", "time_to_go", "shown"), OPTIONS)
def test_size_and_fields_for_every_combination(layout, mode, time_to_go, shown):
    world = arena(
        observation=layout,
        sensing={"mode": mode},
        time_to_go=time_to_go,
        observed_obstacles=shown,
        obstacle_slots=3,
    )
    base, per_obstacle, tail = (14, 2, 0) if layout == "absolute" else (13, 4, 1)
    size = base + (mode == "partial") + per_obstacle * shown + time_to_go + tail
    fields = observation_fields(world.config)
    assert len(set(fields)) == len(fields) == world.observation_size == size
    assert ("time to go" in fields) == time_to_go
    assert ("opponent visible" in fields) == (mode == "partial")
    assert [f for f in fields if f.startswith("obstacle")] == fields[
        size - tail - time_to_go - per_obstacle * shown : size - tail - time_to_go
    ]
    first = jax.eval_shape(world.reset, jax.random.key(0), level_of(world.config.level))
    for role in BOTH:
        shape = jax.eval_shape(lambda s, role=role, world=world: world.observe(s, role), first)
        assert (shape.shape, shape.dtype) == ((size,), np.float32)


# One rounding at each of about five operations on numbers of order one.
CLOSE = {"abs": 2e-6}


def test_egocentric_hand_numbers():
    at = games.level(EGO, evader_speed_mps=2.0, width_m=8.0, height_m=6.0, max_steps=100, prep_steps=40)
    state = games.state(
        EGO, (1.0, -1.5, pi / 2, 0.5, -1.42), (-2.0, 2.5, pi, 1.5, 2.84), (1.0, 0.5, 0.5), step=10, at=at
    )
    d, D = 5.0, 10.0
    expected = {
        "own x": 0.25,
        "own y": -0.5,
        "own heading cos": 0.0,
        "own heading sin": 1.0,
        "own speed": 0.5,
        "own turn rate": -0.5,
        "distance": d / D,
        "bearing cos": 4 / 5,  # 4 m ahead (along +y), 3 m to the left (along -x)
        "bearing sin": 3 / 5,
        "opponent heading cos": 0.0,  # it drives to the left of the observer
        "opponent heading sin": 1.0,
        "opponent speed": 0.75,
        "speed ratio": 1.0,
        "obstacle 0 distance": 1.5 / D,
        "obstacle 0 bearing cos": 1.0,
        "obstacle 0 bearing sin": 0.0,
        "obstacle 0 radius": 0.5,
        "obstacle 1 distance": 1.0,
        "obstacle 1 bearing cos": 0.0,
        "obstacle 1 bearing sin": 0.0,
        "obstacle 1 radius": 0.0,
        "time to go": 0.9,
        "preparation left": 0.75,
    }
    assert seen(EGO, state, P) == pytest.approx(expected, **CLOSE)
    other = seen(EGO, state, E)
    assert other["speed ratio"] == pytest.approx(-0.5, **CLOSE)
    assert other["own speed"] == pytest.approx(0.75, **CLOSE)
    # The pursuer is 3 m east and 4 m south of an evader that faces west: behind it, to its left.
    assert (other["bearing cos"], other["bearing sin"]) == pytest.approx((-3 / 5, 4 / 5), **CLOSE)


def test_absolute_layout_from_the_evaders_side():
    at = games.level(FLAT, evader_speed_mps=2.0)
    state = games.state(FLAT, (1.0, -2.0, 0.0, 0.5, 1.42), (-2.0, 2.0, pi / 2, 2.0, -2.84), step=150, at=at)
    mine = seen(FLAT, state, E)
    assert mine["own speed"] == pytest.approx(2.0, **CLOSE)  # the originals scale both by the pursuer's limit
    assert mine["opponent x"] == pytest.approx(0.2, **CLOSE)
    assert mine["opponent turn rate"] == pytest.approx(0.5, **CLOSE)
    assert mine["bearing"] == pytest.approx((atan2(-4, 3) - pi / 2) / pi, **CLOSE)
    assert mine["nearest wall in x"] == pytest.approx(3 / 5, **CLOSE)
    assert mine["time to go"] == pytest.approx(0.75, **CLOSE)


@pytest.mark.parametrize("world", [EGO, FLAT], ids=["egocentric", "absolute"])
def test_obstacles_come_nearest_centre_first(world):
    # The second is nearest by its centre, the first by its surface.
    placed = ((3.0, 0.0, 1.9), (0.0, 2.0, 0.3), (-4.0, 0.0, 0.5))
    state = games.state(world, (0, 0, 0), (0, -4.0, 0), *placed)
    mine = seen(world, state, P)
    diagonal = hypot(10, 10)
    assert mine["obstacle 0 distance"] == pytest.approx(1.7 / diagonal, **CLOSE)
    assert mine["obstacle 1 distance"] == pytest.approx(1.1 / diagonal, **CLOSE)
    theirs = seen(world, state, E)
    assert theirs["obstacle 0 distance"] == pytest.approx((5 - 1.9) / diagonal, **CLOSE)


@pytest.mark.parametrize("world", [EGO, FLAT], ids=["egocentric", "absolute"])
def test_obstacles_at_equal_distance_are_all_seen(world):
    state = games.state(world, (0, 0, 0), (0, -4.0, 0), (2.0, 0.0, 0.5), (-2.0, 0.0, 0.3))
    mine = seen(world, state, P)
    gaps = [mine[f"obstacle {k} distance"] * hypot(10, 10) for k in (0, 1)]
    assert gaps == pytest.approx([1.5, 1.7], abs=1e-5)


points = st.tuples(*[st.floats(-2.0, 2.0, width=32)] * 2)
turns = st.floats(-3.125, 3.125, width=32)


def turned(x, y, by):
    return cos(by) * x - sin(by) * y, sin(by) * x + cos(by) * y


ABSOLUTE_ENTRIES = ("own x", "own y", "own heading cos", "own heading sin")


@given(points, points, turns, turns, st.lists(points, max_size=3), st.floats(-3.125, 3.125, width=32))
def test_turning_the_whole_scene_changes_no_relative_entry(p, e, hp, he, centres, by):
    assume(hypot(p[0] - e[0], p[1] - e[1]) > 0.1)  # a bearing is a division by the distance
    for own in (p, e):
        ranges = sorted(hypot(c[0] - own[0], c[1] - own[1]) for c in centres)
        assume(all(b - a > 1e-4 for a, b in itertools.pairwise([0.0, *ranges])))  # an order that holds
    here = games.state(EGO, (*p, hp), (*e, he), *[(*c, 0.3) for c in centres])
    there = games.state(
        EGO,
        (*turned(*p, by), hp + by),
        (*turned(*e, by), he + by),
        *[(*turned(*c, by), 0.3) for c in centres],
    )
    for role in BOTH:
        a, b = seen(EGO, here, role), seen(EGO, there, role)
        for name in set(a) - set(ABSOLUTE_ENTRIES):
            # Positions are rounded to 2e-7 m by the turn; at 0.1 m that turns a bearing by some 1e-5.
            assert a[name] == pytest.approx(b[name], abs=5e-5 if "0 bearing" not in name else 5e-3)


def sighted(**sensing):
    return arena(obstacle_slots=3, sensing={"mode": "partial", **sensing})


RADIUS_ONLY = sighted(radius_m=3.0, line_of_sight=False)
CONE_ONLY = sighted(cone_deg=90.0, line_of_sight=False)
SIGHT_ONLY = sighted()
ALL = sighted(radius_m=3.0, cone_deg=90.0, evader_sees_all=True)
FACING = (0.0, 0.0, 0.0)
BLOCK = (1.0, 0.0, 0.3)


@pytest.mark.parametrize(
    ("world", "evader", "placed", "visible"),
    [
        (RADIUS_ONLY, (3.0, 0.0), (), True),  # the range is inclusive
        (RADIUS_ONLY, (3.001, 0.0), (), False),
        (RADIUS_ONLY, (-2.0, 0.0), (), True),
        (RADIUS_ONLY, (2.0, 0.0), (BLOCK,), True),
        (CONE_ONLY, (4.0, 3.99), (), True),
        (CONE_ONLY, (4.0, -3.99), (), True),
        (CONE_ONLY, (4.0, 4.01), (), False),
        (CONE_ONLY, (-4.0, 0.0), (), False),
        (CONE_ONLY, (4.0, 0.0), (BLOCK,), True),
        (SIGHT_ONLY, (4.0, 0.0), (BLOCK,), False),
        (SIGHT_ONLY, (4.0, 0.0), ((1.0, 0.31, 0.3),), True),
        (SIGHT_ONLY, (4.0, 0.0), ((1.0, 0.29, 0.3),), False),
        (SIGHT_ONLY, (0.5, 0.0), ((1.0, 0.0, 0.3),), True),  # behind the target
        (SIGHT_ONLY, (4.0, 0.0), ((-1.0, 0.0, 0.3),), True),  # behind the observer
        (SIGHT_ONLY, (-4.0, 0.0), (), True),
        (ALL, (2.0, 0.0), (), True),
        (ALL, (2.0, 0.0), (BLOCK,), False),
        (ALL, (4.0, 0.0), (), False),
        (ALL, (0.0, 2.0), (), False),
    ],
)
def test_what_the_pursuer_sees(world, evader, placed, visible):
    state = games.state(world, (*FACING, 0.5, 1.0), (*evader, 1.0, 0.5, 1.0), *placed)
    mine = seen(world, state, P)
    assert mine["opponent visible"] == float(visible)
    opponent = ("distance", "bearing cos", "bearing sin", "opponent heading cos", "opponent heading sin")
    shown = [mine[name] for name in (*opponent, "opponent speed")]
    if visible:
        assert mine["distance"] == pytest.approx(hypot(*evader) / hypot(10, 10), **CLOSE)
        assert mine["opponent speed"] == pytest.approx(0.5, **CLOSE)
    else:
        assert shown == [0.0] * 6
    assert mine["own speed"] == 0.5  # what is one's own is never masked


def test_the_evader_uses_its_own_pose_unless_it_sees_all():
    behind = games.state(CONE_ONLY, (0, 0, 0), (2.0, 0.0, 0.0))
    assert seen(CONE_ONLY, behind, P)["opponent visible"] == 1.0
    assert seen(CONE_ONLY, behind, E)["opponent visible"] == 0.0
    hidden = games.state(ALL, (0, 0, 0), (4.5, 0.0, 0.0), BLOCK)
    assert seen(ALL, hidden, P)["opponent visible"] == 0.0
    assert seen(ALL, hidden, E)["opponent visible"] == 1.0
    assert seen(ALL, hidden, E)["distance"] > 0.3


def test_with_full_sight_nothing_is_masked():
    world = arena(obstacle_slots=3)
    state = games.state(world, (0, 0, 0), (-4.0, 0.0, 0.0), (-1.0, 0.0, 0.5))
    assert seen(world, state, P)["bearing cos"] == pytest.approx(-1.0, **CLOSE)


def clear_by_the_book(a, b, centre, radius):
    ts = np.linspace(0, 1, 2001)[:, None]
    line = np.asarray(a) * (1 - ts) + np.asarray(b) * ts
    return float(np.hypot(*(line - np.asarray(centre)).T).min()) - radius


@given(points, points, points, st.floats(0.0625, 1.0, width=32))
def test_line_of_sight_is_the_distance_of_the_segment(p, e, centre, radius):
    assume(hypot(p[0] - e[0], p[1] - e[1]) > 1e-3)
    margin = clear_by_the_book(p, e, centre, radius)
    assume(abs(margin) > 1e-3)  # sampling the segment every 3 mm errs by less than this at 6 cm
    state = games.state(SIGHT_ONLY, (*p, 0.0), (*e, 0.0), (*centre, radius))
    assert bool(state.sight_clear) == (margin > 0)


def test_robots_on_the_same_spot_see_each_other():
    state = games.state(SIGHT_ONLY, (0, 0, 0), (0, 0, 0), (0.1, 0.0, 0.5))
    assert seen(SIGHT_ONLY, state, P)["opponent visible"] == 1.0
    assert all(np.isfinite(list(seen(EGO, games.state(EGO, (0, 0, 0), (0, 0, 0)), P).values())))


def test_time_to_go_falls_from_one_to_zero():
    for n, left in ((0, 1.0), (300, 0.5), (600, 0.0)):
        assert seen(EGO, games.state(EGO, step=n), P)["time to go"] == pytest.approx(left, **CLOSE)
    at = games.level(EGO, prep_steps=0)
    assert seen(EGO, games.state(EGO, at=at), P)["preparation left"] == 0.0
    late = dataclasses.replace(games.level(EGO), prep_steps=np.int32(10))
    assert seen(EGO, games.state(EGO, step=11, at=late), P)["preparation left"] == 0.0
