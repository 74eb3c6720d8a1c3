"""Bilateral rollback: rolling copies of both learners, and a health monitor that goes back to them.

The copies exist from the first iteration on, so a rollback is possible in the first phase.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from outlast.selfplay.balance import chosen
from outlast.selfplay.config import BilateralRollbackConfig


class Rolling(eqx.Module):
    """The last copies of both learners, newest first, and the window of recent results."""

    copies: dict[str, PyTree]
    filled: Int[Array, ""]
    episodes: Float[Array, ""]
    captures: Float[Array, ""]
    rolled_back_at: Int[Array, ""]
    count: Int[Array, ""]


def first_rolling(learners: dict[str, PyTree], config: BilateralRollbackConfig) -> Rolling:
    """Begin with one copy: the learners as they are."""
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (config.keep, *leaf.shape)), learners)
    none = jnp.float32(0)
    return Rolling(copies, jnp.int32(1), none, none, jnp.int32(-(2**30)), jnp.int32(0))


def saved(rolling: Rolling, learners: dict[str, PyTree], due: Bool[Array, ""]) -> Rolling:
    """Add a copy of the learners where due; the oldest goes."""

    def shifted(old: Array, new: Array) -> Array:
        return jnp.where(due, jnp.concatenate([new[None], old[:-1]]), old)

    keep = jax.tree.leaves(rolling.copies)[0].shape[0]
    return dataclasses.replace(
        rolling,
        copies=jax.tree.map(shifted, rolling.copies, learners),
        filled=jnp.where(due, jnp.minimum(rolling.filled + 1, keep), rolling.filled),
    )


def observed(
    rolling: Rolling, episodes: Float[Array, ""], captures: Float[Array, ""], window: int
) -> Rolling:
    """Add results to the window; older ones fade so that at most `window` episodes count."""
    total = rolling.episodes + episodes
    fade = jnp.minimum(1.0, window / jnp.maximum(total, 1.0))
    return dataclasses.replace(rolling, episodes=total * fade, captures=(rolling.captures + captures) * fade)


def unhealthy(
    rolling: Rolling,
    entropy: Float[Array, ""],
    iteration: Array,
    cooldown: int,
    config: BilateralRollbackConfig,
) -> Bool[Array, ""]:
    """Tell whether play has collapsed: a full window nearly without or nearly all captures, or no exploration."""
    full = rolling.episodes >= config.window - 0.5
    rate = rolling.captures / jnp.maximum(rolling.episodes, 1.0)
    bad = (full & ((rate <= config.low) | (rate >= config.high))) | (entropy < config.entropy)
    return bad & (iteration - rolling.rolled_back_at >= cooldown)


def rolled_back(
    rolling: Rolling,
    learners: dict[str, PyTree],
    now: Bool[Array, ""],
    iteration: Array,
    active: dict[str, Array],
    config: BilateralRollbackConfig,
) -> tuple[Rolling, dict[str, PyTree]]:
    """Go back `depth` copies, or as far as there are; newer copies are dropped and the window starts empty."""
    back = jnp.minimum(config.depth, rolling.filled) - 1
    restored = {}
    for role, learner in learners.items():
        old = jax.tree.map(lambda leaf: leaf[back], rolling.copies[role])
        affected = now & (config.bilateral | active[role])
        restored[role] = chosen(affected, old, learner)
    dropped = jax.tree.map(lambda leaf: jnp.roll(leaf, -back, axis=0), rolling.copies)
    after = Rolling(
        copies=chosen(now, dropped, rolling.copies),
        filled=jnp.where(now, rolling.filled - back, rolling.filled),
        episodes=jnp.where(now, 0.0, rolling.episodes),
        captures=jnp.where(now, 0.0, rolling.captures),
        rolled_back_at=jnp.where(now, iteration, rolling.rolled_back_at),
        count=rolling.count + now,
    )
    return after, restored
