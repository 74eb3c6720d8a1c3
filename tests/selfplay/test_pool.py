"""The pool of past policies: what it takes, what it gives up, and whom it deals."""

import dataclasses

import duels
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.selfplay.pool import (
    act,
    drawn,
    first_pool,
    offered,
    policy_of,
    recorded,
    sampling_weights,
)

NO_KEY = jax.random.key(0)


def offer(pool, number, *, eviction="fifo", key=NO_KEY, born=None):
    born = jnp.int32(number if born is None else born)
    return offered(pool, duels.learner(number), born=born, score=jnp.float32(0), key=key, eviction=eviction)


def entry(pool, place):
    return jax.tree.map(lambda leaf: leaf[place], pool.policies)


def test_the_first_entry_is_the_initial_policy_and_room_is_filled_in_order():
    pool = first_pool(duels.learner(0), 3)
    assert duels.digest(entry(pool, 0)) == duels.digest(policy_of(duels.learner(0)))
    for number in (1, 2):
        pool = offer(pool, number, eviction="reservoir")
        assert int(pool.size) == number + 1
        assert duels.digest(entry(pool, number)) == duels.digest(policy_of(duels.learner(number)))
    assert pool.born.tolist() == [0, 1, 2]


def test_a_pool_takes_the_averaged_weights_where_they_are_kept():
    newest, averaged = duels.learner(1), duels.learner(2).network
    learner = dataclasses.replace(newest, average=averaged)
    pool = offered(
        first_pool(duels.learner(0), 3),
        learner,
        born=jnp.int32(1),
        score=jnp.float32(0),
        key=NO_KEY,
        eviction="fifo",
    )
    assert duels.digest(entry(pool, 1)) == duels.digest(policy_of(duels.learner(2)))


def test_fifo_gives_up_the_oldest():
    pool = first_pool(duels.learner(0), 3)
    for number in range(1, 8):
        pool = offer(pool, number)
        kept = sorted(pool.born.tolist()[: int(pool.size)])
        assert kept == list(range(max(0, number - 2), number + 1))
    for place, number in enumerate((6, 7, 5)):
        assert duels.digest(entry(pool, place)) == duels.digest(policy_of(duels.learner(number)))


def test_the_reservoir_keeps_every_offer_equally_often():
    # 20 policies for 4 places: each is held with chance 1/5. Over 4000 pools the standard error of a share is
    # 0.0063; the largest of 20 errors passes 4.5 of them (0.0285) less than once in 7000 such tests.
    n, capacity, repeats, states = 20, 4, 4000, [duels.learner(i) for i in range(20)]
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states[1:])

    def one(key):
        def take(pool, item):
            number, learner = item
            own = jax.random.fold_in(key, number)
            kind = {"born": number, "score": jnp.float32(0), "key": own, "eviction": "reservoir"}
            return offered(pool, learner, **kind), None

        pool = first_pool(states[0], capacity)
        return jax.lax.scan(take, pool, (jnp.arange(1, n), stack))[0].born

    born = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), repeats))
    share = np.bincount(np.asarray(born).ravel(), minlength=n) / repeats
    np.testing.assert_allclose(share, capacity / n, atol=0.0285)


@pytest.mark.parametrize("eviction", ["fifo", "reservoir"])
def test_an_unchanged_learner_is_not_offered_again(eviction):
    pool = offer(first_pool(duels.learner(0), 3), 1, eviction=eviction)
    again = offer(pool, 1, eviction=eviction, born=9)
    assert duels.digest(again) == duels.digest(pool)
    assert int(offer(again, 2, eviction=eviction).offered) == 3


def test_a_learner_that_was_rolled_back_is_not_stored_twice_and_is_taken_once_it_differs():
    pool = first_pool(duels.learner(0), 4)
    for number in (10, 20):
        pool = offer(pool, number)
    restored = offer(pool, 10, born=30)
    assert int(restored.size) == 3
    assert restored.born.tolist()[:3] == [0, 10, 20]
    # It has learned again, but is still behind the count at which it was last offered.
    assert int(offer(restored, 11).size) == 4


def test_a_new_entry_begins_without_results():
    pool = first_pool(duels.learner(0), 2)
    pool = recorded(pool, jnp.array([0, 0, 1]), jnp.array([2.0, 1.0, 5.0]), jnp.array([1.0, 1.0, 0.0]))
    assert pool.games.tolist() == [3.0, 5.0]
    assert pool.wins.tolist() == [2.0, 0.0]
    for number in (1, 2):
        pool = offer(pool, number)
    assert pool.born.tolist() == [2, 1]
    assert pool.games.tolist() == [0.0, 0.0]


def with_results(games, wins, size):
    pool = first_pool(duels.learner(0), len(games))
    return dataclasses.replace(
        pool, games=jnp.array(games, float), wins=jnp.array(wins, float), size=jnp.int32(size)
    )


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        # Win rates (wins + 1) / (games + 2): 0.75, 0.25, 0.5; the last place is empty.
        ("uniform", [1, 1, 1, 0]),
        ("hard", [0.0625, 0.5625, 0.25, 0]),
        ("even", [0.1875, 0.1875, 0.25, 0]),
    ],
)
def test_samplers_weigh_by_hand(sampling, expected):
    pool = with_results([6, 6, 0, 9], [5, 1, 0, 0], size=3)
    np.testing.assert_allclose(sampling_weights(pool, sampling), expected, rtol=1e-6)
    n = 20_000
    counts = np.bincount(drawn(pool, jax.random.key(2), n, sampling=sampling), minlength=4) / n
    # 4.5 standard errors of a share near one half over 20,000 draws.
    np.testing.assert_allclose(counts, np.array(expected) / sum(expected), atol=0.016)


def test_hard_overrides_the_sampling_while_a_learner_collapses():
    pool = with_results([6, 6, 0, 9], [5, 1, 0, 0], size=3)
    key = jax.random.key(3)
    hard = drawn(pool, key, 500, sampling="uniform", hard=jnp.bool_(True))
    assert hard.tolist() == drawn(pool, key, 500, sampling="hard").tolist()
    assert hard.tolist() != drawn(pool, key, 500, sampling="uniform", hard=jnp.bool_(False)).tolist()


def test_a_snapshot_plays_as_its_learner_did():
    seen, noise = jax.random.normal(NO_KEY, (3, 5)), jax.random.normal(jax.random.key(4), (1, 5))
    learner = duels.learner(3)
    choice = duels.ppo.choose(
        learner, seen, noise, duels.ppo.PpoConfig(network=duels.ppo.NetworkConfig(hidden=(4,)))
    )
    np.testing.assert_allclose(
        act(policy_of(learner), seen, noise, log_std_min=-3.0), choice.raw, rtol=1e-6, atol=1e-7
    )
