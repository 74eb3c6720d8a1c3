"""Q-learning: targets by hand, masks, the ways of counting errors, and one update taken apart."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import streams

from outlast.learners import dqn
from outlast.learners.dqn import QConfig
from outlast.nets import Linear, Mlp

DISCOUNT = 0.5
FIELDS = {"position": 2}
ONE = jnp.float32(1.0)


def config(**changes):
    return QConfig(**({"hidden": (8,), "discount": DISCOUNT, "n_step": 1} | changes))


def table_network(values):
    """Return a network that looks Q-values [state, action] up: what is seen is a one-hot state."""
    weight = jnp.asarray(values, jnp.float32).T
    return dqn.QNetwork(None, Mlp((), "relu"), dqn.Head(Linear(weight, jnp.zeros(weight.shape[0])), None))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


@functools.cache
def folding(n_step):
    rules = config(n_step=n_step)

    def fold(ring, row, world, share):
        return dqn.sample_of(ring, row, world, jnp.ones(row.shape), share, rules)

    return jax.jit(fold)


# --- several rewards before a value

ENDS = {"death": ("terminated", True), "limit": ("truncated", False)}


def one_life(end, at=2):
    """Return six ticks of one world that pay 1, 2, 3, ...; the life ends in tick `at`, and the next is idle."""
    flags = {name: np.zeros((6, 1)) for name in ("terminated", "truncated", "idle")}
    if end:
        flags[ENDS[end][0]][at] = flags["idle"][at + 1] = 1
    pays = np.arange(1.0, 7.0)[:, None] * (1 - flags["idle"])
    return streams.ticks(6, 1, extrinsic=pays, intrinsic=10 * pays, **flags)


@pytest.mark.parametrize(
    ("end", "n_step", "row", "reward", "later", "discount"),
    [
        (None, 1, 0, 1, 1, 0.5),
        (None, 3, 1, 2 + 3 / 2 + 4 / 4, 4, 0.125),
        ("death", 1, 2, 3, 3, 0.0),
        ("death", 3, 0, 1 + 2 / 2 + 3 / 4, 3, 0.0),
        ("death", 3, 1, 2 + 3 / 2, 3, 0.0),
        # A cut life is worth what its true successor is worth, which stands in the idle tick after it.
        ("limit", 1, 2, 3, 3, 0.5),
        ("limit", 3, 0, 1 + 2 / 2 + 3 / 4, 3, 0.125),
        ("limit", 3, 1, 2 + 3 / 2, 3, 0.25),
        ("limit", 2, 0, 1 + 2 / 2, 2, 0.25),
    ],
)
def test_rewards_are_summed_up_to_the_end_of_the_life(end, n_step, row, reward, later, discount):
    ring = streams.written(one_life(end))
    sample = folding(n_step)(ring, jnp.array([row]), jnp.array([0]), jnp.float32(0.0))
    # Halves are exact; rewards are in units of (1 - discount).
    assert float(sample.reward[0]) == reward * (1 - DISCOUNT)
    assert sample.later_seen[:, 0].tolist() == [later, 0]
    assert float(sample.later_discount[0]) == discount
    np.testing.assert_array_equal(sample.later_legal[:, 0], np.asarray(ring.ticks.legal)[later, 0])
    assert float(sample.weight[0]) == 1.0


def test_an_idle_tick_weighs_nothing():
    ring = streams.written(one_life("limit"))
    sample = folding(1)(ring, jnp.array([2, 3, 4]), jnp.array([0, 0, 0]), jnp.float32(0.0))
    assert sample.weight.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_novelty_is_weighed_once(share):
    ring = streams.written(one_life(None))
    sample = folding(1)(ring, jnp.array([1]), jnp.array([0]), jnp.float32(share))
    assert float(sample.reward[0]) == (2 + share * 20) * (1 - DISCOUNT)


def by_the_book(ticks, t, world, n_step, share):
    """Fold a stream in plain Python."""
    total, factor = 0.0, 1.0
    for ahead in range(n_step):
        at = (t + ahead, world)
        total += factor * float(ticks.extrinsic[at] + share * ticks.intrinsic[at]) * (1 - DISCOUNT)
        factor *= DISCOUNT
        if ticks.terminated[at]:
            return total, None, 0.0
        if ticks.truncated[at]:
            break
    return total, t + ahead + 1, factor


@pytest.mark.parametrize("n_step", [1, 4])
def test_every_transition_of_random_streams_is_folded_as_by_the_book_across_the_end_of_the_ring(n_step):
    stream = streams.ticks(90, 4)
    ring = streams.written(stream, stride=6, rows=60)
    starts = [(t, w) for t in range(30, 90 - n_step) for w in range(4) if not stream.idle[t, w]]
    t, world = np.array(starts).T
    row = jnp.asarray((t - 30 + 30) % 60)
    sample = folding(n_step)(ring, row, jnp.asarray(world), jnp.float32(0.25))
    np.testing.assert_array_equal(sample.seen.T, np.array(starts))
    for i, (start, w) in enumerate(starts):
        total, later, factor = by_the_book(stream, start, w, n_step, 0.25)
        # Sums of at most four float32 products of order one.
        assert float(sample.reward[i]) == pytest.approx(total, abs=1e-6)
        assert float(sample.later_discount[i]) == factor
        assert later is None or sample.later_seen[:, i].tolist() == [later, w]


# --- the value of what comes after

ONLINE = jnp.array([[1.0, 9.0], [2.0, 1.0], [7.0, 3.0]])
TARGET = jnp.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]])
LEGAL = jnp.array([[True, False], [True, True], [False, True]])


def test_the_next_value_is_of_legal_actions_only():
    assert dqn.next_value(ONLINE, TARGET, LEGAL, double=False).tolist() == pytest.approx([0.2, 0.8])
    # Online prefers the second of two and the third of three; the target network says what they are worth.
    assert dqn.next_value(ONLINE, TARGET, LEGAL, double=True).tolist() == pytest.approx([0.2, 0.7])
    everything = jnp.ones_like(LEGAL)
    assert dqn.next_value(ONLINE, TARGET, everything, double=True).tolist() == pytest.approx([0.3, 0.9])


def test_the_best_action_is_the_first_of_equals_and_legal():
    action, value = dqn.best(jnp.array([[1.0, 5.0], [1.0, 2.0], [0.0, 2.0]]), LEGAL)
    assert (action.tolist(), value.tolist()) == ([0, 1], [1.0, 2.0])


def sample_by_hand(**changes):
    """Return two transitions between two states, the second into death."""
    given = {
        "seen": jnp.eye(2),
        "action": jnp.array([0, 1]),
        "reward": jnp.array([0.5, 3.0]),
        "legal": jnp.ones((3, 2), bool),
        "later_seen": jnp.array([[0.0, 1.0], [1.0, 0.0]]),
        "later_legal": jnp.array([[True, True], [False, True], [True, True]]),
        "later_discount": jnp.array([0.5, 0.0]),
        "weight": jnp.ones(2),
    }
    return dqn.Sample(**(given | changes))


MINE, THEIRS = [[1.0, 2.0, 4.0], [0.0, 6.0, 5.0]], [[2.0, 3.0, 1.0], [4.0, 8.0, 1.0]]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        # Q(0, 0) = 1 against 0.5 + 0.5 max over legal {4, 1} of the target; Q(1, 1) = 6 against 3 and nothing after.
        ({"double": False}, [1 - (0.5 + 0.5 * 4), 6 - 3]),
        # Online prefers the third action, for which the target gives 1.
        ({"double": True}, [1 - (0.5 + 0.5 * 1), 6 - 3]),
        # The target's own shortfalls: max {2, 3, 1} - 2 = 1 and max {4, 8, 1} - 8 = 0.
        ({"double": True, "gap": 0.5}, [1 - (0.5 + 0.5 * 1 - 0.5 * 1), 6 - 3]),
    ],
)
def test_errors_by_hand(changes, errors):
    _, (error, value) = dqn.loss(
        table_network(MINE), table_network(THEIRS), sample_by_hand(), config(**changes)
    )
    assert error.tolist() == pytest.approx(errors)
    assert value.tolist() == [1.0, 6.0]


def test_the_gap_is_to_the_best_legal_action():
    legal = jnp.ones((3, 2), bool).at[1, 0].set(False)
    rules = config(double=True, gap=0.5)
    sample = sample_by_hand(legal=legal)
    _, (error, _) = dqn.loss(table_network(MINE), table_network(THEIRS), sample, rules)
    # Of {2, 1} the action taken, worth 2, is the best: no shortfall.
    assert error.tolist() == pytest.approx([1 - (0.5 + 0.5 * 1), 3.0])


@pytest.mark.parametrize(("kind", "losses"), [("squared", [0.0, 4.5]), ("huber", [0.0, 2.5])])
def test_ways_of_counting_an_error(kind, losses):
    counted = dqn.counted(jnp.array([0.0, -3.0]), config(loss=kind))
    assert counted.tolist() == losses
    total, _ = dqn.loss(
        table_network(MINE),
        table_network(THEIRS),
        sample_by_hand(weight=jnp.array([0.0, 0.5])),
        config(loss=kind),
    )
    # One transition weighs something: its loss times its weight, not diluted by the one that weighs nothing.
    assert float(total) == losses[1] * 0.5


def test_no_gradient_runs_through_what_is_aimed_at():
    def total(network):
        return dqn.loss(network, table_network(THEIRS), sample_by_hand(), config(double=False))[0]

    slope = jax.grad(total)(table_network(MINE)).head.advantage.weight
    # Only the two actions taken are pulled, and not the values that their successors are judged by.
    assert (np.asarray(slope.T) != 0).tolist() == [[True, False, False], [False, True, False]]


def test_dueling_adds_advantages_of_mean_zero_to_a_value():
    head = dqn.new_head(jax.random.key(0), 8, 3, dueling=True)
    features = jnp.asarray(np.random.default_rng(0).normal(size=(8, 5)), jnp.float32)
    np.testing.assert_allclose(jnp.mean(head(features), axis=0), head.value(features)[0], atol=1e-6)
    assert float(jnp.std(head(features), axis=0).min()) > 0
    assert dqn.new_head(jax.random.key(0), 8, 3, dueling=False).value is None


# --- one update


@functools.cache
def learning(rules, prioritised=False):
    given = streams.config(worlds=4, rows=16, batch=32, prioritised=prioritised)

    def learn(state, ring, key, share):
        return dqn.learn(
            state,
            ring,
            key,
            config=rules,
            rules=given,
            share=share,
            rate=jnp.float32(1e-2),
            beta=jnp.float32(0.4),
        )

    return jax.jit(learn)


def fresh(rules):
    return dqn.new_learner(jax.random.key(0), FIELDS, streams.N_ACTIONS, rules)


def ring_of(stream=None, **fields):
    return streams.written(streams.ticks(16, 4) if stream is None else stream, **fields)


def learned(rules, ring=None, times=1, state=None, **given):
    """Learn a number of times; return every state, the ring and the last measures."""
    states, ring = [fresh(rules) if state is None else state], ring_of() if ring is None else ring
    for i in range(times):
        state, ring, measures = learning(rules, **given)(states[-1], ring, jax.random.key(i), ONE)
        states.append(state)
    return states, ring, measures


def test_learning_keeps_the_tree_and_its_types():
    for rules in (config(), config(dueling=True, n_step=3)):
        state = fresh(rules)
        after = jax.eval_shape(learning(rules), state, ring_of(), jax.random.key(0), ONE)[0]
        assert jax.tree.structure(after) == jax.tree.structure(state)
        for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_the_target_is_a_copy_now_and_then():
    states, _, _ = learned(config(target_every=3), times=7)
    copied = [same(state.target, state.network) for state in states]
    assert copied == [True, False, False, True, False, False, True, False]
    assert same(states[4].target, states[3].network)
    assert same(states[2].target, states[0].network)
    assert [int(state.updates) for state in states] == list(range(8))


def test_what_stands_in_an_idle_tick_but_its_sight_is_not_learnt_from():
    stream = streams.ticks(16, 4, ends=0.5)
    assert stream.idle.any()
    action = np.where(stream.idle, 2 - stream.action, stream.action)
    paid = np.where(stream.idle, 99.0, stream.extrinsic).astype("f4")
    changed = eqx.tree_at(lambda s: (s.action, s.extrinsic), stream, (action, paid))
    a, b = (learned(config(), ring_of(ticks), times=3)[0][-1] for ticks in (stream, changed))
    assert same(a, b)
    where = stream.idle & np.roll(stream.truncated, 1, axis=0)
    assert where.any()
    seen = np.where(where[..., None], stream.seen + 5, stream.seen)
    moved = learned(config(), ring_of(eqx.tree_at(lambda s: s.seen, stream, seen)), times=3)[0][-1]
    assert not same(a, moved)


def test_errors_become_priorities():
    rules, ring = config(), ring_of(prioritised=True)
    _, after, measures = learned(rules, ring, prioritised=True)
    before, now = np.asarray(ring.priority), np.asarray(after.priority)
    assert 10 < (before != now).sum() <= 32
    assert (now[np.asarray(ring.ticks.idle)] == 0).all()
    assert float(measures["td_error"]) > 0
    assert same(after.ticks, ring.ticks)


def test_even_learning_leaves_the_replay_alone():
    ring = ring_of()
    assert same(learned(config(), ring)[1], ring)


def test_priorities_change_what_is_learnt():
    plain = learned(config(), times=2)[0][-1]
    assert not same(
        plain.network, learned(config(), ring_of(prioritised=True), times=2, prioritised=True)[0][-1].network
    )


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted():
    for bad in (np.nan, np.inf):
        stream = streams.ticks(16, 4)
        ring = ring_of(eqx.tree_at(lambda s: s.extrinsic, stream, np.full((16, 4), bad, "f4")))
        states, _, measures = learned(config(loss="squared"), ring)
        assert same(states[1].network, states[0].network)
        assert same(states[1].optimiser, states[0].optimiser)
        assert float(measures["nonfinite"]) == 1.0


def test_gradients_are_clipped_by_their_global_norm():
    def first_moment(limit):
        states, _, measures = learned(config(max_gradient_norm=limit))
        moment = np.sqrt(sum((leaf.astype("f8") ** 2).sum() for leaf in leaves(states[1].optimiser.mu)))
        return moment, float(measures["gradient_norm"])

    # After one step Adam's first moment is a tenth of the gradient that it was given.
    moment, norm = first_moment(0.01)
    assert norm > 0.1
    assert moment == pytest.approx(0.1 * 0.01, rel=1e-4)
    moment, norm = first_moment(1e6)
    assert moment == pytest.approx(0.1 * norm, rel=1e-4)


def test_the_step_size_falls_to_its_share():
    falling = config(learning_rate=0.1, learning_rate_final=0.2, learning_rate_decay_steps=100)
    sizes = [float(dqn.step_size(falling, jnp.float32(steps))) for steps in (0, 50, 100, 1000)]
    assert sizes == pytest.approx([0.1, 0.06, 0.02, 0.02])
    assert float(dqn.step_size(config(learning_rate=0.1), jnp.float32(1e9))) == pytest.approx(0.1)
