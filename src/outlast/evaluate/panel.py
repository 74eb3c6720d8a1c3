"""The panel suite: learned policies against every scripted opponent, beside the scripted table itself.

All pairings are one compiled program: a loop over them with a branch per policy, so each policy is compiled once.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from outlast.evaluate.statistics import summary, wilson
from outlast.keys import Purpose, address
from outlast.learners.ppo import PpoState
from outlast.programs.duel import Duel, DuelState
from outlast.selfplay.match import learned_player, measures, play, starts, switched_player
from outlast.worlds.arena import Arena, ArenaState, Role, level_of, scripted

BESIDE_GAMES = 128
Measures = dict[str, Float[Array, "..."]]


def against(
    program: Duel,
    learner: PpoState,
    role: Role,
    opponent: Int[Array, ""],
    first: ArenaState,
    *,
    sampled: bool | Array,
) -> Measures:
    """Play one learner against one scripted opponent, given by its place in the panel."""
    world = program.world
    config, name = program.config, role.name.lower()
    mine = learned_player(learner, role, world, config.ppo, config.safety, sampled=sampled)
    theirs = switched_player(tuple(scripted.panel(role.other)), opponent, role.other, world)
    pursuer, evader = (mine, theirs) if role == Role.PURSUER else (theirs, mine)
    key = address(0, 0, Purpose.EVALUATE)
    judges = {} if learner.feasibility is None else {name: learner.feasibility}
    games = play(world, first, pursuer, evader, key, config.safety, feasibility=judges)
    return measures(games, world.config.dt_s)


def beside(program: Duel, state: DuelState) -> Measures:
    """Measure the learners against the panel while they train: few games, pure, cheap."""
    first = starts(program.world, level_of(program.config.last_level), BESIDE_GAMES)
    found = {}
    for role in program.config.roles:
        names, name = list(scripted.panel(role.other)), role.name.lower()

        def rate(place: Array, role: Role = role, name: str = name) -> Array:
            return against(program, state.learners[name], role, place, first, sampled=False)["capture_rate"]

        rates = jax.lax.map(rate, jnp.arange(len(names)))
        found |= {f"{name}/capture_rate/{opponent}": rates[i] for i, opponent in enumerate(names)}
    return found


def panel(program: Duel, learners: dict[str, PpoState], games: int = 1000) -> dict[str, Any]:
    """Evaluate stacks of learners (axis S) against the whole panel, with mean and with sampled actions."""
    first = jax.jit(lambda: starts(program.world, level_of(program.config.last_level), games))()
    document: dict[str, Any] = {"suite": "panel", "games": games, "learner": program.config.learner}
    for role in program.config.roles:
        names, name = list(scripted.panel(role.other)), role.name.lower()

        def one(case: tuple, role: Role = role, name: str = name) -> Measures:
            place, seed, sampled = case
            learner = jax.tree.map(lambda leaf: leaf[seed], learners[name])
            return against(program, learner, role, place, first, sampled=sampled)

        n_seeds = jax.tree.leaves(learners[name])[0].shape[0]
        cases = np.array(np.meshgrid(range(len(names)), range(n_seeds), (0, 1), indexing="ij")).reshape(3, -1)
        found = jax.jit(lambda c, one=one: jax.lax.map(one, tuple(c)))(jnp.asarray(cases))
        shaped = {k: np.asarray(v).reshape(len(names), n_seeds, 2) for k, v in found.items()}
        for measure, values in shaped.items():
            bounds = (0.0, 1.0) if measure.endswith(("rate", "share")) else (0.0, float("inf"))
            for how, suffix in enumerate(("", "_sampled")):
                rows = document.setdefault(measure + suffix, {})
                for place, opponent in enumerate(names):
                    rows[_unique(rows, opponent, role)] = summary(values[place, :, how], bounds=bounds)
    document["table"] = scripted_table(program.world, first)
    return document


def _unique(rows: dict[str, Any], opponent: str, role: Role) -> str:
    """Name an opponent; one that plays both roles is told apart when both are measured."""
    return f"{opponent}_{role.other.name.lower()}" if opponent in rows else opponent


def scripted_table(world: Arena, first: ArenaState) -> list[dict[str, Any]]:
    """Play every scripted pursuer against every scripted evader on the same first states."""
    pursuers, evaders = tuple(scripted.PURSUERS), tuple(scripted.EVADERS)

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        players = (
            switched_player(pursuers, pair[0], Role.PURSUER, world),
            switched_player(evaders, pair[1], Role.EVADER, world),
        )
        games = play(world, first, *players, address(0, 0, Purpose.EVALUATE))
        return games.captured, games.steps

    pairs = np.array(np.meshgrid(range(len(pursuers)), range(len(evaders)), indexing="ij")).reshape(2, -1)
    captured, steps = jax.jit(lambda p: jax.lax.map(one, tuple(p)))(jnp.asarray(pairs))
    return [
        cell(np.asarray(captured[i]), np.asarray(steps[i]), pursuers[p], evaders[e])
        for i, (p, e) in enumerate(pairs.T)
    ]


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
