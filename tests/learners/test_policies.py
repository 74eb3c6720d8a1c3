"""The distributions: a Beta in a box samples what its density says, and a BarrierNet's mean is the projected one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from outlast.learners import policies, ppo
from outlast.learners.ppo import Batch, PpoConfig
from outlast.nets import NetworkConfig

N = 4000
BETA = PpoConfig(distribution="beta", network=NetworkConfig(hidden=(8,)))
HEADS = jnp.array([[0.5], [-1.0], [2.0], [0.3]])
SHAPES = 1 + np.log1p(np.exp(np.asarray(HEADS)[:, 0]))
BOX = jnp.array([[-0.4], [-1.0], [0.2], [1.0]])


def drawn(config=BETA, limits=BOX):
    wide = [None if v is None else jnp.broadcast_to(v, (v.shape[0], N)) for v in (HEADS, limits)]
    noise = jax.random.normal(jax.random.key(0), (policies.noise_size(2, config), N))
    raw, log_probability = jax.jit(policies.sampled, static_argnums=4)(None, wide[0], noise, wide[1], config)
    return np.asarray(raw), np.asarray(log_probability), wide


@pytest.mark.parametrize("limits", [None, BOX])
def test_a_beta_samples_its_density_in_its_box(limits):
    raw, log_probability, _ = drawn(limits=limits)
    low, high = (-np.ones(2), np.ones(2)) if limits is None else np.asarray(limits)[:, 0].reshape(2, 2)
    total = np.zeros(N)
    for i in range(2):
        law = stats.beta(SHAPES[i], SHAPES[i + 2], loc=low[i], scale=high[i] - low[i])
        assert (
            stats.kstest(raw[i], law.cdf).pvalue > 1e-3
        )  # fixed draws: a correct sampler fails one key in 1,000
        total += law.logpdf(np.float64(raw[i]))
    # Near an end of the box float32 knows the distance to it to some 1e-5 of itself.
    np.testing.assert_allclose(log_probability, total, atol=2e-3)


def test_the_entropy_of_a_beta_is_that_of_its_law():
    raw, _, (heads, limits) = drawn()
    _, entropy = policies.judged(None, heads, jnp.asarray(raw), limits, BETA)
    width = np.asarray(BOX[2:, 0] - BOX[:2, 0])
    laws = [stats.beta(SHAPES[i], SHAPES[i + 2], scale=width[i]) for i in range(2)]
    assert float(entropy) == pytest.approx(sum(law.entropy() for law in laws), abs=1e-5)


def test_without_noise_a_beta_plays_about_its_median():
    raw, _ = policies.sampled(None, HEADS, jnp.zeros((policies.noise_size(2, BETA), 1)), BOX, BETA)
    medians = [stats.beta(SHAPES[i], SHAPES[i + 2]).median() for i in range(2)]
    expected = np.asarray(BOX[:2, 0]) + medians * np.asarray(BOX[2:, 0] - BOX[:2, 0])
    np.testing.assert_allclose(
        np.asarray(raw)[:, 0], expected, atol=0.02
    )  # the usual approximation, for shapes above 1


def batch_of(config, limits):
    state = ppo.new_learner(jax.random.key(1), 3, 2, config)
    seen = jax.random.normal(jax.random.key(2), (3, 64))
    noise = jax.random.normal(jax.random.key(3), (policies.noise_size(2, config), 64))
    choice = ppo.choose(state, seen, noise, config, limits)
    ones = jnp.ones(64)
    return state, Batch(seen, choice.raw, choice.log_probability, choice.value, ones, ones, limits), choice


def rows(n=64):
    """One row each, speed + turn <= 0.3 in units of the command, whose limits are 1 and 2."""
    one = jnp.array([-1.0, -1.0, 0.3, 1.0, 2.0])
    return jnp.broadcast_to(one[:, None], (5, n))


BARRIER = PpoConfig(distribution="barrier", network=NetworkConfig(hidden=(8,)))
BLIND = BARRIER.model_copy(update={"barrier": BARRIER.barrier.model_copy(update={"gradient": False})})
CASES = {"beta": (BETA, jnp.broadcast_to(BOX, (4, 64))), "barrier": (BARRIER, rows()), "blind": (BLIND, None)}


@pytest.mark.parametrize("name", CASES)
def test_before_the_first_update_every_ratio_is_one(name):
    config, limits = CASES[name]
    state, batch, _ = batch_of(config, limits)
    _, measures = ppo.loss(state.network, batch, config)
    assert abs(float(measures["kl"])) < 1e-5
    if limits is not None:
        moved = Batch(*(getattr(batch, n) for n in batch.__dataclass_fields__ if n != "limits"), limits * 0.9)
        assert (
            abs(float(ppo.loss(state.network, moved, config)[1]["kl"])) > 1e-4
        )  # the limits of the step count


@pytest.mark.parametrize("name", CASES)
def test_learning_packs_limits_like_any_column_and_moves_the_policy(name):
    config, limits = CASES[name]
    state, batch, _ = batch_of(config, limits)
    gains = jnp.sign(batch.actions[1] - jnp.mean(batch.actions[1]))
    batch = Batch(
        *(getattr(batch, n) for n in list(batch.__dataclass_fields__)[:4]), gains, batch.returns, limits
    )
    after, metrics = jax.jit(ppo.learn, static_argnames="config")(
        state, batch, jax.random.key(4), config=config, rate=jnp.float32(1e-2)
    )
    assert metrics["nonfinite"] == 0
    before, now = (ppo.greedy(s, batch.observations, config, limits)[1] for s in (state, after))
    assert float(jnp.mean(now - before)) > 0


def test_a_barriernet_samples_around_the_projected_mean_with_fixed_noise():
    _, _, choice = batch_of(BARRIER, rows())
    state, batch, blind = batch_of(BLIND, None)
    mean = jnp.tanh(state.network.act(batch.observations))
    np.testing.assert_allclose(
        blind.raw - mean,
        choice.raw - policies.centre(state.network.act(batch.observations), rows(), BARRIER),
        atol=1e-5,
    )
    centre = np.asarray(policies.centre(state.network.act(batch.observations), rows(), BARRIER))
    assert ((centre[0] + 1) / 2 + 2 * centre[1] <= 0.3 + 1e-4).all()  # the row, to the projection's tolerance
    assert ((np.asarray(mean)[0] + 1) / 2 + 2 * np.asarray(mean)[1] > 0.3).any()
    loud = BARRIER.model_copy(update={"barrier": BARRIER.barrier.model_copy(update={"turn_noise": 0.7})})
    twice = np.asarray(batch_of(loud, rows())[2].raw - centre)[1] / np.asarray(choice.raw - centre)[1]
    np.testing.assert_allclose(twice, 2.0, rtol=1e-3)
    assert state.network.log_std.size == 0
