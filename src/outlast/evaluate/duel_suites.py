"""The head-to-head suite: the two learners of each seed against each other, from the same fixed first states.

Every checkpoint and seed plays the same games, so what differs between two documents is the players.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from outlast.config import BadInput
from outlast.evaluate.statistics import summary, wilson
from outlast.keys import Purpose, address
from outlast.learners.ppo import PpoState
from outlast.programs.duel import Duel
from outlast.selfplay.match import Games, learned_player, measures, play, starts
from outlast.worlds.arena import Arena, ArenaState, Outcome, Role, level_of
from outlast.worlds.arena.config import RewardConfig

LEAST_GAMES = 500
N_BUCKETS = 5
RATE = (0.0, 1.0)
ACTIONS = ("", "_sampled")


def refuse_one_sided(program: Duel, suite: str) -> None:
    """Say that a suite needs two learners, to whoever has trained only one."""
    if program.config.learner != "both":
        raise BadInput(
            f"--suite {suite}: only the {program.config.learner} of this run has learned; it needs a run with "
            "learner = both (--suite panel measures one side)"
        )


def sighted(program: Duel) -> Arena:
    """Return the program's world, with the line of sight tracked whether or not training needed it.

    The world tracks what its rewards ask for. Matches pay none, so a reward for hiding changes only that.
    """
    hides = RewardConfig(evader_mode="occlusion", hiding=1.0)
    return Arena(program.config.arena.model_copy(update={"reward": hides}), discount=program.world.discount)


def head_to_head(program: Duel, learners: dict[str, PpoState], games: int = 1000) -> dict[str, Any]:
    """Play the learners of each seed (axis S) against each other, with mean and with sampled actions."""
    refuse_one_sided(program, "head-to-head")
    games = max(games, LEAST_GAMES)
    world = sighted(program)
    first = jax.jit(lambda: starts(world, level_of(program.config.last_level), games))()
    played, found = _matches(program, world, learners, first)
    document: dict[str, Any] = {"suite": "head-to-head", "games": games, "learner": "both"}
    document["visible_means"] = "no obstacle between the two; range and cone of the sensors do not count"
    document["behaviour"] = {}
    for how, suffix in enumerate(ACTIONS):
        captured = np.asarray(played.outcome[:, how] == Outcome.CAPTURE)
        rates = captured.mean(axis=-1)
        document["sr_p" + suffix] = summary(rates, bounds=RATE)
        document["ne_gap" + suffix] = summary(np.abs(2 * rates - 1), bounds=RATE)
        document["capture_time_s" + suffix] = summary(found["capture_time_s"][:, how])
        document["wilson95" + suffix] = [wilson(int(n), games) for n in captured.sum(axis=-1)]
        for name, values in found.items():
            if name not in ("capture_rate", "capture_time_s"):
                document["behaviour"][name + suffix] = summary(values[:, how])
    document["buckets"] = buckets(played, program.config.arena.dt_s)
    return document


def _matches(
    program: Duel, world: Arena, learners: dict[str, PpoState], first: ArenaState
) -> tuple[Games, dict[str, np.ndarray]]:
    """Play every seed twice in one compiled program; results are [seeds, 2, ...], mean actions first."""
    n_seeds, config = jax.tree.leaves(learners)[0].shape[0], program.config

    def one(learners: dict[str, PpoState], first: ArenaState, case: tuple) -> tuple:
        seed, is_sampled = case
        pair = jax.tree.map(lambda leaf: leaf[seed], learners)
        players = [
            learned_player(
                pair[role.name.lower()], role, world, config.ppo, config.safety, sampled=is_sampled
            )
            for role in Role
        ]
        games = play(world, first, *players, address(0, 0, Purpose.EVALUATE), config.safety)
        return games, measures(games, world.config.dt_s)

    cases = np.array(np.meshgrid(range(n_seeds), range(2), indexing="ij")).reshape(2, -1)
    play_all = jax.jit(lambda ls, f, c: jax.lax.map(functools.partial(one, ls, f), tuple(c)))
    found = play_all(learners, first, jnp.asarray(cases))
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(n_seeds, 2, *leaf.shape[1:]), found)


def buckets(games: Games, dt_s: float) -> list[dict[str, Any]]:
    """Split the games by their start distance into equally many and summarise each part."""
    start = np.asarray(games.start_distance_m)[0, 0]
    rows = []
    for part in np.array_split(np.argsort(start, kind="stable"), N_BUCKETS):
        row: dict[str, Any] = {
            "from_m": float(start[part[0]]),
            "to_m": float(start[part[-1]]),
            "games": int(part.size),
        }
        for how, suffix in enumerate(ACTIONS):
            captured = np.asarray(games.outcome)[:, how, part] == Outcome.CAPTURE
            seconds = np.where(captured, np.asarray(games.steps)[:, how, part] * dt_s, 0.0).sum(axis=-1)
            n = captured.sum(axis=-1)
            row["sr_p" + suffix] = summary(captured.mean(axis=-1), bounds=RATE)
            row["capture_time_s" + suffix] = summary(np.where(n > 0, seconds / np.maximum(n, 1), np.nan))
        rows.append(row)
    return rows
