"""Elastic weight consolidation and novelty by themselves: numbers that can be checked by hand."""

import dataclasses

import duels
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.learners import ewc, rnd
from outlast.learners.ppo import NetworkConfig, PpoConfig

CONFIG = PpoConfig(network=NetworkConfig(hidden=(4,)))


def test_the_fisher_diagonal_of_a_gaussian_is_the_known_one():
    learner = duels.learner(1)
    seen = jax.random.normal(jax.random.key(0), (3, 20_000))
    fisher = ewc.fisher_diagonal(learner, seen, jax.random.key(1), CONFIG)
    variance = float(jnp.exp(2 * learner.network.log_std[0]))
    # d log p / d mean = z / sigma and d log p / d log sigma = z^2 - 1. Four standard errors of 20,000 samples.
    assert float(fisher.mean.bias[0]) == pytest.approx(1 / variance, rel=4 * (2 / 20_000) ** 0.5)
    assert float(fisher.log_std[0]) == pytest.approx(2.0, rel=4 * (15 / 20_000) ** 0.5)
    features = learner.network.actor(seen)
    expected = jnp.mean(features**2, axis=1) / variance
    np.testing.assert_allclose(fisher.mean.weight[0], expected, rtol=0.1)


def test_the_penalty_is_half_the_weight_times_the_squared_way_in_the_fisher_metric():
    learner = duels.learner(1)
    part = ewc.actor_part(learner.network)
    anchor = ewc.Anchor(part, jax.tree.map(lambda leaf: jnp.full_like(leaf, 3.0), part), jnp.float32(1))
    assert float(ewc.penalty(learner.network, anchor, 10.0)) == 0.0
    moved = dataclasses.replace(learner.network, log_std=learner.network.log_std + 0.5)
    assert float(ewc.penalty(moved, anchor, 10.0)) == pytest.approx(0.5 * 10 * 3 * 0.25)
    assert float(ewc.penalty(moved, anchor, 20.0)) == pytest.approx(2 * 0.5 * 10 * 3 * 0.25)
    assert float(ewc.penalty(moved, ewc.no_anchor(learner), 10.0)) == 0.0
    # The critic is not held: it decides nothing.
    other = dataclasses.replace(learner.network, value=jax.tree.map(lambda v: v + 1, learner.network.value))
    assert float(ewc.penalty(other, anchor, 10.0)) == 0.0


def trained(rates, *, steps=150):
    """Let novelty see one cloud of observations for a while."""
    novelty = rnd.new_novelty(jax.random.key(0), 3, hidden=16, embedding=4)
    learned = jax.jit(lambda n, seen, picks: rnd.learned(n, seen, picks, learning_rate=rates))
    for i in range(steps):
        seen = jax.random.normal(jax.random.key(i), (3, 64))
        novelty = learned(novelty, seen, jnp.arange(64))
    return novelty


def test_the_bonus_is_nothing_at_first_and_mean_free_later():
    seen = jax.random.normal(jax.random.key(5), (3, 64))
    first = rnd.new_novelty(jax.random.key(0), 3, hidden=16, embedding=4)
    assert (rnd.bonus(first, seen) == 0).all()
    bonus = rnd.bonus(trained(1e-3), seen)
    assert float(jnp.std(bonus)) > 0.1
    # Clipping is rare enough not to move the mean by more.
    assert float(jnp.mean(bonus)) == pytest.approx(0.0, abs=0.05)


def test_what_was_never_seen_is_more_novel_and_only_the_learning_rate_makes_it_so():
    near, far = jnp.zeros((3, 8)), jnp.full((3, 8), 4.0)
    novelty = trained(1e-3)
    ratio = jnp.mean(rnd.raw_novelty(novelty, far)) / jnp.mean(rnd.raw_novelty(novelty, near))
    assert float(ratio) > 5
    seen = jax.random.normal(jax.random.key(5), (3, 64))
    before, after = (jnp.mean(rnd.raw_novelty(n, seen)) for n in (trained(1e-7), novelty))
    assert float(after) < 0.5 * float(before)


def test_sizes_are_those_of_the_configuration():
    novelty = rnd.new_novelty(jax.random.key(0), 3, hidden=16, embedding=5)
    assert novelty.target.head.weight.shape == novelty.predictor.head.weight.shape == (5, 16)
    assert duels.digest(novelty.target) != duels.digest(novelty.predictor)
