"""How robots move: explicit Euler with the heading before the turn, walls that let them slide, solid obstacles."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from outlast.worlds.arena.state import ArenaLevel, Body, Obstacles

PUSH_PASSES = 3
SAME_POINT_M = 1e-10


def wrapped(angle_rad: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Wrap an angle into [-pi, pi)."""
    return jnp.mod(angle_rad + jnp.pi, 2 * jnp.pi) - jnp.pi


def body_at(x_m: Array, y_m: Array, heading_rad: Array) -> Body:
    """Return a robot at rest."""
    still = jnp.zeros_like(x_m)
    return Body(
        x_m=x_m,
        y_m=y_m,
        heading_rad=heading_rad,
        cos=jnp.cos(heading_rad),
        sin=jnp.sin(heading_rad),
        speed_mps=still,
        turn_radps=still,
    )


def inside_walls(
    x_m: Array, y_m: Array, *, level: ArenaLevel, radius_m: float
) -> tuple[Array, Array, Bool[Array, ""]]:
    """Clamp a position to the arena and tell whether a wall was touched."""
    limit_x = level.width_m / 2 - radius_m
    limit_y = level.height_m / 2 - radius_m
    x, y = jnp.clip(x_m, -limit_x, limit_x), jnp.clip(y_m, -limit_y, limit_y)
    return x, y, (x != x_m) | (y != y_m)


def pushed_out(
    x_m: Array, y_m: Array, *, cos: Array, sin: Array, obstacles: Obstacles, radius_m: float
) -> tuple[Array, Array, Bool[Array, ""]]:
    """Push a robot radially out of every obstacle it overlaps, and tell whether it touched one.

    Obstacles act one after the other, in up to three passes; a robot exactly on a centre leaves along its heading.
    """
    n = obstacles.radius_m.shape[0]
    if n == 0:
        return x_m, y_m, jnp.zeros_like(x_m, bool)

    def push(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, y, touched = carry
        centre_x, centre_y, radius = (a[i % n] for a in (obstacles.x_m, obstacles.y_m, obstacles.radius_m))
        dx, dy = x - centre_x, y - centre_y
        distance = jnp.sqrt(dx * dx + dy * dy)
        reach = radius + radius_m
        overlaps = (distance < reach) & (radius > 0)
        on_centre = distance < SAME_POINT_M
        ux = jnp.where(on_centre, cos, dx / jnp.maximum(distance, SAME_POINT_M))
        uy = jnp.where(on_centre, sin, dy / jnp.maximum(distance, SAME_POINT_M))
        x = jnp.where(overlaps, centre_x + ux * reach, x)
        y = jnp.where(overlaps, centre_y + uy * reach, y)
        return x, y, touched | overlaps

    return jax.lax.fori_loop(0, PUSH_PASSES * n, push, (x_m, y_m, jnp.zeros_like(x_m, bool)))


def moved(
    body: Body,
    speed_mps: Float[Array, ""],
    turn_radps: Float[Array, ""],
    *,
    obstacles: Obstacles,
    level: ArenaLevel,
    dt_s: float,
    radius_m: float,
) -> tuple[Body, Bool[Array, ""], Bool[Array, ""]]:
    """Move one robot for a step; also return whether it touched a wall and an obstacle.

    The final clamp can leave a robot that is squeezed between a wall and an obstacle inside the obstacle's rim.
    """
    x = body.x_m + speed_mps * body.cos * dt_s
    y = body.y_m + speed_mps * body.sin * dt_s
    heading = wrapped(body.heading_rad + turn_radps * dt_s)
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    x, y, wall = inside_walls(x, y, level=level, radius_m=radius_m)
    x, y, obstacle = pushed_out(x, y, cos=cos, sin=sin, obstacles=obstacles, radius_m=radius_m)
    x, y, _ = inside_walls(x, y, level=level, radius_m=radius_m)
    return Body(x, y, heading, cos, sin, speed_mps, turn_radps), wall, obstacle
