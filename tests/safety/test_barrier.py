"""Barriers: the conformance vectors V9 to V17 and V22, the geometry of any arena, robots driven through the filter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.safety import barrier
from outlast.safety.barrier import (
    Pose,
    circle_rows,
    half_planes,
    join,
    pose_at,
    robot_row,
    robot_row_between_points,
    segment_rows,
    smallest_margin_m,
    wall_rows,
)
from outlast.safety.qp import Status, analytic_box, exact_box, project, residual

LIMITS = {"low": jnp.array([0.0, -2.84]), "high": jnp.array([1.0, 2.84])}
STRAIGHT = {"low": jnp.array([0.0, 0.0]), "high": jnp.array([1.0, 0.0])}
"""No turning: a filter that may turn is pushed off the symmetric line by rounding, and drives round."""
DT_S = 0.05
POINT_M = 0.1
PRINTED = 6e-7
"""The vectors are printed to six decimals; float32 adds one part in ten million."""
SETTLED = 3e-5
"""Half the last decimal of a printed command, and the tolerance of the projection: 4e-6 of 6.7 in weighted units."""

ahead = pose_at(x_m=0.0, y_m=0.0, heading_rad=0.0)
coordinate = st.floats(-8.0, 8.0, width=32)
angle = st.floats(-3.0, 3.0, width=32)
size = st.floats(2.0, 40.0, width=32)
quick = settings(max_examples=40)
project_one = jax.jit(project)


def circle(x_m, y_m, pose=ahead, *, radius_m=0.5, active=True):
    return circle_rows(
        pose,
        x_m=jnp.array([x_m], jnp.float32),
        y_m=jnp.array([y_m], jnp.float32),
        radius_m=jnp.array([radius_m], jnp.float32),
        clearance_m=0.15,
        point_m=POINT_M,
        active=jnp.array([active]),
    )


def triple(rows):
    return np.array([rows.h, rows.a_v, rows.a_w])[:, 0]


def filtered(rows, *, kappa_per_s, nominal=(1.0, 0.0)):
    return project_one(jnp.array(nominal), half_planes(rows, kappa_per_s=kappa_per_s), **LIMITS).command


@pytest.mark.parametrize(
    ("vector", "y_m", "expected"), [("V9", 0.0, (0.2175, -1.6, 0.0)), ("V10", 0.2, (0.2575, -1.6, -0.04))]
)
def test_v9_v10_circle(vector, y_m, expected):
    np.testing.assert_allclose(triple(circle(0.9, y_m)), expected, atol=PRINTED, err_msg=vector)


@pytest.mark.parametrize(
    ("vector", "y_m", "kappa_per_s", "expected"),
    [
        ("V11", 0.0, 0.2 / DT_S, (0.54375, 0.0)),
        ("V12", 0.0, 1.0, (0.1359375, 0.0)),
        ("V13", 0.2, 0.2 / DT_S, (0.674286, -1.221429)),
        ("V14", 0.2, 1.0, (0.231938, -2.84)),
    ],
)
def test_v11_to_v14_filter(vector, y_m, kappa_per_s, expected):
    command = filtered(circle(0.9, y_m), kappa_per_s=kappa_per_s)
    np.testing.assert_allclose(command, expected, atol=SETTLED, err_msg=vector)


def test_v15_wall():
    pose = pose_at(x_m=9.6, y_m=0.0, heading_rad=0.0)
    rows = wall_rows(pose, width_m=20.0, height_m=20.0, clearance_m=0.15, point_m=POINT_M)
    # A coordinate of 10 carries a float32 rounding of 1e-6.
    np.testing.assert_allclose(triple(rows), [0.15, -1.0, 0.0], atol=2e-6)
    command = filtered(rows, kappa_per_s=barrier.kappa_of(0.2, dt_s=DT_S))
    np.testing.assert_allclose(command, [0.6, 0.0], atol=SETTLED)


def test_v16_robots_between_their_control_points():
    other = pose_at(x_m=0.6, y_m=0.0, heading_rad=np.pi)
    row = robot_row_between_points(ahead, other=other, separation_m=0.35, point_m=POINT_M)
    np.testing.assert_allclose(triple(row), [0.0375, -0.8, 0.0], atol=PRINTED)


@pytest.mark.parametrize("box", [exact_box, analytic_box])
def test_v17_safe_box(box):
    low, high, some = jax.jit(box)(half_planes(circle(0.9, 0.2), kappa_per_s=1.0), **LIMITS)
    assert some
    np.testing.assert_allclose(low, [0.0, -2.84], atol=SETTLED)
    np.testing.assert_allclose(high, [0.231938, 2.84], atol=SETTLED)


def test_v22_rates():
    assert barrier.kappa_of(0.2, dt_s=DT_S) == pytest.approx(4.0, rel=1e-12)
    assert barrier.gamma_of(4.0, dt_s=DT_S) == pytest.approx(0.2, rel=1e-12)


def moving(pose, command):
    """Return the rate of change of a pose under a command."""
    v, w = command
    return Pose(v * pose.cos, v * pose.sin, -w * pose.sin, w * pose.cos)


def every_row(pose, *, width_m=11.0, height_m=7.0):
    """One set with all kinds of rows, far enough from each other to be generic."""
    place = {"x_m": jnp.array([1.3, -4.0]), "y_m": jnp.array([0.7, 2.5]), "radius_m": jnp.array([0.5, 1.0])}
    ends = {"start_x_m": -3.1, "start_y_m": -2.2, "end_x_m": 2.4, "end_y_m": -1.7}
    both = jnp.ones(2, bool)
    other = pose_at(x_m=2.9, y_m=3.3, heading_rad=0.4)
    return join(
        wall_rows(pose, width_m=width_m, height_m=height_m, clearance_m=0.2, point_m=POINT_M),
        circle_rows(pose, **place, clearance_m=0.15, point_m=POINT_M, active=both),
        segment_rows(
            pose,
            **{name: jnp.array([value]) for name, value in ends.items()},
            clearance_m=0.25,
            point_m=POINT_M,
            active=jnp.ones(1, bool),
        ),
        robot_row(pose, other_x_m=2.9, other_y_m=3.3, separation_m=0.35),
        robot_row_between_points(pose, other=other, separation_m=0.35, point_m=POINT_M),
    )


@jax.jit
def rates(pose, command):
    """Return the rates that the rows state, the true rates of h and of the margin, and the rows."""
    rows = every_row(pose)
    _, change = jax.jvp(every_row_numbers, (pose,), (moving(pose, command),))
    return rows.a_v * command[0] + rows.a_w * command[1], change, rows


def every_row_numbers(pose):
    rows = every_row(pose)
    return rows.h, rows.margin_m


@quick
@given(coordinate, coordinate, angle, st.floats(0.0, 1.25, width=32), st.floats(-2.75, 2.75, width=32))
def test_rows_state_the_rate_of_change_of_h(x_m, y_m, heading_rad, v, w):
    pose = pose_at(x_m=x_m, y_m=y_m, heading_rad=heading_rad)
    stated, (true_h, true_margin), rows = rates(pose, jnp.array([v, w]))
    # Offsets up to 15 m, doubled, times 1.5 m/s: float32 keeps 1e-5 of it.
    np.testing.assert_allclose(stated, true_h, atol=1e-4)
    # h and its margin vanish together, and away from the boundary have one sign.
    assert np.all(np.sign(rows.h) == np.sign(rows.margin_m))
    reach_m = np.array([0.65, 1.15, 0.25, 0.35, 0.35])
    margin = np.float64(rows.margin_m[4:])
    np.testing.assert_allclose(rows.h[4:], margin * (margin + 2 * reach_m), atol=1e-4)
    np.testing.assert_allclose(true_h[4:], 2 * (margin + reach_m) * true_margin[4:], atol=1e-3)
    np.testing.assert_array_equal(rows.h[:4], rows.margin_m[:4])


@quick
@given(size, size, angle, st.floats(-0.49, 0.49), st.floats(-0.49, 0.49))
def test_walls_are_where_the_arena_ends_whatever_its_size(width_m, height_m, heading_rad, across, along):
    """A ray from the control point along +x meets the right wall after W/2 - x, less the clearance; and so on."""
    pose = pose_at(x_m=across * width_m, y_m=along * height_m, heading_rad=heading_rad)
    rows = wall_rows(pose, width_m=width_m, height_m=height_m, clearance_m=0.15, point_m=POINT_M)
    x_m = across * width_m + POINT_M * np.cos(heading_rad)
    y_m = along * height_m + POINT_M * np.sin(heading_rad)
    rays = [width_m / 2 - x_m, x_m + width_m / 2, height_m / 2 - y_m, y_m + height_m / 2]
    np.testing.assert_allclose(rows.h, np.array(rays) - 0.15, atol=1e-5)  # 40 m in float32 is good to 4e-6
    np.testing.assert_allclose(rows.h[0] + rows.h[1], width_m - 0.3, atol=1e-5)


@quick
@given(coordinate, coordinate, angle, size, size)
def test_a_quarter_turn_of_the_world_turns_the_walls(x_m, y_m, heading_rad, width_m, height_m):
    rows = wall_rows(
        pose_at(x_m=x_m, y_m=y_m, heading_rad=heading_rad),
        width_m=width_m, height_m=height_m, clearance_m=0.15, point_m=POINT_M,
    )  # fmt: skip
    turned = wall_rows(
        pose_at(x_m=-y_m, y_m=x_m, heading_rad=heading_rad + np.pi / 2),
        width_m=height_m, height_m=width_m, clearance_m=0.15, point_m=POINT_M,
    )  # fmt: skip
    order = np.array([2, 3, 1, 0])  # right becomes top, left bottom, top left, bottom right
    for name in ("h", "a_v", "a_w"):
        np.testing.assert_allclose(getattr(turned, name)[order], getattr(rows, name), atol=1e-5)


@quick
@given(coordinate, coordinate, angle, coordinate, coordinate, angle)
def test_circles_and_segments_do_not_care_where_north_is(x_m, y_m, heading_rad, end_x_m, end_y_m, turn_rad):
    """Rotating the world leaves every number; mirroring it changes the sign of a_w only."""

    def rows(points, heading):
        (own_x, own_y), (a_x, a_y), (b_x, b_y) = points
        pose = pose_at(x_m=own_x, y_m=own_y, heading_rad=heading)
        segment = {"start_x_m": a_x, "start_y_m": a_y, "end_x_m": b_x, "end_y_m": b_y}
        return join(
            circle(a_x, a_y, pose),
            segment_rows(
                pose,
                **{name: jnp.array([value], jnp.float32) for name, value in segment.items()},
                clearance_m=0.25, point_m=POINT_M, active=jnp.ones(1, bool),
            ),
            robot_row(pose, other_x_m=b_x, other_y_m=b_y, separation_m=0.35),
        )  # fmt: skip

    points = np.array([[x_m, y_m], [1.7, -0.4], [end_x_m, end_y_m]])
    cos, sin = np.cos(turn_rad), np.sin(turn_rad)
    here = rows(points, heading_rad)
    turned = rows(points @ np.array([[cos, sin], [-sin, cos]]), heading_rad + turn_rad)
    mirrored = rows(points * [1.0, -1.0], -heading_rad)
    for name, sign in [("h", 1), ("a_v", 1), ("a_w", -1), ("margin_m", 1)]:
        value = getattr(here, name)
        # Squares of up to 25 m, each rounded to 1e-7 of itself.
        np.testing.assert_allclose(getattr(turned, name), value, atol=5e-4)
        np.testing.assert_allclose(getattr(mirrored, name) * sign, value, atol=5e-4)


@quick
@given(coordinate, coordinate, angle, st.floats(0.0, 1.0))
def test_a_segment_is_as_near_as_its_nearest_point(x_m, y_m, heading_rad, share):
    pose = pose_at(x_m=x_m, y_m=y_m, heading_rad=heading_rad)

    def segment(end_x, end_y):
        ends = {"start_x_m": 1.0, "start_y_m": 2.0, "end_x_m": end_x, "end_y_m": end_y}
        return segment_rows(
            pose, **{n: jnp.array([v]) for n, v in ends.items()}, clearance_m=0.25, point_m=POINT_M,
            active=jnp.ones(1, bool),
        )  # fmt: skip

    long, point = segment(-3.0, 5.0), segment(1.0, 2.0)
    own = np.array(barrier.control_point(pose, point_m=POINT_M), np.float64)
    on_it = np.array([1.0, 2.0]) + share * np.array([-4.0, 3.0])
    assert long.margin_m[0] <= np.linalg.norm(own - on_it) - 0.25 + 1e-5
    along = np.clip(np.dot(own - [1.0, 2.0], [-4.0, 3.0]) / 25.0, 0.0, 1.0)
    nearest = np.array([1.0, 2.0]) + along * np.array([-4.0, 3.0])
    np.testing.assert_allclose(long.margin_m[0], np.linalg.norm(own - nearest) - 0.25, atol=1e-5)
    np.testing.assert_allclose(point.margin_m[0], np.linalg.norm(own - [1.0, 2.0]) - 0.25, atol=1e-5)


def test_padding_binds_nothing():
    real, padded = circle(0.9, 0.2), join(circle(0.9, 0.2), circle(0.3, 0.0, active=False))
    np.testing.assert_array_equal(filtered(padded, kappa_per_s=1.0), filtered(real, kappa_per_s=1.0))
    assert float(smallest_margin_m(padded)) == float(real.margin_m[0])
    assert float(smallest_margin_m(circle(0.3, 0.0, active=False))) == np.inf


def test_standing_on_a_centre_is_infeasible_and_has_finite_derivatives():
    """No command helps at the very centre of an obstacle: the row is empty, and h says how deep it is."""
    planes = half_planes(circle(POINT_M, 0.0), kappa_per_s=1.0)
    assert project_one(jnp.array([0.5, 0.0]), planes, **LIMITS).status == Status.INFEASIBLE

    def everything(pose):
        rows = circle(POINT_M, 0.0, pose)
        planes = half_planes(rows, kappa_per_s=1.0)
        command = project(jnp.array([0.5, 0.0]), planes, **LIMITS).command
        return jnp.sum(rows.margin_m) + jnp.sum(rows.drift) + jnp.sum(command)

    assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(jax.jit(jax.grad(everything))(ahead)))


def test_epsilon_and_rate_enter_the_condition():
    planes = half_planes(circle(0.9, 0.2), kappa_per_s=3.0, epsilon=0.25)
    expected = -1.6 * 0.7 - 0.04 * 0.3 + 3.0 * 0.2575 - 0.25
    np.testing.assert_allclose(residual(planes, jnp.array([0.7, 0.3])), [expected], atol=2e-6)


def test_robust_row_allows_for_the_worst_the_other_can_do():
    """The gap closes at most at v cos(bearing) + v_other, so h falls at most at twice the range times that."""
    row = robot_row(ahead, other_x_m=2.0, other_y_m=0.0, separation_m=0.35, other_speed_mps=1.15)
    np.testing.assert_allclose(row.drift, [2 * 2.0 * 1.15], rtol=1e-6)
    np.testing.assert_allclose(row.h, [4.0 - 0.35**2], rtol=1e-6)
    # v_max = (kappa h - drift) / (2 range) at kappa 2: 0.78875.
    command = filtered(row, kappa_per_s=2.0)
    np.testing.assert_allclose(command, [(2 * 3.8775 - 4.6) / 4.0, 0.0], atol=SETTLED)
    near = robot_row(ahead, other_x_m=0.6, other_y_m=0.0, separation_m=0.35, other_speed_mps=1.15)
    answer = project_one(jnp.array([1.0, 0.0]), half_planes(near, kappa_per_s=2.0), **LIMITS)
    assert answer.status == Status.INFEASIBLE  # a faster robot cannot be kept away by braking


def advanced(x_m, y_m, heading_rad, command):
    """Return the pose after one step, as the arena moves: with the heading before the turn."""
    v, w = command
    return (
        x_m + v * jnp.cos(heading_rad) * DT_S,
        y_m + v * jnp.sin(heading_rad) * DT_S,
        heading_rad + w * DT_S,
    )


def closest_approach(row_of, bearing_rad, other_heading_rad, *, limits=LIMITS):
    """Drive straight at a standing robot through the filter; return the least distance of the centres."""
    other = pose_at(x_m=0.0, y_m=0.0, heading_rad=other_heading_rad)

    def step(state, _):
        x, y, heading = state
        pose = pose_at(x_m=x, y_m=y, heading_rad=heading)
        planes = half_planes(row_of(pose, other), kappa_per_s=4.0)
        command = project(jnp.array([1.0, 0.0]), planes, **limits).command
        state = advanced(x, y, heading, command)
        return state, jnp.sqrt(state[0] ** 2 + state[1] ** 2)

    start = (3 * jnp.cos(bearing_rad), 3 * jnp.sin(bearing_rad), bearing_rad + jnp.pi)
    return jnp.min(jax.lax.scan(step, start, None, length=160)[1])


def test_capture_is_possible_from_every_side():
    """Between centres the pursuer comes inside the capture radius of 0.5 m from everywhere, head-on included.

    It stays outside the separation but for the rounding of positions; the row is exact for a straight approach.
    """
    bearings = jnp.repeat(jnp.linspace(-3.0, 3.0, 7), 7)
    headings = jnp.tile(jnp.linspace(-3.0, 3.0, 7), 7)

    def centres(pose, other):
        return robot_row(pose, other_x_m=other.x_m, other_y_m=other.y_m, separation_m=0.35)

    least = jax.jit(jax.vmap(lambda b, h: closest_approach(centres, b, h)))(bearings, headings)
    assert np.all(least < 0.5)
    assert np.all(least > 0.35 - 1e-4)


def test_between_control_points_a_head_on_capture_is_unsafe():
    """The negative control, and the reason for centres: face to face the original barrier ends at 0.55 m."""

    def points(pose, other):
        return robot_row_between_points(pose, other=other, separation_m=0.35, point_m=POINT_M)

    approach = jax.jit(lambda b, h: closest_approach(points, b, h, limits=STRAIGHT))
    np.testing.assert_allclose(approach(0.0, 0.0), 0.55, atol=0.005)
    np.testing.assert_allclose(approach(0.0, np.pi), 0.35, atol=0.005)
    for heading_rad, safe in [(np.pi, False), (0.0, True)]:
        other = pose_at(x_m=0.5, y_m=0.0, heading_rad=heading_rad)
        assert bool(points(ahead, other).h[0] >= 0) == safe
        assert robot_row(ahead, other_x_m=0.5, other_y_m=0.0, separation_m=0.35).h[0] > 0


@pytest.mark.parametrize("kappa_per_s", [2.0, 4.0, 20.0])
def test_random_driving_through_the_filter_stays_inside_any_arena(kappa_per_s):
    """What one step can miss is the bend of the control point's path, d (w dt)^2 / 2 = 1.0 mm.

    With h(t + dt) >= (1 - gamma) h(t) - miss, h never falls below -miss / gamma. Infeasible steps stand still,
    which leaves h as it is.
    """
    gamma = barrier.gamma_of(kappa_per_s, dt_s=DT_S)
    miss_m = POINT_M * (2.84 * DT_S) ** 2 / 2

    def drive(key, width_m, height_m):
        def step(state, key):
            pose = pose_at(x_m=state[0], y_m=state[1], heading_rad=state[2])
            rows = wall_rows(pose, width_m=width_m, height_m=height_m, clearance_m=0.15, point_m=POINT_M)
            nominal = jax.random.uniform(
                key, (2,), minval=jnp.array([0.5, -1.0]), maxval=jnp.array([1.0, 1.0])
            )
            answer = project(nominal, half_planes(rows, kappa_per_s=kappa_per_s), **LIMITS)
            command = jnp.where(answer.status == Status.INFEASIBLE, 0.0, answer.command)
            return advanced(*state, command), (smallest_margin_m(rows), answer.status)

        start = (jnp.float32(0.0), jnp.float32(0.0), jnp.float32(0.3))
        return jax.lax.scan(step, start, jax.random.split(key, 400))[1]

    widths = jnp.linspace(2.0, 30.0, 32)
    heights = jnp.roll(widths, 7)
    keys = jax.random.split(jax.random.key(0), 32)
    margin_m, status = jax.jit(jax.vmap(drive))(keys, widths, heights)
    assert np.min(margin_m) > -miss_m / gamma - 1e-4
    assert np.sum(np.asarray(status) == Status.ACTIVE) > 1000
    assert np.min(margin_m) < 0.05  # the walls were reached
