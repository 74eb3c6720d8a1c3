"""What the resident sees: a named list of fields per kind of observation, laid end to end in one vector.

`full` shows every place by name and the level; `partial` shows a window around the resident. The `s2` kinds are
the originals' layouts, with their blind spots, for comparison.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from outlast.worlds.town.clock import clock_face
from outlast.worlds.town.pack import Pack
from outlast.worlds.town.places import chosen, underfoot
from outlast.worlds.town.state import TownState
from outlast.worlds.town.tables import Tables

S2_PROGRESS_SCALE = 10.0


class View(NamedTuple):
    """A state with what is needed to look at it."""

    state: TownState
    here: list[Array]
    pack: Pack
    tables: Tables


def observation_fields(pack: Pack) -> dict[str, int]:
    """List the fields of the pack's observation and their sizes, in order."""
    n_meters, n_places, size = len(pack.meters), len(pack.places), pack.size
    window = (2 * pack.observation.vision + 1) ** 2
    level = {"age": 1, "depletion": 1, "active": n_meters}
    body = {"meters": n_meters, "here": n_places}
    time = {"clock": 2, "progress": 1} if pack.multi_tick else {}
    s2_body = {"meters": n_meters, "s2_here": n_places + 1, "s2_clock": 2, "s2_progress": 1, "age": 1}
    return {
        "full": {"position": 2, "offsets": 2 * n_places, "deployed": n_places, **body, **time, **level},
        "partial": {"window": window, "position": 2, **body, **time, **level},
        "s2_full": {"s2_grid": size**2, **s2_body},
        "s2_partial": {"s2_window": window, "position": 2, **s2_body},
    }[pack.observation.kind]


def observe(state: TownState, pack: Pack, tables: Tables) -> Float[Array, " observation"]:
    """Return the observation of a state as one vector."""
    view = View(state, underfoot(state, pack.size, len(pack.places)), pack, tables)
    return jnp.concatenate([_FIELDS[name](view) for name in observation_fields(pack)])


def _position(view: View) -> Array:
    return jnp.stack([view.state.x, view.state.y]).astype(jnp.float32) / (view.pack.size - 1)


def _offsets(view: View) -> Array:
    state, size = view.state, view.pack.size
    cells = state.level.cells
    offsets = jnp.concatenate([cells % size - state.x, cells // size - state.y])
    shown = jnp.concatenate([cells >= 0, cells >= 0])
    return jnp.where(shown, offsets, 0).astype(jnp.float32) / (size - 1)


def _deployed(view: View) -> Array:
    return (view.state.level.cells >= 0).astype(jnp.float32)


def _here(view: View) -> Array:
    return jnp.stack(view.here).astype(jnp.float32)


def _s2_here(view: View) -> Array:
    here = jnp.stack(view.here)
    return jnp.append(here, ~here.any()).astype(jnp.float32)


def _clock(view: View) -> Array:
    return jnp.stack(clock_face(view.state.hour))


def _s2_clock(view: View) -> Array:
    return _clock(view) if view.pack.multi_tick else jnp.array([0.0, 1.0], jnp.float32)


def _progress(view: View) -> Array:
    needed = jnp.maximum(chosen(view.here, view.tables.ticks), 1).astype(jnp.float32)
    return (view.state.progress.astype(jnp.float32) / needed)[None]


def _s2_progress(view: View) -> Array:
    return (view.state.progress.astype(jnp.float32) / S2_PROGRESS_SCALE)[None]


def _age(view: View) -> Array:
    lived = view.state.age.astype(jnp.float32) / view.state.level.lifespan.astype(jnp.float32)
    return jnp.minimum(lived, 1.0)[None]


def _window(view: View) -> Array:
    """Draw the window row by row: 1 a place, 0 nothing, -1 beyond the edge of the town."""
    state, size, reach = view.state, view.pack.size, view.pack.observation.vision
    steps = jnp.arange(-reach, reach + 1, dtype=jnp.int32)
    x, y = (state.x + steps)[None, :], (state.y + steps)[:, None]
    outside = (x < 0) | (x >= size) | (y < 0) | (y >= size)
    return jnp.where(outside, -1.0, _places_in_window(view).astype(jnp.float32)).ravel()


def _s2_window(view: View) -> Array:
    return _places_in_window(view).astype(jnp.float32).ravel()


def _places_in_window(view: View) -> Array:
    state, size, reach = view.state, view.pack.size, view.pack.observation.vision
    width = 2 * reach + 1
    slots = jnp.arange(width * width, dtype=jnp.int32)
    seen = jnp.zeros(width * width, bool)
    for place in range(len(view.pack.places)):
        cell = state.level.cells[place]
        dx, dy = cell % size - state.x + reach, cell // size - state.y + reach
        inside = (cell >= 0) & (dx >= 0) & (dx < width) & (dy >= 0) & (dy < width)
        seen = seen | (slots == jnp.where(inside, dy * width + dx, -1))
    return seen.reshape(width, width)


def _s2_grid(view: View) -> Array:
    state, size = view.state, view.pack.size
    slots = jnp.arange(size * size, dtype=jnp.int32)
    grid = (slots == state.y * size + state.x).astype(jnp.float32)
    for place in range(len(view.pack.places)):
        grid = grid + (slots == state.level.cells[place]).astype(jnp.float32)
    return grid


_FIELDS: dict[str, Callable[[View], Array]] = {
    "position": _position,
    "offsets": _offsets,
    "deployed": _deployed,
    "meters": lambda view: jnp.stack(view.state.meters),
    "here": _here,
    "clock": _clock,
    "progress": _progress,
    "age": _age,
    "depletion": lambda view: view.state.level.depletion[None],
    "active": lambda view: view.state.level.active.astype(jnp.float32),
    "window": _window,
    "s2_window": _s2_window,
    "s2_grid": _s2_grid,
    "s2_here": _s2_here,
    "s2_clock": _s2_clock,
    "s2_progress": _s2_progress,
}
