"""Random network distillation: novelty is how badly a trained predictor imitates a frozen random network.

Observations are normalised by running moments. The bonus is in units of the running deviation of novelty and has zero
mean over each batch, so it rewards the unfamiliar without paying, or fining, one side for merely being alive.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from outlast.learners.normalise import CLIP, Moments, no_moments, normalised, updated
from outlast.nets import Linear, Mlp, linear, mlp


class Embedding(eqx.Module):
    """Hidden layers and a linear read-out."""

    body: Mlp
    head: Linear

    def __call__(self, columns: Float[Array, "D B"]) -> Float[Array, "E B"]:
        """Embed each column."""
        return self.head(self.body(columns))


class Novelty(eqx.Module):
    """Everything that novelty changes, and the frozen target it is measured against."""

    target: Embedding
    predictor: Embedding
    optimiser: optax.OptState
    observations: Moments
    errors: Moments


ADAM = optax.scale_by_adam()


def new_novelty(key: Key[Array, ""], n_observations: int, *, hidden: int, embedding: int) -> Novelty:
    """Return untrained novelty."""
    target_key, predictor_key = jax.random.split(key)
    target, predictor = (
        _embedding(k, n_observations, hidden=hidden, embedding=embedding) for k in (target_key, predictor_key)
    )
    return Novelty(target, predictor, ADAM.init(predictor), no_moments(n_observations), no_moments(1))


def _embedding(key: Key[Array, ""], n: int, *, hidden: int, embedding: int) -> Embedding:
    body_key, head_key = jax.random.split(key)
    return Embedding(
        mlp(body_key, n, (hidden, hidden), "relu"), linear(head_key, hidden, embedding, gain=1.0)
    )


def raw_novelty(novelty: Novelty, observations: Float[Array, "D N"]) -> Float[Array, " N"]:
    """Return the mean squared error of the predictor for each observation."""
    seen = normalised(observations, novelty.observations)
    return jnp.mean((novelty.predictor(seen) - novelty.target(seen)) ** 2, axis=0)


def bonus(novelty: Novelty, observations: Float[Array, "D N"]) -> Float[Array, " N"]:
    """Return the novelty of each observation above the batch's mean, clipped; zero before anything was seen."""
    # The running mean would not do: it lags behind as the predictor learns, which would be a lasting fine.
    error = raw_novelty(novelty, observations)
    spread = jnp.sqrt(novelty.errors.squares[0] / jnp.maximum(novelty.errors.count, 1.0) + 1e-8)
    centred = jnp.clip((error - jnp.mean(error)) / spread, -CLIP, CLIP)
    return jnp.where(novelty.errors.count > 0, centred, 0.0)


def learned(
    novelty: Novelty,
    observations: Float[Array, "D N"],
    picks: Array,
    *,
    learning_rate: float,
) -> Novelty:
    """Merge what was seen into the moments and train the predictor one step on the picked columns."""
    seen_moments = updated(novelty.observations, observations)
    novelty = eqx.tree_at(lambda n: n.observations, novelty, seen_moments)
    error_moments = updated(novelty.errors, raw_novelty(novelty, observations)[None])
    seen = normalised(observations[:, picks], seen_moments)
    aim = novelty.target(seen)

    def loss(predictor: Embedding) -> Array:
        return jnp.mean((predictor(seen) - aim) ** 2)

    gradient = jax.grad(loss)(novelty.predictor)
    direction, optimiser = ADAM.update(gradient, novelty.optimiser)
    predictor = jax.tree.map(lambda p, d: p - learning_rate * d, novelty.predictor, direction)
    return Novelty(novelty.target, predictor, optimiser, seen_moments, error_moments)
