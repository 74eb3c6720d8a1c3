"""Advantages and returns from rollouts. Axis T is time, axis B worlds."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def advantages(
    rewards: Float[Array, "T B"],
    values: Float[Array, "T B"],
    successor_values: Float[Array, "T B"],
    terminated: Bool[Array, "T B"],
    truncated: Bool[Array, "T B"],
    *,
    discount: float,
    trace: float,
) -> Float[Array, "T B"]:
    """Return generalised advantage estimates (Schulman et al., 2016).

    `successor_values[t]` is the value of the true successor of step t, never of a reset state. A terminated
    step does not bootstrap; a truncated one does; the trace is cut at both.
    """
    errors = rewards + discount * jnp.where(terminated, 0.0, successor_values) - values
    goes_on = ~(terminated | truncated)

    def backward(after: Float[Array, " B"], step: tuple[Array, Array]) -> tuple[Array, Array]:
        error, on = step
        advantage = error + discount * trace * on * after
        return advantage, advantage

    return jax.lax.scan(backward, jnp.zeros_like(values[0]), (errors, goes_on), reverse=True)[1]


def explained_variance(predicted: Float[Array, "..."], actual: Float[Array, "..."]) -> Float[Array, ""]:
    """Return the share of the variance of `actual` that `predicted` explains; 1 is perfect, below 0 harmful."""
    spread = jnp.var(actual)
    return jnp.where(spread > 0, 1.0 - jnp.var(actual - predicted) / jnp.maximum(spread, 1e-12), 0.0)
