"""A pool of past policies of one role: immutable snapshots in one stacked pytree, with when they were born,
how good they were, and how the learners of the other role fared against them.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from outlast.learners.normalise import Moments, normalised
from outlast.learners.ppo import PpoState
from outlast.nets import Linear, Mlp

Sampling = Literal["uniform", "hard", "even"]


class Policy(eqx.Module):
    """What is needed to play: an actor, its noise and its input normaliser. No critic, no optimiser."""

    actor: Mlp
    mean: Linear
    log_std: Float[Array, " A"]
    moments: Moments


def policy_of(learner: PpoState) -> Policy:
    """Take the part of a learner that plays."""
    network = learner.playing
    return Policy(network.actor, network.mean, network.log_std, learner.moments)


def act(
    policy: Policy, observations: Float[Array, "D B"], noise: Float[Array, "A B"], *, log_std_min: float
) -> Float[Array, "A B"]:
    """Sample raw actions of one policy."""
    seen = observations
    if policy.moments.mean.size:
        seen = normalised(observations, policy.moments)
    scale = jnp.maximum(policy.log_std, log_std_min)[:, None]
    return policy.mean(policy.actor(seen)) + jnp.exp(scale) * noise


class Pool(eqx.Module):
    """Up to K past policies. `games` and `wins` are the other role's learner's, against each entry."""

    policies: Policy
    born: Int[Array, " K"]
    score: Float[Array, " K"]
    games: Float[Array, " K"]
    wins: Float[Array, " K"]
    size: Int[Array, ""]
    offered: Int[Array, ""]
    updates_seen: Int[Array, ""]

    @property
    def filled(self) -> Bool[Array, " K"]:
        """Tell which entries hold a policy."""
        return jnp.arange(self.born.shape[0]) < self.size

    @property
    def learner_win_rate(self) -> Float[Array, " K"]:
        """Estimate how often the learner beats each entry; one half before any game."""
        return (self.wins + 1.0) / (self.games + 2.0)


def first_pool(learner: PpoState, capacity: int) -> Pool:
    """Return a pool whose first entry is the learner's initial policy, born at iteration 0."""
    policy = policy_of(learner)
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (capacity, *leaf.shape)), policy)
    none = jnp.zeros(capacity)
    return Pool(
        policies=stacked,
        born=jnp.zeros(capacity, jnp.int32),
        score=none,
        games=none,
        wins=none,
        size=jnp.int32(1),
        offered=jnp.int32(1),
        updates_seen=learner.updates,
    )


def offered(
    pool: Pool,
    learner: PpoState,
    *,
    born: Int[Array, ""],
    score: Float[Array, ""],
    key: Key[Array, ""],
    eviction: Literal["reservoir", "fifo"],
) -> Pool:
    """Offer a snapshot: a pool with room takes it, a full one by reservoir sampling or in turn.

    A learner that has not changed since its last offer is not offered again, and one that a rollback has turned
    into an entry of the pool is not stored twice.
    """
    capacity = pool.born.shape[0]
    count = pool.offered + 1
    accept_key, place_key = jax.random.split(key)
    full = pool.size >= capacity
    if eviction == "reservoir":
        accepted = ~full | (jax.random.uniform(accept_key) < capacity / count)
        place = jnp.where(full, jax.random.randint(place_key, (), 0, capacity), pool.size)
    else:
        accepted, place = jnp.bool_(True), jnp.where(full, (count - 1) % capacity, pool.size)
    new = (learner.updates != pool.updates_seen) & ~held(pool, policy_of(learner))
    here = (jnp.arange(capacity) == place) & accepted & new

    def put(old: Array, value: Array) -> Array:
        return jnp.where(here.reshape(-1, *[1] * (old.ndim - 1)), value, old)

    return Pool(
        policies=jax.tree.map(put, pool.policies, policy_of(learner)),
        born=put(pool.born, born),
        score=put(pool.score, score),
        games=put(pool.games, jnp.float32(0)),
        wins=put(pool.wins, jnp.float32(0)),
        size=jnp.where(new & accepted, jnp.minimum(pool.size + 1, capacity), pool.size),
        offered=jnp.where(new, count, pool.offered),
        updates_seen=learner.updates,
    )


def held(pool: Pool, policy: Policy) -> Bool[Array, ""]:
    """Tell whether a pool holds this very policy."""

    def same(kept: Array, new: Array) -> Array:
        return jnp.all((kept == new).reshape(kept.shape[0], -1), axis=1)

    leaves = jax.tree.leaves(jax.tree.map(same, pool.policies, policy))
    return jnp.any(jnp.all(jnp.stack(leaves), axis=0) & pool.filled)


def sampling_weights(pool: Pool, sampling: Sampling) -> Float[Array, " K"]:
    """Weigh the entries: equally, or by how hard (or how even) they are for the learner."""
    rate = pool.learner_win_rate
    weight = {"uniform": jnp.ones_like(rate), "hard": (1 - rate) ** 2, "even": rate * (1 - rate)}[sampling]
    return jnp.where(pool.filled, weight, 0.0)


def drawn(
    pool: Pool, key: Key[Array, ""], n: int, *, sampling: Sampling, hard: Bool[Array, ""] | bool = False
) -> Int[Array, " n"]:
    """Draw entries by weight; `hard` overrides the sampling while a learner is collapsing."""
    weights = jnp.where(hard, sampling_weights(pool, "hard"), sampling_weights(pool, sampling))
    edges = jnp.cumsum(weights)
    draws = jax.random.uniform(key, (n, 1)) * edges[-1]
    return jnp.clip(jnp.sum(draws >= edges, axis=-1), 0, pool.size - 1).astype(jnp.int32)


def recorded(
    pool: Pool, entries: Int[Array, " n"], games: Float[Array, " n"], wins: Float[Array, " n"]
) -> Pool:
    """Add the results of games against entries to their statistics."""
    return eqx.tree_at(
        lambda p: (p.games, p.wins),
        pool,
        (pool.games.at[entries].add(games), pool.wins.at[entries].add(wins)),
    )
