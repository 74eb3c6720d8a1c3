"""What a tick is worth: the extrinsic reward of the pack, its shaping terms, and the factor on novelty.

Whatever the kind, a tick alive is worth at least nothing and a death at most what the same life cut at its limit
is worth, so surviving never pays less than dying.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from outlast.worlds.town.meters import Meters
from outlast.worlds.town.pack import Pack
from outlast.worlds.town.places import distance
from outlast.worlds.town.sections import Shaping
from outlast.worlds.town.state import TownLevel, TownState
from outlast.worlds.town.tables import Tables


class Moment(NamedTuple):
    """What the reward of a tick may depend on; everything is as the tick left it."""

    meters: Meters
    dead: Bool[Array, ""]
    cut: Bool[Array, ""]
    age: Int[Array, ""]
    completed: Bool[Array, ""]
    used: Int[Array, ""]
    state: TownState


def extrinsic_reward(moment: Moment, pack: Pack, tables: Tables) -> Float[Array, ""]:
    """Return the extrinsic reward of one tick."""
    reward = pack.reward
    alive = _worth(moment, pack, tables)
    if reward.kind == "baseline":
        # Alive until the limit counts as a death would one tick later: the original paid such a life nothing.
        lived = jnp.where(moment.dead, moment.age - 1, moment.age).astype(jnp.float32)
        value = jnp.where(
            moment.dead | moment.cut, lived - baseline_ticks(moment.state.level, pack, tables), 0.0
        )
    else:
        value = jnp.where(moment.dead, 0.0, alive)
    if reward.retirement_bonus:
        retires = moment.cut & (moment.age >= moment.state.level.lifespan)
        value = value + jnp.where(retires, reward.retirement_bonus, 0.0)
    return value - jnp.where(moment.dead, reward.death_penalty, 0.0) if reward.death_penalty else value


def _worth(moment: Moment, pack: Pack, tables: Tables) -> Float[Array, ""]:
    reward, age = pack.reward, moment.age
    index = pack.meter_names.index
    levels = [moment.meters[index(name)] for name in reward.meters if name in pack.meter_names]
    if reward.kind == "interoceptive":
        return reward.base * math.prod(levels[1:], start=levels[0])
    if reward.kind == "minimum":
        return reward.base + _least(levels)
    if reward.kind == "weighted":
        # In the order of the meters: a sum in the order of a table would change bits when the table is sorted.
        named = [(weight, name) for name in pack.meter_names if (weight := reward.weights.get(name))]
        terms = [weight * (moment.meters[index(name)] - reward.center) for weight, name in named]
        return jnp.float32(reward.base) + sum(terms, start=jnp.float32(0))
    if reward.kind == "milestone":
        minor = jnp.where(age % reward.minor_ticks == 0, reward.minor, 0.0)
        return minor + jnp.where(age % reward.major_ticks == 0, reward.major, 0.0)
    return jnp.float32(reward.base)


def baseline_ticks(level: TownLevel, pack: Pack, tables: Tables) -> Float[Array, ""]:
    """Return how long a resident who only walks keeps the first of the reward's meters to run out."""
    ticks = level.max_steps.astype(jnp.float32)
    for name in pack.reward.meters:
        meter = pack.meter_names.index(name)
        loss = float(tables.depletion[meter]) * level.depletion + float(tables.action_costs[0, meter])
        runs_out = level.active[meter] & (loss > 0.0)
        ticks = jnp.where(
            runs_out, jnp.minimum(ticks, float(tables.start[meter]) / jnp.maximum(loss, 1e-9)), ticks
        )
    return ticks


def shaping_reward(moment: Moment, pack: Pack) -> Float[Array, ""]:
    """Sum the shaping terms of one tick; the dead get none."""
    total = jnp.float32(0)
    for term in pack.reward.shaping:
        total = total + term.amount * _shape(term, moment, pack)
    return jnp.where(moment.dead, 0.0, total)


def _shape(term: Shaping, moment: Moment, pack: Pack) -> Float[Array, ""]:
    levels = [moment.meters[pack.meter_names.index(name)] for name in term.meters]
    if term.kind == "above":
        return (_least(levels) >= term.threshold).astype(jnp.float32)
    if term.kind == "balance":
        spread = _least(levels) + _least([-level for level in levels])
        return (spread >= -term.threshold).astype(jnp.float32)
    place = pack.place_names.index(term.place)
    if term.kind == "completion":
        return (moment.completed & (moment.used == place)).astype(jnp.float32)
    return 1.0 - distance(moment.state, place, pack.size) / (2.0 * (pack.size - 1))


def novelty_factor(meters: Meters, pack: Pack) -> Float[Array, ""]:
    """Multiply the modifiers whose range the meters are in."""
    factor = jnp.float32(1)
    for modifier in pack.reward.modifiers:
        level = meters[pack.meter_names.index(modifier.meter)]
        inside = (level >= modifier.low) & (level < modifier.high)
        factor = factor * jnp.where(inside, modifier.factor, 1.0)
    return factor


def _least(levels: Meters) -> Float[Array, ""]:
    least = levels[0]
    for level in levels[1:]:
        least = jnp.minimum(least, level)
    return least
