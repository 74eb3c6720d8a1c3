"""The clock: a day of 24 ticks, seen as a point on a circle."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from outlast.worlds.town.sections import DAY_TICKS


def next_hour(hour: Int[Array, ""]) -> Int[Array, ""]:
    """Return the hour after this one."""
    return jnp.where(hour == DAY_TICKS - 1, 0, hour + 1)


def clock_face(hour: Int[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return sine and cosine of the hour hand."""
    angle = hour.astype(jnp.float32) * (2.0 * jnp.pi / DAY_TICKS)
    return jnp.sin(angle), jnp.cos(angle)
