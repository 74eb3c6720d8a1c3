"""How lives are lived inside an iteration: residents see, choose and act; a life that is over is replaced.

The world axis is last. A world whose life has ended spends the next tick, an idle one, on being replaced, so that
what is recorded after a tick is always its true successor.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from outlast.learners.dqn import ILLEGAL, best
from outlast.learners.replay import Tick
from outlast.programs.survive_config import SurviveConfig
from outlast.worlds.town import Town, TownLevel, TownState
from outlast.worlds.town.scripted import SCRIPTED, random_legal

LAST = {"in_axes": -1, "out_axes": -1}
CRITICAL = 0.2
NOWHERE, NO_STAGE = -1, -1
LEAST_AT_BIRTH = 0.05


class Lives(eqx.Module):
    """Lives in progress, with what they have come to so far."""

    town: TownState
    ended: Bool[Array, " B"]
    memory: Float[Array, "M B"]
    stage: Int[Array, " B"]
    extrinsic: Float[Array, " B"]
    shaping: Float[Array, " B"]
    intrinsic: Float[Array, " B"]
    entropy: Float[Array, " B"]
    last_place: Int[Array, " B"]


class Lived(eqx.Module):
    """One tick of every world: what a replay keeps, and how the lives stand after it."""

    tick: Tick
    shaping: Float[Array, "... B"]
    novelty_factor: Float[Array, "... B"]
    survival: Int[Array, "... B"]
    extrinsic_total: Float[Array, "... B"]
    shaping_total: Float[Array, "... B"]
    intrinsic_total: Float[Array, "... B"]
    entropy: Float[Array, "... B"]
    stage: Int[Array, "... B"]
    death_cause: Int[Array, "... B"]
    came_from: Int[Array, "... B"]
    used: Int[Array, "... B"]
    refused: Int[Array, "... B"]
    critical: Bool[Array, "... Z B"]

    @property
    def ended(self) -> Bool[Array, "... B"]:
        """Tell which lives ended in this tick; those that began anywhere are not counted."""
        return self.tick.ended & (self.stage != NO_STAGE)


class Choice(eqx.Module):
    """What was chosen in every world, from which values."""

    action: Int[Array, " B"]
    memory: Float[Array, "M B"]
    q: Float[Array, "A B"]


def born(town: Town, key: Key[Array, ""], level: TownLevel, stage: Array, n: int, n_memory: int) -> Lives:
    """Return `n` lives at their beginning."""
    states = jax.vmap(lambda k: town.reset(k, level), out_axes=-1)(jax.random.split(key, n))
    zero = jnp.zeros(n)
    return Lives(
        town=states,
        ended=jnp.zeros(n, bool),
        memory=jnp.zeros((n_memory, n)),
        stage=jnp.full(n, stage, jnp.int32),
        extrinsic=zero,
        shaping=zero,
        intrinsic=zero,
        entropy=zero,
        last_place=jnp.full(n, NOWHERE, jnp.int32),
    )


def exploring(lives: Lives, key: Key[Array, ""], share: float) -> Lives:
    """Let a share of lives begin with active meters anywhere, so that rare states are known; no stage counts them."""
    worlds = lives.ended.shape[0]
    draws = jax.random.uniform(key, (len(lives.town.meters) + 1, worlds))
    chosen = draws[-1] < share
    meters = tuple(
        jnp.where(chosen & active, LEAST_AT_BIRTH + (1.0 - LEAST_AT_BIRTH) * draw, meter)
        for draw, meter, active in zip(draws, lives.town.meters, lives.town.level.active, strict=False)
    )
    town = dataclasses.replace(lives.town, meters=meters)
    return dataclasses.replace(lives, town=town, stage=jnp.where(chosen, NO_STAGE, lives.stage))


def choose(
    config: SurviveConfig,
    town: Town,
    network: PyTree,
    states: TownState,
    seen: Float[Array, "B D"],
    legal: Bool[Array, "A B"],
    memory: Float[Array, "M B"],
    uniforms: Float[Array, "2 B"],
    epsilon: Float[Array, ""],
) -> Choice:
    """Let every resident choose: greedily, or with chance epsilon anything that is legal."""
    if not config.learns:
        act = jax.vmap(functools.partial(SCRIPTED[config.learner], town), **LAST)
        action = act(states, uniforms[1])
        sure = jnp.arange(legal.shape[0])[:, None] == action
        even = jnp.zeros(legal.shape) if config.learner == "random" else jnp.where(sure, 0.0, ILLEGAL)
        return Choice(action, memory, even)
    if config.learner == "recurrent_dqn":
        q, memory = network(seen.T, memory)
    else:
        q = network(seen.T)
    anything = jax.vmap(functools.partial(random_legal, town), **LAST)(states, uniforms[1])
    return Choice(jnp.where(uniforms[0] < epsilon, anything, best(q, legal)[0]), memory, q)


def choice_entropy(q: Float[Array, "A B"], legal: Bool[Array, "A B"], discount: float) -> Float[Array, " B"]:
    """Return the entropy of the masked softmax of undiscounted values, as a share of the largest possible."""
    scaled = jnp.where(legal, q / (1.0 - discount), ILLEGAL)
    log_share = scaled - jax.nn.logsumexp(scaled, axis=0)
    entropy = -jnp.sum(jnp.where(legal, jnp.exp(log_share) * log_share, 0.0), axis=0)
    return entropy / jnp.log(jnp.maximum(jnp.sum(legal, axis=0), 2))


def look(town: Town, states: TownState) -> tuple[Float[Array, "B D"], Bool[Array, "A B"]]:
    """Return what every resident sees and may do."""
    seen = jax.vmap(town.observe, in_axes=-1)(states)
    return seen, jnp.stack(jax.vmap(town.legal_flags, **LAST)(states))


def tick(
    config: SurviveConfig,
    town: Town,
    network: PyTree,
    lives: Lives,
    fresh: Lives,
    uniforms: Float[Array, "2 B"],
    epsilon: Float[Array, ""],
) -> tuple[Lives, Lived]:
    """Live one tick in every world; where a life was over, `fresh` takes its place instead."""
    idle = lives.ended
    seen, legal = look(town, lives.town)
    choice = choose(config, town, network, lives.town, seen, legal, lives.memory, uniforms, epsilon)
    after, step = jax.vmap(town.step, **LAST)(lives.town, choice.action)
    # Without the barrier the whole step is computed anew for every field that is selected below.
    after, step = jax.lax.optimization_barrier((after, step))
    terminated, truncated = step.terminated & ~idle, step.truncated & ~idle
    used = jnp.where(idle, NOWHERE, step.used)
    lived = dataclasses.replace(
        lives,
        town=after,
        ended=terminated | truncated,
        memory=choice.memory,
        extrinsic=lives.extrinsic + step.extrinsic,
        shaping=lives.shaping + step.shaping,
        entropy=lives.entropy + choice_entropy(choice.q, legal, config.q.discount),
        last_place=jnp.where(used >= 0, used, lives.last_place),
    )
    falls = [
        (new < CRITICAL) & (old >= CRITICAL) for new, old in zip(after.meters, lives.town.meters, strict=True)
    ]
    record = Lived(
        tick=Tick(
            seen=seen,
            action=choice.action,
            extrinsic=jnp.where(idle, 0.0, step.reward),
            intrinsic=jnp.zeros_like(step.reward),
            terminated=terminated,
            truncated=truncated,
            idle=idle,
            legal=legal.T,
        ),
        shaping=jnp.where(idle, 0.0, step.shaping),
        novelty_factor=jnp.where(idle, 0.0, step.novelty_factor),
        survival=after.age,
        extrinsic_total=lived.extrinsic,
        shaping_total=lived.shaping,
        intrinsic_total=jnp.zeros_like(lived.intrinsic),
        entropy=lived.entropy / jnp.maximum(after.age, 1),
        stage=lives.stage,
        death_cause=jnp.where(terminated, step.death_cause, NOWHERE),
        came_from=lives.last_place,
        used=used,
        refused=jnp.where(idle, NOWHERE, step.refused),
        critical=jnp.stack(falls) & ~idle,
    )
    return jax.tree.map(lambda new, old: jnp.where(idle, new, old), fresh, lived), record


def live(
    config: SurviveConfig,
    town: Town,
    network: PyTree,
    lives: Lives,
    fresh: Lives,
    key: Key[Array, ""],
    epsilon: Float[Array, ""],
) -> tuple[Lives, Lived]:
    """Live one round of ticks. Each tick reads `fresh`, twice as wide as the worlds, at another offset."""
    worlds = lives.ended.shape[0]
    uniforms = jax.random.uniform(key, (config.stride, 2, worlds))

    def one(lives: Lives, given: tuple[Array, Array]) -> tuple[Lives, Lived]:
        t, draws = given
        pool = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, t % worlds, worlds, axis=-1), fresh
        )
        return tick(config, town, network, lives, pool, draws, epsilon)

    return jax.lax.scan(one, lives, (jnp.arange(config.stride), uniforms))


def with_intrinsic(
    lives: Lives, lived: Lived, before: Float[Array, " B"], intrinsic: Float[Array, "T B"]
) -> tuple[Lives, Lived]:
    """Enter the novelty of a round into its record and into the totals of lives; `before` are theirs until then."""

    def one(total: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        gained, idle = given
        total = total + gained
        return jnp.where(idle, 0.0, total), total

    after, totals = jax.lax.scan(one, before, (intrinsic, lived.tick.idle))
    lived = eqx.tree_at(lambda r: (r.tick.intrinsic, r.intrinsic_total), lived, (intrinsic, totals))
    return dataclasses.replace(lives, intrinsic=after), lived


def doubled(fresh: Lives) -> Lives:
    """Repeat lives, so that every offset can be read."""
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf], axis=-1), fresh)


class Outlived(eqx.Module):
    """Whole lives, measured: how long, worth what, ended by which condition (-1 for the limit)."""

    survival: Int[Array, " B"]
    reward: Float[Array, " B"]
    death_cause: Int[Array, " B"]


Tally = Callable[[Any, Lives, Lived], Any]
"""Takes what was counted so far, the lives before a tick and the record of the tick; returns the new count."""


def outlive(
    config: SurviveConfig,
    town: Town,
    network: PyTree,
    lives: Lives,
    key: Key[Array, ""],
    epsilon: Float[Array, ""] | float,
    *,
    tally: Tally = lambda counted, lives, lived: counted,
    counted: PyTree = None,
) -> tuple[Outlived, PyTree]:
    """Live every life to its end, without replacement, and count along; training is not touched."""
    worlds = lives.ended.shape[0]

    def one(carry: tuple[Lives, Outlived, PyTree], t: Array) -> tuple[tuple[Lives, Outlived, PyTree], None]:
        lives, outlived, counted = carry
        draws = jax.random.uniform(jax.random.fold_in(key, t), (2, worlds))
        # What is over stays as it is: it is replaced by itself, and its record is idle.
        after, lived = tick(config, town, network, lives, lives, draws, jnp.float32(epsilon))
        outlived = Outlived(
            survival=jnp.where(lived.ended, lived.survival, outlived.survival),
            reward=jnp.where(lived.ended, lived.extrinsic_total + lived.shaping_total, outlived.reward),
            death_cause=jnp.where(lived.ended, lived.death_cause, outlived.death_cause),
        )
        return (after, outlived, tally(counted, lives, lived)), None

    none = jnp.zeros(worlds, jnp.int32)
    start = (lives, Outlived(none, jnp.zeros(worlds), none - 1), counted)
    ticks = jnp.arange(min(town.pack.max_steps, town.pack.lifespan))
    (_, outlived, counted), _ = jax.lax.scan(one, start, ticks)
    return outlived, counted
