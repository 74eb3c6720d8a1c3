"""The records of the town. Every number that a step changes is a scalar of its own; there is no batch axis.

Scalars stay scalars so that, under `vmap` with the world axis last, a step is a few fused elementwise loops.
"""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from outlast.core import Step


class TownLevel(eqx.Module):
    """A level as data: what a curriculum or a generalisation event varies."""

    depletion: Float[Array, ""]
    """Multiplies the base depletion of every meter."""
    active: Bool[Array, " meters"]
    """Meters that change; the others are held, and costs in them are not asked for."""
    sparse: Bool[Array, ""]
    """Pay the reward every `reward.sparse_ticks` and at the end of the life."""
    max_steps: Int[Array, ""]
    lifespan: Int[Array, ""]
    cells: Int[Array, " places"]
    """Row-major cell of each place; -1 for a place that is not deployed."""
    redraw: Bool[Array, ""]
    """Draw new cells for the deployed places at every reset."""


class TownState(eqx.Module):
    """One resident in one town. `level.cells` are the cells of this life, also when they were redrawn."""

    x: Int[Array, ""]
    y: Int[Array, ""]
    meters: tuple[Float[Array, ""], ...]
    hour: Int[Array, ""]
    """Hour of the tick that comes next."""
    progress: Int[Array, ""]
    """Ticks of use done at the place stood on; leaving the cell forgets them."""
    age: Int[Array, ""]
    """Ticks lived."""
    owed: Float[Array, ""]
    """Reward withheld by a sparse level and not yet paid."""
    level: TownLevel


class TownStep(Step):
    """What a tick hands back: `reward` is extrinsic + shaping; the learner adds
    weight x `novelty_factor` x its own intrinsic reward."""

    extrinsic: Float[Array, ""]
    shaping: Float[Array, ""]
    novelty_factor: Float[Array, ""]
    """Product of the modifiers that apply."""
    used: Int[Array, ""]
    """Place whose use took effect in this tick, or -1."""
    refused: Int[Array, ""]
    """Place that was open but could not be afforded in this tick, or -1."""
    completed: Bool[Array, ""]
    """A use was completed in this tick."""
    death_cause: Int[Array, ""]
    """First death condition that holds, or -1."""
