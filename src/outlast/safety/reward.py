"""What a role is paid for safety, from what its shield saw. Each role is paid for its own robot: not zero-sum."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from outlast.safety.config import SafetyReward
from outlast.safety.shield import Applied


def safety_reward(done: Applied, top: Float[Array, "2 B"], config: SafetyReward) -> Float[Array, " B"]:
    """Sum the terms that have a weight; `top` are the greatest commands, the unit of a correction."""
    reward = jnp.zeros_like(done.margin_m)
    if config.margin > 0:
        reward += config.margin * jnp.clip(done.margin_m / config.margin_full_m, 0.0, 1.0)
    if config.violation > 0:
        reward -= config.violation * done.shortfall
    if config.intervention > 0:
        change = (done.applied - done.chosen) / top * jnp.array([[2.0], [1.0]])
        size = jnp.sum(change**2, axis=0) / config.intervention_scale
        reward -= config.intervention * (1 - jnp.exp(-size))
    return reward
