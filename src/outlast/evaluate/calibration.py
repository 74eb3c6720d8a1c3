"""How one-sided a game is under scripted play: the table by which arenas and speed ratios are chosen."""

from typing import Any

import jax

from outlast.evaluate.panel import scripted_table
from outlast.selfplay.match import starts
from outlast.worlds.arena import Arena, ArenaConfig, LevelConfig, level_of


def _game(size_m: float, ratio: float, **more: Any) -> ArenaConfig:
    rest = {"spawn_min_m": 3.0, "spawn_max_m": 15.0, "obstacles_min": 2, "obstacles_max": 2} | more
    rest["spawn_max_m"] = min(rest["spawn_max_m"], 1.3 * size_m)
    level = LevelConfig(width_m=size_m, height_m=size_m, evader_speed_mps=ratio, max_steps=600, **rest)
    return ArenaConfig(fixed_speed=True, obstacle_slots=level.obstacles_max, spawn="area", level=level)


GAMES: dict[str, ArenaConfig] = {
    "20x20, 1.15, prep 50 (RA1)": _game(20.0, 1.15, prep_steps=50),
    "20x20, 1.15, prep 50, 2-5 m (RA2 start)": _game(
        20.0, 1.15, prep_steps=50, spawn_min_m=2.0, spawn_max_m=5.0
    ),
    "20x20, 1.0": _game(20.0, 1.0),
    "10x10, 1.05 (RA5-10)": _game(10.0, 1.05),
    "10x10, 1.0": _game(10.0, 1.0),
    "10x10, 1.15": _game(10.0, 1.15),
    "10x10, 1.2": _game(10.0, 1.2),
    "10x10, 0.9": _game(10.0, 0.9),
    "6x6, 1.0 (1 obstacle, 2-8 m)": _game(
        6.0, 1.0, obstacles_min=1, obstacles_max=1, spawn_min_m=2.0, spawn_max_m=8.0
    ),
}
PAIRS = (
    ("pure_pursuit", "flee_away"),
    ("pure_pursuit", "look_ahead"),
    ("lead", "look_ahead"),
    ("centre_guard", "look_ahead"),
    ("pure_pursuit", "corner"),
    ("pure_pursuit", "orbit"),
)


def calibration(games: int) -> dict[str, Any]:
    """Play every pair in every game and return the cells with Wilson intervals."""
    rows = []
    for name, config in GAMES.items():
        world = Arena(config)
        first = jax.jit(lambda world=world: starts(world, level_of(world.config.level), games))()
        table = scripted_table(world, first)
        for pursuer, evader in PAIRS:
            rows += [{"game": name} | r for r in table if (r["pursuer"], r["evader"]) == (pursuer, evader)]
    return {"study": "calibration", "games": games, "rows": rows}


def markdown(document: dict[str, Any]) -> str:
    """Write the calibration as a page."""
    lines = [
        "# Balance of the game under scripted play",
        "",
        f"Capture rate with its Wilson 95 % interval and mean episode length, {document['games']} games a cell, both",
        "at full speed, 600 steps, capture at 0.5 m. Made by `outlast study calibration`.",
        "",
        "| game | " + " | ".join(f"{p} v {e}" for p, e in PAIRS) + " |",
        "|---|" + "---|" * len(PAIRS),
    ]
    for name in GAMES:
        cells = [
            f"{r['capture_rate']:.2f} [{r['ci95'][0]:.2f}, {r['ci95'][1]:.2f}] / {r['episode_steps']:.0f}"
            for r in document["rows"]
            if r["game"] == name
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
