"""Who sees whom: line of sight past round obstacles, range and view cone; and which ground has been looked at."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from outlast.worlds.arena.config import SensingConfig
from outlast.worlds.arena.dynamics import wrapped
from outlast.worlds.arena.state import ArenaLevel, ArenaState, Body, Obstacles, Role

SEARCH_CELLS = 10
UNLIMITED_SEARCH_M = 100.0
DEGENERATE_M2 = 1e-12


def line_of_sight(
    from_x: Array, from_y: Array, to_x: Array, to_y: Array, *, obstacles: Obstacles
) -> Bool[Array, "..."]:
    """Tell whether no obstacle touches the segment between two points."""
    along_x, along_y = to_x - from_x, to_y - from_y
    length2 = along_x * along_x + along_y * along_y
    clear = jnp.ones_like(length2, bool)
    for k in range(obstacles.radius_m.shape[0]):
        rel_x, rel_y = obstacles.x_m[k] - from_x, obstacles.y_m[k] - from_y
        share = jnp.clip((rel_x * along_x + rel_y * along_y) / jnp.maximum(length2, DEGENERATE_M2), 0.0, 1.0)
        off_x, off_y = rel_x - share * along_x, rel_y - share * along_y
        blocked = off_x * off_x + off_y * off_y <= obstacles.radius_m[k] ** 2
        clear &= ~(blocked & (obstacles.radius_m[k] > 0))
    return clear | (length2 < DEGENERATE_M2)


def relative_bearing(observer: Body, x_m: Array, y_m: Array) -> Float[Array, "..."]:
    """Return the direction of a point against the observer's heading, in [-pi, pi)."""
    return wrapped(jnp.arctan2(y_m - observer.y_m, x_m - observer.x_m) - observer.heading_rad)


def opponent_visible(state: ArenaState, role: Role, *, config: SensingConfig) -> Bool[Array, ""]:
    """Tell whether a role sees its opponent now."""
    seen = jnp.ones_like(state.sight_clear)
    if config.mode == "full" or (role == Role.EVADER and config.evader_sees_all):
        return seen
    if config.radius_m > 0:
        seen &= state.distance_m <= config.radius_m
    if config.cone_deg > 0:
        target = state.body(role.other)
        bearing = relative_bearing(state.body(role), target.x_m, target.y_m)
        seen &= jnp.abs(bearing) <= np.radians(config.cone_deg) / 2
    if config.line_of_sight:
        seen &= state.sight_clear
    return seen


def cells_in_view(
    pursuer: Body, *, obstacles: Obstacles, level: ArenaLevel, radius_m: float
) -> Bool[Array, " cells"]:
    """Tell which cells of the search grid the pursuer looks at, whatever its heading."""
    middle = (jnp.arange(SEARCH_CELLS) + 0.5) / SEARCH_CELLS - 0.5
    x = jnp.tile(middle, SEARCH_CELLS) * level.width_m
    y = jnp.repeat(middle, SEARCH_CELLS) * level.height_m
    reach = radius_m if radius_m > 0 else UNLIMITED_SEARCH_M
    near = (x - pursuer.x_m) ** 2 + (y - pursuer.y_m) ** 2 <= reach**2
    return near & line_of_sight(pursuer.x_m, pursuer.y_m, x, y, obstacles=obstacles)


def staleness(
    last_seen: Int[Array, " cells"], in_view: Bool[Array, " cells"], *, step: Array, stale_steps: int
) -> Float[Array, ""]:
    """Return the mean staleness, 0 to 1, of the cells in view; 0 when there is none."""
    stale = jnp.clip((step - last_seen) / stale_steps, 0.0, 1.0)
    return jnp.sum(stale * in_view) / jnp.maximum(jnp.sum(in_view), 1)
