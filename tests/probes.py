"""Probe worlds: games so small that their value is known by hand, and a learner that lacks one thing fails one.

A probe is a table over a few states, so all of them run in one compiled program. State s shows its row of
`looks`, pays `pays[s]` less the squared distance of the action from `wants[s]`, and leads to `leads[s]`; after it
the game goes on, is terminated, or is truncated. `values` and `best` are the analytic answers.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from outlast.learners import ppo
from outlast.learners.ppo import Batch, PpoConfig
from outlast.learners.returns import advantages

N_STATES, DISCOUNT = 3, 0.9
WORLDS, HORIZON = 32, 8


class Table(eqx.Module):
    """The rules of a probe, one row per state."""

    looks: Float[Array, "S 2"]
    pays: Float[Array, " S"]
    wants: Float[Array, " S"]
    cares: Float[Array, " S"]
    leads: Int[Array, " S"]
    terminates: Bool[Array, " S"]
    truncates: Bool[Array, " S"]
    starts: Int[Array, " 2"]


@dataclasses.dataclass(frozen=True)
class Probe:
    """A table with its analytic value in each state that is visited, and the best action where one is wanted."""

    table: Table
    values: dict[int, float]
    best: dict[int, float] = dataclasses.field(default_factory=dict)


def _table(
    *, looks, pays, wants=(0, 0, 0), cares=(0, 0, 0), leads=(0, 0, 0), terminates, truncates=(), starts
):
    flags = [np.isin(np.arange(N_STATES), ends) for ends in (terminates, truncates)]
    floats = [np.array(rows, np.float32) for rows in (looks, pays, wants, cares)]
    return Table(*floats, np.array(leads, np.int32), *flags, np.array(starts, np.int32))


SAME = ((1, 0), (1, 0), (1, 0))
EACH = ((1, 0), (0, 1), (1, 1))
ALL = (0, 1, 2)
PROBES = {
    # One step that pays 1: V = 1.
    "constant reward": Probe(_table(looks=SAME, pays=(1, 1, 1), terminates=ALL, starts=(0, 0)), {0: 1.0}),
    # One step that pays what is seen: V(s) = r(s).
    "reward by observation": Probe(
        _table(looks=EACH, pays=(1, -1, 0), terminates=ALL, starts=(0, 1)), {0: 1.0, 1: -1.0}
    ),
    # 0, then 1 and the end: V = discount, then 1.
    "two-step delay": Probe(
        _table(looks=EACH, pays=(0, 1, 0), leads=(1, 0, 0), terminates=(1, 2), starts=(0, 0)),
        {0: DISCOUNT, 1: 1.0},
    ),
    # 1 at each of two steps, then the end: V = 1 + discount, then 1.
    "termination does not bootstrap": Probe(
        _table(looks=EACH, pays=(1, 1, 0), leads=(1, 1, 0), terminates=(1, 2), starts=(0, 0)),
        {0: 1 + DISCOUNT, 1: 1.0},
    ),
    # The same, but cut by a limit in a game that has no end: V = 1 / (1 - discount) in both.
    "truncation bootstraps": Probe(
        _table(looks=EACH, pays=(1, 1, 0), leads=(1, 0, 0), terminates=(2,), truncates=(1,), starts=(0, 0)),
        {0: 1 / (1 - DISCOUNT), 1: 1 / (1 - DISCOUNT)},
    ),
    # Minus the squared distance from +0.5 or -0.5: the best mean is that, and V falls short of 0 by the noise only.
    "continuous action": Probe(
        _table(
            looks=EACH, pays=(0, 0, 0), wants=(0.5, -0.5, 0), cares=(1, 1, 0), terminates=ALL, starts=(0, 1)
        ),
        {0: 0.0, 1: 0.0},
        {0: 0.5, 1: -0.5},
    ),
}


def stacked(probes):
    """Return the tables of several probes as one, the probe axis first."""
    return jax.tree.map(lambda *rows: jnp.stack(rows), *[probe.table for probe in probes])


def trained(table: Table, config: PpoConfig, *, iterations: int, seed: int):
    """Train a fresh learner on a probe; return it."""
    key = jax.random.key(seed)
    learner = ppo.new_learner(jax.random.fold_in(key, 0), 2, 1, config)
    updates = iterations * config.epochs * config.minibatches

    def iterate(carry, key):
        learner, state = carry
        noise_key, start_key, shuffle_key = jax.random.split(key, 3)
        noise = jax.random.normal(noise_key, (HORIZON, 1, WORLDS))
        picks = jax.random.randint(start_key, (HORIZON, WORLDS), 0, 2)

        def step(state, inputs):
            noise, pick = inputs
            seen = table.looks[state].T
            choice = ppo.choose(learner, seen, noise, config)
            reward = table.pays[state] - table.cares[state] * (choice.action[0] - table.wants[state]) ** 2
            successor = table.leads[state]
            final_value = ppo.values(learner, table.looks[successor].T, config)
            ends = table.terminates[state], table.truncates[state]
            after = jnp.where(ends[0] | ends[1], table.starts[pick], successor)
            return after, (seen, choice, reward, final_value, *ends)

        state, (seen, choice, reward, final_value, terminated, truncated) = jax.lax.scan(
            step, state, (noise, picks)
        )
        gains = advantages(
            reward,
            choice.value,
            final_value,
            terminated,
            truncated,
            discount=config.discount,
            trace=config.trace,
        )

        def columns(rows):
            return jnp.moveaxis(rows, 1, 0).reshape(rows.shape[1], -1)

        batch = Batch(
            observations=columns(seen),
            actions=columns(choice.raw),
            log_probabilities=choice.log_probability.ravel(),
            values=choice.value.ravel(),
            advantages=gains.ravel(),
            returns=(gains + choice.value).ravel(),
        )
        # The rate falls to nothing, so that what is left is the answer and not its jitter.
        rate = config.learning_rate * (1.0 - learner.updates / updates)
        return (ppo.learn(learner, batch, shuffle_key, config=config, rate=rate)[0], state), None

    state = jnp.full(WORLDS, table.starts[0])
    keys = jax.random.split(jax.random.fold_in(key, 1), iterations)
    return jax.lax.scan(iterate, (learner, state), keys)[0][0]
