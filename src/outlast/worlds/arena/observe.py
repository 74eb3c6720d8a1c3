"""What a robot sees. `absolute` is the originals' layout (arena frame, angles over pi); `egocentric` is the
robot's own frame with sines and cosines. Both can end with the share of the episode that is left.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from outlast.worlds.arena.config import ArenaConfig
from outlast.worlds.arena.dynamics import wrapped
from outlast.worlds.arena.sensing import opponent_visible
from outlast.worlds.arena.state import ArenaState, Body, Role

ABSOLUTE = (
    "own x",
    "own y",
    "own heading",
    "own speed",
    "own turn rate",
    "opponent x",
    "opponent y",
    "opponent heading",
    "opponent speed",
    "opponent turn rate",
    "distance",
    "bearing",
    "nearest wall in x",
    "nearest wall in y",
)
EGOCENTRIC = (
    "own x",
    "own y",
    "own heading cos",
    "own heading sin",
    "own speed",
    "own turn rate",
    "distance",
    "bearing cos",
    "bearing sin",
    "opponent heading cos",
    "opponent heading sin",
    "opponent speed",
    "speed ratio",
)


def observation_fields(config: ArenaConfig) -> list[str]:
    """Name every entry of an observation, in order."""
    is_absolute = config.observation == "absolute"
    names = list(ABSOLUTE if is_absolute else EGOCENTRIC)
    if config.sensing.mode == "partial":
        names.append("opponent visible")
    parts = ("distance", "bearing") if is_absolute else ("distance", "bearing cos", "bearing sin", "radius")
    names += [f"obstacle {k} {part}" for k in range(config.observed_obstacles) for part in parts]
    if config.time_to_go:
        names.append("time to go")
    if not is_absolute:
        names.append("preparation left")
    return names


def observe(state: ArenaState, role: Role, config: ArenaConfig) -> Float[Array, " observation"]:
    """Return one role's observation of a state."""
    entries = (
        _absolute(state, role, config)
        if config.observation == "absolute"
        else _egocentric(state, role, config)
    )
    level = state.level
    if config.time_to_go:
        entries.append(1.0 - state.step / level.max_steps)
    if config.observation == "egocentric":
        left = jnp.maximum(level.prep_steps - state.step, 0)
        entries.append(left / jnp.maximum(level.prep_steps, 1))
    return jnp.stack(entries).astype(jnp.float32)


def _absolute(state: ArenaState, role: Role, config: ArenaConfig) -> list[Array]:
    own, other, level = state.body(role), state.body(role.other), state.level
    half_x, half_y = level.width_m / 2, level.height_m / 2
    fast, turn = level.pursuer_speed_mps, config.pursuer_turn_radps
    bearing = wrapped(jnp.arctan2(other.y_m - own.y_m, other.x_m - own.x_m) - own.heading_rad)
    opponent = [
        other.x_m / half_x,
        other.y_m / half_y,
        other.heading_rad / jnp.pi,
        other.speed_mps / fast,
        other.turn_radps / turn,
        state.distance_m / level.diagonal_m,
        bearing / jnp.pi,
    ]
    seen = opponent_visible(state, role, config=config.sensing)
    is_partial = config.sensing.mode == "partial"
    if is_partial:
        opponent = [jnp.where(seen, entry, 0.0) for entry in opponent]
    entries = [own.x_m / half_x, own.y_m / half_y, own.heading_rad / jnp.pi]
    entries += [own.speed_mps / fast, own.turn_radps / turn, *opponent]
    entries += [(half_x - jnp.abs(own.x_m)) / half_x, (half_y - jnp.abs(own.y_m)) / half_y]
    entries += [seen.astype(jnp.float32)] if is_partial else []
    for gap, dx, dy, _, present in _nearest_obstacles(state, own, config):
        angle = wrapped(jnp.arctan2(dy, dx) - own.heading_rad) / jnp.pi
        entries += [jnp.where(present, gap, 1.0), jnp.where(present, angle, 0.0)]
    return entries


def _egocentric(state: ArenaState, role: Role, config: ArenaConfig) -> list[Array]:
    own, other, level = state.body(role), state.body(role.other), state.level
    turn = config.pursuer_turn_radps if role == Role.PURSUER else config.evader_turn_radps
    dx, dy = other.x_m - own.x_m, other.y_m - own.y_m
    distance = jnp.maximum(state.distance_m, 1e-6)
    opponent = [
        state.distance_m / level.diagonal_m,
        (dx * own.cos + dy * own.sin) / distance,
        (dy * own.cos - dx * own.sin) / distance,
        other.cos * own.cos + other.sin * own.sin,
        other.sin * own.cos - other.cos * own.sin,
        other.speed_mps / level.speed_mps(role.other),
    ]
    seen = opponent_visible(state, role, config=config.sensing)
    is_partial = config.sensing.mode == "partial"
    if is_partial:
        opponent = [jnp.where(seen, entry, 0.0) for entry in opponent]
    entries = [2 * own.x_m / level.width_m, 2 * own.y_m / level.height_m, own.cos, own.sin]
    entries += [own.speed_mps / level.speed_mps(role), own.turn_radps / turn, *opponent]
    entries += [level.speed_mps(role.other) / level.speed_mps(role) - 1.0]
    entries += [seen.astype(jnp.float32)] if is_partial else []
    for gap, ox, oy, radius, present in _nearest_obstacles(state, own, config):
        centre = jnp.maximum(jnp.sqrt(ox * ox + oy * oy), 1e-6)
        ahead = (ox * own.cos + oy * own.sin) / centre
        aside = (oy * own.cos - ox * own.sin) / centre
        entries += [jnp.where(present, gap, 1.0), jnp.where(present, ahead, 0.0)]
        entries += [jnp.where(present, aside, 0.0), jnp.where(present, radius, 0.0)]
    return entries


def _nearest_obstacles(
    state: ArenaState, own: Body, config: ArenaConfig
) -> list[tuple[Array, Array, Array, Array, Array]]:
    """List (surface distance over the diagonal, dx, dy, radius, present) by rising centre distance.

    Ranks are counted pairwise: for a handful of slots this is far cheaper than a sort on a CPU.
    """
    obstacles, shown = state.obstacles, config.observed_obstacles
    if shown == 0:
        return []
    dx, dy = obstacles.x_m - own.x_m, obstacles.y_m - own.y_m
    centre = jnp.sqrt(dx * dx + dy * dy)
    n = config.obstacle_slots
    rank = [
        sum((centre[j] < centre[k]) | ((centre[j] == centre[k]) & (j < k)) for j in range(n) if j != k)
        for k in range(n)
    ]
    gap = jnp.clip((centre - obstacles.radius_m) / state.level.diagonal_m, 0.0, 1.0)
    columns = (gap, dx, dy, obstacles.radius_m)

    def at(place: int, column: Array) -> Array:
        return sum(jnp.where(rank[k] == place, column[k], 0.0) for k in range(n))

    rows = [tuple(at(place, column) for column in columns) for place in range(shown)]
    return [(g, x, y, r, r > 0) for g, x, y, r in rows]
