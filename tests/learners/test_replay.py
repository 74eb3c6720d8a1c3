"""The replay: a ring of streams from which only what has a successor is drawn, evenly or by priority."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import streams

from outlast.learners import replay as replays
from outlast.learners.replay import ReplayConfig

WORLDS, STRIDE = 3, 4
DRAWS = 4096
# Compiled as wholes: one by one, their operations would take far longer to compile.
drawn = jax.jit(replays.drawn, static_argnums=2, static_argnames="ahead")
drawn_by_priority = jax.jit(replays.drawn_by_priority, static_argnums=2, static_argnames="ahead")
drawn_sequences = jax.jit(replays.drawn_sequences, static_argnums=2, static_argnames=("ahead", "stride"))
reprioritised = jax.jit(replays.reprioritised)


def times(ring, row, world):
    """Return at which ticks drawn rows were seen, after checking that they belong to the drawn worlds."""
    seen = np.asarray(ring.ticks.seen)[np.asarray(row), np.asarray(world)]
    np.testing.assert_array_equal(seen[..., 1], np.asarray(world))
    return seen[..., 0].astype(int)


# --- the ring


@pytest.mark.parametrize("strides_held", [2, 3])
@pytest.mark.parametrize("strides_written", [1, 2, 3, 4, 8])
def test_the_ring_holds_the_newest_ticks_in_order(strides_held, strides_written):
    stream = streams.ticks(strides_written * STRIDE, WORLDS)
    ring = streams.written(stream, stride=STRIDE, rows=strides_held * STRIDE)
    n = min(strides_held, strides_written) * STRIDE
    assert (int(ring.filled), int(ring.written)) == (n, strides_written * STRIDE)
    order = (int(replays.oldest(ring)) + np.arange(n)) % ring.rows
    kept = jax.tree.map(lambda leaf: np.asarray(leaf)[order], ring.ticks)
    newest = streams.cut(stream, strides_written * STRIDE - n, None)
    for got, wanted in zip(jax.tree.leaves(kept), jax.tree.leaves(newest), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("capacity", "worlds", "stride", "rows"),
    [(64, 4, 16, 32), (65, 1, 16, 80), (1000, 3, 7, 336), (64, 64, 1, 2)],
)
def test_a_ring_has_whole_strides_and_room_for_what_was_asked(capacity, worlds, stride, rows):
    ring = jax.eval_shape(
        lambda: replays.new_replay(
            ReplayConfig(capacity=capacity),
            worlds=worlds,
            n_observations=2,
            n_actions=3,
            n_memory=5,
            stride=stride,
        )
    )
    assert ring.ticks.action.shape == (rows, worlds)
    assert rows * worlds >= capacity
    assert ring.memory.shape == (rows // stride, worlds, 5)


def test_an_empty_ring_is_idle_everywhere():
    sizes = {"worlds": 4, "n_observations": 2, "n_actions": 3, "n_memory": 1, "stride": 16}
    assert bool(replays.new_replay(ReplayConfig(capacity=64), **sizes).ticks.idle.all())


# --- what may be drawn


FILLS = (6, 8, 9, 30)
"""Ticks written to eight rows: some missing, just full, wrapped by one, wrapped often."""


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("length", FILLS)
def test_even_draws_are_of_every_tick_that_has_successors_and_of_no_other(length, ahead):
    ring = streams.written(streams.ticks(length, WORLDS), rows=8)
    row, world = drawn(ring, jax.random.key(0), DRAWS, ahead=ahead)
    wanted = range(max(length - 8, 0), length - ahead)
    when = times(ring, row, world)
    # At most 21 places and 4,096 draws: that one is missed has a chance of 21 exp(-195).
    found, counts = np.unique(np.stack([when, np.asarray(world)]), axis=1, return_counts=True)
    assert {tuple(pair) for pair in found.T} == {(t, w) for t in wanted for w in range(WORLDS)}
    expected = DRAWS / len(counts)
    # Six deviations of a binomial count: one such deviation in a thousand million.
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected)


@pytest.mark.parametrize("length", FILLS)
def test_draws_by_priority_are_never_idle_and_have_successors(length):
    stream = streams.ticks(length, WORLDS)
    ring = streams.written(stream, rows=8, prioritised=True)
    row, world, chance = drawn_by_priority(ring, jax.random.key(1), DRAWS, ahead=2, alpha=0.6)
    when = times(ring, row, world)
    assert when.max() == length - 3
    assert when.min() >= max(length - 8, 0)
    assert not np.asarray(stream.idle)[when, world].any()
    # Nothing has an error yet, so what can be drawn is equally likely.
    usable = ~np.asarray(stream.idle)[max(length - 8, 0) : length - 2]
    np.testing.assert_allclose(chance, 1 / usable.sum(), rtol=1e-5)
    assert len({(t, w) for t, w in zip(when, np.asarray(world), strict=True)}) == usable.sum()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_draws_are_in_proportion_to_priority(alpha):
    ring = streams.written(streams.ticks(8, WORLDS, ends=0.0), rows=8, prioritised=True)
    errors = np.random.default_rng(0).exponential(size=(8, WORLDS)).astype(np.float32) + 0.1
    row, world = (jnp.asarray(part.ravel()) for part in np.indices((8, WORLDS)))
    ring = reprioritised(ring, row, world, jnp.asarray(errors.ravel()))
    n = 20_000
    row, world, chance = drawn_by_priority(ring, jax.random.key(2), n, ahead=1, alpha=alpha)
    weight = errors[:7] ** alpha
    share = weight / weight.sum()
    counts = np.zeros_like(share)
    np.add.at(counts, (np.asarray(row), np.asarray(world)), 1)
    # 20 degrees of freedom: a true sampler is above 60 once in 130,000 times, and the key is fixed.
    assert ((counts - n * share) ** 2 / (n * share)).sum() < 60
    np.testing.assert_allclose(chance, share[np.asarray(row), np.asarray(world)], rtol=1e-4)


def test_sequences_begin_where_memory_was_stored_and_are_whole():
    for length in (12, 24, 28, 52):
        ring = streams.written(streams.ticks(length, WORLDS), stride=STRIDE, rows=24)
        ahead = 2 * STRIDE + 1
        row, world = drawn_sequences(ring, jax.random.key(3), DRAWS, ahead=ahead, stride=STRIDE)
        assert (np.asarray(row) % STRIDE == 0).all()
        when = times(ring, row, world)
        first = max(length - 24, 0)
        assert set(when) == set(range(first, length - ahead + 1, STRIDE))
        # The memory before tick t was stored as t.
        memory = np.asarray(ring.memory)[np.asarray(row) // STRIDE, np.asarray(world), 0]
        np.testing.assert_array_equal(memory, when)


def test_a_window_is_a_stretch_of_one_stream_across_the_end_of_the_ring():
    ring = streams.written(streams.ticks(30, WORLDS), rows=8)
    row, world = drawn(ring, jax.random.key(4), 64, ahead=4)
    window = replays.window(ring, row, world, 5)
    assert int(row.max()) > 4  # so that some windows wrap
    start = times(ring, row, world)
    np.testing.assert_array_equal(window.seen[..., 0], start + np.arange(5)[:, None])
    np.testing.assert_array_equal(window.seen[..., 1], np.broadcast_to(world, (5, 64)))


# --- priorities and weights


def test_what_is_new_is_as_urgent_as_the_most_urgent_and_what_is_idle_is_not_at_all():
    stream = streams.ticks(8, WORLDS, ends=0.5)
    ring = streams.written(streams.cut(stream, 0, 4), rows=8, prioritised=True)
    idle = np.asarray(stream.idle)
    np.testing.assert_array_equal(np.asarray(ring.priority[:4]), ~idle[:4] * 1.0)
    ring = reprioritised(ring, jnp.array([0]), jnp.array([1]), jnp.array([-7.0]))
    assert float(ring.priority[0, 1]) == pytest.approx(7.0)
    ring = streams.filled(ring, streams.cut(stream, 4, 8))
    np.testing.assert_allclose(np.asarray(ring.priority[4:]), ~idle[4:] * 7.0, rtol=1e-6)
    assert idle[4:].any()


def test_an_idle_tick_never_becomes_urgent():
    ring = streams.written(streams.ticks(8, WORLDS, ends=0.5), rows=8, prioritised=True)
    row, world = (jnp.asarray(part.ravel()) for part in np.indices((8, WORLDS)))
    ring = reprioritised(ring, row, world, jnp.full(row.shape, 5.0))
    np.testing.assert_array_equal(np.asarray(ring.priority > 0), ~np.asarray(ring.ticks.idle))


def test_an_error_that_is_not_finite_spoils_no_priority():
    """One NaN would make everything that is added later as urgent as NaN, hence never drawn."""
    ring = streams.written(streams.ticks(8, WORLDS, ends=0.0), rows=8, prioritised=True)
    for error in (jnp.nan, jnp.inf):
        hurt = reprioritised(ring, jnp.array([0]), jnp.array([1]), jnp.array([error]))
        hurt = streams.filled(hurt, streams.ticks(4, WORLDS, first=8, ends=0.0))
        assert np.isfinite(np.asarray(hurt.priority)).all()


def test_importance_undoes_the_bias_of_drawing():
    chance = jnp.array([0.5, 0.25, 0.125, 0.0])
    np.testing.assert_allclose(replays.importance(chance, jnp.float32(1.0)), [0.25, 0.5, 1.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(replays.importance(chance, jnp.float32(0.0)), [1, 1, 1, 0], rtol=1e-6)
    half = replays.importance(chance, jnp.float32(0.5))
    np.testing.assert_allclose(half, [0.5, 0.5**0.5, 1.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize(("name", "value"), [("alpha", 0.5), ("beta", 0.5), ("beta_steps", 10)])
def test_the_rules_of_priority_are_refused_without_it(name, value):
    with pytest.raises(ValueError, match=f"{name} has no effect with prioritised = false"):
        ReplayConfig(**{name: value})
    assert getattr(ReplayConfig(prioritised=True, **{name: value}), name) == value
