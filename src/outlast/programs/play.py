"""How games are played inside an iteration: both sides act, games step, ended ones are replaced.

The world axis is last and is shared out in blocks (see `Blocks`): in each block either side is the current
policy, or a past or scripted one that was drawn when the episode began and stays to its end.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from outlast.learners import policies, ppo
from outlast.learners.ppo import PpoState
from outlast.programs.duel_config import DuelConfig
from outlast.safety.reward import safety_reward
from outlast.safety.shield import Applied, limits_of, shielded
from outlast.selfplay.league import Bench, bench_action
from outlast.worlds.arena import Arena, ArenaLevel, ArenaState, Commands, Role, scripted
from outlast.worlds.arena.state import Contacts, Turn

NOT_SCRIPTED, WARM = -1, -2


class Games(eqx.Module):
    """Games in progress. `opponent` is a scripted policy, or -1 for a seat of the bench, which is `slot`, or -2 while
    the evader warms up: then the pursuer is random in every block."""

    arena: ArenaState
    opponent: Int[Array, " B"]
    slot: Int[Array, " B"]
    returns: dict[str, Float[Array, " B"]]
    start_distance_m: Float[Array, " B"]


class Side(eqx.Module):
    """What the current policy of one role saw and did in one step of its games."""

    observation: Float[Array, "D L"]
    raw: Float[Array, "A L"]
    log_probability: Float[Array, " L"]
    value: Float[Array, " L"]
    reward: Float[Array, " L"]
    final_value: Float[Array, " L"]
    limits: Float[Array, "X L"] | None


class Played(eqx.Module):
    """One step of every game: each learning side, and how the games stand after it."""

    sides: dict[str, Side]
    terminated: Bool[Array, " B"]
    truncated: Bool[Array, " B"]
    outcome: Int[Array, " B"]
    opponent: Int[Array, " B"]
    slot: Int[Array, " B"]
    episode_steps: Int[Array, " B"]
    returns: dict[str, Float[Array, " B"]]
    start_distance_m: Float[Array, " B"]
    shields: dict[str, Applied] = eqx.field(default_factory=dict)
    """By role, what its shield was told and what it let through; empty where none acts."""
    contacts: Contacts | None = None

    @property
    def ended(self) -> Bool[Array, " B"]:
        """Tell which games ended in this step."""
        return self.terminated | self.truncated


class Cast(eqx.Module):
    """Who plays during one iteration: the learners, and the past policies of each role if there is a league."""

    learners: dict[str, PpoState]
    benches: dict[str, Bench]


def name_of(role: Role) -> str:
    """Return a role's name as it stands in states, metrics and files."""
    return role.name.lower()


def fresh_games(
    config: DuelConfig, world: Arena, level: ArenaLevel, before: ArenaLevel, key: Key[Array, ""], n: int
) -> Games:
    """Draw first states and opponents of `n` games; a share of them at the level before."""
    world_key, opponent_key = jax.random.split(key)
    share = config.selfplay.curriculum.mixed_levels
    older = np.floor(np.arange(1, n + 1) * share) > np.floor(np.arange(n) * share)

    def reset(one: Array, is_older: Array) -> ArenaState:
        return world.reset(one, jax.tree.map(lambda a, b: jnp.where(is_older, b, a), level, before))

    arena = jax.vmap(reset, out_axes=-1)(jax.random.split(world_key, n), jnp.asarray(older))
    return Games(
        arena=arena,
        opponent=_drawn_opponents(config, opponent_key, n),
        slot=jnp.zeros(n, jnp.int32),
        returns={name_of(role): jnp.zeros(n) for role in config.roles},
        start_distance_m=arena.distance_m,
    )


def _drawn_opponents(config: DuelConfig, key: Key[Array, ""], n: int) -> Int[Array, " n"]:
    """Draw a scripted opponent for each game, or none; the numbers index the panel of either role alike."""
    if config.learner == "both":
        scripted_share = config.selfplay.league.scripted
        chance, pick = jax.random.uniform(key, (2, n))
        which = jnp.floor(pick * 2**16).astype(jnp.int32)
        return jnp.where(chance < scripted_share, which, NOT_SCRIPTED)
    shares = np.cumsum(list(config.scripted_shares(config.roles[0].other).values()))[:-1].astype(np.float32)
    return jnp.sum(jax.random.uniform(key, (n, 1)) >= shares, axis=-1).astype(jnp.int32)


def observations(world: Arena, arena: ArenaState, role: Role) -> Float[Array, "D B"]:
    """Return what a role sees in every game."""
    return jax.vmap(lambda one: world.observe(one, role), in_axes=-1, out_axes=-1)(arena)


def commands_of(
    config: DuelConfig,
    world: Arena,
    games: Games,
    seen: Array | None,
    cast: Cast,
    role: Role,
    noise: Array,
    draws: Array,
) -> tuple[tuple[Array, Array], ppo.Choice | None]:
    """Return speed and turn rate of one role in every game, and the choice of its learner where it has one."""
    live, past, name = config.blocks.live(role), config.blocks.past(role), name_of(role)
    actions, choice = [], None
    if role in config.roles:
        there = jax.tree.map(lambda leaf: leaf[..., live], games.arena)
        limits = policies.limits_of(there, role, config.arena, config.ppo, config.safety)
        choice = ppo.choose(cast.learners[name], seen[:, live], noise[:, live], config.ppo, limits)
        actions.append((live.start, choice.action))
    n_past = past.stop - past.start
    if n_past and name in cast.benches:
        raw = bench_action(
            cast.benches[name],
            games.slot[past],
            seen[:, past],
            noise[:, past],
            log_std_min=config.ppo.log_std_min,
        )
        actions.append((past.start, ppo.bounded(raw, config.ppo)))
    elif n_past:
        actions.append((past.start, jnp.zeros((world.action_size, n_past))))
    action = jnp.concatenate([a for _, a in sorted(actions, key=lambda pair: pair[0])], axis=1)
    to_command = jax.vmap(lambda a, level: world.command(a, level, role), in_axes=-1, out_axes=-1)
    speed, turn = to_command(action, games.arena.level)
    if n_past and config.scripted_shares(role):
        there = jax.tree.map(lambda leaf: leaf[..., past], games.arena)
        own = scripted_commands(config, there, games.opponent[past], draws[..., past], role)
        is_scripted = games.opponent[past] >= 0
        speed = speed.at[past].set(jnp.where(is_scripted, own[0], speed[past]))
        turn = turn.at[past].set(jnp.where(is_scripted, own[1], turn[past]))
    if role == Role.PURSUER and config.learner == "both" and config.selfplay.curriculum.warm_start_steps:
        aimless = jax.vmap(lambda a, d: scripted.random(a, role, d, config.arena), in_axes=-1, out_axes=-1)
        random_speed, random_turn = aimless(games.arena, draws)
        speed = jnp.where(games.opponent == WARM, random_speed, speed)
        turn = jnp.where(games.opponent == WARM, random_turn, turn)
    return (speed, turn), choice


def scripted_commands(
    config: DuelConfig, arena: ArenaState, opponent: Array, draws: Array, role: Role
) -> tuple[Array, Array]:
    """Return what the scripted policy of each game does; all of them act and one is kept."""
    names = list(config.scripted_shares(role))

    def one(arena: ArenaState, opponent: Array, draw: Array) -> tuple[Array, Array]:
        which = opponent % len(names)
        commands = [scripted.panel(role)[name](arena, role, draw, config.arena) for name in names]
        speed, turn = commands[0]
        for index, (other_speed, other_turn) in enumerate(commands[1:], start=1):
            speed = jnp.where(which == index, other_speed, speed)
            turn = jnp.where(which == index, other_turn, turn)
        return speed, turn

    return jax.vmap(one, in_axes=-1, out_axes=-1)(arena, opponent, draws)


def needs_draws(config: DuelConfig) -> bool:
    """Tell whether any scripted policy in play is random."""
    warm = config.learner == "both" and config.selfplay.curriculum.warm_start_steps > 0
    return warm or any("random" in config.scripted_shares(role) for role in Role)


def guarded_commands(
    config: DuelConfig, games: Games, cast: Cast, role: Role, commands: tuple[Array, Array]
) -> tuple[tuple[Array, Array], Applied | None]:
    """Pass one role's commands through its shield, where it acts in training."""
    shield, name = config.safety.active(name_of(role), "training"), name_of(role)
    if shield is None:
        return commands, None
    feasibility = cast.learners[name].feasibility if name in cast.learners else None
    done = shielded(games.arena, *commands, role, shield, config.arena, feasibility)
    return (done.applied[0], done.applied[1]), done


def rewards_of(config: DuelConfig, games: Games, turn: Turn, shields: dict[str, Applied]) -> dict[str, Array]:
    """Return what each role is paid for a step: by the game, and for its safety."""
    rewards = {"pursuer": turn.pursuer_reward, "evader": turn.evader_reward}
    for name, done in shields.items():
        if config.safety.of(name).reward.pays:
            role = Role[name.upper()]
            top = jax.vmap(lambda a, r=role: limits_of(a, r, config.arena)[1], in_axes=-1, out_axes=-1)
            rewards[name] += safety_reward(done, top(games.arena), config.safety.of(name).reward)
    return rewards


def final_values(
    config: DuelConfig, world: Arena, arena: ArenaState, cast: Cast, role: Role, choice: ppo.Choice
) -> Float[Array, " L"]:
    """Return a learner's values of the states that a step led to, where a time limit is to be bridged by them."""
    if config.arena.timeout != "truncates":
        return choice.value
    last = observations(world, arena, role)[:, config.blocks.live(role)]
    return ppo.values(cast.learners[name_of(role)], last, config.ppo)


def advance(
    config: DuelConfig,
    world: Arena,
    games: Games,
    seen: dict[str, Array],
    cast: Cast,
    noise: Array,
    draws: Array,
) -> tuple[Games, Played]:
    """Let both sides act in every game; the games returned hold the true successors."""
    commands, choices, shields = [], {}, {}
    for role in Role:
        name = name_of(role)
        told, choices[name] = commands_of(
            config, world, games, seen.get(name), cast, role, noise[role], draws
        )
        told, done = guarded_commands(config, games, cast, role, told)
        commands += told
        if done is not None:
            shields[name] = done
    arena, turn = jax.vmap(world.step, in_axes=-1, out_axes=-1)(games.arena, Commands(*commands))
    rewards = rewards_of(config, games, turn, shields)
    returns = {name: total + rewards[name] for name, total in games.returns.items()}
    sides = {}
    for role in Role:
        live, name = config.blocks.live(role), name_of(role)
        if choice := choices[name]:
            sides[name] = Side(
                observation=seen[name][:, live],
                raw=choice.raw,
                log_probability=choice.log_probability,
                value=choice.value,
                reward=rewards[name][live],
                final_value=final_values(config, world, arena, cast, role, choice),
                limits=choice.limits,
            )
    played = Played(
        sides=sides,
        terminated=turn.terminated,
        truncated=turn.truncated,
        outcome=turn.outcome,
        opponent=games.opponent,
        slot=games.slot,
        episode_steps=arena.step,
        returns=returns,
        start_distance_m=games.start_distance_m,
        shields=shields,
        contacts=turn.contacts if shields else None,
    )
    after = Games(arena, games.opponent, games.slot, returns, games.start_distance_m)
    return after, played


def collect(
    config: DuelConfig, world: Arena, games: Games, cast: Cast, pool: Games, noise: Array, draws: Array
) -> tuple[Games, Played, dict[str, Float[Array, " L"]]]:
    """Play every game for one horizon; also return each learner's value of the state it stops in.

    Games that end are replaced from a pool drawn for this iteration. Each step reads the pool at another
    offset, so a world that ends twice does not start twice from the same place.
    """
    watching = [role for role in Role if role in config.roles or name_of(role) in cast.benches]

    def look(arena: ArenaState) -> dict[str, Array]:
        return {name_of(role): observations(world, arena, role) for role in watching}

    def step(carry: tuple[Games, dict], inputs: tuple) -> tuple[tuple[Games, dict], Played]:
        games, seen = carry
        t, step_noise, step_draws = inputs
        after, played = advance(config, world, games, seen, cast, step_noise, step_draws)
        after = replace_ended(after, played.ended, pool, t, newest_slots(config, cast))
        return (after, look(after.arena)), played

    inputs = (jnp.arange(config.collect.horizon), noise, draws)
    (games, seen), played = jax.lax.scan(step, (games, look(games.arena)), inputs)
    last = {}
    for role in config.roles:
        name = name_of(role)
        last[name] = ppo.values(cast.learners[name], seen[name][:, config.blocks.live(role)], config.ppo)
    return games, played, last


def newest_slots(config: DuelConfig, cast: Cast) -> Int[Array, " B"]:
    """Return the seat of the bench that an episode beginning now takes in each world."""
    slots = jnp.zeros(config.blocks.worlds, jnp.int32)
    for name, bench in cast.benches.items():
        past = config.blocks.past(Role[name.upper()])
        per_group = (past.stop - past.start) // bench.newest.shape[0]
        slots = slots.at[past].set(jnp.repeat(bench.newest, per_group))
    return slots


def replace_ended(games: Games, ended: Bool[Array, " B"], pool: Games, offset: Array, slots: Array) -> Games:
    """Start a new game wherever one has ended."""
    n = ended.shape[0]

    def pick(old: Array, fresh: Array) -> Array:
        return jnp.where(ended, jax.lax.dynamic_slice_in_dim(fresh, offset, n, axis=-1), old)

    after = jax.tree.map(pick, games, pool)
    return eqx.tree_at(lambda g: g.slot, after, jnp.where(ended, slots, games.slot))


def reset_pool(
    config: DuelConfig, world: Arena, level: ArenaLevel, before: ArenaLevel, key: Key[Array, ""], warm: Array
) -> Games:
    """Draw new games, repeated to the width that every offset of an iteration can read."""
    worlds = config.collect.worlds
    fresh = fresh_games(config, world, level, before, key, max(worlds // 2, 1))
    place = jnp.arange(worlds + config.collect.horizon) % max(worlds // 2, 1)
    pool = jax.tree.map(lambda leaf: leaf[..., place], fresh)
    return eqx.tree_at(lambda g: g.opponent, pool, jnp.where(warm, WARM, pool.opponent))


def flat(entries: Float[Array, "T D B"]) -> Float[Array, "D N"]:
    """Lay time and worlds out as one axis of columns."""
    return jnp.moveaxis(entries, 1, 0).reshape(entries.shape[1], -1)
