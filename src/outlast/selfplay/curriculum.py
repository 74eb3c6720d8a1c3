"""How difficulty moves: the level as a function of a small state, stepped once per evaluation.

The level is data of the games: an advance reaches the next episodes that begin, in training and evaluation alike.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from outlast.selfplay.config import CurriculumConfig
from outlast.worlds.arena import ArenaLevel, LevelConfig

REACH = 0.8
DISCRETE_LEVELS = 6


class Curriculum(eqx.Module):
    """Where the curriculum stands. `stage` counts from 0; `streak` and `weak` count evaluations in a row."""

    stage: Int[Array, ""]
    phases_at_stage: Int[Array, ""]
    streak: Int[Array, ""]
    weak: Int[Array, ""]
    advances: Int[Array, ""]


def first_curriculum() -> Curriculum:
    """Return the curriculum at its first stage."""
    zero = jnp.int32(0)
    return Curriculum(zero, zero, zero, zero, zero)


def n_stages(config: CurriculumConfig, base: LevelConfig) -> int:
    """Count the stages of a curriculum in an arena."""
    if config.kind == "none":
        return 1
    if config.kind == "discrete":
        return DISCRETE_LEVELS
    span = smooth_limits(config, base)
    return 1 + int(np.ceil((span[1] - span[0]) / config.increment_m - 1e-6))


def smooth_limits(config: CurriculumConfig, base: LevelConfig) -> tuple[float, float]:
    """Return the first and the last largest start distance that the arena allows."""
    reach = REACH * float(np.hypot(base.width_m, base.height_m))
    last = min(config.final_max_m, reach)
    return min(config.start_max_m, last), last


def stage_table(config: CurriculumConfig, base: LevelConfig) -> list[tuple[float, float, int, int]]:
    """List (least distance, largest distance, fewest obstacles, most obstacles) of every stage."""
    if config.kind == "none":
        return [(base.spawn_min_m, base.spawn_max_m, base.obstacles_min, base.obstacles_max)]
    if config.kind == "smooth":
        first, last = smooth_limits(config, base)
        rows = []
        for stage in range(n_stages(config, base)):
            largest = min(first + stage * config.increment_m, last)
            few = config.min_obstacles
            n = max(few, config.obstacles) if largest >= config.obstacles_from_m else few
            rows.append((min(base.spawn_min_m, first), largest, n, n))
        return rows
    m = REACH * float(np.hypot(base.width_m, base.height_m))
    near, far = (2.0, min(5.0, m)), min(5.0, 0.4 * m)
    n = config.obstacles
    bands = [near, (far, min(15.0, m)), near, (far, min(8.0, m)), (far, min(12.0, m)), (2.0, min(15.0, m))]
    return [(low, high, k, k) for (low, high), k in zip(bands, (0, 0, n, n, n, n), strict=True)]


def last_level(config: CurriculumConfig, base: LevelConfig) -> LevelConfig:
    """Return the level that a run works towards; without a curriculum it is the only one."""
    low, high, few, most = stage_table(config, base)[-1]
    return base.model_copy(
        update={"spawn_min_m": low, "spawn_max_m": high, "obstacles_min": few, "obstacles_max": most}
    )


def level_at(
    stage: Int[Array, ""], config: CurriculumConfig, base: LevelConfig, level: ArenaLevel
) -> ArenaLevel:
    """Return the level of a stage as data: a level with the distances and obstacles of the stage."""
    if config.kind == "none":
        return level
    table = stage_table(config, base)
    low, high = (jnp.array([row[i] for row in table], jnp.float32)[stage] for i in (0, 1))
    few, most = (jnp.array([row[i] for row in table], jnp.int32)[stage] for i in (2, 3))
    return dataclasses.replace(
        level, spawn_min_m=low, spawn_max_m=high, obstacles_min=few, obstacles_max=most
    )


def counted(curriculum: Curriculum, phase_over: Bool[Array, ""]) -> Curriculum:
    """Count a phase that has ended."""
    return dataclasses.replace(curriculum, phases_at_stage=curriculum.phases_at_stage + phase_over)


def after_evaluation(
    curriculum: Curriculum, capture_rate: Float[Array, ""], config: CurriculumConfig, base: LevelConfig
) -> tuple[Curriculum, Bool[Array, ""]]:
    """Advance, regress or stay after an evaluation; tell whether it advanced."""
    if config.kind == "none":
        return curriculum, jnp.bool_(False)
    escape_rate, gap = 1 - capture_rate, jnp.abs(2 * capture_rate - 1)
    streak = curriculum.streak
    if config.gate == "ne_gap":
        streak = jnp.where(gap < config.ne_gap, streak + 1, 0)
        passed = streak >= config.consecutive
    else:
        passed = capture_rate > config.capture_rate
        passed &= escape_rate >= config.min_escape_rate if config.gate == "dual" else True
    stayed = curriculum.phases_at_stage >= config.min_phases
    advance = passed & stayed & (curriculum.stage < n_stages(config, base) - 1)
    weak = jnp.where(escape_rate < config.regress_escape_rate, curriculum.weak + 1, 0)
    regress = ~advance & (weak >= config.regress_after) & (curriculum.stage > 0)
    moved = advance | regress
    return Curriculum(
        stage=curriculum.stage + advance - regress,
        phases_at_stage=jnp.where(moved, 0, curriculum.phases_at_stage),
        streak=jnp.where(moved, 0, streak),
        weak=jnp.where(moved, 0, weak),
        advances=curriculum.advances + advance,
    ), advance
