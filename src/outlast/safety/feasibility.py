"""A learned classifier of where no command will be allowed: the first tier of the shield, where it is on.

Logistic regression on what is near and on random Fourier features of it, which stand for an RBF kernel
(Rahimi and Recht, 2007), balanced by class. It is optimistic until it has seen enough of both classes, and it
acts: see `Tier.PREDICTED`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from outlast.safety.barrier import Rows

N_FEATURES, N_INPUTS = 64, 6
LEAST_SAMPLES = 50
CONFIDENT = 2.0
"""The logit from which it acts: 0.88 where both classes are equally frequent."""
STEPS, STEP_SIZE, DECAY = 8, 0.8, 1e-4
NEAR_M = 0.2
"""Distances count relative to this; what is several times as far is all the same."""
_WAVES = np.random.default_rng(8).normal(size=(N_FEATURES, N_INPUTS)).astype(np.float32)
_PHASES = np.random.default_rng(9).uniform(0, 2 * np.pi, size=(N_FEATURES, 1)).astype(np.float32)


class Feasibility(eqx.Module):
    """Weights (the last is the bias), and how many samples of each class they have seen: allowed, not."""

    weights: Float[Array, " W"]
    seen: Float[Array, "2"]


def untrained() -> Feasibility:
    """Return a classifier that expects no trouble."""
    return Feasibility(jnp.zeros(N_INPUTS + N_FEATURES + 1), jnp.zeros(2))


def features_of(rows: Rows) -> Float[Array, " N"]:
    """Describe one robot's surroundings: the nearest wall and the nearest other thing, each by distance and side."""

    def nearest(first: int, last: int | None) -> list[Array]:
        margin = jnp.where(rows.active, rows.margin_m, jnp.inf)[first:last]
        least = jnp.min(margin, initial=jnp.inf)
        here = (margin == least) & jnp.isfinite(margin)
        length = jnp.sqrt(rows.a_v**2 + rows.a_w**2)[first:last]
        sides = (a[first:last] / jnp.maximum(length, 1e-9) for a in (rows.a_v, rows.a_w))
        return [jnp.tanh(least / NEAR_M), *(jnp.sum(jnp.where(here, side, 0.0)) for side in sides)]

    return jnp.stack([*nearest(0, 4), *nearest(4, None)])


def logits(model: Feasibility, features: Float[Array, "F B"]) -> Float[Array, " B"]:
    """Return the logit that no command is allowed, for each column."""
    waves = jnp.cos(_WAVES @ features + _PHASES) * np.sqrt(2 / N_FEATURES).astype(np.float32)
    return model.weights[:-1] @ jnp.concatenate([features, waves]) + model.weights[-1]


def predicted_infeasible(model: Feasibility, features: Float[Array, "F B"]) -> Bool[Array, " B"]:
    """Tell where the classifier is sure that no command will be allowed."""
    ready = jnp.all(model.seen >= LEAST_SAMPLES)
    return ready & (logits(model, features) > CONFIDENT)


def learned(model: Feasibility, features: Float[Array, "F N"], infeasible: Bool[Array, " N"]) -> Feasibility:
    """Take a few steps on one batch, in which both classes weigh the same; none where one is missing."""
    count = jnp.stack([jnp.sum(~infeasible), jnp.sum(infeasible)]).astype(jnp.float32)
    share = jnp.where(infeasible, 0.5 / jnp.maximum(count[1], 1.0), 0.5 / jnp.maximum(count[0], 1.0))
    sign = jnp.where(infeasible, 1.0, -1.0)

    def loss(weights: Array) -> Array:
        margin = sign * logits(Feasibility(weights, model.seen), features)
        return jnp.sum(share * jax.nn.softplus(-margin)) + DECAY * jnp.sum(weights[:-1] ** 2)

    both = jnp.all(count > 0)
    weights = model.weights
    for _ in range(STEPS):
        weights = jnp.where(both, weights - STEP_SIZE * jax.grad(loss)(weights), weights)
    return Feasibility(weights, model.seen + count)
