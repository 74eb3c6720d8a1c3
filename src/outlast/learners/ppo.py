"""Proximal policy optimisation: a learner's state, how it acts, and how it learns from a batch of rows."""

import functools
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree
from pydantic import Field

from outlast.config import Section
from outlast.core import Metrics
from outlast.learners import policies
from outlast.learners.normalise import Moments, no_moments, normalised, updated
from outlast.learners.policies import Limits, bounded
from outlast.learners.returns import explained_variance
from outlast.learners.shuffle import permutation
from outlast.nets import ActorCritic, NetworkConfig, actor_critic
from outlast.safety.feasibility import Feasibility

KL_SLACK = 1.5
CHUNK, LEAST_CHUNK = 1024, 128
ADAM = optax.scale_by_adam(eps=1e-5)


class BarrierConfig(Section):
    """The BarrierNet actor: a mean within tanh, fixed noise, and the safety projection in the policy or behind it."""

    gradient: bool = Field(
        True, description="project the mean, with its gradient; else only what the world sees is projected"
    )
    speed_noise: float = Field(0.6, ge=1e-3, le=10.0, description="noise of the speed; the range is 2")
    turn_noise: float = Field(0.35, ge=1e-3, le=10.0, description="noise of the turn rate; the range is 2")


class PpoConfig(Section):
    """Hyperparameters of one learner."""

    network: NetworkConfig = NetworkConfig()
    distribution: Literal["clipped", "squashed", "beta", "barrier"] = Field(
        "clipped",
        description="a Gaussian clipped to the action bounds or squashed by tanh, a Beta in a box, or a BarrierNet",
    )
    barrier: BarrierConfig = BarrierConfig()
    log_std_initial: float = Field(
        -0.5, ge=-5.0, le=2.0, description="log of the exploration noise at the start"
    )
    log_std_min: float = Field(-3.0, ge=-10.0, le=2.0, description="lower bound of the log noise")
    speed_bias: float = Field(
        1.0, ge=-1.0, le=1.0, description="initial mean of the speed action; +1 is full speed"
    )
    learning_rate: float = Field(1e-3, ge=1e-7, le=1.0, description="Adam's step size at the start")
    learning_rate_final: float = Field(
        1.0, ge=0.0, le=1.0, description="share of the step size left after learning_rate_decay_steps"
    )
    learning_rate_decay_steps: int = Field(
        0, ge=0, le=10**12, description="world steps over which the step size falls linearly; 0 keeps it"
    )
    discount: float = Field(0.995, ge=0.0, le=1.0, description="discount per step")
    trace: float = Field(0.95, ge=0.0, le=1.0, description="lambda of the advantage estimate")
    clip: float = Field(0.2, ge=0.01, le=10.0, description="clip range of the probability ratio")
    value_clip: float = Field(0.0, ge=0.0, le=1e6, description="clip range of value updates; 0 for none")
    value_weight: float = Field(0.5, ge=0.0, le=100.0, description="weight of the value loss")
    entropy_weight: float = Field(0.003, ge=0.0, le=10.0, description="weight of the entropy bonus")
    max_gradient_norm: float = Field(
        0.5, ge=1e-4, le=1e6, description="global gradient norm is clipped to this"
    )
    epochs: int = Field(2, ge=1, le=100, description="passes over each batch")
    minibatches: int = Field(4, ge=1, le=4096, description="updates per pass")
    normalise_advantages: bool = Field(True, description="standardise advantages in each minibatch")
    normalise_observations: bool = Field(False, description="standardise observations by running moments")
    target_kl: float = Field(
        0.0, ge=0.0, le=10.0, description="stop an update when the KL passes 1.5x; 0 never"
    )
    average: float = Field(
        0.0, ge=0.0, le=0.9999, description="share of the averaged weights, which then play, kept; 0 for none"
    )

    def model_post_init(self, context: object) -> None:
        """Refuse settings that would do nothing."""
        if self.distribution in ("beta", "barrier"):
            for name in ("log_std_initial", "log_std_min"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect with distribution = {self.distribution}")
        if self.distribution != "barrier" and self.barrier != BarrierConfig():
            raise ValueError(f"barrier has no effect with distribution = {self.distribution}")
        if (self.learning_rate_decay_steps == 0) != (self.learning_rate_final == 1.0):
            raise ValueError(
                "learning_rate_final and learning_rate_decay_steps belong together: set both, or neither"
            )


class PpoState(eqx.Module):
    """Everything that one learner changes. `average` follows the network, and plays for it where it is kept; the
    shield's classifier of feasibility, where there is one, is trained by whoever sees the role's games."""

    network: ActorCritic
    optimiser: optax.OptState
    moments: Moments
    updates: Int[Array, ""]
    average: ActorCritic | None = None
    feasibility: Feasibility | None = None

    @property
    def playing(self) -> ActorCritic:
        """Return the network that plays outside training: in evaluations, in pools, in policy files."""
        return self.network if self.average is None else self.average


Penalty = Callable[[ActorCritic], Float[Array, ""]]
Carry = tuple[ActorCritic, optax.OptState, Bool[Array, ""]]


class Batch(eqx.Module):
    """Samples to learn from, one per column; N is time times worlds."""

    observations: Float[Array, "D N"]
    actions: Float[Array, "A N"]
    log_probabilities: Float[Array, " N"]
    values: Float[Array, " N"]
    advantages: Float[Array, " N"]
    returns: Float[Array, " N"]
    limits: Float[Array, "L N"] | None = None
    """What safety told the policy when it acted, where its distribution depends on that."""


class Choice(eqx.Module):
    """What a policy decided for each column; `raw` is the sample before clipping or squashing."""

    raw: Float[Array, "A B"]
    action: Float[Array, "A B"]
    log_probability: Float[Array, " B"]
    value: Float[Array, " B"]
    limits: Float[Array, "L B"] | None = None


def new_learner(key: Key[Array, ""], n_observations: int, n_actions: int, config: PpoConfig) -> PpoState:
    """Return an untrained learner; with two or more actions the first is the speed."""
    bias = (config.speed_bias,) + (0.0,) * (n_actions - 1) if n_actions > 1 else (0.0,) * n_actions
    if config.distribution == "beta":
        bias += tuple(-entry for entry in bias)
    network = actor_critic(
        key, n_observations, config.network, log_std=config.log_std_initial, mean_bias=bias
    )
    if config.distribution in ("beta", "barrier"):
        network = eqx.tree_at(lambda n: n.log_std, network, jnp.zeros(0))
    moments = no_moments(n_observations if config.normalise_observations else 0)
    average = network if config.average > 0 else None
    return PpoState(network, ADAM.init(network), moments, jnp.int32(0), average)


def inputs(state: PpoState, observations: Float[Array, "D B"], config: PpoConfig) -> Float[Array, "D B"]:
    """Return observations as the network takes them."""
    return normalised(observations, state.moments) if config.normalise_observations else observations


def choose(
    state: PpoState,
    observations: Float[Array, "D B"],
    noise: Float[Array, "Z B"],
    config: PpoConfig,
    limits: Limits = None,
) -> Choice:
    """Sample actions with given standard normal noise."""
    mean, value = state.network(inputs(state, observations, config))
    raw, log_probability = policies.sampled(state.network, mean, noise, limits, config)
    return Choice(raw, bounded(raw, config), log_probability, value, limits)


def greedy(
    state: PpoState, observations: Float[Array, "D B"], config: PpoConfig, limits: Limits = None
) -> Float[Array, "A B"]:
    """Return the typical action of each column: the mean of a Gaussian, about the median of a Beta."""
    heads = state.network.mean.bias.shape[0]
    n_actions = heads // 2 if config.distribution == "beta" else heads
    noise = jnp.zeros((policies.noise_size(n_actions, config), observations.shape[1]))
    return choose(state, observations, noise, config, limits).action


def values(state: PpoState, observations: Float[Array, "D B"], config: PpoConfig) -> Float[Array, " B"]:
    """Return the value of each column."""
    return state.network(inputs(state, observations, config))[1]


def step_size(config: PpoConfig, steps_done: Float[Array, ""]) -> Float[Array, ""]:
    """Return the learning rate after a number of world steps."""
    if config.learning_rate_decay_steps == 0:
        return jnp.float32(config.learning_rate)
    share = jnp.clip(steps_done / config.learning_rate_decay_steps, 0.0, 1.0)
    return config.learning_rate * (1.0 - share * (1.0 - config.learning_rate_final))


def learn(
    state: PpoState,
    batch: Batch,
    key: Key[Array, ""],
    *,
    config: PpoConfig,
    rate: Float[Array, ""],
    penalty: Penalty | None = None,
) -> tuple[PpoState, Metrics]:
    """Improve a learner on one batch: `epochs` passes of `minibatches` clipped updates.

    `penalty` is added to the loss of every update; it sees the network only.
    A gradient that is not finite changes nothing and is counted, for the guard of the run to see.
    """
    if config.normalise_observations:
        moments = updated(state.moments, batch.observations)
        batch = eqx.tree_at(lambda b: b.observations, batch, inputs(state, batch.observations, config))
        state = eqx.tree_at(lambda s: s.moments, state, moments)
    rows = _packed(batch)
    n = rows.shape[0] // config.minibatches
    orders = [permutation(jax.random.fold_in(key, epoch), rows.shape[0]) for epoch in range(config.epochs)]
    picks = jnp.stack(orders).reshape(config.epochs * config.minibatches, n)

    def update(carry: Carry, pick: Int[Array, " n"]) -> tuple[Carry, Metrics]:
        return _update(carry, _unpacked(rows[pick], like=batch), config=config, rate=rate, penalty=penalty)

    carry = (state.network, state.optimiser, jnp.bool_(False))
    (network, optimiser, stopped), measures = jax.lax.scan(update, carry, picks)
    applied = measures.pop("applied")
    done = jnp.maximum(jnp.sum(applied), 1.0)
    metrics = {name: jnp.sum(value * applied) / done for name, value in measures.items()}
    metrics |= {
        "nonfinite": jnp.sum(measures["nonfinite"]),
        "stopped_early": stopped.astype(jnp.float32),
        "explained_variance": explained_variance(batch.values, batch.returns),
        "learning_rate": rate,
        "noise": policies.spread(network, batch.observations, config),
    }
    count = state.updates + jnp.sum(applied).astype(jnp.int32)
    average = _averaged(state, network, config)
    return PpoState(network, optimiser, state.moments, count, average, state.feasibility), metrics


def _averaged(state: PpoState, network: ActorCritic, config: PpoConfig) -> ActorCritic | None:
    """Move the averaged weights towards the newest."""
    if state.average is None:
        return None
    return jax.tree.map(lambda a, b: config.average * a + (1 - config.average) * b, state.average, network)


def _packed(batch: Batch) -> Float[Array, "N C"]:
    """Pack a batch into rows, so that a minibatch is one gather."""
    scalars = (batch.log_probabilities, batch.values, batch.advantages, batch.returns)
    extra = () if batch.limits is None else (batch.limits,)
    return jnp.concatenate([batch.observations, batch.actions, jnp.stack(scalars), *extra]).T


def _unpacked(rows: Float[Array, "M C"], *, like: Batch) -> Batch:
    n_observations, n_actions = like.observations.shape[0], like.actions.shape[0]
    edges = (n_observations, n_observations + n_actions, n_observations + n_actions + 4)
    observations, actions, scalars, limits = jnp.split(rows.T, edges)
    return Batch(observations, actions, *scalars, limits=None if like.limits is None else limits)


def _update(
    carry: Carry, batch: Batch, *, config: PpoConfig, rate: Float[Array, ""], penalty: Penalty | None
) -> tuple[Carry, Metrics]:
    """Take one gradient step, or none once the KL stop has fired."""

    def step(carry: Carry) -> tuple[Carry, Metrics]:
        network, optimiser, stopped = carry
        gradient, measures = _gradient(network, batch, config)
        if penalty is not None:
            measures["penalty"], pull = jax.value_and_grad(penalty)(network)
            gradient = jax.tree.map(jnp.add, gradient, pull)
        norm = optax.tree.norm(gradient)
        finite = jnp.isfinite(norm)
        shrink = jnp.minimum(1.0, config.max_gradient_norm / jnp.maximum(norm, 1e-12))
        direction, moved = ADAM.update(jax.tree.map(lambda g: g * shrink, gradient), optimiser)
        stepped = jax.tree.map(lambda p, d: p - rate * d, network, direction)
        network = _where(finite, stepped, network)
        optimiser = _where(finite, moved, optimiser)
        if config.target_kl > 0:
            stopped = stopped | (measures["kl"] > KL_SLACK * config.target_kl)
        nonfinite = (~finite).astype(jnp.float32)
        measures |= {"gradient_norm": norm, "nonfinite": nonfinite, "applied": jnp.float32(1)}
        return (network, optimiser, stopped), measures

    if config.target_kl == 0:
        return step(carry)
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(step, carry)[1])
    return jax.lax.cond(carry[2], lambda c: (c, nothing), step, carry)


def _where(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _gradient(network: ActorCritic, batch: Batch, config: PpoConfig) -> tuple[ActorCritic, Metrics]:
    """Return the mean gradient of the loss and its measures, accumulated over chunks that fit the cache."""
    if config.normalise_advantages:
        centred = batch.advantages - jnp.mean(batch.advantages)
        scaled = centred / (jnp.std(batch.advantages) + 1e-8)
        batch = eqx.tree_at(lambda b: b.advantages, batch, scaled)
    n = batch.values.shape[0]
    n_chunks = next((c for c in range(-(-n // CHUNK), n // LEAST_CHUNK + 1) if n % c == 0), 1)
    width = n // n_chunks
    differentiate = jax.grad(functools.partial(loss, config=config), has_aux=True)
    if n_chunks == 1:
        return differentiate(network, batch)

    def add(total: tuple[ActorCritic, Metrics], chunk: Int[Array, ""]) -> tuple[tuple, None]:
        part = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, chunk * width, width, axis=-1), batch
        )
        return jax.tree.map(jnp.add, total, differentiate(network, part)), None

    shapes = jax.eval_shape(differentiate, network, batch)
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    total, _ = jax.lax.scan(add, nothing, jnp.arange(n_chunks))
    return jax.tree.map(lambda leaf: leaf / n_chunks, total)


def loss(network: ActorCritic, batch: Batch, config: PpoConfig) -> tuple[Float[Array, ""], Metrics]:
    """Return the clipped surrogate plus value loss minus entropy bonus, and what to watch."""
    mean, value = network(batch.observations)
    log_probability, entropy = policies.judged(network, mean, batch.actions, batch.limits, config)
    log_ratio = log_probability - batch.log_probabilities
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * batch.advantages, clipped * batch.advantages))
    errors = (value - batch.returns) ** 2
    if config.value_clip > 0:
        near = batch.values + jnp.clip(value - batch.values, -config.value_clip, config.value_clip)
        errors = jnp.maximum(errors, (near - batch.returns) ** 2)
    value_loss = jnp.mean(errors)
    total = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
    measures = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "kl": jnp.mean(ratio - 1 - log_ratio),
        "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > config.clip),
    }
    return total, measures
