"""The shield: project the commands of a role before the world sees them, and tell what was done.

Games are columns, world axis last. The tiers, in order: the exact projection; without the obstacles' rows; with the
other robot's row alone; a slow retreat. Last, the hard check brakes where the exact next position would touch.
"""

from enum import IntEnum

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from outlast.safety import barrier
from outlast.safety.barrier import Pose, Rows, circle_rows, half_planes, robot_row, wall_rows
from outlast.safety.config import ShieldConfig
from outlast.safety.feasibility import Feasibility, features_of, predicted_infeasible
from outlast.safety.qp import HalfPlanes, Status, project, residual
from outlast.worlds.arena import ArenaConfig, ArenaState, Role

ROUNDING_M = 1e-4
"""Clearance that counts as a touch: well above the rounding of a position (8e-6 m at 100 m)."""
RETREAT_SHARE, RETREAT_GAIN = 0.1, 3.0
"""A retreat drives at a tenth of the top speed and steers away from the nearest thing."""
N_WALLS = 4


class Tier(IntEnum):
    """What gave the applied command."""

    FREE = 0
    """The chosen command is allowed and applied, bit for bit."""
    EXACT = 1
    """The nearest command that satisfies every row."""
    NO_OBSTACLES = 2
    """No command satisfies every row; the nearest that satisfies the walls and the other robot."""
    NO_ARENA = 3
    """Not even that; the nearest that satisfies the other robot's row."""
    RETREAT = 4
    """Nothing could be kept: slow, and away from the nearest thing."""
    PREDICTED = 5
    """The classifier expects that no command will be allowed after the exact one: retreat at once."""
    BRAKED = 6
    """The next position would touch: stand, and turn away."""


class Applied(eqx.Module):
    """What the shield did to the commands (speed, turn rate) of one role in each game."""

    chosen: Float[Array, "2 B"]
    applied: Float[Array, "2 B"]
    tier: Int[Array, " B"]
    infeasible: Bool[Array, " B"]
    margin_m: Float[Array, " B"]
    """Signed distance of the control point to the nearest boundary, before the step."""
    shortfall: Float[Array, " B"]
    """How far the chosen command misses the row that it misses most; 0 where it misses none."""
    features: Float[Array, "F B"] | None
    """What the classifier learns from, where there is one."""


def rows_of(arena: ArenaState, role: Role, config: ShieldConfig, world: ArenaConfig) -> Rows:
    """Return every barrier of one game's robot, walls first, then obstacles, then the other robot."""
    body, other, level = arena.body(role), arena.body(role.other), arena.level
    pose = Pose(body.x_m, body.y_m, body.cos, body.sin)
    near = {"clearance_m": world.robot_radius_m + config.margin_m, "point_m": config.lookahead_m}
    parts = [wall_rows(pose, width_m=level.width_m, height_m=level.height_m, **near)]
    if world.obstacle_slots:
        things = arena.obstacles
        parts.append(
            circle_rows(
                pose, x_m=things.x_m, y_m=things.y_m, radius_m=things.radius_m, active=things.present, **near
            )
        )
    if config.separation_m > 0:
        speed = config.other_speed_share * level.speed_mps(role.other)
        row = robot_row(
            pose,
            other_x_m=other.x_m,
            other_y_m=other.y_m,
            separation_m=config.separation_m,
            other_speed_mps=speed,
        )
        parts.append(row)
    return barrier.join(*parts)


def limits_of(
    arena: ArenaState, role: Role, world: ArenaConfig
) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
    """Return the least and greatest command of one game's robot."""
    turn = world.pursuer_turn_radps if role == Role.PURSUER else world.evader_turn_radps
    top = arena.level.speed_mps(role)
    still = jnp.zeros_like(top)
    return jnp.stack([still, still - turn]), jnp.stack([top, still + turn])


def clearances(arena: ArenaState, role: Role, world: ArenaConfig) -> Float[Array, " K"]:
    """Return how far one game's robot is from touching each wall and obstacle, by its centre; walls first."""
    return _surroundings(arena, arena.body(role).x_m, arena.body(role).y_m, world)[0]


def _surroundings(
    arena: ArenaState, x_m: Array, y_m: Array, world: ArenaConfig
) -> tuple[Array, Array, Array]:
    """Return the clearance of each thing at a place, and the direction away from it."""
    level, things, radius = arena.level, arena.obstacles, world.robot_radius_m
    half_x, half_y = level.width_m / 2 - radius, level.height_m / 2 - radius
    clear = jnp.stack([half_x - x_m, half_x + x_m, half_y - y_m, half_y + y_m])
    away_x, away_y = jnp.array([-1.0, 1.0, 0.0, 0.0]), jnp.array([0.0, 0.0, -1.0, 1.0])
    if not world.obstacle_slots:
        return clear, away_x, away_y
    dx, dy = x_m - things.x_m, y_m - things.y_m
    distance = jnp.maximum(jnp.sqrt(dx * dx + dy * dy), 1e-9)
    around = jnp.where(things.present, distance - things.radius_m - radius, jnp.inf)
    return (
        jnp.concatenate([clear, around]),
        jnp.concatenate([away_x, dx / distance]),
        jnp.concatenate([away_y, dy / distance]),
    )


def retreat(arena: ArenaState, role: Role, world: ArenaConfig) -> Float[Array, "2"]:
    """Return the command that drives slowly and steers away from the nearest thing, the other robot left aside."""
    body = arena.body(role)
    clear, away_x, away_y = _surroundings(arena, body.x_m, body.y_m, world)
    nearest = clear == jnp.min(clear)
    x, y = jnp.sum(jnp.where(nearest, away_x, 0.0)), jnp.sum(jnp.where(nearest, away_y, 0.0))
    error = jnp.arctan2(body.cos * y - body.sin * x, body.cos * x + body.sin * y)
    low, high = limits_of(arena, role, world)
    return jnp.stack([RETREAT_SHARE * high[0], jnp.clip(RETREAT_GAIN * error, low[1], high[1])])


def touches(arena: ArenaState, role: Role, speed_mps: Array, world: ArenaConfig) -> Bool[Array, ""]:
    """Tell whether a robot's exact next position would touch something that it is not leaving."""
    body = arena.body(role)
    x_m = body.x_m + speed_mps * body.cos * world.dt_s
    y_m = body.y_m + speed_mps * body.sin * world.dt_s
    before = _surroundings(arena, body.x_m, body.y_m, world)[0]
    after = _surroundings(arena, x_m, y_m, world)[0]
    return jnp.any((after < ROUNDING_M) & (after <= before)) & (speed_mps > 0)


def _standing(planes: HalfPlanes, turn: Array, low: Array, high: Array) -> Float[Array, "2"]:
    """Return the command that stands and turns as wanted, as far as the rows allow it while standing."""
    at = -planes.b / jnp.where(planes.a_w == 0, 1.0, planes.a_w)
    least = jnp.max(jnp.where(planes.a_w > 0, at, low[1]), initial=low[1])
    most = jnp.min(jnp.where(planes.a_w < 0, at, high[1]), initial=high[1])
    return jnp.stack([jnp.zeros_like(turn), jnp.where(least <= most, jnp.clip(turn, least, most), turn)])


def _without(rows: Rows, first: int, last: int) -> Rows:
    """Switch off some of the rows."""
    place = jnp.arange(rows.h.shape[0])
    return eqx.tree_at(lambda r: r.active, rows, rows.active & ((place < first) | (place >= last)))


def shielded(
    arena: ArenaState,
    speed_mps: Float[Array, " B"],
    turn_radps: Float[Array, " B"],
    role: Role,
    config: ShieldConfig,
    world: ArenaConfig,
    feasibility: Feasibility | None = None,
) -> Applied:
    """Filter the commands of one role in every game."""
    over = {"in_axes": -1, "out_axes": -1}
    chosen = jnp.stack([speed_mps, turn_radps])

    def exact(arena: ArenaState, chosen: Array) -> tuple[Array, Array, Array, Array]:
        rows = rows_of(arena, role, config, world)
        low, high = limits_of(arena, role, world)
        planes = half_planes(rows, kappa_per_s=config.kappa_per_s)
        found = project(chosen, planes, low=low, high=high, weights=config.weights)
        missed = jnp.max(jnp.where(rows.active, -residual(planes, chosen), 0.0), initial=0.0)
        return found.command, found.status, barrier.smallest_margin_m(rows), missed

    command, status, margin_m, missed = jax.vmap(exact, **over)(arena, chosen)
    infeasible = status == Status.INFEASIBLE
    tier = jnp.where(status == Status.INACTIVE, Tier.FREE, Tier.EXACT)

    def relaxed() -> tuple[Array, Array]:
        given, tiers = jax.vmap(lambda a, c: _relaxed(a, c, role, config, world), **over)(arena, chosen)
        return jnp.where(infeasible, given, command), jnp.where(infeasible, tiers, tier)

    # Rare, and as dear as the exact projection: computed only when some game of the batch needs it.
    command, tier = jax.lax.cond(jnp.any(infeasible), relaxed, lambda: (command, tier))
    features = None
    if config.classifier:

        def described(arena: ArenaState) -> Array:
            return features_of(rows_of(arena, role, config, world))

        features = jax.vmap(described, **over)(arena)
        if feasibility is not None:
            after = jax.vmap(lambda a, c: _moved(a, c, role, world), **over)(arena, command)
            back = jax.vmap(lambda a: retreat(a, role, world), **over)(arena)
            turn_back = predicted_infeasible(feasibility, jax.vmap(described, **over)(after)) & ~infeasible
            command = jnp.where(turn_back, back, command)
            tier = jnp.where(turn_back, Tier.PREDICTED, tier)
    if config.hard_check:
        command, tier = jax.vmap(lambda *a: _checked(*a, role, config, world), **over)(arena, command, tier)
    return Applied(chosen, command, tier.astype(jnp.int32), infeasible, margin_m, missed, features)


def _relaxed(
    arena: ArenaState, chosen: Array, role: Role, config: ShieldConfig, world: ArenaConfig
) -> tuple[Array, Array]:
    """Give up rows until some command is allowed: obstacles, then walls, then the other robot."""
    rows = rows_of(arena, role, config, world)
    low, high = limits_of(arena, role, world)
    command, tier = retreat(arena, role, world), jnp.asarray(Tier.RETREAT)
    tries = [(Tier.NO_ARENA, 0, N_WALLS + world.obstacle_slots)] if config.separation_m > 0 else []
    if world.obstacle_slots:
        tries.append((Tier.NO_OBSTACLES, N_WALLS, N_WALLS + world.obstacle_slots))
    for name, first, last in tries:
        planes = half_planes(_without(rows, first, last), kappa_per_s=config.kappa_per_s)
        found = project(chosen, planes, low=low, high=high, weights=config.weights)
        possible = found.status != Status.INFEASIBLE
        command, tier = jnp.where(possible, found.command, command), jnp.where(possible, name, tier)
    return command, tier


def _checked(
    arena: ArenaState, command: Array, tier: Array, role: Role, config: ShieldConfig, world: ArenaConfig
) -> tuple[Array, Array]:
    """Replace a command whose exact next position touches by the hardest braking, and turn away."""
    planes = half_planes(rows_of(arena, role, config, world), kappa_per_s=config.kappa_per_s)
    standing = _standing(planes, retreat(arena, role, world)[1], *limits_of(arena, role, world))
    hits = touches(arena, role, command[0], world)
    return jnp.where(hits, standing, command), jnp.where(hits, Tier.BRAKED, tier)


def _moved(arena: ArenaState, command: Array, role: Role, world: ArenaConfig) -> ArenaState:
    """Return the game with one robot where the command takes it, if nothing is in the way."""
    body, (speed, turn) = arena.body(role), command
    heading = body.heading_rad + turn * world.dt_s
    place = body.x_m + speed * body.cos * world.dt_s, body.y_m + speed * body.sin * world.dt_s
    after = eqx.tree_at(
        lambda b: (b.x_m, b.y_m, b.heading_rad, b.cos, b.sin),
        body,
        (*place, heading, jnp.cos(heading), jnp.sin(heading)),
    )
    return eqx.tree_at(lambda a: a.body(role), arena, after)
