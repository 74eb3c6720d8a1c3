"""Running moments: mean and variance of a stream of batches, merged exactly (Chan et al., 1979)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

CLIP = 10.0


class Moments(eqx.Module):
    """Count, mean and sum of squared deviations of everything seen so far."""

    count: Float[Array, ""]
    mean: Float[Array, " D"]
    squares: Float[Array, " D"]


def no_moments(size: int) -> Moments:
    """Return the moments of an empty stream."""
    return Moments(jnp.float32(0), jnp.zeros(size), jnp.zeros(size))


def updated(moments: Moments, columns: Float[Array, "D N"]) -> Moments:
    """Merge a batch of columns into the moments."""
    n = jnp.float32(columns.shape[1])
    mean = jnp.mean(columns, axis=1)
    squares = jnp.sum((columns - mean[:, None]) ** 2, axis=1)
    total = moments.count + n
    gap = mean - moments.mean
    return Moments(
        count=total,
        mean=moments.mean + gap * (n / total),
        squares=moments.squares + squares + gap**2 * (moments.count * n / total),
    )


def normalised(columns: Float[Array, "D N"], moments: Moments) -> Float[Array, "D N"]:
    """Return columns with zero mean and unit variance, clipped; unchanged while nothing has been seen."""
    variance = moments.squares / jnp.maximum(moments.count, 1.0)
    scaled = (columns - moments.mean[:, None]) / jnp.sqrt(variance + 1e-8)[:, None]
    return jnp.where(moments.count > 0, jnp.clip(scaled, -CLIP, CLIP), columns)
