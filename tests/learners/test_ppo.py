"""PPO's parts: acting, the loss against numpy, gradients, stops, normalisation, and the schedule."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from outlast.learners import policies, ppo
from outlast.learners.ppo import Batch, PpoConfig
from outlast.nets import NetworkConfig

D, A, N = 5, 2, 64
SMALL = {"network": NetworkConfig(hidden=(8,)), "epochs": 2, "minibatches": 4}
PLAIN = PpoConfig(**SMALL)


def config(**changes):
    return PpoConfig(**(SMALL | changes))


def learner(config, seed=0):
    return ppo.new_learner(jax.random.key(seed), D, A, config)


def columns(n, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(D, n)), jnp.float32)


def batch_for(state, config, n=N, seed=0):
    """Return samples of this very policy, with advantages and returns out of a hat."""
    rng = np.random.default_rng(seed)
    seen = columns(n, seed)
    choice = ppo.choose(state, seen, jnp.asarray(rng.normal(size=(A, n)), jnp.float32), config)
    gains, returns = jnp.asarray(rng.normal(0, 2, (2, n)), jnp.float32)
    return Batch(seen, choice.raw, choice.log_probability, choice.value, gains, returns)


@functools.cache
def learning(config):
    def one(state, batch, key, rate):
        return ppo.learn(state, batch, key, config=config, rate=rate)

    return jax.jit(one)


def learned(config, state=None, batch=None, rate=1e-2):
    state = learner(config) if state is None else state
    batch = batch_for(state, config) if batch is None else batch
    return learning(config)(state, batch, jax.random.key(7), jnp.float32(rate))


def shaken(state, seed=1):
    """Return the network of a learner with all weights moved: another policy, ratios away from one."""
    flat, tree = jax.tree.flatten(state.network)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(tree, [w + jnp.asarray(rng.normal(0, 0.3, w.shape), jnp.float32) for w in flat])


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


# --- acting


@pytest.mark.parametrize("distribution", ["clipped", "squashed"])
def test_a_choice_is_a_gaussian_sample_and_its_density(distribution):
    config_, state = config(distribution=distribution), learner(config(log_std_initial=0.25))
    seen, noise = columns(N), jnp.asarray(np.random.default_rng(1).normal(size=(A, N)), jnp.float32)
    choice = ppo.choose(state, seen, noise, config_)
    mean, value = state.network(seen)
    sigma = np.exp(0.25)
    np.testing.assert_allclose(choice.raw, mean + sigma * noise, rtol=1e-6, atol=1e-6)
    density = -0.5 * ((choice.raw - mean) / sigma) ** 2 - 0.25 - 0.5 * np.log(2 * np.pi)
    # The density belongs to the raw sample; the bound is part of the world, so ratios need no Jacobian.
    np.testing.assert_allclose(choice.log_probability, density.sum(axis=0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(choice.value, value)
    bound = np.tanh if distribution == "squashed" else lambda raw: np.clip(raw, -1, 1)
    np.testing.assert_allclose(choice.action, bound(np.asarray(choice.raw)), rtol=1e-6, atol=1e-6)
    # Noise of 1.3 around a mean of 1 leaves the bounds often: clipping touches them, tanh never does.
    assert (np.abs(choice.action).max() == 1.0) == (distribution == "clipped")


def test_a_fresh_policy_drives_at_the_speed_bias_and_straight_on():
    action = np.asarray(ppo.greedy(learner(config(speed_bias=0.5)), columns(200), PLAIN))
    # The last layer is a hundredth of an orthogonal one: means stay within a few hundredths of the bias.
    np.testing.assert_allclose(action[0], 0.5, atol=0.1)
    np.testing.assert_allclose(action[1], 0.0, atol=0.1)
    assert action.std() > 1e-4


def test_with_one_action_there_is_no_speed():
    state = ppo.new_learner(jax.random.key(0), D, 1, PLAIN)
    np.testing.assert_allclose(ppo.greedy(state, columns(50), PLAIN), 0.0, atol=0.1)


def test_the_noise_has_a_floor():
    state = learner(config(log_std_initial=-4.0))
    assert float(policies.log_std(state.network, config(log_std_min=-2.0))[0, 0]) == -2.0
    assert float(policies.log_std(state.network, config(log_std_min=-5.0))[0, 0]) == -4.0


def test_a_shared_torso_has_one_set_of_features():
    shared = learner(config(network=NetworkConfig(hidden=(8,), torso="shared")))
    separate = learner(PLAIN)
    assert len(shared.network.critic.layers) == 0
    assert len(separate.network.critic.layers) == 1
    seen = columns(N)

    def value_sum(network):
        return jnp.sum(network(seen)[1])

    for state, moves in ((shared, True), (separate, False)):
        pull = jax.grad(value_sum)(state.network).actor.layers[0].weight
        assert bool(jnp.any(pull != 0)) == moves


# --- the loss


def loss_by_the_book(network, batch, config):
    """Write the loss of Schulman et al. (2017) out in float64 numpy."""
    actions, old, values, gains, returns = (np.asarray(leaf, np.float64) for leaf in leaves(batch)[1:])
    mean, value = (np.asarray(part, np.float64) for part in network(batch.observations))
    scale = np.maximum(np.asarray(network.log_std, np.float64), config.log_std_min)[:, None]
    density = (-0.5 * ((actions - mean) / np.exp(scale)) ** 2 - scale - 0.5 * np.log(2 * np.pi)).sum(axis=0)
    ratio = np.exp(density - old)
    bounded = np.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy = -np.minimum(ratio * gains, bounded * gains).mean()
    errors = (value - returns) ** 2
    if config.value_clip:
        near = values + np.clip(value - values, -config.value_clip, config.value_clip)
        errors = np.maximum(errors, (near - returns) ** 2)
    entropy = (scale + 0.5 * np.log(2 * np.pi * np.e)).sum()
    return {
        "total": policy + config.value_weight * errors.mean() - config.entropy_weight * entropy,
        "policy_loss": policy,
        "value_loss": errors.mean(),
        "entropy": entropy,
        "kl": (ratio - 1 - np.log(ratio)).mean(),
        "clip_fraction": (np.abs(ratio - 1) > config.clip).mean(),
    }


@pytest.mark.parametrize(
    "changes", [{}, {"clip": 0.05}, {"value_clip": 0.1}, {"value_weight": 2.0, "entropy_weight": 0.3}]
)
def test_the_loss_is_the_one_of_the_book(changes):
    config_ = config(**changes)
    old = learner(config_)
    batch, new = batch_for(old, config_), shaken(old)
    total, measures = ppo.loss(new, batch, config_)
    expected = loss_by_the_book(new, batch, config_)
    assert (
        expected["clip_fraction"] > 0.05
    )  # another network: ratios leave the range, or this would test little
    got = {name: float(value) for name, value in (measures | {"total": total}).items()}
    assert got == pytest.approx(
        expected, rel=2e-4, abs=1e-5
    )  # exponentials of float32 densities of order ten


def test_value_clipping_only_ever_raises_the_loss():
    state = learner(PLAIN)
    batch, other = batch_for(state, PLAIN), shaken(state)
    clipped = ppo.loss(other, batch, config(value_clip=0.05))[1]["value_loss"]
    assert float(clipped) > float(ppo.loss(other, batch, PLAIN)[1]["value_loss"])
    own = ppo.loss(state.network, batch, config(value_clip=0.05))[1]["value_loss"]
    # Nothing moved yet, so nothing is clipped: the same errors, summed in the same order.
    assert float(own) == float(ppo.loss(state.network, batch, PLAIN)[1]["value_loss"])


def test_a_gradient_in_chunks_is_the_gradient_of_the_whole(monkeypatch):
    """Means over 4 x 256 samples added up against one mean over 1,024: float32 sums of a thousand terms."""
    state = learner(PLAIN)
    batch = batch_for(state, PLAIN, n=1024)
    whole, measures = jax.jit(lambda b: ppo._gradient(state.network, b, PLAIN))(batch)
    monkeypatch.setattr(ppo, "CHUNK", 256)
    counts = []
    real = jax.lax.scan
    monkeypatch.setattr(jax.lax, "scan", lambda f, init, xs: counts.append(len(xs)) or real(f, init, xs))
    parts, measures_in_parts = jax.jit(lambda b: ppo._gradient(state.network, b, PLAIN))(batch)
    assert counts == [4]
    for a, b in zip(leaves(whole), leaves(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    for name in measures:
        assert float(measures[name]) == pytest.approx(float(measures_in_parts[name]), rel=1e-4, abs=1e-6)


def test_a_minibatch_that_no_chunk_divides_is_taken_whole(monkeypatch):
    monkeypatch.setattr(ppo, "CHUNK", 16)
    monkeypatch.setattr(ppo, "LEAST_CHUNK", 8)
    state = learner(PLAIN)
    batch = batch_for(state, PLAIN, n=37)
    gradient, _ = ppo._gradient(state.network, batch, PLAIN)
    scaled = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    expected = jax.grad(lambda n: ppo.loss(n, eqx.tree_at(lambda b: b.advantages, batch, scaled), PLAIN)[0])
    for a, b in zip(leaves(gradient), leaves(expected(state.network)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


# --- learning


def test_learning_keeps_the_tree_and_its_types():
    for config_ in (PLAIN, config(normalise_observations=True, target_kl=0.01)):
        state = learner(config_)
        shapes = jax.eval_shape(
            learning(config_), state, batch_for(state, config_), jax.random.key(0), jnp.float32(1)
        )
        assert jax.tree.structure(shapes[0]) == jax.tree.structure(state)
        for a, b in zip(jax.tree.leaves(shapes[0]), jax.tree.leaves(state), strict=True):
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, jnp.asarray(b).weak_type)


def test_the_average_follows_the_network_and_plays_for_it():
    averaging = config(average=0.75)
    start = learner(averaging)
    after = learned(averaging, start)[0]
    assert same(after.network, learned(PLAIN)[0].network)
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, start.network, after.network)
    for got, wanted in zip(leaves(after.average), leaves(expected), strict=True):
        # One rounding of each product and of the sum.
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)
    assert same(after.playing, after.average)
    assert not same(after.average, after.network)
    plain = learned(PLAIN)[0]
    assert same(plain.playing, plain.network)
    assert plain.average is None


def test_learning_is_deterministic_and_depends_on_its_key():
    state, batch = learner(PLAIN), batch_for(learner(PLAIN), PLAIN)
    first = learned(PLAIN, state, batch)[0]
    assert same(first, learned(PLAIN, state, batch)[0])
    other = learning(PLAIN)(state, batch, jax.random.key(8), jnp.float32(1e-2))[0]
    assert not same(first.network, other.network)
    assert int(first.updates) == 8


def test_epochs_and_minibatches_use_every_sample_once_a_pass():
    """With one minibatch the order cannot matter, so learning is one plain Adam step per epoch."""
    config_ = config(epochs=1, minibatches=1, normalise_advantages=False, max_gradient_norm=1e6)
    state = learner(config_)
    batch = batch_for(state, config_)
    after, measures = learned(config_, state, batch, rate=3e-3)
    gradient = jax.grad(lambda n: ppo.loss(n, batch, config_)[0])(state.network)
    adam = optax.adam(3e-3, eps=1e-5)
    updates, _ = adam.update(gradient, adam.init(state.network))
    expected = optax.apply_updates(state.network, updates)
    for a, b in zip(leaves(after.network), leaves(expected), strict=True):
        # Adam's first step is rate times the sign where gradients are large: a rounding of the gradient is scaled
        # by rate / eps at most.
        np.testing.assert_allclose(a, b, atol=2e-6)
    assert float(measures["gradient_norm"]) == pytest.approx(float(optax.tree.norm(gradient)), rel=1e-4)


def test_gradients_are_clipped_by_their_global_norm():
    def first_moment(limit):
        config_ = config(epochs=1, minibatches=1, max_gradient_norm=limit)
        after, measures = learned(config_)
        return float(optax.tree.norm(after.optimiser.mu)), float(measures["gradient_norm"])

    # After one step Adam's first moment is a tenth of the gradient that it was given.
    moment, norm = first_moment(0.01)
    assert norm > 0.1
    assert moment == pytest.approx(0.1 * 0.01, rel=1e-4)
    moment, norm = first_moment(1e6)
    assert moment == pytest.approx(0.1 * norm, rel=1e-4)


def test_advantages_are_standardised_in_each_minibatch_or_not_at_all():
    state = learner(PLAIN)
    batch = batch_for(state, PLAIN)
    moved = eqx.tree_at(lambda b: b.advantages, batch, 5 * batch.advantages + 3)
    a, b = (learned(PLAIN, state, rows)[0].network for rows in (batch, moved))
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)  # eight Adam steps of 1e-2 on gradients equal to 1e-6
    raw = config(normalise_advantages=False)
    a, b = (learned(raw, state, rows)[0].network for rows in (batch, moved))
    assert max(np.abs(x - y).max() for x, y in zip(leaves(a), leaves(b), strict=True)) > 1e-3


def test_the_kl_stop_stops():
    rate = 0.1
    free, _ = learned(config(), rate=rate)
    stopped, measures = learned(config(target_kl=1e-3), rate=rate)
    assert int(free.updates) == 8
    assert 0 < int(stopped.updates) < 8
    assert float(measures["stopped_early"]) == 1.0
    assert float(measures["kl"]) > 0  # over the updates that were made, not over the zeros that were not
    assert float(measures["entropy"]) > 0.5
    assert not same(stopped.network, free.network)
    generous, measures = learned(config(target_kl=10.0), rate=rate)
    assert float(measures["stopped_early"]) == 0.0
    for a, b in zip(leaves(generous.network), leaves(free.network), strict=True):
        # Another program, whose roundings eight steps of Adam at a rate of 0.1 can blow up a little.
        np.testing.assert_allclose(a, b, atol=1e-3)


def poisoned(batch, place):
    return eqx.tree_at(lambda b: b.returns, batch, batch.returns.at[place].set(jnp.nan))


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted():
    state = learner(PLAIN)
    batch = batch_for(state, PLAIN)
    after, measures = learned(PLAIN, state, poisoned(batch, slice(None)))
    assert same(after.network, state.network)
    assert same(after.optimiser, state.optimiser)
    assert float(measures["nonfinite"]) == 8.0
    # One bad sample of 64 is in one of four minibatches of each pass; the other three are learned from.
    after, measures = learned(PLAIN, state, poisoned(batch, 5))
    assert float(measures["nonfinite"]) == 2.0
    assert all(np.isfinite(leaf).all() for leaf in leaves(after))
    assert int(after.optimiser.count) == 6


def test_an_infinite_gradient_is_not_finite_either():
    state = learner(PLAIN)
    batch = batch_for(state, PLAIN)
    huge = eqx.tree_at(lambda b: b.returns, batch, batch.returns.at[:].set(1e38))
    after, measures = learned(PLAIN, state, huge)
    assert float(measures["nonfinite"]) == 8.0
    assert same(after.network, state.network)


def test_observations_are_normalised_by_what_was_seen_before():
    config_ = config(normalise_observations=True)
    state = learner(config_)
    seen = 3.0 + 2.0 * columns(N)
    np.testing.assert_array_equal(ppo.inputs(state, seen, config_), seen)  # nothing was seen yet
    batch = eqx.tree_at(lambda b: b.observations, batch_for(state, config_), seen)
    after, _ = learned(config_, state, batch)
    assert float(after.moments.count) == N
    np.testing.assert_allclose(after.moments.mean, seen.mean(axis=1), rtol=1e-5)
    scaled = np.asarray(ppo.inputs(after, seen, config_))
    np.testing.assert_allclose(scaled.mean(axis=1), 0.0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=1), 1.0, rtol=1e-4)


def test_learning_sees_observations_as_acting_did():
    """Before anything moves every ratio is one: a batch is not renormalised between acting and learning."""
    config_ = config(normalise_observations=True, epochs=1, minibatches=1)
    state = learned(config_)[0]  # with moments
    batch = batch_for(state, config_)
    _, measures = learned(config_, state, batch)
    # exp(x) - 1 - x of a log ratio x that is rounding: at most 1e-5 of a density of order ten, squared.
    assert float(measures["kl"]) == pytest.approx(0.0, abs=1e-6)
    assert float(measures["clip_fraction"]) == 0.0


def test_a_penalty_pulls_the_network():
    state = learner(PLAIN)
    batch = batch_for(state, PLAIN)

    def toward_zero(network):
        return 100.0 * jnp.sum(network.mean.weight**2)

    def one(state, batch):
        return ppo.learn(
            state, batch, jax.random.key(7), config=PLAIN, rate=jnp.float32(1e-3), penalty=toward_zero
        )

    pulled, measures = jax.jit(one)(state, batch)
    free, _ = learned(PLAIN, state, batch, rate=1e-3)
    norms = [float(optax.tree.norm(s.network.mean.weight)) for s in (state, pulled, free)]
    assert norms[1] < norms[0] < norms[2]
    assert float(measures["penalty"]) > 0


# --- the schedule


@pytest.mark.parametrize(
    ("steps", "rate"), [(0, 1e-2), (250, 7.75e-3), (500, 5.5e-3), (1000, 1e-3), (99_999, 1e-3)]
)
def test_the_learning_rate_falls_linearly_to_its_share(steps, rate):
    falling = config(learning_rate=1e-2, learning_rate_final=0.1, learning_rate_decay_steps=1000)
    assert float(ppo.step_size(falling, jnp.float32(steps))) == pytest.approx(rate, rel=1e-5)
    assert float(ppo.step_size(config(learning_rate=1e-2), jnp.float32(steps))) == pytest.approx(1e-2)


def test_a_rate_of_zero_moves_nothing():
    state = learner(PLAIN)
    after, measures = learned(PLAIN, state, rate=0.0)
    assert same(after.network, state.network)
    assert float(measures["learning_rate"]) == 0.0
    assert int(after.optimiser.count) == 8
