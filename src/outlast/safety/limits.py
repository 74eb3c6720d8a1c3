"""What a policy is told of safety when it acts, kept with each step for learning: a box, or the rows themselves.

Columns of numbers, one per game, so that a batch holds them like observations. Actions lie in [-1, 1].
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from outlast.safety.barrier import half_planes
from outlast.safety.config import ShieldConfig
from outlast.safety.qp import HalfPlanes, analytic_box, exact_box, project
from outlast.safety.shield import limits_of, rows_of
from outlast.worlds.arena import ArenaConfig, ArenaState, Role

LEAST_WIDTH = 0.02
"""No box is narrower, in units of the action: a density needs room. What that lets through, the shield catches."""


def box_limits(
    arena: ArenaState, role: Role, config: ShieldConfig, world: ArenaConfig
) -> Float[Array, "4 B"]:
    """Return the box around the safe actions of each game: least speed and turn, greatest speed and turn."""
    box = exact_box if config.bounds == "exact" else analytic_box

    def one(arena: ArenaState) -> Array:
        low, high = limits_of(arena, role, world)
        planes = half_planes(rows_of(arena, role, config, world), kappa_per_s=config.kappa_per_s)
        ends = jnp.stack(box(planes, low=low, high=high)[:2])
        least, most = jnp.clip(2 * (ends - low) / (high - low) - 1, -1.0, 1.0)
        room = jnp.maximum(LEAST_WIDTH - (most - least), 0.0) / 2
        # Widened about its middle, then moved back inside: at a bound the middle would leave [-1, 1].
        least = jnp.clip(least - room, -1.0, 1.0 - LEAST_WIDTH)
        return jnp.concatenate([least, jnp.maximum(most + room, least + LEAST_WIDTH)])

    return jax.vmap(one, in_axes=-1, out_axes=-1)(arena)


def row_limits(
    arena: ArenaState, role: Role, config: ShieldConfig, world: ArenaConfig
) -> Float[Array, "L B"]:
    """Return the rows and the top speed and turn of each game, with speeds scaled so that all prices are one."""
    scale = (config.speed_weight / config.turn_weight) ** 0.5

    def one(arena: ArenaState) -> Array:
        _, high = limits_of(arena, role, world)
        planes = half_planes(rows_of(arena, role, config, world), kappa_per_s=config.kappa_per_s)
        return jnp.concatenate([planes.a_v / scale, planes.a_w, planes.b, high * jnp.array([scale, 1.0])])

    return jax.vmap(one, in_axes=-1, out_axes=-1)(arena)


def projected(action: Float[Array, "2 B"], limits: Float[Array, "L B"]) -> Float[Array, "2 B"]:
    """Return the nearest allowed action under `row_limits`, with its gradient; where none is allowed, the action."""

    def one(action: Array, limits: Array) -> Array:
        a_v, a_w, b = jnp.split(limits[:-2], 3)
        top, turn = limits[-2], limits[-1]
        command = jnp.stack([(action[0] + 1) / 2 * top, action[1] * turn])
        low, high = jnp.stack([0 * top, -turn]), jnp.stack([top, turn])
        found = project(command, HalfPlanes(a_v, a_w, b), low=low, high=high, weights=(1.0, 1.0)).command
        return jnp.stack([2 * found[0] / top - 1, found[1] / turn])

    return jax.vmap(one, in_axes=-1, out_axes=-1)(action, limits)
