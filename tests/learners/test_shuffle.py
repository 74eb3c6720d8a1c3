"""The shuffle is a permutation for every length, and looks random where a learner would notice."""

import functools

import jax
import numpy as np
import pytest
from scipy import stats

from outlast.learners.shuffle import permutation

KEYS = 4000


@functools.cache
def shuffles(n, keys=KEYS):
    many = jax.jit(jax.vmap(lambda key: permutation(key, n)))
    return np.asarray(many(jax.random.split(jax.random.key(n), keys)))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 12, 31, 64, 100, 255, 256, 257, 1000, 1024, 3000, 4096])
def test_is_a_permutation(n):
    orders = shuffles(n, 20)
    assert orders.dtype == np.int32
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.broadcast_to(np.arange(n), (20, n)))


@pytest.mark.parametrize("n", [64, 100])
def test_the_same_key_gives_the_same_order_and_others_differ(n):
    orders = shuffles(n, 20)
    np.testing.assert_array_equal(
        orders, np.asarray(jax.vmap(lambda k: permutation(k, n))(jax.random.split(jax.random.key(n), 20)))
    )
    assert len({order.tobytes() for order in orders}) > 10


def too_uneven(counts, expected):
    """Tell whether counts are less even than chance allows once in ten thousand tables."""
    statistic = ((counts - expected) ** 2 / expected).sum()
    return statistic > stats.chi2((counts.shape[0] - 1) * (counts.shape[1] - 1)).ppf(1 - 1e-4)


@pytest.mark.parametrize("n", [8, 16, 24, 64])
def test_every_place_sends_every_item_equally_often(n):
    orders = shuffles(n)
    counts = np.stack([np.bincount(orders[:, place], minlength=n) for place in range(n)])
    assert not too_uneven(counts, KEYS / n)


@pytest.mark.parametrize("n", [256, 1000, 1024])
def test_neighbours_in_time_do_not_stay_together(n):
    """Whether two samples share a minibatch is a matter of chance, for pairs at any small distance.

    A learner lays samples out world by world inside a step: pairs one apart, and powers of two apart, are what
    an arithmetic shuffle would keep together. The chance is (n/4 - 1) / (n - 1); 400 keys are 400 n pairs that are
    far from independent, so the bound is a tenth of the chance, not its standard error.
    """
    orders = shuffles(n, 400)
    place = np.argsort(orders, axis=1) // (n // 4)
    chance = (n // 4 - 1) / (n - 1)
    for apart in (1, 2, 4, 16, 64, n // 2):
        together = (place[:, apart:] == place[:, :-apart]).mean()
        assert together == pytest.approx(chance, rel=0.1), apart


@pytest.mark.parametrize("n", [256, 1000, 1024])
def test_a_minibatch_draws_from_everywhere(n):
    """The mean index of a minibatch is as close to the middle as a random subset's, or closer, and not biased."""
    first = shuffles(n, 400)[:, : n // 4].mean(axis=1)
    spread = np.sqrt((n**2 - 1) / 12 / (n // 4) * 0.75)  # a quarter drawn without replacement
    assert abs(first.mean() - (n - 1) / 2) < 4 * spread / np.sqrt(400)
    assert first.std() < 1.5 * spread
