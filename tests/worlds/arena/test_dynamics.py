"""Motion: Euler with the old heading, one centred frame, walls that let slide, obstacles that are solid."""

import dataclasses
import functools
from math import cos, hypot, pi, sin

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given

from outlast.worlds.arena.dynamics import moved, wrapped
from outlast.worlds.arena.state import Obstacles

from . import games
from .games import SOLID

DT, HALF, RADIUS = 0.05, 5.0, 0.15
LIMIT = float(np.float32(HALF - RADIUS))
# A step adds a handful of numbers of at most 10 m, whose float32 spacing is 1e-6.
CLOSE = 5e-6

within = st.floats(-LIMIT, LIMIT, width=32)
angles = st.floats(-3.140625, 3.140625, width=32)
poses = st.tuples(within, within, angles)
rounds = st.tuples(within, within, st.floats(0.25, 2.0, width=32))
controls = st.tuples(st.floats(0, 3, width=32), st.floats(-2.75, 2.75, width=32))


@functools.cache
def _mover():
    base = games.level(SOLID)

    def go(pose, control, rounds, size):
        body, wall, obstacle = moved(
            games.body(*pose),
            *control,
            obstacles=Obstacles(rounds[:, 0], rounds[:, 1], rounds[:, 2]),
            level=dataclasses.replace(base, width_m=size[0], height_m=size[1]),
            dt_s=DT,
            radius_m=RADIUS,
        )
        return jnp.stack([body.x_m, body.y_m, body.heading_rad, body.cos, body.sin]), (wall, obstacle)

    return jax.jit(go)


def step(pose, control, *placed, size=(10.0, 10.0)):
    """Move one robot for a step: x, y, heading, wall, obstacle."""
    slots = np.array([*placed, *[(1e6, 1e6, 0.0)] * (3 - len(placed))], np.float32)
    body, (wall, obstacle) = _mover()(np.float32(pose), np.float32(control), slots, np.float32(size))
    x, y, heading, c, s = np.asarray(body).tolist()
    assert (c, s) == pytest.approx((cos(heading), sin(heading)), abs=3e-7)  # an ulp or two near one
    return x, y, heading, bool(wall), bool(obstacle)


@given(poses, controls)
def test_the_step_uses_the_heading_before_the_turn(pose, control):
    (x, y, heading), (speed, turn) = pose, control
    assume(max(abs(x), abs(y)) + speed * DT < LIMIT)
    got = step(pose, control)
    turned = (heading + turn * DT + pi) % (2 * pi) - pi
    expected = (x + speed * cos(heading) * DT, y + speed * sin(heading) * DT)
    assert got[:2] == pytest.approx(expected, abs=CLOSE)
    assert cos(got[2] - turned) == pytest.approx(1.0, abs=1e-9)  # equal up to a whole turn
    assert got[3:] == (False, False)


@given(st.floats(-1e3, 1e3, width=32))
@example(-pi)
@example(pi)
@example(3 * pi)
@example(np.nextafter(np.float32(-pi), np.float32(-4)).item())
def test_angles_wrap_into_the_half_open_turn(angle):
    wrap = float(wrapped(jnp.float32(angle)))
    assert -np.float32(pi) <= wrap < np.float32(pi)
    # The spacing of float32 at 1,000 is 6e-5, and the sum with pi rounds once more.
    assert cos(wrap - angle) == pytest.approx(1.0, abs=1e-8)


@given(poses, controls, st.lists(rounds, max_size=3), st.tuples(*[st.floats(2, 20, width=32)] * 2))
def test_never_outside_the_walls(pose, control, placed, size):
    limits = [np.float32(side) / np.float32(2) - np.float32(RADIUS) for side in size]
    inside = [float(np.clip(p, -limit, limit)) for p, limit in zip(pose, limits, strict=False)]
    x, y, *_ = step((*inside, pose[2]), control, *placed, size=size)
    assert abs(x) <= limits[0]
    assert abs(y) <= limits[1]


@given(poses, controls, rounds)
def test_one_obstacle_away_from_walls_is_never_entered(pose, control, placed):
    x, y, radius = placed
    assume(max(abs(x), abs(y)) + radius < HALF - 2 * RADIUS)  # else the wall may push back in, as specified
    after = step(pose, control, placed)
    assert hypot(after[0] - x, after[1] - y) >= radius + RADIUS - CLOSE


@given(poses, controls, rounds)
def test_contact_is_told_exactly_when_the_motion_would_overlap(pose, control, placed):
    free = step(pose, control)
    depth = placed[2] + RADIUS - hypot(free[0] - placed[0], free[1] - placed[1])
    assume(abs(depth) > CLOSE)
    assert step(pose, control, placed)[4] == (depth > 0)


def test_a_robot_on_the_centre_leaves_along_its_heading():
    x, y, heading, _, touched = step((1.0, 1.0, 0.6), (0.0, 0.0), (1.0, 1.0, 0.5))
    assert (x, y) == pytest.approx((1 + 0.65 * cos(0.6), 1 + 0.65 * sin(0.6)), abs=CLOSE)
    assert (heading, touched) == (pytest.approx(0.6), True)


def pushed_by_the_book(x, y, placed):
    """Resolve contacts as specified, in plain Python: up to three passes over the obstacles in order."""
    for _ in range(3):
        overlapped = False
        for ox, oy, radius in placed:
            distance, reach = hypot(x - ox, y - oy), radius + RADIUS
            if distance < reach:
                overlapped = True
                ux, uy = (
                    ((x - ox) / distance, (y - oy) / distance)
                    if distance > 1e-10
                    else (cos(heading), sin(heading))
                )
                x, y = ox + ux * reach, oy + uy * reach
        if not overlapped:
            break
    return float(np.clip(x, -LIMIT, LIMIT)), float(np.clip(y, -LIMIT, LIMIT))


@given(poses, st.lists(rounds, min_size=2, max_size=3))
def test_crowded_obstacles_push_in_order_and_at_most_three_times(pose, placed):
    at = pose[:2]
    for _ in range(3):  # a centre, or a rim that is just touched, makes the last bit decide
        for ox, oy, radius in placed:
            distance = hypot(at[0] - ox, at[1] - oy)
            assume(distance > 0.05 and abs(distance - radius - RADIUS) > 1e-4)
        at = pushed_by_the_book(*at, placed)
    after = step(pose, (0.0, 0.0), *placed)
    # Each of up to nine pushes divides by a distance of at least 0.05 m.
    assert after[:2] == pytest.approx(pushed_by_the_book(*pose[:2], placed), abs=1e-3)


def test_a_wall_stops_one_coordinate_and_lets_the_other_slide():
    x, y, heading, wall, _ = step((LIMIT, 0.0, pi / 4), (1.0, 0.5))
    assert x == pytest.approx(LIMIT, abs=1e-7)
    assert y == pytest.approx(DT * sin(pi / 4), abs=CLOSE)
    assert heading == pytest.approx(pi / 4 + 0.025, abs=CLOSE)
    assert wall


def test_the_last_clamp_may_leave_a_squeezed_robot_in_the_rim_but_never_in_the_wall():
    x, y, _, wall, touched = step((LIMIT, 0.0, 0.0), (0.0, 0.0), (4.5, 0.0, 0.3))
    assert (x, y) == pytest.approx((LIMIT, 0.0), abs=CLOSE)
    assert (wall, touched) == (False, True)


# The eight symmetries of the square: what they do to a point and to the sense of turning.
SYMMETRIES = {
    f"{turns} quarter turns{', mirrored' if mirror < 0 else ''}": (turns, mirror)
    for turns in range(4)
    for mirror in (1, -1)
}


def image(pose, turns, mirror):
    x, y, heading = pose[0], mirror * pose[1], mirror * pose[2]
    for _ in range(turns):
        x, y, heading = -y, x, heading + pi / 2
    return x, y, (heading + pi) % (2 * pi) - pi


@pytest.mark.parametrize("symmetry", SYMMETRIES)
@given(poses, controls, st.lists(rounds, max_size=2))
def test_one_frame_the_square_arena_has_eight_symmetries(symmetry, pose, control, placed):
    turns, mirror = SYMMETRIES[symmetry]
    free = step(pose, control)
    for x, y, radius in placed:
        # At the centre and at the rim the direction or the flag hangs on the last bit.
        distance = hypot(free[0] - x, free[1] - y)
        assume(distance > 0.01)
        assume(abs(distance - radius - RADIUS) > CLOSE)
    if len(placed) == 2:
        (ax, ay, ar), (bx, by, br) = placed
        assume(hypot(ax - bx, ay - by) > ar + br + 2 * RADIUS)  # pushes from one into the other amplify
    here = step(pose, control, *placed)
    images = [(*image((x, y, 0.0), turns, mirror)[:2], radius) for x, y, radius in placed]
    there = step(image(pose, turns, mirror), (control[0], mirror * control[1]), *images)
    expected = image(here[:3], turns, mirror)
    # A push divides by the distance to the centre, at least 0.01 m: it amplifies roundings of 1e-6 a hundredfold.
    assert there[:2] == pytest.approx(expected[:2], abs=2e-4)
    assert cos(there[2] - expected[2]) == pytest.approx(1.0, abs=1e-9)
    assert there[4] == here[4]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=40))
def test_speed_is_never_exceeded(path):
    pose = (0.0, 0.0, 0.3)
    for a, b in path:
        x, y, heading, *_ = step(pose, ((a + 1) / 2 * 1.5, 2.84 * b))
        assert hypot(x - pose[0], y - pose[1]) <= 1.5 * DT + CLOSE
        pose = (x, y, heading)
