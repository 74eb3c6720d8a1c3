"""How long scripted residents live at four difficulties, beside what was measured on the original.

It is the bar that learners have to clear, and a check of the world as a whole.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from outlast.evaluate.statistics import NORMAL_QUANTILE
from outlast.evaluate.town_suites import beginnings
from outlast.keys import Purpose, address
from outlast.programs.lives import outlive
from outlast.programs.survive import Survive
from outlast.programs.survive_config import SCRIPTED_LEARNERS, SurviveConfig
from outlast.worlds.town import load_pack

DIFFICULTIES = (0.2, 0.5, 0.8, 1.0)
FREE_USES: dict[str, Any] = {"costs": {"interact": {"energy": 0.0}}}
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "L0": ("L0", {}),
    "L0, uses are free": ("L0", FREE_USES),
    "L0.5": ("L0.5", {}),
    "L0.5, uses are free": ("L0.5", FREE_USES),
    "L1": ("L1", {}),
    "L3": ("L3", {}),
}
"""Packs and what is changed in them: the original asks for a cost of interacting and never applies it."""
REFERENCE: dict[str, dict[str, tuple[float | None, ...]]] = {
    "L0": {"random": (282, 230, 191, 166), "wait": (250, 182, 143, 125), "rule": (850, 494, 369, 322)},
    "L0.5": {"random": (181, 141, 120, 107), "wait": (170, 136, 113, 102), "rule": (500, 500, 500, 500)},
    "L1": {"random": (188, 155, 126, 112), "wait": (500, 283, 197, 164), "rule": (500, 500, 500, 500)},
    "L3": {"random": (233, None, None, 122), "rule": (500, None, None, 496)},
}
REFERENCE_RETURN = {
    "L0": {"random": 98, "wait": 60, "rule": 187},
    "L0.5": {"random": 54, "wait": 49, "rule": 293},
    "L1": {"random": 58, "wait": 79, "rule": 328},
}
"""Mean survival at each difficulty, and return at full difficulty, of a replica of the original (spec 11.2)."""
REFERENCE_LIVES = {"random": 200, "wait": 100, "rule": 100}
ROUNDING = 0.5


def residents(n_lives: int) -> dict[str, Any]:
    """Measure every cell; each life has a layout and a first cell of its own, so lives are the replicates."""
    rows = []
    for world, (pack, changes) in WORLDS.items():
        for who in SCRIPTED_LEARNERS:
            town = load_pack(pack, changes).model_dump(mode="json")
            program = Survive(SurviveConfig(pack=pack, town=town, learner=who))  # type: ignore[arg-type]
            survival, worth = lived(program, n_lives)
            for place, difficulty in enumerate(DIFFICULTIES):
                row = {"world": world, "resident": who, "difficulty": difficulty}
                row["survival"] = compared(survival[place], _published(pack, who, place), who)
                told = REFERENCE_RETURN.get(pack, {}).get(who) if difficulty == 1.0 else None
                rows.append(row | {"return": compared(worth[place], told, who)})
    return {"study": "residents", "lives": n_lives, "difficulties": list(DIFFICULTIES), "rows": rows}


def _published(pack: str, who: str, place: int) -> float | None:
    return REFERENCE[pack].get(who, (None,) * len(DIFFICULTIES))[place]


def lived(program: Survive, n_lives: int) -> tuple[np.ndarray, np.ndarray]:
    """Return survival and return of every life, [difficulties, lives]."""
    key = jax.random.fold_in(address(0, 0, Purpose.STUDY), 0)

    def one(depletion: jax.Array) -> tuple[jax.Array, jax.Array]:
        lives = beginnings(program, None, n_lives)
        level = dataclasses.replace(lives.town.level, depletion=jnp.full(n_lives, depletion))
        lives = dataclasses.replace(lives, town=dataclasses.replace(lives.town, level=level))
        outlived, _ = outlive(program.config, program.world, None, lives, key, 0.0)
        return outlived.survival, outlived.reward

    found = jax.jit(lambda ks: jax.lax.map(one, ks))(jnp.array(DIFFICULTIES))
    return np.asarray(found[0], float), np.asarray(found[1], float)


def compared(values: np.ndarray, told: float | None, who: str) -> dict[str, Any]:
    """Return mean, interval over lives, and whether the published mean agrees within both intervals.

    The published means have no interval; theirs is reckoned with the spread found here and their number of lives.
    """
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    half = NORMAL_QUANTILE * spread / math.sqrt(len(values))
    found: dict[str, Any] = {
        "mean": mean,
        "ci95": [mean - half, mean + half],
        "sd": spread,
        "reference": told,
    }
    if told is not None:
        theirs = ROUNDING + NORMAL_QUANTILE * spread / math.sqrt(REFERENCE_LIVES[who])
        found |= {
            "reference_ci95": [told - theirs, told + theirs],
            "agrees": abs(mean - told) <= half + theirs,
        }
    return found


def markdown(document: dict[str, Any]) -> str:
    """Write the table as a page."""
    rows = document["rows"]
    judged = [row[what]["agrees"] for row in rows for what in ("survival", "return") if "agrees" in row[what]]
    lines = [
        "# Residents without a network",
        "",
        f"Mean survival in ticks, {document['lives']:,} lives a cell, each in a layout of its own, [95 % interval",
        "over lives]; the base depletion of all meters is multiplied by the number above the column. Below it what was",
        "measured on a replica of the original (100 or 200 lives), and whether both intervals meet (the replica's",
        f"reckoned with the spread found here). {sum(judged)} of {len(judged)} figures agree. Made by",
        "`outlast study residents`.",
        "",
        "The original asks its packs for a cost of interacting and never applies it; here it is applied (L0 and L0.5:",
        "0.0029 energy). The rows in which uses are free show what that makes. The rule is a short script here as",
        "there, not the same one, and which layout the published one lived in is not told: where both live for ever,",
        "their returns still differ. One who waits on L0 at 0.2 loses 0.004 of 1 a tick, 250 ticks on paper; in",
        "float32 a remainder is left after them, and the life ends with the next.",
        "",
        "| world | resident | " + " | ".join(f"{k:g}" for k in document["difficulties"]) + " | return at 1 |",
        "|---|---|" + "---|" * (len(document["difficulties"]) + 1),
    ]
    for start in range(0, len(rows), len(document["difficulties"])):
        row = rows[start : start + len(document["difficulties"])]
        cells = [*(_cell(one["survival"]) for one in row), _cell(row[-1]["return"])]
        lines.append(f"| {row[0]['world']} | {row[0]['resident']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, Any]) -> str:
    low, high = found["ci95"]
    text = f"{found['mean']:.1f} [{low:.1f}, {high:.1f}]"
    if "agrees" not in found:
        return text
    return f"{text}<br>{found['reference']:g}: {'agrees' if found['agrees'] else '**differs**'}"
