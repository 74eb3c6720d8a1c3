"""Residents without a network: random, idle, and one that walks to the cure of its most urgent need.

Each is a pure function `(town, state, uniform) -> action`; `uniform` is one draw from [0, 1), used by the random one.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from outlast.worlds.town.places import ROUNDING
from outlast.worlds.town.state import TownState
from outlast.worlds.town.tables import DOWN, INTERACT, LEFT, RIGHT, UP, WAIT
from outlast.worlds.town.world import Town

VITAL_COMFORT, OTHER_COMFORT = 0.5, 0.4
EFFORT = 0.1
"""Keeps a free place from being infinitely good value."""
LEAST_GAIN = 0.05
"""What a place must add to a meter to count as its cure."""


def random_legal(town: Town, state: TownState, uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Choose uniformly among the legal actions."""
    flags = town.legal_flags(state)
    count = sum(flag.astype(jnp.int32) for flag in flags)
    left = jnp.minimum((uniform * count.astype(jnp.float32)).astype(jnp.int32), count - 1)
    action = jnp.int32(WAIT)
    for index, flag in enumerate(flags):
        action = jnp.where(flag & (left == 0), index, action)
        left = left - flag.astype(jnp.int32)
    return action


def wait_only(town: Town, state: TownState, uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Do nothing, for ever."""
    return jnp.int32(WAIT)


def most_urgent_need(town: Town, state: TownState, uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Walk to the best open, affordable place for the meter furthest below its comfort, or wait.

    A use once begun is carried through.
    """
    target, urgency = jnp.int32(-1), jnp.float32(0)
    ready = [_ready(town, state, place) for place in range(len(town.pack.places))]
    for meter, comfort in enumerate(_comfort(town)):
        cure = jnp.int32(-1)
        for place in reversed(_cures(town, meter)):
            cure = jnp.where(ready[place], place, cure)
        need = float(comfort) - state.meters[meter]
        urgent = (need > urgency) & (cure >= 0)
        target = jnp.where(urgent, cure, target)
        urgency = jnp.where(urgent, need, urgency)
    begun = (state.progress > 0) & town.legal_flags(state)[INTERACT]
    walk = jnp.where(target < 0, WAIT, _toward(town, state, target))
    return jnp.where(begun, INTERACT, walk).astype(jnp.int32)


def _comfort(town: Town) -> np.ndarray:
    """Say below which level a meter is a need: sooner for what kills or pays than for the rest."""
    vital = town.tables.cost.any(axis=0)
    vital[[meter for meter, _ in town.tables.deaths]] = True
    return np.where(vital, VITAL_COMFORT, OTHER_COMFORT)


def _cures(town: Town, meter: int) -> list[int]:
    """Order the places that raise a meter by gain per price and harm, the best first."""
    tables = town.tables
    total = tables.effects * tables.ticks[:, None] + tables.completion
    price = (tables.cost * tables.ticks[:, None]).sum(axis=1)
    harm = np.maximum(-total, 0.0).sum(axis=1)
    score = np.where(tables.deployed, total[:, meter] / (price + harm + EFFORT), 0.0)
    return [
        int(place) for place in np.argsort(-score) if total[place, meter] >= LEAST_GAIN and score[place] > 0
    ]


def _ready(town: Town, state: TownState, place: int) -> Bool[Array, ""]:
    tables = town.tables
    ready = (jnp.int32(tables.hour_bits[place]) >> state.hour) & 1 == 1
    for meter in np.flatnonzero(tables.cost[place]):
        ready &= state.meters[meter] + ROUNDING >= float(tables.cost[place, meter] * tables.ticks[place])
    return ready


def _toward(town: Town, state: TownState, place: Int[Array, ""]) -> Int[Array, ""]:
    cell = state.level.cells[place]
    right, down = cell % town.pack.size - state.x, cell // town.pack.size - state.y
    along = jnp.where(down < 0, UP, jnp.where(down > 0, DOWN, INTERACT))
    return jnp.where(right < 0, LEFT, jnp.where(right > 0, RIGHT, along))


SCRIPTED = {"random": random_legal, "wait": wait_only, "rule": most_urgent_need}
