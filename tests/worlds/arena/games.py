"""Hand-made games for the tests: everything in a given place, and one compiled step per world."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from outlast.worlds.arena import Arena, ArenaConfig, Commands, LevelConfig, Role, level_of
from outlast.worlds.arena.config import RewardConfig, SensingConfig
from outlast.worlds.arena.dynamics import body_at
from outlast.worlds.arena.observe import observation_fields
from outlast.worlds.arena.state import FAR_M, Obstacles

BOTH = (Role.PURSUER, Role.EVADER)
RA_REWARD = {
    "capture_bonus": 10.0,
    "timeout_penalty": -10.0,
    "distance_scale": 1.0,
    "evader_mode": "visibility",
    "hiding": 0.1,
    "survival_bonus": 0.02,
    "obstacle_approach": 50.0,
}
RA_LEVEL = {
    "width_m": 20.0,
    "height_m": 20.0,
    "spawn_min_m": 3.0,
    "spawn_max_m": 15.0,
    "obstacles_min": 2,
    "obstacles_max": 2,
    "evader_speed_mps": 1.15,
    "prep_steps": 50,
}


def arena(*, reward=None, sensing=None, level=None, **fixed):
    """Return a world; reward, sensing and level are the differences from their defaults."""
    config = ArenaConfig(
        reward=RewardConfig(**(reward or {})),
        sensing=SensingConfig(**(sensing or {})),
        level=LevelConfig(**(level or {})),
        **fixed,
    )
    return Arena(config)


PLAIN = arena()
SOLID = arena(obstacle_slots=3)
RA_FIXED = {
    "reward": RA_REWARD,
    "level": RA_LEVEL,
    "fixed_speed": True,
    "obstacle_slots": 2,
    "observed_obstacles": 2,
    "observation": "absolute",
    "time_to_go": False,
    "spawn": "area",
}
RA = arena(**RA_FIXED)


def level(world, **changes):
    """Return the world's level with some numbers changed, as data: nothing is compiled again."""
    base = level_of(world.config.level)
    like = {name: getattr(base, name).dtype.type(value) for name, value in changes.items()}
    return dataclasses.replace(base, **{name: jnp.asarray(value) for name, value in like.items()})


def body(x, y, heading, speed=0.0, turn=0.0):
    """Return a robot with the command it last obeyed."""
    at = body_at(jnp.float32(x), jnp.float32(y), jnp.float32(heading))
    return dataclasses.replace(at, speed_mps=jnp.float32(speed), turn_radps=jnp.float32(turn))


def obstacles(world, *placed):
    """Return obstacles (x, y, radius), padded to the slots of the world."""
    n = world.config.obstacle_slots
    rows = list(placed) + [(FAR_M, FAR_M, 0.0)] * (n - len(placed))
    x, y, radius = np.array(rows, np.float32).reshape(n, 3).T
    return Obstacles(jnp.array(x), jnp.array(y), jnp.array(radius))


def state(world, pursuer=(0.0, 0.0, 0.0), evader=(3.0, 0.0, 0.0), *placed, step=0, at=None):
    """Return a game in progress: poses (and last commands), obstacles, step and level."""
    first = _first(world)(
        body(*pursuer), body(*evader), obstacles(world, *placed), level(world) if at is None else at
    )
    return dataclasses.replace(first, step=jnp.int32(step))


def commands(pursuer=(0.0, 0.0), evader=(0.0, 0.0)):
    """Return what both robots are told: (speed, turn rate) each."""
    return Commands(*(jnp.float32(number) for number in (*pursuer, *evader)))


@functools.cache
def _first(world):
    return jax.jit(world.state_at)


@functools.cache
def step(world):
    """Return the world's compiled step."""
    return jax.jit(world.step)


@functools.cache
def reset(world):
    """Return the world's compiled reset."""
    return jax.jit(world.reset)


@functools.cache
def resets(world):
    """Return many compiled resets at once; the world axis is last, as in training."""
    return jax.jit(jax.vmap(world.reset, in_axes=(0, None), out_axes=-1))


@functools.cache
def observe(world):
    """Return the compiled observations of both roles."""
    return jax.jit(lambda state: tuple(world.observe(state, role) for role in BOTH))


def seen(world, state, role):
    """Return what one role sees, by the name of each entry."""
    entries = np.asarray(observe(world)(state)[role])
    return dict(zip(observation_fields(world.config), entries.tolist(), strict=True))


def play(world, first, pursuer=(0.0, 0.0), evader=(0.0, 0.0), n=1):
    """Repeat one pair of commands; return the last state and every turn."""
    turns, given = [], commands(pursuer, evader)
    for _ in range(n):
        first, turn = step(world)(first, given)
        turns.append(turn)
    return first, turns
