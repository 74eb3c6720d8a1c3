"""The networks: plain pytrees of arrays. They take columns, one per world or sample, because the world axis is
last everywhere; weights times columns is also the layout in which a CPU multiplies small matrices best.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key
from pydantic import Field

from outlast.config import Section

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}


class NetworkConfig(Section):
    """The shape of an actor-critic network."""

    hidden: tuple[int, ...] = Field(
        (64, 64), min_length=1, max_length=6, description="width of each hidden layer"
    )
    activation: Literal["tanh", "relu"] = Field("tanh", description="non-linearity between layers")
    torso: Literal["separate", "shared"] = Field(
        "separate", description="whether actor and critic share their hidden layers"
    )

    def model_post_init(self, context: object) -> None:
        """Bound every width; pydantic bounds only the number of them."""
        for width in self.hidden:
            if not 1 <= width <= 4096:
                raise ValueError(f"hidden width {width} is out of range (allowed: 1 to 4096)")


class Linear(eqx.Module):
    """An affine map of columns."""

    weight: Float[Array, "n_out n_in"]
    bias: Float[Array, " n_out"]

    def __call__(self, columns: Float[Array, "n_in B"]) -> Float[Array, "n_out B"]:
        """Map each column."""
        return self.weight @ columns + self.bias[:, None]


def linear(key: Key[Array, ""], n_in: int, n_out: int, *, gain: float) -> Linear:
    """Return an affine map with orthogonal weights and no bias."""
    return Linear(jax.nn.initializers.orthogonal(gain)(key, (n_out, n_in)), jnp.zeros(n_out))


class Mlp(eqx.Module):
    """Hidden layers with one activation; the last layer's output is activated too."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True, default=False)

    def __call__(self, columns: Float[Array, "n_in B"]) -> Float[Array, "n_out B"]:
        """Map each column."""
        for layer in self.layers:
            columns = layer(columns)
            if self.layer_norm:
                columns = standardised(columns)
            columns = ACTIVATIONS[self.activation](columns)
        return columns


def standardised(columns: Float[Array, "n B"]) -> Float[Array, "n B"]:
    """Return each column with zero mean and unit variance."""
    centred = columns - jnp.mean(columns, axis=0)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=0) + 1e-5)


def mlp(
    key: Key[Array, ""], n_in: int, hidden: tuple[int, ...], activation: str, *, layer_norm: bool = False
) -> Mlp:
    """Return hidden layers with orthogonal weights."""
    sizes = (n_in, *hidden)
    keys = jax.random.split(key, max(len(hidden), 1))
    layers = [linear(k, a, b, gain=2**0.5) for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=False)]
    return Mlp(tuple(layers), activation, layer_norm)


class ActorCritic(eqx.Module):
    """A Gaussian policy and a value function, with separate or shared hidden layers.

    With a shared torso `critic` has no layers and reads the actor's features.
    """

    actor: Mlp
    critic: Mlp
    mean: Linear
    value: Linear
    log_std: Float[Array, " action"]

    def __call__(
        self, columns: Float[Array, "n_in B"]
    ) -> tuple[Float[Array, "action B"], Float[Array, " B"]]:
        """Return action means and values."""
        features = self.actor(columns)
        of_critic = self.critic(columns) if self.critic.layers else features
        return self.mean(features), self.value(of_critic)[0]

    def act(self, columns: Float[Array, "n_in B"]) -> Float[Array, "action B"]:
        """Return action means only."""
        return self.mean(self.actor(columns))

    def flops(self) -> tuple[int, int]:
        """Count operations per column of a forward pass and of a backward pass without input gradients."""
        layers = (*self.actor.layers, *self.critic.layers, self.mean, self.value)
        forward = sum(2 * layer.weight.size for layer in layers)
        first = [mlp.layers[0] for mlp in (self.actor, self.critic) if mlp.layers]
        return forward, 2 * forward - sum(2 * layer.weight.size for layer in first)


def actor_critic(
    key: Key[Array, ""], n_in: int, config: NetworkConfig, *, log_std: float, mean_bias: tuple[float, ...]
) -> ActorCritic:
    """Return a fresh network whose policy starts near `mean_bias` for every observation."""
    actor_key, critic_key, mean_key, value_key = jax.random.split(key, 4)
    n_actions, width = len(mean_bias), config.hidden[-1]
    is_separate = config.torso == "separate"
    mean = linear(mean_key, width, n_actions, gain=0.01)
    return ActorCritic(
        actor=mlp(actor_key, n_in, config.hidden, config.activation),
        critic=mlp(critic_key, n_in, config.hidden if is_separate else (), config.activation),
        mean=eqx.tree_at(lambda layer: layer.bias, mean, jnp.array(mean_bias, jnp.float32)),
        value=linear(value_key, width, 1, gain=1.0),
        log_std=jnp.full(n_actions, log_std, jnp.float32),
    )
