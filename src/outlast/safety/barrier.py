"""Control barriers of a unicycle: geometry in, rows (h, a_v, a_w) with dh/dt = a_v v + a_w w out.

One robot, no batch axis. `shield` and `barriernet` join the rows, make half-planes of them, and `qp` decides.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from outlast.safety.qp import HalfPlanes

Scalar = float | Float[Array, ""]

_SAME_POINT_M2 = 1e-12


class Pose(eqx.Module):
    """Where a robot is and where it points; the sine and cosine are carried, as in the arena's bodies."""

    x_m: Float[Array, ""]
    y_m: Float[Array, ""]
    cos: Float[Array, ""]
    sin: Float[Array, ""]


class Rows(eqx.Module):
    """Barriers, padded: `h >= 0` is safe and `dh/dt = a_v v + a_w w` (minus at most `drift`).

    Walls have h in m, round things in m^2. `margin_m` is the signed distance to the same boundary in both, so
    only margins may be compared or averaged.
    """

    h: Float[Array, " K"]
    a_v: Float[Array, " K"]
    a_w: Float[Array, " K"]
    drift: Float[Array, " K"]
    """The fastest that others' motion can lower h; 0 where they stand still or are trusted to."""
    margin_m: Float[Array, " K"]
    active: Bool[Array, " K"]


def pose_at(*, x_m: Scalar, y_m: Scalar, heading_rad: Scalar) -> Pose:
    """Return a pose from a heading."""
    heading = jnp.asarray(heading_rad, jnp.float32)
    return Pose(
        jnp.asarray(x_m, jnp.float32), jnp.asarray(y_m, jnp.float32), jnp.cos(heading), jnp.sin(heading)
    )


def control_point(pose: Pose, *, point_m: Scalar) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the point ahead of the axle: both inputs move it, so a filter can steer, not only brake."""
    return pose.x_m + point_m * pose.cos, pose.y_m + point_m * pose.sin


def wall_rows(pose: Pose, *, width_m: Scalar, height_m: Scalar, clearance_m: Scalar, point_m: Scalar) -> Rows:
    """Return the walls of an arena centred on the origin: right, left, top, bottom.

    `clearance_m` is the robot's radius and any margin wanted on top of it.
    """
    x_m, y_m = control_point(pose, point_m=point_m)
    reach_x_m, reach_y_m = width_m / 2 - clearance_m, height_m / 2 - clearance_m
    h = jnp.stack([reach_x_m - x_m, reach_x_m + x_m, reach_y_m - y_m, reach_y_m + y_m])
    a_v = jnp.stack([-pose.cos, pose.cos, -pose.sin, pose.sin])
    a_w = point_m * jnp.stack([pose.sin, -pose.sin, -pose.cos, pose.cos])
    return Rows(h, a_v, a_w, jnp.zeros_like(h), h, jnp.ones(4, bool))


def circle_rows(
    pose: Pose,
    *,
    x_m: Float[Array, " K"],
    y_m: Float[Array, " K"],
    radius_m: Float[Array, " K"],
    clearance_m: Scalar,
    point_m: Scalar,
    active: Bool[Array, " K"],
) -> Rows:
    """Return round obstacles: the control point stays `radius_m + clearance_m` from each centre."""
    own_x_m, own_y_m = control_point(pose, point_m=point_m)
    return _keep_away(pose, own_x_m - x_m, own_y_m - y_m, radius_m + clearance_m, point_m, 0.0, active)


def segment_rows(
    pose: Pose,
    *,
    start_x_m: Float[Array, " K"],
    start_y_m: Float[Array, " K"],
    end_x_m: Float[Array, " K"],
    end_y_m: Float[Array, " K"],
    clearance_m: Scalar,
    point_m: Scalar,
    active: Bool[Array, " K"],
) -> Rows:
    """Return thin walls: the control point stays `clearance_m` from the nearest point of each segment."""
    own_x_m, own_y_m = control_point(pose, point_m=point_m)
    along_x_m, along_y_m = end_x_m - start_x_m, end_y_m - start_y_m
    length_m2 = jnp.maximum(along_x_m**2 + along_y_m**2, _SAME_POINT_M2)
    share = ((own_x_m - start_x_m) * along_x_m + (own_y_m - start_y_m) * along_y_m) / length_m2
    share = jnp.clip(share, 0.0, 1.0)
    off_x_m, off_y_m = own_x_m - start_x_m - share * along_x_m, own_y_m - start_y_m - share * along_y_m
    return _keep_away(pose, off_x_m, off_y_m, jnp.full_like(off_x_m, clearance_m), point_m, 0.0, active)


def robot_row(
    pose: Pose, *, other_x_m: Scalar, other_y_m: Scalar, separation_m: Scalar, other_speed_mps: Scalar = 0.0
) -> Rows:
    """Return the other robot, centre to centre: a separation below the capture radius forbids no capture.

    The centre does not move with the turn rate, so this row only brakes. `other_speed_mps` is the worst speed
    to be robust against; at 0 the other is taken to stand still.
    """
    off_x_m, off_y_m = jnp.atleast_1d(pose.x_m - other_x_m), jnp.atleast_1d(pose.y_m - other_y_m)
    separation = jnp.full_like(off_x_m, separation_m)
    return _keep_away(pose, off_x_m, off_y_m, separation, 0.0, other_speed_mps, jnp.ones(1, bool))


def robot_row_between_points(pose: Pose, *, other: Pose, separation_m: Scalar, point_m: Scalar) -> Rows:
    """Return the other robot, control point to control point, as the original had it.

    It steers as well as brakes, but face to face it ends `2 point_m` early: with 0.35 m and 0.1 m at 0.55 m between
    centres, outside the capture radius of 0.5 m. For comparison, not for a pursuer.
    """
    own_x_m, own_y_m = control_point(pose, point_m=point_m)
    other_x_m, other_y_m = control_point(other, point_m=point_m)
    off_x_m, off_y_m = jnp.atleast_1d(own_x_m - other_x_m), jnp.atleast_1d(own_y_m - other_y_m)
    return _keep_away(
        pose, off_x_m, off_y_m, jnp.full_like(off_x_m, separation_m), point_m, 0.0, jnp.ones(1, bool)
    )


def join(*parts: Rows) -> Rows:
    """Return all rows as one set, in the order given."""
    return jax.tree.map(lambda *fields: jnp.concatenate(fields), *parts)


def half_planes(rows: Rows, *, kappa_per_s: Scalar, epsilon: Scalar = 0.0) -> HalfPlanes:
    """Return `dh/dt >= -kappa h + epsilon` as a condition on the command, against the worst drift."""
    b = kappa_per_s * rows.h - rows.drift - epsilon
    return HalfPlanes(
        jnp.where(rows.active, rows.a_v, 0.0),
        jnp.where(rows.active, rows.a_w, 0.0),
        jnp.where(rows.active, b, 1.0),
    )


def smallest_margin_m(rows: Rows) -> Float[Array, ""]:
    """Return the least signed distance over the active rows; infinite if there is none."""
    return jnp.min(jnp.where(rows.active, rows.margin_m, jnp.inf), initial=jnp.inf)


def gamma_of(kappa_per_s: Scalar, *, dt_s: float) -> Scalar:
    """Return the same rate in discrete time, `h(t + dt) >= (1 - gamma) h(t)`; above 1 it may overshoot."""
    return kappa_per_s * dt_s


def kappa_of(gamma: Scalar, *, dt_s: float) -> Scalar:
    """Return the continuous-time rate [1/s] of a discrete one."""
    return gamma / dt_s


def _keep_away(
    pose: Pose,
    off_x_m: Array,
    off_y_m: Array,
    distance_m: Array,
    point_m: Scalar,
    other_speed_mps: Scalar,
    active: Array,
) -> Rows:
    """Return `h = |offset|^2 - distance^2`, where the offset points from the thing to the robot's point."""
    square_m2 = off_x_m**2 + off_y_m**2
    # The derivative of a square root at 0 is not finite, and one such row would spoil the whole gradient.
    same = square_m2 < _SAME_POINT_M2
    range_m = jnp.where(same, 0.0, jnp.sqrt(jnp.where(same, 1.0, square_m2)))
    return Rows(
        h=square_m2 - distance_m**2,
        a_v=2 * (off_x_m * pose.cos + off_y_m * pose.sin),
        a_w=2 * point_m * (off_y_m * pose.cos - off_x_m * pose.sin),
        drift=2 * range_m * other_speed_mps,
        margin_m=range_m - distance_m,
        active=active,
    )
