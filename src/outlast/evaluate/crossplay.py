"""The cross-play suite: past and current policies of both roles all against each other, and what the matrix says.

The Nash mixture of the matrix is the strongest play that the pools hold; how far the live policies are from its
value is a cheap sign of exploitability, and a lower bound of it.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from outlast.evaluate.duel_suites import RATE, refuse_one_sided
from outlast.evaluate.nash import equilibrium
from outlast.evaluate.statistics import summary
from outlast.keys import Purpose, address
from outlast.learners import ppo
from outlast.learners.ppo import PpoConfig
from outlast.programs.duel import Duel, DuelState
from outlast.selfplay.match import Player, play, starts
from outlast.selfplay.pool import Policy, Pool, act, policy_of
from outlast.worlds.arena import Arena, ArenaState, Role, level_of

MOST_ENTRIES = 12
ROLES = ("pursuer", "evader")


def player_of(
    raw_of: Callable[[Array, Array], Array],
    role: Role,
    world: Arena,
    config: PpoConfig,
    *,
    sampled: bool | Array = True,
) -> Player:
    """Return a player from a function of observations and noise; past policies sample, as in training."""

    def player(arena: ArenaState, key: Key[Array, ""]) -> tuple[Array, Array]:
        seen = jax.vmap(lambda a: world.observe(a, role), in_axes=-1, out_axes=-1)(arena)
        noise = jax.random.normal(key, (world.action_size, seen.shape[1])) * sampled
        to_command = jax.vmap(lambda a, level: world.command(a, level, role), in_axes=-1, out_axes=-1)
        return to_command(ppo.bounded(raw_of(seen, noise), config), arena.level)

    return player


def policy_player(
    policy: Policy, role: Role, world: Arena, config: PpoConfig, *, sampled: bool | Array = True
) -> Player:
    """Return one policy as a player."""

    def raw_of(seen: Array, noise: Array) -> Array:
        return act(policy, seen, noise, log_std_min=config.log_std_min)

    return player_of(raw_of, role, world, config, sampled=sampled)


def chosen_entries(pool: Pool, most: int) -> np.ndarray:
    """Choose at most `most` entries of one seed's pool, evenly by age; the oldest and the newest are among them."""
    size = int(pool.size)
    by_age = np.argsort(np.asarray(pool.born)[:size], kind="stable")
    return by_age[np.unique(np.round(np.linspace(0, size - 1, min(most, size))).astype(int))]


def of_seed(tree: Any, seed: int) -> Any:
    """Return one seed's part of a stack."""
    return jax.tree.map(lambda leaf: leaf[seed], tree)


def line_up(states: DuelState, name: str, seed: int) -> tuple[Policy, list[int]]:
    """Stack the chosen entries of a role and its current policy, which is last; also when each was born."""
    current = jax.tree.map(lambda leaf: leaf[None], policy_of(of_seed(states.learners[name], seed)))
    born = [int(states.iteration[seed])]
    if name not in states.contest.pools:
        return current, born
    pool = of_seed(states.contest.pools[name], seed)
    entries = chosen_entries(pool, MOST_ENTRIES)
    past = jax.tree.map(lambda leaf: leaf[entries], pool.policies)
    stack = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), past, current)
    return stack, [int(b) for b in pool.born[entries]] + born


def cross_play(program: Duel, states: DuelState, games: int = 200) -> dict[str, Any]:
    """Play the matrix of every seed (axis S of the states) and solve each as a game."""
    refuse_one_sided(program, "cross-play")
    n_seeds = states.iteration.shape[0]
    casts = [{name: line_up(states, name, seed) for name in ROLES} for seed in range(n_seeds)]
    matrices = played_matrices(program, casts, games)
    document: dict[str, Any] = {
        "suite": "cross-play",
        "games": games,
        "learner": "both",
        "actions": "sampled",
        "entries": {name: [cast[name][1] for cast in casts] for name in ROLES},
        "matrix": [matrix.tolist() for matrix in matrices],
    }
    return document | solved(matrices)


def played_matrices(
    program: Duel, casts: list[dict[str, tuple[Policy, list[int]]]], games: int
) -> list[Float[np.ndarray, "m n"]]:
    """Play all pairs of all seeds in one compiled program; return each seed's capture rates, pursuers in rows."""
    world = program.world
    first = jax.jit(lambda: starts(world, level_of(program.config.last_level), games))()
    shapes = [tuple(len(cast[name][1]) for name in ROLES) for cast in casts]
    offsets = np.cumsum([(0, 0), *shapes], axis=0)[:-1]
    stacks = [
        jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *[cast[name][0] for cast in casts])
        for name in ROLES
    ]
    pairs = np.concatenate(
        [np.indices(shape).reshape(2, -1).T + at for shape, at in zip(shapes, offsets, strict=True)]
    )

    def one(stacks: list[Policy], first: ArenaState, pair: Array) -> Float[Array, ""]:
        players = [
            policy_player(of_seed(stacks[role], pair[role]), role, world, program.config.ppo) for role in Role
        ]
        key, safety = address(0, 0, Purpose.EVALUATE), program.config.safety
        return jnp.mean(play(world, first, *players, key, safety).captured)

    play_all = jax.jit(lambda stacks, first, pairs: jax.lax.map(functools.partial(one, stacks, first), pairs))
    rates = np.asarray(play_all(stacks, first, jnp.asarray(pairs)), dtype=float)
    parts = np.split(rates, np.cumsum([m * n for m, n in shapes])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def solved(matrices: list[Float[np.ndarray, "m n"]]) -> dict[str, Any]:
    """Solve each seed's matrix; the live policies are its last row and column. Values are capture rates.

    `pool_nash_conv` is NashConv with the pool's entries as the only deviations, in units of u = 2 SR_P - 1.
    """
    found = [equilibrium(matrix) for matrix in matrices]
    live = np.array([matrix[-1, -1] for matrix in matrices])
    value = np.array([e.value for e in found])
    pursuer = np.array([float(m[-1] @ e.column) for m, e in zip(matrices, found, strict=True)])
    evader = np.array([float(e.row @ m[:, -1]) for m, e in zip(matrices, found, strict=True)])
    conv = np.array([2 * (m[:, -1].max() - m[-1].min()) for m in matrices])
    return {
        "mixture": {"pursuer": [e.row.tolist() for e in found], "evader": [e.column.tolist() for e in found]},
        "duality_gap": max(e.gap for e in found),
        "value": summary(value, bounds=RATE),
        "live": summary(live, bounds=RATE),
        "live_pursuer_against_nash": summary(pursuer, bounds=RATE),
        "live_evader_against_nash": summary(evader, bounds=RATE),
        "live_minus_value": summary(live - value),
        "pool_nash_conv": summary(conv),
    }
