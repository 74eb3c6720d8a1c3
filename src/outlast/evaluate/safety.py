"""The safety suite: what a shield costs and what it saves, on the same first states with it and without it.

Every cell is a pairing of one learned role with one opponent in one mode. Contacts are geometric: a robot touched
a wall, an obstacle or the other robot. Rates are per step and per episode; clearances are metres, not squared.
"""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from outlast.evaluate.statistics import paired_difference, summary
from outlast.keys import Purpose, address
from outlast.learners.ppo import PpoState
from outlast.programs.duel import Duel
from outlast.safety.barrier import gamma_of
from outlast.safety.config import SafetyConfig, ShieldConfig
from outlast.selfplay.match import (
    Games,
    Player,
    guarded,
    learned_player,
    measures,
    play,
    scripted_player,
    starts,
)
from outlast.worlds.arena import ArenaState, Role, level_of, scripted

TRAINED = "trained"
TIMED_GAMES, TIMED_REPEATS = 256, 20
COMPARED = ("capture_rate", "contact_episode_rate", "least_clearance_m")
Measures = dict[str, Float[Array, ""]]


def with_shield(config: SafetyConfig, name: str, kappa_per_s: float | Array | None) -> SafetyConfig:
    """Return a config whose role has a shield of a rate in evaluation, or, without a rate, none.

    The rate may be a number inside a compiled program: one program serves all rates.
    """
    when = {"when": "never"} if kappa_per_s is None else {"when": "evaluation", "kappa_per_s": kappa_per_s}
    return config.model_copy(update={name: config.of(name).model_copy(update=when)})


def rate_of(config: SafetyConfig, name: str) -> float:
    """Return the rate of a role's shield, or the default one where it has none."""
    return config.of(name).kappa_per_s if config.of(name).acts else ShieldConfig().kappa_per_s


def players_against(
    program: Duel, role: Role, learners: dict[str, PpoState], against: tuple[Duel, PpoState] | None
) -> dict[str, Any]:
    """Return the opponents of a role by name, each a function of the seed: the panel, and a trained one if any."""
    world, other = program.world, role.other
    found: dict[str, Any] = {
        name: lambda seed, p=policy: scripted_player(p, other, world)
        for name, policy in scripted.panel(other).items()
    }
    trainer, trained = against or (program, learners.get(other.name.lower()))
    if trained is not None:
        n = jax.tree.leaves(trained)[0].shape[0]
        own = trainer.config

        def learned(seed: Int[Array, ""]) -> Player:
            one = jax.tree.map(lambda leaf: leaf[seed % n], trained)
            return learned_player(one, other, trainer.world, own.ppo, own.safety)

        found[TRAINED] = learned
    return found


def cell_of(games: Games, role: Role, program: Duel) -> Measures:
    """Measure one pairing: the game, what the robot of the role touched, and what its shield did."""
    name, dt_s, radius_m = role.name.lower(), program.config.arena.dt_s, program.config.arena.robot_radius_m
    guard, total = games.guards[name], jnp.maximum(jnp.sum(games.steps), 1)
    wall, obstacle = (getattr(games, f"{name}_{kind}_steps") for kind in ("wall", "obstacle"))
    robots = games.least_distance_m < 2 * radius_m
    of_game = measures(games, dt_s)
    return {
        "capture_rate": of_game["capture_rate"],
        "capture_time_s": of_game["capture_time_s"],
        "wall_step_rate": jnp.sum(wall) / total,
        "obstacle_step_rate": jnp.sum(obstacle) / total,
        "wall_episode_rate": jnp.mean(wall > 0),
        "obstacle_episode_rate": jnp.mean(obstacle > 0),
        "robot_episode_rate": jnp.mean(robots),
        "contact_episode_rate": jnp.mean((wall > 0) | (obstacle > 0) | robots),
        "least_clearance_m": jnp.mean(guard.least_clearance_m),
        "smallest_clearance_m": jnp.min(guard.least_clearance_m),
        "intervention_rate": jnp.sum(guard.interventions) / total,
        "infeasible_rate": jnp.sum(guard.infeasible_steps) / total,
        "speed_change_mps": jnp.sum(guard.speed_change_mps) / total,
        "turn_change_radps": jnp.sum(guard.turn_change_radps) / total,
    }


def measured(
    program: Duel,
    learners: dict[str, PpoState],
    role: Role,
    games: int,
    *,
    kappas: tuple[float, ...] = (),
    against: tuple[Duel, PpoState] | None = None,
    only: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Play one role of every seed (axis S) against everybody, behind a shield of each rate, or behind none.

    All rates, opponents and seeds play the same first states in one compiled program.
    """
    name, world = role.name.lower(), program.world
    opponents = players_against(program, role, learners, against)
    opponents = {key: value for key, value in opponents.items() if not only or key in only}
    first = jax.jit(lambda: starts(world, level_of(program.config.last_level), games))()
    n_seeds = jax.tree.leaves(learners[name])[0].shape[0]

    def one(mine: PpoState, first: ArenaState, case: tuple) -> Measures:
        rate, place, seed = case
        learner = jax.tree.map(lambda leaf: leaf[seed], mine)
        safety = with_shield(program.config.safety, name, rate if kappas else None)
        own = learned_player(learner, role, world, program.config.ppo, program.config.safety)
        chosen = [make(seed) for make in opponents.values()]
        theirs = functools.partial(jax.lax.switch, place, chosen)
        pair = (own, theirs) if role == Role.PURSUER else (theirs, own)
        judges = {} if learner.feasibility is None else {name: learner.feasibility}
        key = address(0, 0, Purpose.EVALUATE)
        played = play(world, first, *pair, key, safety, feasibility=judges, watched=True)
        return cell_of(played, role, program)

    rates = kappas or (0.0,)
    shape = (len(rates), len(opponents), n_seeds)
    which, place, seed = np.indices(shape).reshape(3, -1)
    cases = (jnp.asarray(rates, jnp.float32)[which], jnp.asarray(place), jnp.asarray(seed))
    all_of = jax.jit(lambda mine, first, cases: jax.lax.map(functools.partial(one, mine, first), cases))
    found = all_of(learners[name], first, cases)
    found = {key: np.asarray(value).reshape(shape) for key, value in found.items()}
    return [
        described({key: values[i] for key, values in found.items()}, list(opponents), rate, program)
        for i, rate in enumerate(kappas or (None,))
    ]


def described(
    found: dict[str, np.ndarray], opponents: list[str], kappa_per_s: float | None, program: Duel
) -> dict[str, Any]:
    """Summarise the cells of one rate, by opponent and over all of them."""
    gamma = None if kappa_per_s is None else gamma_of(kappa_per_s, dt_s=program.config.arena.dt_s)
    return {
        "kappa_per_s": kappa_per_s,
        "gamma": gamma,
        "opponents": {
            opponent: {key: quantity(key, values[place]) for key, values in found.items()}
            for place, opponent in enumerate(opponents)
        },
        "mean": {key: quantity(key, _mean(values)) for key, values in found.items()},
    }


def _mean(values: Float[np.ndarray, "O S"]) -> Float[np.ndarray, " S"]:
    """Average over opponents; one that was never captured has no capture time and is left out."""
    seen = np.isfinite(values)
    return np.where(seen, values, 0.0).sum(axis=0) / np.where(seen.any(axis=0), seen.sum(axis=0), np.nan)


def quantity(name: str, per_seed: Float[np.ndarray, " S"]) -> dict[str, Any]:
    """Summarise one measure over seeds."""
    bounds = (0.0, 1.0) if name.endswith("rate") else (-float("inf"), float("inf"))
    return summary(per_seed, bounds=bounds)


def microseconds(
    program: Duel, learners: dict[str, PpoState], role: Role, kappa_per_s: float | None
) -> float:
    """Time one action of the first seed, policy and shield, in a batch of games; the least of a few tries."""
    world, name = program.world, role.name.lower()
    learner = jax.tree.map(lambda leaf: leaf[0], learners[name])
    safety = with_shield(program.config.safety, name, kappa_per_s)
    arena = jax.jit(lambda: starts(world, level_of(program.config.last_level), TIMED_GAMES))()

    def act(learner: PpoState, arena: ArenaState) -> tuple[Array, Array]:
        player = learned_player(learner, role, world, program.config.ppo, program.config.safety)
        told = player(arena, address(0, 0, Purpose.EVALUATE))
        done = guarded(world, arena, {role: told}, safety, {})
        return done[role].applied if role in done else told

    timed = jax.jit(act)
    jax.block_until_ready(timed(learner, arena))
    times = []
    for _ in range(TIMED_REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(timed(learner, arena))
        times.append(time.perf_counter() - begin)
    return min(times) / TIMED_GAMES * 1e6


def safety(
    program: Duel,
    learners: dict[str, PpoState],
    games: int = 1000,
    against: tuple[Duel, PpoState] | None = None,
) -> dict[str, Any]:
    """Measure every learned role bare and shielded; the shield is the run's own, or the default one."""
    document: dict[str, Any] = {"suite": "safety", "games": games, "learner": program.config.learner}
    document["roles"] = {}
    for role in program.config.roles:
        name = role.name.lower()
        modes: dict[str, Any] = {}
        for mode, kappas in {"bare": (), "shielded": (rate_of(program.config.safety, name),)}.items():
            (modes[mode],) = measured(program, learners, role, games, kappas=kappas, against=against)
            rate = kappas[0] if kappas else None
            modes[mode]["us_per_action"] = microseconds(program, learners, role, rate)
        modes["shielded minus bare"] = compared(modes["bare"], modes["shielded"])
        document["roles"][name] = modes
    return document


def compared(first: dict[str, Any], second: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return, by opponent, how the second differs from the first, seed by seed on the same games."""
    pairs = {"mean": (first["mean"], second["mean"])}
    pairs |= {o: (first["opponents"][o], second["opponents"][o]) for o in first["opponents"]}
    return {
        opponent: {key: paired_difference(b[key]["per_seed"], a[key]["per_seed"]) for key in COMPARED}
        for opponent, (a, b) in pairs.items()
    }
