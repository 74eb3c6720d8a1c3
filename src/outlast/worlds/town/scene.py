"""A state as a plain dictionary, ready for JSON: what a viewer or a replay file shows."""

from typing import Any

import numpy as np

from outlast.worlds.town.sections import DAY_TICKS
from outlast.worlds.town.state import TownState
from outlast.worlds.town.tables import ACTION_NAMES
from outlast.worlds.town.world import Town


def scene(town: Town, state: TownState) -> dict[str, Any]:
    """Describe a state by names; only deployed places are listed."""
    hour, level = int(state.hour), state.level
    places = [
        {
            "name": name,
            "x": int(cell) % town.pack.size,
            "y": int(cell) // town.pack.size,
            "open": bool(int(bits) >> hour & 1),
        }
        for name, cell, bits in zip(
            town.pack.place_names, np.asarray(level.cells), town.tables.hour_bits, strict=True
        )
        if cell >= 0
    ]
    legal = np.asarray(town.legal(state))
    return {
        "kind": "town",
        "size": town.pack.size,
        "hour": hour,
        "day_ticks": DAY_TICKS,
        "age": int(state.age),
        "max_steps": int(level.max_steps),
        "depletion": float(level.depletion),
        "resident": {"x": int(state.x), "y": int(state.y), "progress": int(state.progress)},
        "meters": {
            name: {"level": float(meter), "active": bool(active)}
            for name, meter, active in zip(
                town.pack.meter_names, state.meters, np.asarray(level.active), strict=True
            )
        },
        "places": places,
        "legal": [name for name, allowed in zip(ACTION_NAMES, legal, strict=True) if allowed],
    }
