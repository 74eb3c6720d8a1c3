"""What time does to the meters: base depletion, modulations, cascades, in this order.

Every rule reads what the one before left. Meters are a list of scalars, which keeps the chain elementwise.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from outlast.worlds.town.tables import Tables

Meters = list[Float[Array, ""]]


def clamped(value: Float[Array, ""]) -> Float[Array, ""]:
    """Keep a meter between 0 and 1."""
    return jnp.clip(value, 0.0, 1.0)


def drained(meters: Meters, depletion: Float[Array, ""], gains: Meters, tables: Tables) -> Meters:
    """Return the meters after the drains of one tick. `gains` is 0 for a meter that the level holds, else 1."""
    meters = [
        clamped(meter - float(rate) * depletion * gain) if rate else meter
        for meter, rate, gain in zip(meters, tables.depletion, gains, strict=True)
    ]
    for source, target, rule in tables.modulations:
        amount = rule.rate * (rule.base + rule.span * (1.0 - meters[source]))
        meters[target] = clamped(meters[target] - amount * gains[target])
    for source, target, rule in tables.cascades:
        deficit = jnp.maximum(rule.threshold - meters[source], 0.0) / rule.threshold
        meters[target] = clamped(
            meters[target] - rule.strength * tables.cascade_scale * deficit * gains[target]
        )
    return meters
