"""Towns for the tests: shipped packs with changes, a tiny one, and ways to place and play a resident."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

from outlast.worlds.town import Town, TownLevel, TownState, load_pack
from outlast.worlds.town.pack import build_pack, pack_names
from outlast.worlds.town.tables import DOWN, INTERACT, LEFT, RIGHT, UP, WAIT

SHIPPED = tuple(pack_names())
LAST = {"in_axes": -1, "out_axes": -1}
MOVES = {UP: (0, -1), DOWN: (0, 1), LEFT: (-1, 0), RIGHT: (1, 0), INTERACT: (0, 0), WAIT: (0, 0)}

TINY = {
    "size": 4,
    "max_steps": 40,
    "meters": {
        "energy": {"depletion": 0.02},
        "mood": {"start": 0.6, "depletion": 0.01},
        "money": {"start": 0.2},
    },
    "deaths": [{"meter": "energy"}],
    "costs": {"move": {"energy": 0.02}, "wait": {"energy": 0.005}, "interact": {"energy": 0.004}},
    "modulations": [{"source": "mood", "target": "energy", "rate": 0.002, "base": 0.5, "span": 1.0}],
    "cascades": [{"source": "mood", "target": "energy", "strength": 0.05, "threshold": 0.5}],
    "places": {
        "Bed": {
            "hours": [20, 32],
            "instant": {"cost": {"money": 0.05}, "effects": {"energy": 0.3}},
            "multi_tick": {
                "ticks": 2,
                "cost": {"money": 0.02},
                "effects": {"energy": 0.1},
                "completion": {"mood": 0.1},
            },
        },
        "Job": {
            "instant": {"effects": {"money": 0.1, "energy": -0.05}},
            "multi_tick": {"ticks": 3, "effects": {"money": 0.04}, "completion": {"energy": -0.05}},
        },
    },
    "reward": {"meters": ["energy", "mood"]},
    "stages": [{"depletion": 0.5, "active": ["energy"]}, {"sparse": True}],
}


def merged(old, new):
    """Overwrite a nested document; a value of None removes the key."""
    result = dict(old)
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(old.get(key), dict)
        result[key] = merged(old[key], value) if both else value
    return {key: value for key, value in result.items() if value is not None}


def tiny(**changes) -> Town:
    """Return the tiny town with changes."""
    return Town(build_pack(merged(TINY, changes), source="tiny"))


def town(name: str, **changes) -> Town:
    """Return a shipped town with changes; equal calls return the same object, hence the same program."""
    return _town(name, json.dumps(changes))


@functools.cache
def _town(name: str, changes: str) -> Town:
    return Town(load_pack(name, json.loads(changes)))


@functools.cache
def stepper(world: Town):
    """Compile one step of a town."""
    return jax.jit(world.step)


@functools.cache
def player(world: Town):
    """Compile a life: (state, actions) -> every state and every step."""

    def play(state, actions):
        def tick(state, action):
            state, step = world.step(state, action)
            return state, (state, step)

        return jax.lax.scan(tick, state, actions)[1]

    return jax.jit(play)


def level(world: Town, *, seed: int = 0, stage: int | None = None, **fields) -> TownLevel:
    """Return a level with some fields replaced."""
    plain = world.level(world.layout(jax.random.key(seed)), stage)
    changed = {name: jnp.asarray(value, getattr(plain, name).dtype) for name, value in fields.items()}
    return dataclasses.replace(plain, **changed)


def born(
    world: Town,
    *,
    at: str | tuple[int, int] = (0, 0),
    hour: int = 0,
    given: TownLevel | None = None,
    **meters,
):
    """Return a first state at a place or cell, at an hour, with some meters set."""
    given = level(world) if given is None else given
    cell = int(given.cells[world.pack.place_names.index(at)]) if isinstance(at, str) else None
    x, y = at if cell is None else (cell % world.pack.size, cell // world.pack.size)
    pairs = zip(world.pack.meter_names, world.tables.start, strict=True)
    return TownState(
        x=jnp.int32(x),
        y=jnp.int32(y),
        meters=tuple(jnp.float32(meters.get(name, start)) for name, start in pairs),
        hour=jnp.int32(hour),
        progress=jnp.int32(0),
        age=jnp.int32(0),
        owed=jnp.float32(0),
        level=given,
    )


def play(world: Town, state: TownState, actions) -> list:
    """Play actions one by one and return (state, step) after each."""
    seen = []
    for action in actions:
        state, step = stepper(world)(state, jnp.int32(action))
        seen.append((state, step))
    return seen


def meters(state: TownState) -> np.ndarray:
    """Return the meters as a row."""
    return np.array([float(meter) for meter in state.meters])


def meter(world: Town, state: TownState, name: str) -> float:
    """Return one meter."""
    return float(state.meters[world.pack.meter_names.index(name)])
