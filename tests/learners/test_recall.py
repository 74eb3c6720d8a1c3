"""Delayed recall: a cue is seen in the first tick of a life and must be acted on ticks later, when nothing is seen.

Without memory both cues look alike by then, so half of the lives are lost whatever is learnt.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import streams

from outlast.learners import dqn, recurrent_dqn
from outlast.learners.dqn import QConfig
from outlast.learners.recurrent_dqn import MemoryConfig
from outlast.learners.replay import Tick

DELAY, LIVES, WORLDS, UPDATES = 6, 8, 16, 400
LIFE = DELAY + 2
"""Cue, blank ticks, the tick of the choice, and the idle tick in which the next life begins."""
RULES = QConfig(hidden=(16,), discount=0.9, n_step=1, target_every=20, learning_rate=3e-3)
FIELDS = {"cue": 2, "now": 1}


def lives(seed=0):
    """Return what a random player lived through: paid 1 for naming the cue in the last tick, and the end."""
    rng, length = np.random.default_rng(seed), LIFE * LIVES
    tick = np.arange(length) % LIFE
    cue = np.repeat(rng.integers(0, 2, (LIVES, WORLDS)), LIFE, axis=0)
    seen = np.zeros((length, WORLDS, 3), "f4")
    seen[..., :2] = np.eye(2)[cue] * (tick == 0)[:, None, None]
    seen[..., 2] = (tick == DELAY)[:, None]
    action = rng.integers(0, 2, (length, WORLDS)).astype("i4")
    last = np.broadcast_to((tick == DELAY)[:, None], (length, WORLDS))
    reward = (last & (action == cue)).astype("f4")
    legal, none = np.ones((length, WORLDS, 2), bool), np.zeros((length, WORLDS), bool)
    idle = np.broadcast_to((tick == DELAY + 1)[:, None], (length, WORLDS))
    return Tick(seen, action, reward, 0 * reward, last, none, idle, legal)


def examination():
    """Return one life of each cue: what is seen in each tick, [T, 2, 3]."""
    seen = np.zeros((DELAY + 1, 2, 3), "f4")
    seen[0, :, :2] = np.eye(2)
    seen[-1, :, 2] = 1
    return jnp.asarray(seen)


def repeated(update, state, ring):
    """Learn UPDATES times."""

    def one(state, i):
        return update(state, ring, jax.random.fold_in(jax.random.key(1), i))[0], None

    return jax.lax.scan(one, state, jnp.arange(UPDATES))[0]


GIVEN = {"config": RULES, "share": jnp.float32(0), "rate": jnp.float32(RULES.learning_rate)}
BATCH = streams.config(worlds=WORLDS, rows=LIFE * LIVES, batch=32)


def with_memory(ring, *, seed):
    memory = MemoryConfig(width=16, channels=(), sequence=LIFE, trace=0.7)
    state = recurrent_dqn.new_learner(jax.random.key(seed), FIELDS, 2, RULES, memory)
    learn = functools.partial(recurrent_dqn.learn, rules=BATCH, memory=memory, **GIVEN)
    network, seen = repeated(learn, state, ring).network, examination()
    memories = recurrent_dqn.unrolled(network, seen, jnp.zeros((32, 2)), jnp.zeros(seen.shape[:2], bool))
    return recurrent_dqn.q_values(network, memories)[-1]


def without_memory(ring, *, seed):
    state = dqn.new_learner(jax.random.key(seed), FIELDS, 2, RULES)
    learn = functools.partial(dqn.learn, rules=BATCH, beta=jnp.float32(0), **GIVEN)
    return repeated(learn, state, ring).network(examination()[-1].T)


@functools.cache
def values(learner, seed):
    """Return what each action is worth when the cue must be named, in units of the reward: [action, cue]."""
    ring = streams.written(lives(), stride=LIFE, n_memory=32)
    found = jax.jit(lambda ring: learner(ring, seed=seed))(ring)
    return np.asarray(found) / (1 - RULES.discount)


@pytest.mark.parametrize("seed", [0, 1])
def test_memory_recalls_the_cue(seed):
    # 1 for the cue and 0 for the other; a third of the way is far beyond what two blind guesses can differ.
    np.testing.assert_allclose(values(with_memory, seed), np.eye(2), atol=0.3)


@pytest.mark.parametrize("seed", [0, 1])
def test_without_memory_it_cannot_be_solved(seed):
    found = values(without_memory, seed)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])
    right = (found.argmax(axis=0) == np.arange(2)).mean()
    assert right == 0.5
    # It did learn: a guess is worth a half, within the luck of 128 lives (two deviations of 0.06 in each action).
    np.testing.assert_allclose(found, 0.5, atol=0.2)
