"""Places: which one is underfoot, whether it can be used, and what using it for one tick does.

A row of a table is chosen by summing it over places, masked by "stands here": unlike a gather it fuses.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from outlast.worlds.town.meters import Meters, clamped
from outlast.worlds.town.state import TownState
from outlast.worlds.town.tables import Tables

ROUNDING = 1e-6
"""Float32 savings of five times 0.05 may fall a rounding short of 0.25; a millionth is a hundredth of a cent."""


class Use(NamedTuple):
    """What came of one tick's interaction."""

    meters: Meters
    progress: Int[Array, ""]
    used: Int[Array, ""]
    refused: Int[Array, ""]
    completed: Bool[Array, ""]


def underfoot(state: TownState, size: int, n_places: int) -> list[Bool[Array, ""]]:
    """Mark, for each place, whether the resident stands on it; at most one does."""
    cell = state.y * size + state.x
    return [lax.index_in_dim(state.level.cells, place, keepdims=False) == cell for place in range(n_places)]


def chosen(masks: Sequence[Bool[Array, ""]], column: np.ndarray) -> Array:
    """Return the entry of a column where the mask is set, or 0."""
    zero = column.dtype.type(0)
    total = None
    for mask, value in zip(masks, column, strict=True):
        if value != 0:
            term = jnp.where(mask, value, zero)
            total = term if total is None else total + term
    return jnp.asarray(zero) if total is None else total


def usable(state: TownState, here: list[Bool[Array, ""]], tables: Tables) -> Bool[Array, ""]:
    """Tell whether the resident stands on a place that is open now."""
    return (chosen(here, tables.hour_bits) >> state.hour) & 1 == 1


def use(
    state: TownState,
    meters: Meters,
    here: list[Bool[Array, ""]],
    interacts: Array,
    gains: Meters,
    tables: Tables,
) -> Use:
    """Use the place underfoot for one tick: effects, then costs, then what completion adds.

    A place that is closed or cannot be afforded leaves everything as it is, progress included.
    """
    tried = interacts & usable(state, here, tables)
    affordable = jnp.bool_(True)
    for index in np.flatnonzero(tables.cost.any(axis=0)):
        price = chosen(here, tables.cost[:, index]) * gains[index]
        affordable = affordable & (meters[index] + ROUNDING >= price)
    takes = tried & affordable
    masks = [mask & takes for mask in here]
    progress = state.progress + takes.astype(jnp.int32)
    completed = takes & (progress >= chosen(here, tables.ticks))
    meters = _added(meters, masks, tables.effects, gains)
    meters = _added(meters, masks, -tables.cost, gains)
    meters = _added(meters, [mask & completed for mask in masks], tables.completion, gains)
    places = np.arange(1, len(here) + 1, dtype=np.int32)
    number = chosen(here, places)
    return Use(
        meters=meters,
        progress=jnp.where(completed, 0, progress),
        used=jnp.where(takes, number, 0) - 1,
        refused=jnp.where(tried & ~affordable, number, 0) - 1,
        completed=completed,
    )


def _added(meters: Meters, masks: Sequence[Bool[Array, ""]], table: np.ndarray, gains: Meters) -> Meters:
    changed = list(meters)
    for index in np.flatnonzero(table.any(axis=0)):
        changed[index] = clamped(meters[index] + chosen(masks, table[:, index]) * gains[index])
    return changed


def distance(state: TownState, place: int, size: int) -> Float[Array, ""]:
    """Count the moves to a place."""
    cell = state.level.cells[place]
    return (jnp.abs(cell % size - state.x) + jnp.abs(cell // size - state.y)).astype(jnp.float32)
