"""The distributions over actions that a policy may have: how they sample, and how likely a stored action is.

`clipped` and `squashed` are Gaussians (before the bound), `barrier` is a Gaussian of fixed noise whose mean can be
projected onto the safe set, `beta` lives in a box. Noise is given as standard normals; all zero is the typical action.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, Float

from outlast.nets import ActorCritic
from outlast.safety.config import SafetyConfig
from outlast.safety.limits import box_limits, projected, row_limits
from outlast.worlds.arena import ArenaConfig, ArenaState, Role

if TYPE_CHECKING:
    from outlast.learners.ppo import PpoConfig

LOG_2PI = 1.8378770664093453
TRIES = 3
"""Proposals for each gamma variate. With a shape of 1 or more one in twenty is refused at most, so all three are in
one of 8,000; then the last stands."""
EDGE = 1e-5
"""Samples of a Beta stay this share of the box away from its ends, where densities are not finite."""
Limits = Float[Array, "L B"] | None


def limits_of(
    arena: ArenaState, role: Role, world: ArenaConfig, config: "PpoConfig", safety: SafetyConfig
) -> Limits:
    """Return what safety tells the policy of a role in each game; nothing where its distribution asks for nothing."""
    shield = safety.of(role.name.lower())
    if shield.bounds != "nominal":
        return box_limits(arena, role, shield, world)
    if config.distribution == "barrier" and config.barrier.gradient:
        return row_limits(arena, role, shield, world)
    return None


def noise_size(n_actions: int, config: "PpoConfig") -> int:
    """Count the normals that one action takes."""
    return n_actions * 4 * TRIES if config.distribution == "beta" else n_actions


def log_std(network: ActorCritic, config: "PpoConfig") -> Float[Array, "A 1"]:
    """Return the log of the exploration noise of a Gaussian as a column."""
    if config.distribution == "barrier":
        return jnp.log(jnp.array([[config.barrier.speed_noise], [config.barrier.turn_noise]]))
    return jnp.maximum(network.log_std, config.log_std_min)[:, None]


def centre(mean: Float[Array, "A B"], limits: Limits, config: "PpoConfig") -> Float[Array, "A B"]:
    """Return the mean of a Gaussian before bounds: through the projection, where the barrier is in the policy."""
    if config.distribution != "barrier":
        return mean
    mean = jnp.tanh(mean)
    return projected(mean, limits) if config.barrier.gradient else mean


def sampled(
    network: ActorCritic, mean: Float[Array, "A B"], noise: Array, limits: Limits, config: "PpoConfig"
) -> tuple[Float[Array, "A B"], Float[Array, " B"]]:
    """Return raw actions and their log-probabilities."""
    if config.distribution == "beta":
        raw = _beta_sample(mean, noise, limits)
        return raw, _beta_log_probability(mean, raw, limits)
    scale = log_std(network, config)
    raw = centre(mean, limits, config) + jnp.exp(scale) * noise
    return raw, -jnp.sum(0.5 * noise**2 + scale + 0.5 * LOG_2PI, axis=0)


def bounded(raw: Float[Array, "A B"], config: "PpoConfig") -> Float[Array, "A B"]:
    """Map raw samples into the action bounds [-1, 1]."""
    return jnp.tanh(raw) if config.distribution == "squashed" else jnp.clip(raw, -1.0, 1.0)


def judged(
    network: ActorCritic,
    mean: Float[Array, "A B"],
    raw: Float[Array, "A B"],
    limits: Limits,
    config: "PpoConfig",
) -> tuple[Float[Array, " B"], Float[Array, ""]]:
    """Return the log-probabilities of stored raw actions under a policy, and its mean entropy."""
    if config.distribution == "beta":
        return _beta_log_probability(mean, raw, limits), jnp.mean(_beta_entropy(mean, limits))
    scale = log_std(network, config)
    z = (raw - centre(mean, limits, config)) * jnp.exp(-scale)
    entropy = jnp.sum(scale + 0.5 * (1 + LOG_2PI))
    return -jnp.sum(0.5 * z**2 + scale + 0.5 * LOG_2PI, axis=0), entropy


def spread(network: ActorCritic, columns: Float[Array, "D N"], config: "PpoConfig") -> Float[Array, ""]:
    """Return the mean standard deviation of the actions, before bounds; of a Beta, in its whole support."""
    if config.distribution != "beta":
        return jnp.mean(jnp.exp(log_std(network, config)))
    a, b = _shapes(network.act(columns))
    return jnp.mean(2 * jnp.sqrt(a * b / ((a + b) ** 2 * (a + b + 1))))


def _shapes(heads: Float[Array, "2A B"]) -> tuple[Float[Array, "A B"], Float[Array, "A B"]]:
    """Return both shapes of each Beta; above 1, so that it has one mode."""
    return tuple(1.0 + jax.nn.softplus(heads.reshape(2, -1, heads.shape[-1])))


def _box(limits: Limits, like: Array) -> tuple[Array, Array]:
    if limits is None:
        return -jnp.ones_like(like), jnp.full_like(like, 2.0)
    low, high = jnp.split(limits, 2)
    return low, high - low


def _beta_sample(heads: Array, noise: Array, limits: Limits) -> Array:
    first, second = noise.reshape(2, 2 * TRIES, -1, noise.shape[-1])
    a, b = _shapes(heads)
    a, b = _gamma(a, first), _gamma(b, second)
    low, width = _box(limits, a)
    return low + width * jnp.clip(a / (a + b), EDGE, 1 - EDGE)


def _gamma(shape: Array, noise: Float[Array, "2T A B"]) -> Array:
    """Sample gamma variates by Marsaglia and Tsang (2000): the first of a few proposals that is accepted."""
    d = shape - 1 / 3
    x, z = jnp.split(noise, 2)
    v = (1 + x / jnp.sqrt(9 * d)) ** 3
    log_u = jax.scipy.stats.norm.logcdf(z)
    fits = (v > 0) & (log_u < 0.5 * x**2 + d * (1 - v + jnp.log(jnp.maximum(v, 1e-30))))
    chosen = jnp.maximum(v[-1], 1e-30)
    for place in reversed(range(TRIES - 1)):
        chosen = jnp.where(fits[place], v[place], chosen)
    return d * chosen


def _beta_log_probability(heads: Array, raw: Array, limits: Limits) -> Array:
    a, b = _shapes(heads)
    low, width = _box(limits, a)
    x = jnp.clip((raw - low) / width, EDGE, 1 - EDGE)
    density = (a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x) - betaln(a, b)
    return jnp.sum(density - jnp.log(width), axis=0)


def _beta_entropy(heads: Array, limits: Limits) -> Array:
    a, b = _shapes(heads)
    _, width = _box(limits, a)
    spread = betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)
    return jnp.sum(spread + jnp.log(width), axis=0)
