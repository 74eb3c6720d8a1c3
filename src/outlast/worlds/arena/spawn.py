"""Where an episode begins: obstacles first, then both robots at a legal distance.

Both searches are bounded. When no legal place is found the least bad candidate is used, so a start is never
outside the arena, whatever the level asks for.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from outlast.worlds.arena.config import ArenaConfig
from outlast.worlds.arena.state import FAR_M, ArenaLevel, Obstacles

OBSTACLE_TRIES = 512
SPAWN_TRIES = 1024
TRIES_AT_ONCE = 32
ROUNDING_M = 1e-4


def sample_obstacles(key: Key[Array, ""], level: ArenaLevel, config: ArenaConfig) -> Obstacles:
    """Place between `obstacles_min` and `obstacles_max` obstacles; fewer where no room is left."""
    n = config.obstacle_slots
    empty = Obstacles(jnp.full(n, FAR_M), jnp.full(n, FAR_M), jnp.zeros(n))
    if n == 0:
        return empty
    count_key, place_key = jax.random.split(key)
    span = (level.obstacles_max - level.obstacles_min + 1).astype(jnp.float32)
    extra = jnp.floor(jax.random.uniform(count_key) * span).astype(jnp.int32)
    wanted = jnp.minimum(level.obstacles_min + extra, level.obstacles_max)

    def unfinished(carry: tuple[Obstacles, Array, Array]) -> Array:
        _, placed, tries = carry
        return (placed < wanted) & (tries < OBSTACLE_TRIES)

    def attempt(carry: tuple[Obstacles, Array, Array]) -> tuple[Obstacles, Array, Array]:
        obstacles, placed, tries = carry
        draws = jax.random.uniform(
            jax.random.fold_in(place_key, placed * OBSTACLE_TRIES + tries), (3, TRIES_AT_ONCE)
        )
        low, high = config.obstacle_radius_min_m, config.obstacle_radius_max_m
        radius = low + draws[0] * (high - low)
        room_x = level.width_m / 2 - radius - config.obstacle_margin_m
        room_y = level.height_m / 2 - radius - config.obstacle_margin_m
        x, y = (2 * draws[1] - 1) * room_x, (2 * draws[2] - 1) * room_y
        apart = jnp.hypot(obstacles.x_m[:, None] - x, obstacles.y_m[:, None] - y)
        gaps = apart - obstacles.radius_m[:, None] - radius
        fits = jnp.all(gaps >= config.obstacle_margin_m, axis=0) & (room_x >= 0) & (room_y >= 0)
        first, found = jnp.argmax(fits), jnp.any(fits)
        here = (jnp.arange(n) == placed) & found
        obstacles = Obstacles(
            jnp.where(here, x[first], obstacles.x_m),
            jnp.where(here, y[first], obstacles.y_m),
            jnp.where(here, radius[first], obstacles.radius_m),
        )
        return obstacles, placed + found, jnp.where(found, 0, tries + TRIES_AT_ONCE)

    start = (empty, jnp.int32(0), jnp.int32(0))
    return jax.lax.while_loop(unfinished, attempt, start)[0]


def sample_positions(
    key: Key[Array, ""], obstacles: Obstacles, level: ArenaLevel, config: ArenaConfig
) -> Float[Array, "4"]:
    """Draw both positions (pursuer x, y, evader x, y) clear of obstacles and at a legal distance."""
    distance_key, try_key = jax.random.split(key)
    share = jax.random.uniform(distance_key)
    distance = level.spawn_min_m + share * (level.spawn_max_m - level.spawn_min_m)

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, worst, tries = carry
        return (worst > 0) & (tries < SPAWN_TRIES)

    def attempt(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        best, least, tries = carry
        draws = jax.random.uniform(jax.random.fold_in(try_key, tries), (4, TRIES_AT_ONCE))
        candidates, breaches = _candidates(draws, distance, obstacles, level, config)
        first = jnp.argmin(breaches)
        better = breaches[first] < least
        best = jnp.where(better, candidates[:, first], best)
        return best, jnp.minimum(breaches[first], least), tries + TRIES_AT_ONCE

    start = (jnp.zeros(4), jnp.float32(jnp.inf), jnp.int32(0))
    return jax.lax.while_loop(unfinished, attempt, start)[0]


def _candidates(
    draws: Float[Array, "4 N"],
    distance: Float[Array, ""],
    obstacles: Obstacles,
    level: ArenaLevel,
    config: ArenaConfig,
) -> tuple[Float[Array, "4 N"], Float[Array, " N"]]:
    """Return pairs of positions inside the arena and by how many metres each breaks the rules."""
    limit_x = level.width_m / 2 - config.robot_radius_m
    limit_y = level.height_m / 2 - config.robot_radius_m
    px, py = (2 * draws[0] - 1) * limit_x, (2 * draws[1] - 1) * limit_y
    if config.spawn == "area":
        ex, ey = (2 * draws[2] - 1) * limit_x, (2 * draws[3] - 1) * limit_y
        outside = jnp.zeros_like(ex)
    else:
        angle = 2 * jnp.pi * draws[2]
        aim_x, aim_y = px + distance * jnp.cos(angle), py + distance * jnp.sin(angle)
        ex, ey = jnp.clip(aim_x, -limit_x, limit_x), jnp.clip(aim_y, -limit_y, limit_y)
        outside = jnp.abs(aim_x - ex) + jnp.abs(aim_y - ey)
    apart = jnp.hypot(px - ex, py - ey)
    breach = jnp.maximum(level.spawn_min_m - apart, 0.0) + jnp.maximum(apart - level.spawn_max_m, 0.0)
    breach = jnp.where(breach < ROUNDING_M, 0.0, breach)
    for x, y in ((px, py), (ex, ey)):
        centre = jnp.hypot(obstacles.x_m[:, None] - x, obstacles.y_m[:, None] - y)
        overlap = jnp.maximum(obstacles.radius_m[:, None] + config.robot_radius_m - centre, 0.0)
        breach += jnp.sum(jnp.where(obstacles.present[:, None], overlap, 0.0), axis=0)
    return jnp.stack([px, py, ex, ey]), breach + outside
