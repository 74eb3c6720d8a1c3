"""The suites of the town: how long residents live at full difficulty, and whether they work before they spend.

Every seed and checkpoint lives the same lives: same layouts, same first cells, same draws; none was trained on.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from outlast.evaluate.statistics import summary
from outlast.keys import Purpose, address
from outlast.programs.lives import NOWHERE, Lived, Lives, Outlived, born, outlive
from outlast.programs.survive import Survive, SurviveState
from outlast.programs.survive_config import SCRIPTED_LEARNERS, SurviveConfig
from outlast.worlds.town import Town
from outlast.worlds.town.places import ROUNDING

BESIDE_LIVES, MOST_LIVES = 64, 4096
RATE = (0.0, 1.0)


def beginnings(program: Survive, cells: Array | None, n: int) -> Lives:
    """Return `n` lives at full difficulty: in given cells, or each in a layout of its own."""
    town, key = program.world, address(0, 0, Purpose.EVALUATE)
    level = town.level(town.layout(key) if cells is None else cells)
    level = dataclasses.replace(level, redraw=jnp.bool_(cells is None))
    return born(town, key, level, jnp.int32(0), n, program.n_memory)


def survive(
    program: Survive, player: PyTree, lives: Lives, epsilon: Float[Array, ""] | float
) -> dict[str, Array]:
    """Live lives to their ends and return their means, and the share that each cause ended."""
    key = jax.random.fold_in(address(0, 0, Purpose.EVALUATE), 1)
    outlived, _ = outlive(program.config, program.world, player.get("network"), lives, key, epsilon)
    return measured(outlived, program.config)


def measured(outlived: Outlived, config: SurviveConfig) -> dict[str, Array]:
    """Return the means of lives, and the share that each cause ended."""
    found = {
        "survival_steps": jnp.mean(outlived.survival.astype(jnp.float32)),
        "episode_return": jnp.mean(outlived.reward),
        "death_causes/limit": jnp.mean(outlived.death_cause == NOWHERE),
    }
    for index, death in enumerate(config.town.deaths):
        name = f"death_causes/{death.meter}"
        found[name] = found.get(name, 0.0) + jnp.mean(outlived.death_cause == index)
    return found


def in_place(program: Survive, cells: Array) -> Array | None:
    """Return the layout that a run is judged in: its own, or none where every life has another."""
    return None if program.config.town.layout.policy == "per_episode" else cells


def beside(program: Survive, state: SurviveState) -> dict[str, Array]:
    """Measure greedy survival while training goes on: few lives, pure, cheap."""
    lives = beginnings(program, in_place(program, state.cells), BESIDE_LIVES)
    return survive(program, program.policies(state), lives, 0.0)


def survival(program: Survive, players: PyTree, games: int = 1000) -> dict[str, Any]:
    """Measure the residents of all seeds (axis S), greedy and at the final epsilon, beside scripted ones."""
    games = min(games, MOST_LIVES)
    own = program.config.town.layout.policy != "per_episode"
    final = program.config.explore.epsilon_end if program.config.learns else 0.0
    cases = {"": (own, 0.0), "_epsilon": (own, final)} | ({"_new_layouts": (False, 0.0)} if own else {})
    document: dict[str, Any] = {"suite": "survival", "games": games, "learner": program.config.learner}
    document |= {"limit": program.config.town.max_steps, "epsilon": final}
    document["layouts"] = "the run's own" if own else "new in every life"
    for suffix, (is_own, epsilon) in cases.items():

        def one(player: PyTree, is_own: bool = is_own, epsilon: float = epsilon) -> dict[str, Array]:
            return survive(
                program, player, beginnings(program, player["cells"] if is_own else None, games), epsilon
            )

        _enter(document, jax.jit(lambda p, one=one: jax.lax.map(one, p))(players), suffix)
    document["residents"] = {name: scripted_survival(program, name, games) for name in SCRIPTED_LEARNERS}
    return document


def _enter(document: dict[str, Any], found: dict[str, Array], suffix: str) -> None:
    for name, values in found.items():
        head, _, cause = name.partition("/")
        bounds = RATE if cause else (0.0, float("inf"))
        value = summary(np.asarray(values), bounds=bounds)
        if cause:
            document.setdefault(head + suffix, {})[cause] = value
        else:
            document[head + suffix] = value


def scripted_program(program: Survive, name: str) -> Survive:
    """Return the program of the same town with a scripted resident."""
    return Survive(SurviveConfig(pack=program.config.pack, town=program.config.town, learner=name))  # type: ignore[arg-type]


def scripted_survival(program: Survive, name: str, games: int) -> dict[str, float]:
    """Measure one scripted resident in layouts of its own."""
    other = scripted_program(program, name)
    found = jax.jit(lambda: survive(other, {}, beginnings(other, None, games), 0.0))()
    return {name: float(found[name]) for name in ("survival_steps", "episode_return")}


class Errands:
    """Counts what becomes of visits to places that cost something, once the resident could not afford them.

    An errand is the first visit to such a place since then. It succeeds if the means were earned first, for a place
    that cannot be paid refuses.
    """

    def __init__(self, town: Town) -> None:
        self.cost = town.tables.cost * town.tables.deployed[:, None]

    def afforded(self, lives: Lives) -> Array:
        """Tell which places each resident could pay now."""
        meters = jnp.stack(lives.town.meters)
        return jnp.all(meters[None] + ROUNDING >= self.cost[:, :, None], axis=1)

    def begun(self, lives: Lives) -> dict[str, Array]:
        """Return the count before the first tick."""
        none = jnp.zeros(lives.ended.shape, jnp.int32)
        was_broke = jnp.zeros((self.cost.shape[0], *none.shape), bool)
        return {
            "was_broke": was_broke,
            "errands": none,
            "worked_first": none,
            "refused": none,
            "visits": none,
        }

    def __call__(self, counted: dict[str, Array], lives: Lives, lived: Lived) -> dict[str, Array]:
        """Count one tick."""
        was_broke = counted["was_broke"] | ~self.afforded(lives)
        place = jnp.arange(self.cost.shape[0])[:, None]
        costs = jnp.asarray(self.cost.any(axis=1))[:, None]
        used, refused = (costs & (at == place) for at in (lived.used, lived.refused))
        errand = (used | refused) & was_broke
        return {
            "was_broke": was_broke & ~(used | refused),
            "errands": counted["errands"] + errand.any(axis=0),
            "worked_first": counted["worked_first"] + (errand & used).any(axis=0),
            "refused": counted["refused"] + refused.any(axis=0),
            "visits": counted["visits"] + used.any(axis=0),
        }


def economy(program: Survive, players: PyTree, games: int = 1000) -> dict[str, Any]:
    """Measure whether residents earn before they spend, beside a random resident on the same lives."""
    games = min(games, MOST_LIVES)
    own = program.config.town.layout.policy != "per_episode"
    random = scripted_program(program, "random")
    document: dict[str, Any] = {"suite": "economy", "games": games, "learner": program.config.learner}

    def of(one: Survive, player: PyTree, cells: Array | None) -> dict[str, Array]:
        lives, errands = beginnings(one, cells, games), Errands(one.world)
        key = jax.random.fold_in(address(0, 0, Purpose.EVALUATE), 2)
        outlived, counted = outlive(
            one.config,
            one.world,
            player.get("network"),
            lives,
            key,
            0.0,
            tally=errands,
            counted=errands.begun(lives),
        )
        ticks = jnp.maximum(jnp.sum(outlived.survival), 1) / 100.0
        totals = {name: jnp.sum(counted[name]).astype(jnp.float32) for name in counted if name != "was_broke"}
        share = totals["worked_first"] / totals["errands"]
        return {
            "worked_first_rate": jnp.where(totals["errands"] > 0, share, jnp.nan),
            "errands_per_life": totals["errands"] / games,
            "paid_visits_per_100_ticks": totals["visits"] / ticks,
            "refusals_per_100_ticks": totals["refused"] / ticks,
        }

    mine = _per_seed(lambda player: of(program, player, player["cells"] if own else None), players)
    theirs = _per_seed(lambda player: of(random, {}, player["cells"] if own else None), players)
    document |= mine
    document["random"] = theirs
    document["worked_first_means"] = (
        "of the first visits to a place since it could not be afforded, the share for which the means had been earned"
    )
    return document


def _per_seed(one: Callable[[PyTree], dict[str, Array]], players: PyTree) -> dict[str, Any]:
    found = jax.jit(lambda p: jax.lax.map(one, p))(players)
    return {
        name: summary(np.asarray(values), bounds=RATE if name.endswith("rate") else (0.0, float("inf")))
        for name, values in found.items()
    }
