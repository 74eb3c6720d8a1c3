"""The opponents that are playing now: groups of worlds that share a past policy, so that all of them act in a
few batched products. Each group holds two: an episode keeps the one it began with, new episodes take the newer.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from outlast.selfplay.config import LeagueConfig
from outlast.selfplay.pool import Policy, Pool, act, drawn, recorded


class Bench(eqx.Module):
    """The past policies of one role that are in play. G groups, 2 slots each."""

    policies: Policy
    entry: Int[Array, "G 2"]
    born: Int[Array, "G 2"]
    newest: Int[Array, " G"]


def first_bench(pool: Pool, groups: int) -> Bench:
    """Seat the first entry of a pool everywhere."""
    seats = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[0], (groups, 2, *leaf.shape[1:])), pool.policies)
    none = jnp.zeros((groups, 2), jnp.int32)
    return Bench(seats, none, none, jnp.zeros(groups, jnp.int32))


def redrawn(
    bench: Bench,
    pool: Pool,
    slots: Int[Array, " H"],
    key: Key[Array, ""],
    *,
    config: LeagueConfig,
    hard: Bool[Array, ""] | bool,
) -> Bench:
    """Draw a new opponent for each group in which no running episode uses the older seat any more."""
    groups = bench.newest.shape[0]
    older = 1 - bench.newest
    free = ~jnp.any(slots.reshape(groups, -1) == older[:, None], axis=1)
    entry = drawn(pool, key, groups, sampling=config.sampling, hard=hard)
    taken = free[:, None] & (jnp.arange(2) == older[:, None])

    def put(old: Array, new: Array) -> Array:
        return jnp.where(taken.reshape(groups, 2, *[1] * (old.ndim - 2)), new[:, None], old)

    return Bench(
        policies=jax.tree.map(lambda old, all_: put(old, all_[entry]), bench.policies, pool.policies),
        entry=put(bench.entry, entry),
        born=put(bench.born, pool.born[entry]),
        newest=jnp.where(free, older, bench.newest),
    )


def bench_action(
    bench: Bench,
    slots: Int[Array, " H"],
    observations: Float[Array, "D H"],
    noise: Float[Array, "A H"],
    *,
    log_std_min: float,
) -> Float[Array, "A H"]:
    """Let the past policies act, each in the worlds of its group; both seats act and one is kept."""
    groups = bench.newest.shape[0]
    seen = observations.reshape(observations.shape[0], groups, -1)
    draws = noise.reshape(noise.shape[0], groups, -1)

    def both_seats(policies: Policy, columns: Array, step_noise: Array) -> Array:
        return jax.vmap(lambda policy: act(policy, columns, step_noise, log_std_min=log_std_min))(policies)

    raw = jax.vmap(both_seats, in_axes=(0, 1, 1), out_axes=2)(bench.policies, seen, draws)
    raw = raw.reshape(2, noise.shape[0], -1)
    return jnp.where(slots == 0, raw[0], raw[1])


def credited(
    bench: Bench, pool: Pool, slots: Int[Array, "T H"], ended: Bool[Array, "T H"], won: Bool[Array, "T H"]
) -> Pool:
    """Book finished games with the entries they were played against, if those are still in the pool."""
    groups = bench.newest.shape[0]
    seat = slots.reshape(slots.shape[0], groups, -1)[..., None] == jnp.arange(2)

    def per_seat(flags: Array) -> Array:
        return jnp.sum(flags.reshape(*seat.shape[:3], 1) & seat, axis=(0, 2)).astype(jnp.float32)

    same = pool.born[bench.entry] == bench.born
    games, wins = per_seat(ended) * same, per_seat(ended & won) * same
    return recorded(pool, bench.entry.ravel(), games.ravel(), wins.ravel())
