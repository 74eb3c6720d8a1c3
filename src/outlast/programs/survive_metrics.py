"""What the journal says of one iteration in the town: means over the lives that ended, and counts by name."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from outlast.core import Metrics
from outlast.programs.lives import Lived
from outlast.programs.survive_config import SurviveConfig

LIFE = "lives/"
"""Begins the names of tables [ticks, worlds], of which the host keeps the rows in which a life ended."""


def iteration_metrics(config: SurviveConfig, lived: Lived, learnt: Metrics) -> Metrics:
    """Summarise one iteration."""
    return {
        **life_means(lived),
        **counts(config, lived),
        **life_table(lived),
        **{f"learner/{name}": _summed(name, value) for name, value in learnt.items()},
    }


def _summed(name: str, per_round: Array) -> Array:
    return jnp.sum(per_round) if name == "nonfinite" else jnp.mean(per_round)


def not_yet_learnt(shapes: PyTree) -> PyTree:
    """Return measures of zero, for rounds before the replay holds enough."""
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def life_means(lived: Lived) -> Metrics:
    """Return the number of lives that ended and their means; NaN when none did."""
    ended = lived.ended
    n = jnp.sum(ended)

    def mean(values: Array) -> Array:
        return jnp.where(n > 0, jnp.sum(jnp.where(ended, values, 0)) / jnp.maximum(n, 1), jnp.nan)

    return {
        "episodes": n,
        "episode/steps": mean(lived.survival),
        "episode/extrinsic": mean(lived.extrinsic_total),
        "episode/shaping": mean(lived.shaping_total),
        "episode/return": mean(lived.extrinsic_total + lived.shaping_total),
        "episode/entropy": mean(lived.entropy),
        "episode/intrinsic": mean(lived.intrinsic_total),
        "tick/intrinsic": jnp.mean(lived.tick.intrinsic),
        "tick/idle": jnp.mean(lived.tick.idle.astype(jnp.float32)),
    }


def counts(config: SurviveConfig, lived: Lived) -> Metrics:
    """Count deaths by cause, survivors, uses of places, refusals, falls below a fifth, and ways between places."""
    town = config.town
    metrics: Metrics = {"deaths/limit": jnp.sum(lived.ended & lived.tick.truncated)}
    for index, death in enumerate(town.deaths):
        name = f"deaths/{death.meter}"
        metrics[name] = metrics.get(name, 0) + jnp.sum(lived.ended & (lived.death_cause == index))
    n = len(town.places)
    place = jnp.arange(n)[:, None]
    used = (lived.used.reshape(1, -1) == place).astype(jnp.float32)
    came_from = (lived.came_from.reshape(1, -1) == place).astype(jnp.float32)
    for index, name in enumerate(town.place_names):
        if name in town.deployed_names:
            metrics[f"visits/{name}"] = jnp.sum(used[index])
    metrics["refused"] = jnp.sum(lived.refused >= 0)
    for index, name in enumerate(town.meter_names):
        metrics[f"critical/{name}"] = jnp.sum(lived.critical[:, index])
    metrics["transitions"] = (came_from @ used.T).astype(jnp.int32)
    return metrics


def life_table(lived: Lived) -> Metrics:
    """Return the record of every life that ended, as tables over ticks and worlds."""
    return {
        LIFE + "ended": lived.ended,
        LIFE + "survival": lived.survival,
        LIFE + "extrinsic": lived.extrinsic_total,
        LIFE + "shaping": lived.shaping_total,
        LIFE + "intrinsic": lived.intrinsic_total,
        LIFE + "stage": lived.stage + 1,
        LIFE + "cause": lived.death_cause,
    }
