"""Elastic weight consolidation: an anchor in parameter space, weighted by how much the policy depends on each.

The penalty is weight / 2 * sum of fisher * (theta - anchor)^2 over the actor (Kirkpatrick et al., 2017). The Fisher
diagonal is the mean of squared per-sample gradients of the policy's log-probability.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from outlast.learners.policies import log_std
from outlast.learners.ppo import PpoConfig, PpoState
from outlast.nets import ActorCritic, Linear, Mlp


class ActorPart(eqx.Module):
    """The parameters that decide what a policy does."""

    actor: Mlp
    mean: Linear
    log_std: Float[Array, " A"]


class Anchor(eqx.Module):
    """Where the policy was at the last advance, and what mattered there; `placed` 0 before the first."""

    theta: ActorPart
    fisher: ActorPart
    placed: Float[Array, ""]


def actor_part(network: ActorCritic) -> ActorPart:
    """Take the actor's parameters of a network."""
    return ActorPart(network.actor, network.mean, network.log_std)


def no_anchor(learner: PpoState) -> Anchor:
    """Return an anchor that pulls at nothing."""
    part = actor_part(learner.network)
    return Anchor(part, jax.tree.map(jnp.zeros_like, part), jnp.float32(0))


def fisher_diagonal(
    learner: PpoState, observations: Float[Array, "D N"], key: Key[Array, ""], config: PpoConfig
) -> ActorPart:
    """Estimate the Fisher diagonal with actions drawn from the policy itself; inputs are as the network takes them."""
    network = learner.network
    scale = log_std(network, config)
    noise = jax.random.normal(key, (network.log_std.shape[0], observations.shape[1]))
    actions = network.act(observations) + jnp.exp(scale) * noise

    def log_probability(part: ActorPart, seen: Array, action: Array) -> Array:
        own = eqx.tree_at(
            lambda n: (n.actor, n.mean, n.log_std), network, (part.actor, part.mean, part.log_std)
        )
        own_scale = log_std(own, config)
        z = (action[:, None] - own.act(seen[:, None])) * jnp.exp(-own_scale)
        return -jnp.sum(0.5 * z**2 + own_scale)

    def add(total: ActorPart, sample: tuple[Array, Array]) -> tuple[ActorPart, None]:
        gradient = jax.grad(log_probability)(actor_part(network), *sample)
        return jax.tree.map(lambda t, g: t + g**2, total, gradient), None

    nothing = jax.tree.map(jnp.zeros_like, actor_part(network))
    total, _ = jax.lax.scan(add, nothing, (observations.T, actions.T))
    return jax.tree.map(lambda t: t / observations.shape[1], total)


def moved_anchor(anchor: Anchor, learner: PpoState, fisher: ActorPart, here: Bool[Array, ""]) -> Anchor:
    """Place the anchor at the learner where asked."""
    new = Anchor(actor_part(learner.network), fisher, jnp.float32(1))
    return jax.tree.map(lambda a, b: jnp.where(here, b, a), anchor, new)


def penalty(network: ActorCritic, anchor: Anchor, weight: float) -> Float[Array, ""]:
    """Return how far, in the Fisher metric, a network has left its anchor."""

    def part(fisher: PyTree, theta: PyTree, now: PyTree) -> Array:
        return jnp.sum(fisher * (now - theta) ** 2)

    parts = jax.tree.map(part, anchor.fisher, anchor.theta, actor_part(network))
    return 0.5 * weight * sum(jax.tree.leaves(parts))
