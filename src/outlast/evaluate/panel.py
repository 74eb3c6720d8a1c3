"""The panel suite: learned policies against every scripted opponent, beside the scripted table itself."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from outlast.evaluate.match import learned_player, measures, play, scripted_player, starts
from outlast.evaluate.statistics import summary, wilson
from outlast.keys import Purpose, address
from outlast.learners.ppo import PpoState
from outlast.programs.duel import Duel, DuelState
from outlast.worlds.arena import Arena, ArenaState, Role, level_of, scripted

BESIDE_GAMES = 128


def against(
    program: Duel, learner: PpoState, opponent: str, first: ArenaState, *, sampled: bool
) -> dict[str, Float[Array, ""]]:
    """Play one learner against one scripted opponent; measures of all games."""
    world, role = program.world, program.config.role
    mine = learned_player(learner, role, world, program.config.ppo, sampled=sampled)
    theirs = scripted_player(scripted.panel(role.other)[opponent], role.other, world)
    pursuer, evader = (mine, theirs) if role == Role.PURSUER else (theirs, mine)
    key = address(0, 0, Purpose.EVALUATE)
    return measures(play(world, first, pursuer, evader, key), world.config.dt_s)


def beside(program: Duel, state: DuelState) -> dict[str, Float[Array, ""]]:
    """Measure a learner against its own opponents while it trains: few games, pure, cheap."""
    first = starts(program.world, level_of(program.config.arena.level), BESIDE_GAMES)
    return {
        f"capture_rate/{name}": against(program, state.learner, name, first, sampled=False)["capture_rate"]
        for name in program.config.active_opponents
    }


def panel(program: Duel, learners: PyTree, games: int) -> dict[str, Any]:
    """Evaluate a stack of learners (axis S) against the whole panel, mean and sampled actions."""
    first = jax.jit(lambda: starts(program.world, level_of(program.config.arena.level), games))()
    document: dict[str, Any] = {"suite": "panel", "games": games, "learner": program.config.learner}
    for sampled, suffix in ((False, ""), (True, "_sampled")):
        for opponent in scripted.panel(program.config.role.other):

            def one(learner: PpoState, opponent: str = opponent, sampled: bool = sampled):
                return against(program, learner, opponent, first, sampled=sampled)

            found = jax.jit(lambda ls, one=one: jax.lax.map(one, ls))(learners)
            for name, per_seed in found.items():
                document.setdefault(name + suffix, {})[opponent] = summary(np.asarray(per_seed))
    document["table"] = scripted_table(program.world, first)
    return document


def scripted_table(world: Arena, first: ArenaState) -> list[dict[str, Any]]:
    """Play every scripted pursuer against every scripted evader on the same first states."""
    rows = []
    for pursuer_name, pursuer in scripted.PURSUERS.items():
        for evader_name, evader in scripted.EVADERS.items():
            players = (
                scripted_player(pursuer, Role.PURSUER, world),
                scripted_player(evader, Role.EVADER, world),
            )
            key = address(0, 0, Purpose.EVALUATE)
            games = jax.jit(lambda first, p=players, k=key: play(world, first, *p, k))(first)
            rows.append(cell(np.asarray(games.captured), np.asarray(games.steps), pursuer_name, evader_name))
    return rows


def cell(captured: np.ndarray, steps: np.ndarray, pursuer: str, evader: str) -> dict[str, Any]:
    """Describe one pairing of scripted policies with its Wilson interval."""
    rate, n = float(np.mean(captured)), int(captured.size)
    return {
        "pursuer": pursuer,
        "evader": evader,
        "games": n,
        "capture_rate": rate,
        "ci95": list(wilson(int(np.sum(captured)), n)),
        "episode_steps": float(np.mean(steps)),
    }
