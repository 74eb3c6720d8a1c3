"""The town's curriculum: stages of difficulty that a resident climbs, and falls back from, by how its lives went.

Decisions are taken at the ends of lives only, over the last lives of the present stage. A life counts for the stage
it was born in, once, whether it ended by death or by the limit.
"""

import dataclasses
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from pydantic import Field

from outlast.config import Section
from outlast.learners.recent import Recent, nothing_recent, pushed

STAY, ADVANCE, RETREAT = 0, 1, -1


class StagesConfig(Section):
    """How the stages of a pack are used."""

    kind: Literal["none", "static", "adversarial"] = Field(
        "none", description="full difficulty always, one stage always, or stages that are climbed"
    )
    stage: int = Field(1, ge=1, le=100, description="the stage to stay in, or to begin with; 1 is the first")
    lives: int = Field(50, ge=2, le=100_000, description="lives that a decision looks back on")
    least_lives: int = Field(100, ge=1, le=10**9, description="lives in a stage before any decision")
    advance: float = Field(
        0.7, gt=0.0, le=1.0, description="mean survival to advance, as a share of the longest life"
    )
    retreat: float = Field(0.3, ge=0.0, lt=1.0, description="mean survival below which to retreat")
    entropy: float = Field(
        0.5,
        gt=0.0,
        le=1.0,
        description="largest mean entropy of the choice with which to advance; 1 is random",
    )
    slack: float = Field(
        0.05, ge=0.0, le=10.0, description="loss of reward per tick, over a window, that is not yet decline"
    )

    def model_post_init(self, context: object) -> None:
        """Refuse settings that contradict each other or would do nothing."""
        if self.kind != "adversarial":
            spare = ("stage",) if self.kind == "static" else ()
            for name in type(self).model_fields:
                if (
                    name not in ("kind", *spare)
                    and getattr(self, name) != type(self).model_fields[name].default
                ):
                    raise ValueError(f"{name} has no effect with kind = {self.kind}")
        if self.retreat >= self.advance:
            raise ValueError(f"retreat = {self.retreat} is not below advance = {self.advance}")
        if self.least_lives < self.lives:
            raise ValueError(f"least_lives = {self.least_lives} is below lives = {self.lives}")


class Stages(eqx.Module):
    """Where the curriculum stands; stages count from 0. The windows hold lives of the present stage."""

    stage: Int[Array, ""]
    survival: Recent
    reward: Recent
    entropy: Recent
    advances: Int[Array, ""]
    retreats: Int[Array, ""]


class Ends(eqx.Module):
    """Lives that may have ended: how long each was, its reward per tick and its mean entropy of choice."""

    ended: Bool[Array, " N"]
    stage: Int[Array, " N"]
    survival: Float[Array, " N"]
    reward: Float[Array, " N"]
    entropy: Float[Array, " N"]


def first_stages(config: StagesConfig) -> Stages:
    """Return the curriculum before the first life."""
    zero = jnp.int32(0)
    window, double = nothing_recent(config.lives), nothing_recent(2 * config.lives)
    return Stages(jnp.int32(config.stage - 1), window, double, window, zero, zero)


def progress(stages: Stages) -> Float[Array, ""]:
    """Return how much more reward per tick the last lives had than the ones before; 0 before there were enough."""
    older, newer = stages.reward.halves()
    return jnp.where(stages.reward.full, newer - older, 0.0)


def judged(
    stages: Stages, ends: Ends, longest: Float[Array, ""], n_stages: int, config: StagesConfig
) -> Stages:
    """Take in the lives that ended and move by at most one stage."""
    mine = ends.ended & (ends.stage == stages.stage)
    stages = dataclasses.replace(
        stages,
        survival=pushed(stages.survival, ends.survival, mine),
        reward=pushed(stages.reward, ends.reward, mine),
        entropy=pushed(stages.entropy, ends.entropy, mine),
    )
    ready = jnp.any(mine) & (stages.survival.count >= config.least_lives)
    survived, gain = stages.survival.mean / longest, progress(stages)
    down = (survived < config.retreat) | (gain < -config.slack)
    up = (survived > config.advance) & (gain >= -config.slack) & (stages.entropy.mean < config.entropy)
    down = ready & down & (stages.stage > 0)
    up = ready & up & ~down & (stages.stage < n_stages - 1)
    move = jnp.where(down, RETREAT, jnp.where(up, ADVANCE, STAY))
    fresh = first_stages(config)
    moved = move != STAY

    def emptied(new: Recent, old: Recent) -> Recent:
        return Recent(jnp.where(moved, new.values, old.values), jnp.where(moved, new.count, old.count))

    return Stages(
        stage=(stages.stage + move).astype(jnp.int32),
        survival=emptied(fresh.survival, stages.survival),
        reward=emptied(fresh.reward, stages.reward),
        entropy=emptied(fresh.entropy, stages.entropy),
        advances=stages.advances + up,
        retreats=stages.retreats + down,
    )
