"""A state as plain JSON-able data: what a viewer or a replay file shows of one moment."""

from typing import Any

import numpy as np

from outlast.worlds.arena.state import ArenaState, Body


def scene(state: ArenaState) -> dict[str, Any]:
    """Describe one state in metres and radians."""
    obstacles = state.obstacles
    slots = zip(
        *(np.asarray(a).tolist() for a in (obstacles.x_m, obstacles.y_m, obstacles.radius_m)), strict=True
    )
    return {
        "kind": "arena",
        "width_m": float(state.level.width_m),
        "height_m": float(state.level.height_m),
        "step": int(state.step),
        "max_steps": int(state.level.max_steps),
        "distance_m": float(state.distance_m),
        "pursuer": _pose(state.pursuer),
        "evader": _pose(state.evader),
        "obstacles": [{"x_m": x, "y_m": y, "radius_m": r} for x, y, r in slots if r > 0],
    }


def _pose(body: Body) -> dict[str, float]:
    return {
        "x_m": float(body.x_m),
        "y_m": float(body.y_m),
        "heading_rad": float(body.heading_rad),
        "speed_mps": float(body.speed_mps),
    }
