"""PPO learns the analytic value of every probe, and the best action where there is one.

Two seeds (0 and 1), 64,000 steps each; the step size falls to nothing, so what remains is bias, not jitter.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import DISCOUNT, PROBES, stacked, trained

from outlast.learners import policies, ppo
from outlast.learners.ppo import PpoConfig
from outlast.nets import NetworkConfig

ITERATIONS, SEEDS = 250, (0, 1)
COMMON = {
    "discount": DISCOUNT,
    "trace": 0.8,
    "learning_rate": 1e-2,
    "entropy_weight": 0.0,
    "max_gradient_norm": 10.0,
    "epochs": 4,
    "log_std_min": -3.0,
}
NETWORK = {"hidden": (16,)}
VARIANTS = {
    "separate, clipped": PpoConfig(network=NetworkConfig(**NETWORK), **COMMON),
    "shared, squashed, normalised": PpoConfig(
        network=NetworkConfig(torso="shared", **NETWORK),
        distribution="squashed",
        normalise_observations=True,
        # Standardised, advantages that are all noise would push the features that the critic shares.
        normalise_advantages=False,
        **COMMON,
    ),
}
# Rewards are deterministic, so the fit is near exact; the noise at its floor of exp(-3) costs the last probe 0.0025.
TOLERANCE = 5e-3
each_probe = pytest.mark.parametrize("probe", PROBES)
each_variant = pytest.mark.parametrize("variant", VARIANTS)


@functools.cache
def learners(variant):
    config = VARIANTS[variant]

    def one(table, seed):
        return trained(table, config, iterations=ITERATIONS, seed=seed)

    over_seeds = jax.vmap(one, in_axes=(None, 0))
    return jax.jit(jax.vmap(over_seeds, in_axes=(0, None)))(stacked(PROBES.values()), jnp.array(SEEDS))


def learner(variant, probe, seed):
    place = list(PROBES).index(probe)
    return jax.tree.map(lambda leaf: leaf[place, SEEDS.index(seed)], learners(variant))


@each_variant
@each_probe
@pytest.mark.parametrize("seed", SEEDS)
def test_learns_the_analytic_value(variant, probe, seed):
    config, wanted = VARIANTS[variant], PROBES[probe]
    value = np.asarray(ppo.values(learner(variant, probe, seed), jnp.asarray(wanted.table.looks).T, config))
    for state, expected in wanted.values.items():
        scale = max(1.0, abs(expected))
        assert value[state] == pytest.approx(expected, abs=TOLERANCE * scale)


@each_variant
@pytest.mark.parametrize("seed", SEEDS)
def test_learns_the_best_action_and_lets_the_noise_go(variant, seed):
    config, wanted = VARIANTS[variant], PROBES["continuous action"]
    mine = learner(variant, "continuous action", seed)
    action = np.asarray(ppo.greedy(mine, jnp.asarray(wanted.table.looks).T, config))[0]
    for state, best in wanted.best.items():
        # The standard error of a mean action estimated from the last noise of 0.05 is far below this.
        assert action[state] == pytest.approx(best, abs=0.03)
    assert (
        float(jnp.exp(policies.log_std(mine.network, config))[0, 0]) < 0.1
    )  # from 0.61 down to the floor of 0.05


def test_the_seeds_are_different_learners():
    a, b = (learner("separate, clipped", "constant reward", seed) for seed in SEEDS)
    assert not np.array_equal(a.network.mean.weight, b.network.mean.weight)


@each_variant
def test_greedy_is_deterministic_and_within_bounds(variant):
    config, mine = VARIANTS[variant], learner(variant, "two-step delay", 0)
    seen = jnp.asarray(np.random.default_rng(0).normal(size=(2, 50)).astype(np.float32) * 3)
    action = np.asarray(ppo.greedy(mine, seen, config))
    np.testing.assert_array_equal(action, np.asarray(ppo.greedy(mine, seen, config)))
    assert np.abs(action).max() <= 1.0
