"""The classifier of feasibility: optimistic, balanced, and right where the classes can be told apart."""

import jax
import jax.numpy as jnp
import numpy as np

from outlast.safety.feasibility import (
    LEAST_SAMPLES,
    N_INPUTS,
    learned,
    logits,
    predicted_infeasible,
    untrained,
)

learn = jax.jit(learned)


def batch(n, seed=0):
    """Draw features; no command is allowed close to one thing unless the robot leaves it: one in twenty."""
    features = np.random.default_rng(seed).uniform(-1, 1, (N_INPUTS, n)).astype(np.float32)
    return jnp.asarray(features), jnp.asarray((features[0] < -0.8) & (features[1] < 0.0))


def test_it_learns_where_no_command_is_allowed():
    model = untrained()
    for seed in range(200):
        model = learn(model, *batch(500, seed))
    features, infeasible = (np.asarray(v) for v in batch(4000, seed=-1 % 2**32))
    found = np.asarray(logits(model, jnp.asarray(features))) > 0
    assert found[infeasible].mean() > 0.9
    assert found[~infeasible].mean() < 0.15
    sure = np.asarray(predicted_infeasible(model, jnp.asarray(features)))
    assert 0 < sure.sum() < found.sum()


def test_it_is_optimistic_until_it_has_seen_enough_of_both():
    features, infeasible = batch(2000)
    model = learn(untrained(), features, infeasible & (jnp.cumsum(infeasible) < LEAST_SAMPLES))
    assert not predicted_infeasible(model, features).any()


def test_a_batch_of_one_class_teaches_nothing_but_is_counted():
    features, _ = batch(100)
    model = learn(untrained(), features, jnp.zeros(100, bool))
    np.testing.assert_array_equal(model.weights, untrained().weights)
    np.testing.assert_array_equal(model.seen, [100.0, 0.0])
