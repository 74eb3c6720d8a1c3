"""Q-learning finds the analytic values of small worlds, out of a replay of what a random player did in them.

A world is a table over states and actions; values are in units of reward per tick, times (1 - discount).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import streams

from outlast.learners import dqn
from outlast.learners.dqn import QConfig
from outlast.learners.replay import Tick

DISCOUNT, WORLDS, LENGTH, UPDATES = 0.8, 8, 64, 600
N_STATES, N_ACTIONS = 3, 2
NEVER = 7.0
"""What an untrained network thinks of an action that is never legal."""


def probe(*, pays, leads, dies=(), cut=(), forbidden=()):
    """Return a world: pays and leads are [state][action]; dies, cut, forbidden list (state, action)."""
    flags = [np.zeros((N_STATES, N_ACTIONS), bool) for _ in range(3)]
    for flag, pairs in zip(flags, (dies, cut, forbidden), strict=True):
        for pair in pairs:
            flag[pair] = True
    return np.array(pays, "f4"), np.array(leads), flags[0], flags[1], ~flags[2]


BOTH = [(0, 0), (0, 1)]
G = DISCOUNT
PROBES = {
    # One tick that pays 1 or 0 and the end.
    "choice": (probe(pays=[[1, 0]] * 3, leads=[[1, 1]] * 3, dies=BOTH), {(0, 0): 1.0, (0, 1): 0.0}),
    # 0, then 1 and the end.
    "delay": (
        probe(pays=[[0, 0], [1, 1], [0, 0]], leads=[[1, 1]] * 3, dies=[(1, 0), (1, 1)]),
        {(0, 0): G, (1, 0): 1.0},
    ),
    # 1 at once and the end, or nothing now and 2 in the next tick.
    "patience": (
        probe(pays=[[1, 0], [2, 2], [0, 0]], leads=[[1, 1]] * 3, dies=[(0, 0), (1, 0), (1, 1)]),
        {(0, 0): 1.0, (0, 1): 2 * G},
    ),
    # 1 for ever, but each life is cut after a tick: the value of no end.
    "truncation": (
        probe(pays=[[1, 1]] * 3, leads=[[0, 0]] * 3, cut=BOTH),
        {(0, 0): 1 / (1 - G), (0, 1): 1 / (1 - G)},
    ),
    # The other action of the second state is thought to be worth a lot, but is never legal.
    "mask": (
        probe(pays=[[0, 0], [1, 0], [0, 0]], leads=[[1, 1]] * 3, dies=[(1, 0)], forbidden=[(1, 1)]),
        {(0, 0): G, (0, 1): G, (1, 0): 1.0},
    ),
}  # fmt: skip


def played(world, seed=0):
    """Play a world at random; return the stream."""
    pays, leads, dies, cut, legal = world
    rng, state, idle = np.random.default_rng(seed), np.zeros(WORLDS, int), np.zeros(WORLDS, bool)
    rows = []
    for _ in range(LENGTH):
        action = np.where(legal[state, 1], rng.integers(0, 2, WORLDS), 0)
        ends = [flag[state, action] & ~idle for flag in (dies, cut)]
        reward = np.where(idle, 0.0, pays[state, action]).astype("f4")
        rows.append(
            Tick(
                np.eye(N_STATES, dtype="f4")[state],
                action.astype("i4"),
                reward,
                0 * reward,
                *ends,
                idle,
                legal[state],
            )
        )
        state = np.where(idle, 0, leads[state, action])
        idle = ends[0] | ends[1]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


VARIANTS = {
    "plain": ({"double": False}, False),
    "double": ({"double": True}, False),
    "dueling, prioritised": ({"double": True, "dueling": True}, True),
}


@functools.cache
def training(variant):
    changes, prioritised = VARIANTS[variant]
    rules = QConfig(hidden=(16,), discount=DISCOUNT, n_step=1, target_every=20, **changes)
    given = streams.config(worlds=WORLDS, rows=LENGTH, batch=64, prioritised=prioritised)

    def train(ring):
        state = dqn.new_learner(jax.random.key(0), {"state": N_STATES}, N_ACTIONS, rules)
        # Hope for what was never tried must not leak into what was.
        state = dqn.started(
            dqn.eqx.tree_at(lambda n: n.head.advantage.bias, state.network, jnp.array([0.0, NEVER * (1 - G)]))
        )

        def one(carry, i):
            state, ring = carry
            rate = 1e-2 * (1 - i / UPDATES)
            key = jax.random.fold_in(jax.random.key(1), i)
            beta = jnp.float32(0.4)
            state, ring, _ = dqn.learn(
                state, ring, key, config=rules, rules=given, share=jnp.float32(0), rate=rate, beta=beta
            )
            return (state, ring), None

        (state, _), _ = jax.lax.scan(one, (state, ring), jnp.arange(UPDATES))
        return state.network(jnp.eye(N_STATES))

    return jax.jit(train), prioritised


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_learns_the_analytic_value(variant, name):
    world, values = PROBES[name]
    train, prioritised = training(variant)
    q = np.asarray(train(streams.written(played(world), prioritised=prioritised))).T / (1 - DISCOUNT)
    for place, wanted in values.items():
        # Rewards are deterministic; Adam's last steps are of a rate near zero. The truncated value is approached by
        # a factor 0.8 per copy to the target: 30 copies leave 0.8 ** 30 = 0.1 %.
        assert q[place] == pytest.approx(wanted, abs=0.02, rel=0.02), (place, q)
