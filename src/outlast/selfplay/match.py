"""Games between two players on given first states: all at once, each frozen when it ends.

A player is a function of a batch of arena states; the world axis is last. Evaluation uses the config and the level
of training, and random keys of its own, so it cannot disturb a run.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from outlast.keys import Purpose, address
from outlast.learners import policies, ppo
from outlast.learners.ppo import PpoConfig, PpoState
from outlast.safety.config import SafetyConfig
from outlast.safety.feasibility import Feasibility
from outlast.safety.shield import Applied, Tier, clearances, shielded
from outlast.worlds.arena import Arena, ArenaLevel, ArenaState, Commands, Outcome, Role
from outlast.worlds.arena.scripted import N_DRAWS, Policy, panel

STARTS_SEED = 2**31 - 1
Player = Callable[[ArenaState, Key[Array, ""]], tuple[Float[Array, " B"], Float[Array, " B"]]]
UNGUARDED = SafetyConfig()


class Guard(eqx.Module):
    """What the shield of one role did in each game, and how near its robot came to touching; sums over steps."""

    interventions: Int[Array, " B"]
    infeasible_steps: Int[Array, " B"]
    speed_change_mps: Float[Array, " B"]
    turn_change_radps: Float[Array, " B"]
    least_clearance_m: Float[Array, " B"]


class Games(eqx.Module):
    """What happened in each game; sums are over the steps that were played."""

    outcome: Int[Array, " B"]
    steps: Int[Array, " B"]
    start_distance_m: Float[Array, " B"]
    least_distance_m: Float[Array, " B"]
    pursuer_path_m: Float[Array, " B"]
    evader_path_m: Float[Array, " B"]
    visible_steps: Int[Array, " B"]
    pursuer_wall_steps: Int[Array, " B"]
    pursuer_obstacle_steps: Int[Array, " B"]
    evader_wall_steps: Int[Array, " B"]
    evader_obstacle_steps: Int[Array, " B"]
    guards: dict[str, Guard] = eqx.field(default_factory=dict)
    """By role, where the games are watched for safety."""

    @property
    def captured(self) -> Bool[Array, " B"]:
        """Tell which games the pursuer won."""
        return self.outcome == Outcome.CAPTURE


def starts(world: Arena, level: ArenaLevel, n: int) -> ArenaState:
    """Draw the fixed first states of evaluation: the same for every checkpoint, seed and player."""
    keys = jax.random.split(address(STARTS_SEED, 0, Purpose.EVALUATE), n)
    return jax.vmap(lambda key: world.reset(key, level), out_axes=-1)(keys)


def scripted_player(policy: Policy, role: Role, world: Arena) -> Player:
    """Return a scripted policy as a player."""

    def act(arena: ArenaState, key: Key[Array, ""]) -> tuple[Array, Array]:
        draws = jax.random.uniform(key, (N_DRAWS, arena.step.shape[0]))
        one = jax.vmap(lambda a, d: policy(a, role, d, world.config), in_axes=-1, out_axes=-1)
        return one(arena, draws)

    return act


def switched_player(names: tuple[str, ...], which: Int[Array, ""], role: Role, world: Arena) -> Player:
    """Return one of several scripted policies as a player, chosen by a number inside a compiled program."""
    players = [scripted_player(panel(role)[name], role, world) for name in names]
    return lambda arena, key: jax.lax.switch(which, players, arena, key)


def mixed_player(names: tuple[str, ...], role: Role, world: Arena) -> Player:
    """Return a player that takes the scripted policies by turns, game by game."""

    def act(arena: ArenaState, key: Key[Array, ""]) -> tuple[Array, Array]:
        players = [scripted_player(panel(role)[name], role, world)(arena, key) for name in names]
        turn = jnp.arange(arena.step.shape[0]) % len(names)
        speed = sum(jnp.where(turn == i, s, 0.0) for i, (s, _) in enumerate(players))
        rate = sum(jnp.where(turn == i, r, 0.0) for i, (_, r) in enumerate(players))
        return speed, rate

    return act


def learned_player(
    learner: PpoState,
    role: Role,
    world: Arena,
    config: PpoConfig,
    safety: SafetyConfig = UNGUARDED,
    *,
    sampled: bool | Array = False,
) -> Player:
    """Return a learned policy as a player: its mean action, or a sample."""
    learner = dataclasses.replace(learner, network=learner.playing)

    def act(arena: ArenaState, key: Key[Array, ""]) -> tuple[Array, Array]:
        seen = jax.vmap(lambda a: world.observe(a, role), in_axes=-1, out_axes=-1)(arena)
        size = policies.noise_size(world.action_size, config)
        noise = jax.random.normal(key, (size, seen.shape[1])) * sampled
        limits = policies.limits_of(arena, role, world.config, config, safety)
        action = ppo.choose(learner, seen, noise, config, limits).action
        return jax.vmap(lambda a, level: world.command(a, level, role), in_axes=-1, out_axes=-1)(
            action, arena.level
        )

    return act


def play(
    world: Arena,
    first: ArenaState,
    pursuer: Player,
    evader: Player,
    key: Key[Array, ""],
    safety: SafetyConfig = UNGUARDED,
    *,
    feasibility: dict[str, Feasibility] | None = None,
    watched: bool = False,
) -> Games:
    """Play every game to its end, through the shields that act in evaluation; `watched` also measures safety."""
    n = first.step.shape[0]
    none = jnp.zeros(n, jnp.int32)
    games = Games(
        outcome=none,
        steps=none,
        start_distance_m=first.distance_m,
        least_distance_m=first.distance_m,
        pursuer_path_m=jnp.zeros(n),
        evader_path_m=jnp.zeros(n),
        visible_steps=none,
        pursuer_wall_steps=none,
        pursuer_obstacle_steps=none,
        evader_wall_steps=none,
        evader_obstacle_steps=none,
        guards={role.name.lower(): _first_guard(first, role, world) for role in Role} if watched else {},
    )
    limit = jnp.max(first.level.max_steps)

    def unfinished(carry: tuple) -> Array:
        _, games, t = carry
        return (t < limit) & jnp.any(games.outcome == Outcome.RUNNING)

    def step(carry: tuple) -> tuple:
        arena, games, t = carry
        keys = jax.random.split(jax.random.fold_in(key, t))
        told = {Role.PURSUER: pursuer(arena, keys[0]), Role.EVADER: evader(arena, keys[1])}
        done = guarded(world, arena, told, safety, feasibility or {})
        commands = Commands(
            *(c for role in Role for c in (done[role].applied if role in done else told[role]))
        )
        after, turn = jax.vmap(world.step, in_axes=-1, out_axes=-1)(arena, commands)
        running = games.outcome == Outcome.RUNNING
        arena = jax.tree.map(lambda new, old: jnp.where(running, new, old), after, arena)
        games = _tallied(games, after, turn, running, world.config.dt_s)
        guards = {
            name: _guarded(guard, Role[name.upper()], done, after, running, world)
            for name, guard in games.guards.items()
        }
        return arena, dataclasses.replace(games, guards=guards), t + 1

    return jax.lax.while_loop(unfinished, step, (first, games, jnp.int32(0)))[1]


def guarded(
    world: Arena,
    arena: ArenaState,
    told: dict[Role, tuple[Array, Array]],
    safety: SafetyConfig,
    feasibility: dict[str, Feasibility],
) -> dict[Role, Applied]:
    """Pass the commands of each role through its shield, for the roles that have one in evaluation."""
    done = {}
    for role in Role:
        name = role.name.lower()
        if shield := safety.active(name, "evaluation"):
            done[role] = shielded(arena, *told[role], role, shield, world.config, feasibility.get(name))
    return done


def _first_guard(first: ArenaState, role: Role, world: Arena) -> Guard:
    none = jnp.zeros(first.step.shape[0], jnp.int32)
    clear = jax.vmap(lambda a: jnp.min(clearances(a, role, world.config)), in_axes=-1, out_axes=-1)(first)
    return Guard(none, none, jnp.zeros_like(clear), jnp.zeros_like(clear), clear)


def _guarded(
    guard: Guard,
    role: Role,
    done: dict[Role, Applied],
    after: ArenaState,
    running: Bool[Array, " B"],
    world: Arena,
) -> Guard:
    clear = jax.vmap(lambda a: jnp.min(clearances(a, role, world.config)), in_axes=-1, out_axes=-1)(after)
    least = jnp.where(running, jnp.minimum(guard.least_clearance_m, clear), guard.least_clearance_m)
    if role not in done:
        return dataclasses.replace(guard, least_clearance_m=least)
    one = done[role]
    change = jnp.abs(one.applied - one.chosen) * running
    return Guard(
        interventions=guard.interventions + (running & (one.tier != Tier.FREE)),
        infeasible_steps=guard.infeasible_steps + (running & one.infeasible),
        speed_change_mps=guard.speed_change_mps + change[0],
        turn_change_radps=guard.turn_change_radps + change[1],
        least_clearance_m=least,
    )


def _tallied(games: Games, after: ArenaState, turn, running: Bool[Array, " B"], dt_s: float) -> Games:
    touched = turn.contacts
    closest = jnp.minimum(games.least_distance_m, after.distance_m)
    return Games(
        outcome=jnp.where(running, turn.outcome, games.outcome),
        steps=games.steps + running,
        start_distance_m=games.start_distance_m,
        least_distance_m=jnp.where(running, closest, games.least_distance_m),
        pursuer_path_m=games.pursuer_path_m + running * after.pursuer.speed_mps * dt_s,
        evader_path_m=games.evader_path_m + running * after.evader.speed_mps * dt_s,
        visible_steps=games.visible_steps + (running & after.sight_clear),
        pursuer_wall_steps=games.pursuer_wall_steps + (running & touched.pursuer_wall),
        pursuer_obstacle_steps=games.pursuer_obstacle_steps + (running & touched.pursuer_obstacle),
        evader_wall_steps=games.evader_wall_steps + (running & touched.evader_wall),
        evader_obstacle_steps=games.evader_obstacle_steps + (running & touched.evader_obstacle),
        guards=games.guards,
    )


def measures(games: Games, dt_s: float) -> dict[str, Float[Array, ""]]:
    """Average a batch of games; capture times count captures only and are NaN without any."""
    captures, seconds = games.captured, games.steps * dt_s
    n = jnp.sum(captures)
    when = jnp.where(captures, seconds, jnp.inf)
    total = jnp.maximum(jnp.sum(games.steps), 1)

    def quantile(share: float) -> Array:
        rank = jnp.clip(jnp.ceil(share * n).astype(jnp.int32) - 1, 0)
        return jnp.where(n > 0, jnp.sort(when)[rank], jnp.nan)

    return {
        "capture_rate": jnp.mean(captures),
        "episode_steps": jnp.mean(games.steps),
        "capture_time_s": jnp.where(n > 0, jnp.sum(jnp.where(captures, seconds, 0.0)) / n, jnp.nan),
        "capture_time_q50_s": quantile(0.5),
        "capture_time_q90_s": quantile(0.9),
        "pursuer_speed_mps": jnp.sum(games.pursuer_path_m) / (total * dt_s),
        "evader_speed_mps": jnp.sum(games.evader_path_m) / (total * dt_s),
        "visible_share": jnp.sum(games.visible_steps) / total,
        "pursuer_wall_share": jnp.sum(games.pursuer_wall_steps) / total,
        "pursuer_obstacle_share": jnp.sum(games.pursuer_obstacle_steps) / total,
        "evader_wall_share": jnp.sum(games.evader_wall_steps) / total,
        "evader_obstacle_share": jnp.sum(games.evader_obstacle_steps) / total,
    }
