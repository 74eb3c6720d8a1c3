"""The last values of a stream, for rules that look back over a number of lives."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Recent(eqx.Module):
    """The newest W values; `count` is how many there ever were."""

    values: Float[Array, " W"]
    count: Int[Array, ""]

    @property
    def full(self) -> Bool[Array, ""]:
        """Tell whether W values have come."""
        return self.count >= self.values.shape[0]

    @property
    def mean(self) -> Float[Array, ""]:
        """Return the mean of what is held; 0 of nothing."""
        n = jnp.minimum(self.count, self.values.shape[0])
        return jnp.sum(self.values) / jnp.maximum(n, 1)

    @property
    def variance(self) -> Float[Array, ""]:
        """Return the sample variance of a full window."""
        return jnp.var(self.values, ddof=1)

    def halves(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the means of the older and of the newer half of a full window."""
        size = self.values.shape[0]
        age = (jnp.arange(size) - self.count) % size
        newer = age >= size // 2
        older_mean = jnp.sum(jnp.where(newer, 0.0, self.values)) / (size // 2)
        return older_mean, jnp.sum(jnp.where(newer, self.values, 0.0)) / (size - size // 2)


def nothing_recent(size: int) -> Recent:
    """Return an empty window."""
    return Recent(jnp.zeros(size), jnp.int32(0))


def pushed(recent: Recent, values: Float[Array, " N"], new: Bool[Array, " N"]) -> Recent:
    """Add the values that are new, in order; only the newest W are kept."""
    size = recent.values.shape[0]
    rank = jnp.cumsum(new) - 1
    total = jnp.sum(new)
    kept = new & (rank >= total - size)
    place = jnp.where(kept, (recent.count + rank) % size, size)
    return Recent(recent.values.at[place].set(values, mode="drop"), recent.count + total.astype(jnp.int32))
