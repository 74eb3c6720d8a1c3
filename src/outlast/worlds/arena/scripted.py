"""The scripted panel: opponents that need no learning, and yardsticks for those that do.

Each policy is a function (state, role, uniform draws, config) -> (speed, turn rate) of one instance, for either
role where that makes sense. Draws are given, so a policy holds no randomness of its own.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from outlast.worlds.arena.config import ArenaConfig
from outlast.worlds.arena.dynamics import wrapped
from outlast.worlds.arena.state import ArenaState, Role

STEER_GAIN = 3.0
N_DRAWS = 2
LEAD_SHARE, LEAD_MAX_S = 0.6, 2.5
GUARD_CLOSE_M, GUARD_AHEAD_M, GUARD_AIM_M = 1.2, 0.8, 0.3
LOOK_HEADINGS, LOOK_TIMES_S = 24, (0.5, 1.0, 1.5, 2.0, 3.0)
LOOK_FAR_WEIGHT, LOOK_TURN_WEIGHT, LOOK_HIT, LOOK_CLEAR_M = 0.15, 0.1, 2.0, 0.05
ORBIT_SHARE, ORBIT_PULL = 0.35, 1.0
CORNER_MARGIN_M = 0.5

Command = tuple[Float[Array, ""], Float[Array, ""]]
Policy = Callable[[ArenaState, Role, Float[Array, "2"], ArenaConfig], Command]


def _toward(state: ArenaState, role: Role, config: ArenaConfig, dx: Array, dy: Array) -> Command:
    """Drive at full speed and steer along a direction."""
    return _steer(state, role, config, jnp.arctan2(dy, dx))


def _steer(state: ArenaState, role: Role, config: ArenaConfig, heading_rad: Array) -> Command:
    limit = config.pursuer_turn_radps if role == Role.PURSUER else config.evader_turn_radps
    error = wrapped(heading_rad - state.body(role).heading_rad)
    return state.level.speed_mps(role), jnp.clip(STEER_GAIN * error, -limit, limit)


def stationary(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Stand still."""
    return jnp.zeros_like(state.distance_m), jnp.zeros_like(state.distance_m)


def random(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Draw speed and turn rate uniformly at every step."""
    limit = config.pursuer_turn_radps if role == Role.PURSUER else config.evader_turn_radps
    top = state.level.speed_mps(role)
    speed = top if config.fixed_speed else draws[0] * top
    return speed, (2 * draws[1] - 1) * limit


def pure_pursuit(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Drive straight at the opponent."""
    own, other = state.body(role), state.body(role.other)
    return _toward(state, role, config, other.x_m - own.x_m, other.y_m - own.y_m)


def lead(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Aim at where the opponent will be if it keeps its heading, clamped to the arena."""
    own, other, level = state.body(role), state.body(role.other), state.level
    ahead_s = jnp.minimum(LEAD_SHARE * state.distance_m / level.speed_mps(role), LEAD_MAX_S)
    limit_x = level.width_m / 2 - config.robot_radius_m
    limit_y = level.height_m / 2 - config.robot_radius_m
    x = jnp.clip(other.x_m + other.cos * other.speed_mps * ahead_s, -limit_x, limit_x)
    y = jnp.clip(other.y_m + other.sin * other.speed_mps * ahead_s, -limit_y, limit_y)
    return _toward(state, role, config, x - own.x_m, y - own.y_m)


def centre_guard(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Stay between the centre and the opponent (the lion's rule), and close in when near."""
    own, other = state.body(role), state.body(role.other)
    r_own = jnp.sqrt(own.x_m**2 + own.y_m**2)
    r_other = jnp.maximum(jnp.sqrt(other.x_m**2 + other.y_m**2), 1e-6)
    share = jnp.minimum(r_other, r_own + GUARD_AHEAD_M) / r_other
    near = state.distance_m < GUARD_CLOSE_M
    x = jnp.where(near, other.x_m + GUARD_AIM_M * other.cos, other.x_m * share)
    y = jnp.where(near, other.y_m + GUARD_AIM_M * other.sin, other.y_m * share)
    return _toward(state, role, config, x - own.x_m, y - own.y_m)


def flee_away(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Drive straight away from the opponent."""
    own, other = state.body(role), state.body(role.other)
    return _toward(state, role, config, own.x_m - other.x_m, own.y_m - other.y_m)


def corner(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Run to the nearest corner of the arena."""
    own, level = state.body(role), state.level
    limit_x = level.width_m / 2 - CORNER_MARGIN_M
    limit_y = level.height_m / 2 - CORNER_MARGIN_M
    x = jnp.where(own.x_m >= 0, limit_x, -limit_x)
    y = jnp.where(own.y_m >= 0, limit_y, -limit_y)
    return _toward(state, role, config, x - own.x_m, y - own.y_m)


def orbit(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Run a circle around the centre, tangentially away from the opponent."""
    own, other, level = state.body(role), state.body(role.other), state.level
    radius = ORBIT_SHARE * jnp.minimum(level.width_m, level.height_m)
    r = jnp.maximum(jnp.sqrt(own.x_m**2 + own.y_m**2), 1e-6)
    out_x, out_y = own.x_m / r, own.y_m / r
    away = (own.x_m - other.x_m) * -out_y + (own.y_m - other.y_m) * out_x
    side = jnp.where(away >= 0, 1.0, -1.0)
    pull = jnp.clip(ORBIT_PULL * (radius - r), -1.0, 1.0)
    return _toward(state, role, config, side * -out_y + pull * out_x, side * out_x + pull * out_y)


def look_ahead(state: ArenaState, role: Role, draws: Float[Array, "2"], config: ArenaConfig) -> Command:
    """Try 24 headings and take the one that keeps the opponent farthest off over the next three seconds."""
    own, other, level = state.body(role), state.body(role.other), state.level
    limit_x = level.width_m / 2 - config.robot_radius_m
    limit_y = level.height_m / 2 - config.robot_radius_m
    top, chaser = level.speed_mps(role), level.speed_mps(role.other)
    angles = np.arange(LOOK_HEADINGS) * (2 * np.pi / LOOK_HEADINGS)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    nearest, far, hits = jnp.inf, 0.0, jnp.zeros(LOOK_HEADINGS, bool)
    for time_s in LOOK_TIMES_S:
        x = jnp.clip(own.x_m + cos * top * time_s, -limit_x, limit_x)
        y = jnp.clip(own.y_m + sin * top * time_s, -limit_y, limit_y)
        far = jnp.sqrt((x - other.x_m) ** 2 + (y - other.y_m) ** 2) - chaser * time_s
        nearest = jnp.minimum(nearest, far)
        for k in range(config.obstacle_slots):
            radius = state.obstacles.radius_m[k]
            reach = radius + config.robot_radius_m + LOOK_CLEAR_M
            off2 = (x - state.obstacles.x_m[k]) ** 2 + (y - state.obstacles.y_m[k]) ** 2
            hits |= (off2 < reach * reach) & (radius > 0)
    turn = jnp.abs(wrapped(angles.astype(np.float32) - own.heading_rad))
    score = nearest + LOOK_FAR_WEIGHT * far - LOOK_TURN_WEIGHT * turn / jnp.pi - LOOK_HIT * hits
    # The first best by two plain reductions: an argmax of a batch is far slower on a CPU.
    places = jnp.arange(LOOK_HEADINGS)
    best = jnp.min(jnp.where(score == jnp.max(score), places, LOOK_HEADINGS))
    return _steer(state, role, config, best * jnp.float32(2 * np.pi / LOOK_HEADINGS))


PURSUERS: dict[str, Policy] = {
    "stationary": stationary,
    "random": random,
    "pure_pursuit": pure_pursuit,
    "lead": lead,
    "centre_guard": centre_guard,
}
EVADERS: dict[str, Policy] = {
    "stationary": stationary,
    "random": random,
    "flee_away": flee_away,
    "look_ahead": look_ahead,
    "corner": corner,
    "orbit": orbit,
}


def panel(role: Role) -> dict[str, Policy]:
    """Return the scripted policies that play a role."""
    return PURSUERS if role == Role.PURSUER else EVADERS
