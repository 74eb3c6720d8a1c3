"""Memory that is trained: gradients through time, whole lives only, stored memory, and returns by hand."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import streams

from outlast.learners import recurrent_dqn
from outlast.learners.dqn import QConfig
from outlast.learners.recurrent_dqn import MemoryConfig

FIELDS = {"window": 25, "position": 2, "clock": 2, "progress": 1, "age": 1}
BLIND = {"position": 2}
SEQUENCE, WORLDS, WIDTH = 4, 3, 5
RULES = QConfig(hidden=(6,), discount=0.5, target_every=1000)
MEMORY = MemoryConfig(width=WIDTH, channels=(2,), sequence=SEQUENCE)
ONE = jnp.float32(1.0)


def fresh(fields=BLIND, *, rules=RULES, memory=MEMORY, seed=0):
    return recurrent_dqn.new_learner(jax.random.key(seed), fields, streams.N_ACTIONS, rules, memory)


def shaken(network, seed=1):
    """Move all weights, so that nothing is near zero."""
    flat, tree = jax.tree.flatten(network)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(tree, [w + rng.normal(0, 0.3, w.shape).astype("f4") for w in flat])


NETWORK = shaken(fresh().network)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def random_seen(length, size, n=2, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(length, n, size)), jnp.float32)


# --- through time


@functools.cache
def pull_of_first():
    """Compile the gradient of the last tick's values with respect to everything seen."""

    def last(seen, idle):
        memories = recurrent_dqn.unrolled(NETWORK, seen, jnp.zeros((2 * WIDTH, 2)), idle)
        return jnp.sum(recurrent_dqn.q_values(NETWORK, memories)[-1])

    return jax.jit(jax.grad(last))


def test_a_late_value_depends_on_early_sight():
    pull = np.abs(pull_of_first()(random_seen(8, 2), jnp.zeros((8, 2), bool)))
    assert (pull.max(axis=2) > 1e-7).all()


def test_a_late_value_does_not_depend_on_another_life():
    idle = jnp.zeros((8, 2), bool).at[3, 0].set(True)
    pull = np.abs(pull_of_first()(random_seen(8, 2), idle)).max(axis=2)
    assert (pull[:4, 0] == 0).all()
    assert (pull[4:, 0] > 0).all()
    assert (pull[:, 1] > 0).all()


def test_unrolling_is_playing_tick_by_tick():
    seen, idle = random_seen(6, 2), np.zeros((6, 2), bool)
    idle[2, 1] = True
    memories = recurrent_dqn.unrolled(NETWORK, seen, jnp.ones((2 * WIDTH, 2)), jnp.asarray(idle))
    q = recurrent_dqn.q_values(NETWORK, memories)
    memory, play = jnp.ones((2 * WIDTH, 2)), jax.jit(lambda seen, memory: NETWORK(seen, memory))
    for t in range(6):
        values, memory = play(seen[t].T, memory)
        # The same sums in other shapes.
        np.testing.assert_allclose(values, q[t], rtol=1e-5, atol=1e-6)
        memory = jnp.where(idle[t], 0.0, memory)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_that_is_seen_changes_the_values(name):
    network = shaken(fresh(FIELDS).network)
    start = sum(list(FIELDS.values())[: list(FIELDS).index(name)])
    rng = np.random.default_rng(0)
    seen = rng.integers(-1, 2, (sum(FIELDS.values()), 64)).astype("f4")
    look = jax.jit(lambda seen: network(seen, jnp.zeros((2 * WIDTH, 64)))[0])
    before = np.asarray(look(seen))
    for place in range(start, start + FIELDS[name]):
        other = seen.copy()
        other[place] = (seen[place] + 2) % 3 - 1
        # A rectifier may hide a change in some surroundings, but not in all.
        assert np.abs(look(other) - before).max() > 1e-5, place


# --- returns


def by_the_book(reward, following, dead, cut, *, discount, trace):
    """Write Peng's returns out from the end, one stream."""
    total, after = np.zeros(len(reward)), following[-1]
    for t in reversed(range(len(reward))):
        share = 0.0 if cut[t] else trace
        rest = (1 - share) * following[t] + share * after
        total[t] = after = reward[t] + (0.0 if dead[t] else discount * rest)
    return total


@pytest.mark.parametrize("trace", [0.0, 0.7, 1.0])
def test_returns_end_at_deaths_and_bootstrap_at_limits_and_at_the_end(trace):
    rng = np.random.default_rng(0)
    reward, following = rng.normal(size=(2, 9, 40)).astype("f4")
    dead = rng.random((9, 40)) < 0.15
    cut = ~dead & (rng.random((9, 40)) < 0.15)
    got = recurrent_dqn.returns(reward, following, dead, cut, discount=0.9, trace=trace)
    for n in range(40):
        wanted = by_the_book(reward[:, n], following[:, n], dead[:, n], cut[:, n], discount=0.9, trace=trace)
        # Sums of nine float32 numbers of order one.
        np.testing.assert_allclose(got[:, n], wanted, atol=1e-5)


def test_returns_by_hand():
    reward, following = jnp.array([[1.0], [2.0], [4.0]]), jnp.array([[10.0], [20.0], [30.0]])
    no, given = jnp.zeros((3, 1), bool), {"discount": 0.5, "trace": 0.5}
    last = 4 + 0.5 * 30
    second = 2 + 0.5 * (20 + last) / 2
    first = 1 + 0.5 * (10 + second) / 2
    assert recurrent_dqn.returns(reward, following, no, no, **given)[:, 0].tolist() == [first, second, last]
    at = no.at[1].set(True)
    assert recurrent_dqn.returns(reward, following, at, no, **given)[:2, 0].tolist() == [1 + 0.5 * 6, 2.0]
    cut = recurrent_dqn.returns(reward, following, no, at, **given)[:2, 0].tolist()
    assert cut == [1 + 0.5 * (10 + 12) / 2, 12.0]


# --- the loss of sequences


def made_ticks(length, seed=0, **given):
    given = {"ends": 0.2} | given
    return streams.ticks(length, WORLDS, seed=seed, **given)


@functools.cache
def losses(memory=MEMORY, rules=RULES):
    other = shaken(NETWORK, seed=2)

    def total(ticks, start, share=ONE):
        return recurrent_dqn.loss(NETWORK, other, ticks, start, share, rules, memory)

    return jax.jit(lambda *a: total(*a)[0]), jax.jit(lambda *a: total(*a)[1])


NOTHING = jnp.zeros((2 * WIDTH, WORLDS))


def changed(ticks, name, t, by=3.0):
    value = np.array(getattr(ticks, name), copy=True)
    value[t] = value[t] + by
    return dataclasses.replace(ticks, **{name: value})


def test_burn_in_warms_up_and_is_not_learnt_from():
    memory = MEMORY.model_copy(update={"burn_in": SEQUENCE})
    total, _ = losses(memory)
    ticks = made_ticks(2 * SEQUENCE + 1, ends=0.0)
    base = float(total(ticks, NOTHING))
    for t in range(2 * SEQUENCE):
        moved = float(total(changed(ticks, "extrinsic", t), NOTHING))
        assert (moved != base) == (t >= SEQUENCE), t
    assert float(total(changed(ticks, "seen", 0), NOTHING)) != base
    # Of the tick after the last only the value counts, not what was paid in it.
    assert float(total(changed(ticks, "extrinsic", 2 * SEQUENCE), NOTHING)) == base
    assert float(total(changed(ticks, "seen", 2 * SEQUENCE), NOTHING)) != base


def test_errors_are_those_of_the_returns():
    _, parts = losses()
    ticks = made_ticks(SEQUENCE + 1)
    assert (ticks.terminated | ticks.truncated).any() and ticks.idle.any()
    error, value = parts(ticks, NOTHING, jnp.float32(0.5))
    mine, theirs = (
        np.asarray(recurrent_dqn.q_values(n, recurrent_dqn.unrolled(n, ticks.seen, NOTHING, ticks.idle)))
        for n in (NETWORK, shaken(NETWORK, seed=2))
    )
    choice = np.where(np.moveaxis(ticks.legal, 2, 1), mine, -np.inf).argmax(axis=1)
    following = np.take_along_axis(theirs, choice[:, None], axis=1)[1:, 0]
    for w in range(WORLDS):
        paid = (ticks.extrinsic + 0.5 * ticks.intrinsic)[:-1, w] * (1 - RULES.discount)
        ends = ticks.terminated[:-1, w], ticks.truncated[:-1, w]
        aim = by_the_book(paid, following[:, w], *ends, discount=RULES.discount, trace=MEMORY.trace)
        taken = mine[np.arange(SEQUENCE), ticks.action[:-1, w], w]
        wanted = np.where(ticks.idle[:-1, w], 0.0, taken - aim)
        np.testing.assert_allclose(error[:, w], wanted, atol=2e-5)  # float32 through two other programs
        np.testing.assert_allclose(value[:, w], taken, atol=1e-5)


def test_an_idle_tick_carries_no_loss_and_starts_anew():
    total, _ = losses()
    flags = {name: np.zeros((SEQUENCE + 1, WORLDS), bool) for name in ("terminated", "truncated", "idle")}
    flags["truncated"][1], flags["idle"][2] = True, True
    ticks = made_ticks(SEQUENCE + 1, **flags)
    base = float(total(ticks, NOTHING))
    for name in ("extrinsic", "action"):
        step = 3.0 if name == "extrinsic" else (ticks.action[2] == 0) * 2 - 1
        assert float(total(changed(ticks, name, 2, by=step), NOTHING)) == base
    # What the cut life would have seen next is valued.
    assert float(total(changed(ticks, "seen", 2), NOTHING)) != base


# --- learning


@functools.cache
def learning(memory=MEMORY, rules=RULES):
    given = streams.config(worlds=WORLDS, rows=16, batch=6)

    def learn(state, ring, key):
        return recurrent_dqn.learn(
            state, ring, key, config=rules, rules=given, memory=memory, share=ONE, rate=jnp.float32(1e-2)
        )

    return jax.jit(learn)


def ring_of(stream=None):
    stream = made_ticks(16) if stream is None else stream
    return streams.written(stream, stride=SEQUENCE, n_memory=2 * WIDTH)


def test_learning_reads_the_memory_of_play_and_never_changes_it():
    ring = ring_of()
    after = learning()(fresh(), ring, jax.random.key(0))
    assert same(after[1], ring)
    assert not same(after[0].network, fresh().network)
    assert (int(after[0].updates), float(after[2]["nonfinite"])) == (1, 0.0)
    forgotten = eqx.tree_at(lambda r: r.memory, ring, jnp.zeros_like(ring.memory))
    assert not same(learning()(fresh(), forgotten, jax.random.key(0))[0].network, after[0].network)


def test_without_stored_memory_sequences_start_from_nothing():
    memory = MEMORY.model_copy(update={"stored_state": False})
    ring = ring_of()
    forgotten = eqx.tree_at(lambda r: r.memory, ring, jnp.zeros_like(ring.memory))
    a, b = (learning(memory)(fresh(), r, jax.random.key(0))[0] for r in (ring, forgotten))
    assert same(a, b)


def test_learning_keeps_the_tree_and_its_types():
    state = fresh()
    after = jax.eval_shape(learning(), state, ring_of(), jax.random.key(0))[0]
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted():
    stream = dataclasses.replace(made_ticks(16), extrinsic=np.full((16, WORLDS), np.nan, "f4"))
    after, _, measures = learning()(fresh(), ring_of(stream), jax.random.key(0))
    assert same(after.network, fresh().network)
    assert same(after.optimiser, fresh().optimiser)
    assert float(measures["nonfinite"]) == 1.0
