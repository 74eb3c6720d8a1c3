"""Who trains when: a pure function of the schedule's state, stepped once per iteration.

Precedence, as users of long runs expect: a frozen role, then the evader's warm start, then alternate freezing until it
ends, then a boost of the loser, then the ratio of phases.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from outlast.selfplay.config import ScheduleConfig
from outlast.worlds.arena import Role

BOTH, NOBODY = 2, 3


class Schedule(eqx.Module):
    """Where the schedule stands. Roles are 0 and 1; `frozen` 2 means that nobody is."""

    phase: Int[Array, ""]
    iterations_in_phase: Int[Array, ""]
    active: Int[Array, ""]
    boost_left: Int[Array, ""]
    boosted: Int[Array, ""]
    favoured: Int[Array, ""]
    frozen: Int[Array, ""]
    freeze_streak: Int[Array, ""]
    switched_at: Int[Array, ""]
    forced_once: Bool[Array, ""]
    warm_left: Int[Array, ""]
    stopped: Bool[Array, ""]


def first_schedule(config: ScheduleConfig) -> Schedule:
    """Return the schedule before the first iteration: the pursuer goes first."""
    zero, no = jnp.int32(0), jnp.bool_(False)
    first = config.alternate_freeze.first
    frozen = (1 if first == "pursuer" else 0) if config.alternate_freeze.enabled else BOTH
    return Schedule(
        phase=zero,
        iterations_in_phase=zero,
        active=zero,
        boost_left=zero,
        boosted=zero,
        favoured=jnp.int32(BOTH),
        frozen=jnp.int32(frozen),
        freeze_streak=zero,
        switched_at=zero,
        forced_once=no,
        warm_left=zero,
        stopped=no,
    )


def in_iterations(steps: int, steps_per_iteration: int) -> int:
    """Round a number of steps up to iterations."""
    return max(1, -(-steps // steps_per_iteration))


def trains(schedule: Schedule, iteration: Array, role: Role, config: ScheduleConfig) -> Bool[Array, ""]:
    """Tell whether a role learns in this iteration."""
    if config.freeze == role.name.lower():
        return jnp.bool_(False)
    if config.kind == "together":
        bound = config.update_ratio.bound
        held = (schedule.favoured != BOTH) & (schedule.favoured != role) & (iteration % bound != 0)
        learns = ~held if config.update_ratio.enabled else jnp.bool_(True)
    else:
        turn = schedule.active
        if config.adaptive_ratio.enabled:
            turn = jnp.where(schedule.boost_left > 0, schedule.boosted, turn)
        learns = (turn == role) if config.freeze == "none" else jnp.bool_(True)
    if config.alternate_freeze.enabled:
        # While one role is frozen the other has every turn.
        learns = jnp.where(schedule.frozen == BOTH, learns, schedule.frozen != role)
    warming = schedule.warm_left > 0
    learns = jnp.where(warming, role == Role.EVADER, learns)
    return learns & ~schedule.stopped


def phase_length(
    schedule: Schedule, config: ScheduleConfig, steps_per_iteration: int, has_obstacles: Array
) -> Int[Array, ""]:
    """Return the length of the running phase in iterations."""
    if config.kind == "micro":
        return jnp.int32(in_iterations(config.micro_phase_steps, steps_per_iteration))
    full = config.phase_steps
    steps = jnp.float32(full)
    if config.warm_up.enabled:
        first, second, third = config.warm_up.lengths
        early = jnp.array([first, first, second, second, third, third, full], jnp.float32)
        steps = early[jnp.minimum(schedule.phase, 6)]
    longer = (schedule.active == Role.EVADER) & has_obstacles
    steps = jnp.where(longer, steps * config.evader_multiplier, steps)
    return jnp.ceil(steps / steps_per_iteration).astype(jnp.int32)


def next_phase(
    schedule: Schedule, config: ScheduleConfig, steps_per_iteration: int, has_obstacles: Array
) -> tuple[Schedule, Bool[Array, ""]]:
    """Count one iteration and pass the turn on when a phase is over; tell whether it was."""
    if config.kind == "together":
        return _counted(schedule), jnp.bool_(True)
    done = schedule.iterations_in_phase + 1
    over = done >= phase_length(schedule, config, steps_per_iteration, has_obstacles)
    phase = schedule.phase + over
    place = phase % (config.train_ratio + 1)
    turn = jnp.where(place < config.train_ratio, Role.PURSUER, Role.EVADER).astype(jnp.int32)
    limit = config.max_phases
    after = dataclasses.replace(
        _counted(schedule),
        phase=phase,
        iterations_in_phase=jnp.where(over, 0, done),
        active=jnp.where(over, turn, schedule.active),
        boost_left=jnp.maximum(schedule.boost_left - over, 0),
        stopped=schedule.stopped | ((phase >= limit) if limit else jnp.bool_(False)),
    )
    return after, over


def evader_turn(schedule: Schedule, config: ScheduleConfig) -> Schedule:
    """Begin the evader's next phase now, unless it is the evader's phase already."""
    skipped = config.train_ratio - schedule.phase % (config.train_ratio + 1)
    return dataclasses.replace(
        schedule,
        phase=schedule.phase + skipped,
        iterations_in_phase=jnp.where(skipped > 0, 0, schedule.iterations_in_phase),
        active=jnp.full_like(schedule.active, Role.EVADER),
    )


def _counted(schedule: Schedule) -> Schedule:
    return dataclasses.replace(schedule, warm_left=jnp.maximum(schedule.warm_left - 1, 0))


def after_evaluation(
    schedule: Schedule,
    capture_rate: Float[Array, ""],
    iteration: Int[Array, ""],
    config: ScheduleConfig,
    steps_per_iteration: int,
) -> Schedule:
    """Let the controls that look at balance react to an evaluation."""
    gap = jnp.abs(2 * capture_rate - 1)
    loser = jnp.where(capture_rate < 0.5, Role.PURSUER, Role.EVADER).astype(jnp.int32)
    if config.adaptive_ratio.enabled:
        boost = gap > config.adaptive_ratio.threshold
        schedule = dataclasses.replace(
            schedule,
            boost_left=jnp.where(boost, config.adaptive_ratio.boost_phases, schedule.boost_left),
            boosted=jnp.where(boost, loser, schedule.boosted),
        )
    if config.update_ratio.enabled:
        ratio = config.update_ratio
        kept = jnp.where(gap < ratio.leave, BOTH, schedule.favoured)
        schedule = dataclasses.replace(schedule, favoured=jnp.where(gap > ratio.enter, loser, kept))
    if config.alternate_freeze.enabled:
        schedule = _alternated(schedule, capture_rate, iteration, config, steps_per_iteration)
    return schedule


def _alternated(
    schedule: Schedule,
    capture_rate: Array,
    iteration: Array,
    config: ScheduleConfig,
    steps_per_iteration: int,
) -> Schedule:
    """Switch the frozen role once the training one wins often enough."""
    freeze, steps = config.alternate_freeze, iteration.astype(jnp.float32) * steps_per_iteration
    threshold = jnp.float32(freeze.threshold)
    for since, value in freeze.schedule:
        threshold = jnp.where(steps >= since, value, threshold)
    learning = 1 - schedule.frozen
    own = jnp.where(learning == Role.PURSUER, capture_rate, 1 - capture_rate)
    streak = jnp.where(own > threshold, schedule.freeze_streak + 1, 0)
    switch = (streak >= freeze.consecutive) & (schedule.frozen != BOTH)
    return dataclasses.replace(
        schedule,
        frozen=jnp.where(switch, learning, schedule.frozen),
        freeze_streak=jnp.where(switch, 0, streak),
        switched_at=jnp.where(switch, iteration, schedule.switched_at),
    )


def forced(
    schedule: Schedule, iteration: Int[Array, ""], config: ScheduleConfig, steps_per_iteration: int
) -> Schedule:
    """Switch or release the frozen role by the clock, checked every iteration."""
    freeze = config.alternate_freeze
    if not freeze.enabled:
        return schedule
    switch, once = jnp.bool_(False), schedule.forced_once
    if freeze.force_first_steps:
        first = in_iterations(freeze.force_first_steps, steps_per_iteration)
        switch = switch | (~once & (schedule.switched_at == 0) & (iteration >= first))
        once = once | (iteration >= first)
    if freeze.force_steps:
        every = in_iterations(freeze.force_steps, steps_per_iteration)
        switch = switch | (iteration - schedule.switched_at >= every)
    switch = switch & (schedule.frozen != BOTH)
    frozen = jnp.where(switch, 1 - schedule.frozen, schedule.frozen)
    if freeze.both_from_steps:
        release = iteration >= in_iterations(freeze.both_from_steps, steps_per_iteration)
        frozen = jnp.where(release, BOTH, frozen)
    return dataclasses.replace(
        schedule,
        frozen=frozen,
        forced_once=once,
        switched_at=jnp.where(switch, iteration, schedule.switched_at),
    )


def rate_share(gap: Float[Array, ""], config: ScheduleConfig) -> Float[Array, ""]:
    """Return the share of the learning rate that is used at the last gap."""
    if not config.dampening.enabled:
        return jnp.float32(1.0)
    threshold = config.dampening.threshold
    return jnp.where(gap < threshold, jnp.maximum(0.1, gap / threshold), 1.0)
