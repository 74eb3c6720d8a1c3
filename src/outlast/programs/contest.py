"""What self-play adds to an iteration: pools, schedule, curriculum, evaluation and stabilisers, all of it state.

`Contest` is a part of the program's state; each function takes one and returns the next.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from outlast.core import Metrics
from outlast.keys import Purpose, address
from outlast.learners import ewc, rnd
from outlast.learners.policies import log_std
from outlast.learners.ppo import PpoState
from outlast.programs.duel_config import DuelConfig
from outlast.programs.play import NOT_SCRIPTED, WARM, Games, Played, name_of
from outlast.selfplay import balance as balances
from outlast.selfplay import curriculum as curricula
from outlast.selfplay import rollback as rollbacks
from outlast.selfplay import schedule as schedules
from outlast.selfplay.balance import Balance, chosen
from outlast.selfplay.curriculum import Curriculum
from outlast.selfplay.league import Bench, credited, first_bench, redrawn
from outlast.selfplay.match import learned_player, mixed_player, play, starts
from outlast.selfplay.pool import Pool, first_pool, offered
from outlast.selfplay.rollback import Rolling
from outlast.selfplay.schedule import Schedule, in_iterations
from outlast.worlds.arena import Arena, ArenaLevel, Outcome, Role

PANEL = {Role.PURSUER: ("flee_away", "look_ahead"), Role.EVADER: ("pure_pursuit", "lead")}
Learners = dict[str, PpoState]


class Contest(eqx.Module):
    """Everything that self-play changes beside the learners and the games; `base` is the level that it began with."""

    base: ArenaLevel
    pools: dict[str, Pool]
    benches: dict[str, Bench]
    schedule: Schedule
    curriculum: Curriculum
    balance: Balance
    best: Learners
    rolling: Rolling | None
    anchor: ewc.Anchor | None
    novelty: rnd.Novelty | None


def first_contest(
    config: DuelConfig, world: Arena, learners: Learners, seed: Array, base: ArenaLevel
) -> Contest:
    """Return the contest before the first iteration; every pool begins with its role's initial policy."""
    selfplay, league = config.selfplay, config.selfplay.league
    pools, benches = {}, {}
    if league.capacity > 0:
        pools = {name: first_pool(learner, league.capacity) for name, learner in learners.items()}
        if config.blocks.pursuer:
            benches = {name: first_bench(pool, league.groups) for name, pool in pools.items()}
    hard = selfplay.stabilisers
    novelty_key = address(seed, 0, Purpose.NOVELTY)
    return Contest(
        base=base,
        pools=pools,
        benches=benches,
        schedule=schedules.first_schedule(selfplay.schedule),
        curriculum=curricula.first_curriculum(),
        balance=balances.first_balance(),
        best=dict(learners) if hard.collapse.enabled else {},
        rolling=rollbacks.first_rolling(learners, hard.rollback) if hard.rollback.enabled else None,
        anchor=ewc.no_anchor(learners["evader"]) if hard.ewc.enabled else None,
        novelty=rnd.new_novelty(
            novelty_key, world.observation_size, hidden=hard.rnd.hidden, embedding=hard.rnd.embedding
        )
        if hard.rnd.enabled
        else None,
    )


def levels(contest: Contest, config: DuelConfig) -> tuple[ArenaLevel, ArenaLevel]:
    """Return the level of now and the one below it."""
    return level_of_stage(contest, config, 0), level_of_stage(contest, config, -1)


def level_of_stage(contest: Contest, config: DuelConfig, offset: int) -> ArenaLevel:
    """Return the level some stages from now, of those that there are."""
    rules, table = config.selfplay.curriculum, config.arena.level
    stage = jnp.clip(contest.curriculum.stage + offset, 0, curricula.n_stages(rules, table) - 1)
    return curricula.level_at(stage, rules, table, contest.base)


def with_new_opponents(contest: Contest, games: Games, config: DuelConfig, key: Key[Array, ""]) -> Contest:
    """Draw past opponents for the groups that are free to take them."""
    collapse, benches = config.selfplay.stabilisers.collapse, {}
    for role in Role:
        name = name_of(role)
        if name in contest.benches:
            other_loses = contest.balance.losing_streak[role.other] > 0
            benches[name] = redrawn(
                contest.benches[name],
                contest.pools[name],
                games.slot[config.blocks.past(role)],
                jax.random.fold_in(key, int(role)),
                config=config.selfplay.league,
                hard=other_loses & collapse.hard_opponents,
            )
    return dataclasses.replace(contest, benches=benches)


def trains(
    contest: Contest, played: Played, iteration: Array, config: DuelConfig
) -> dict[str, Bool[Array, ""]]:
    """Tell which roles learn in this iteration: not the pursuer, while a random one acts in any of its games."""
    schedule = config.selfplay.schedule
    learns = {name_of(r): schedules.trains(contest.schedule, iteration, r, schedule) for r in Role}
    acts = ~jnp.any(played.opponent[:, config.blocks.live(Role.PURSUER)] == WARM)
    return learns | {"pursuer": learns["pursuer"] & acts}


def credit(contest: Contest, played: Played, config: DuelConfig) -> Contest:
    """Book the games of this iteration with the past opponents they were played against."""
    pools = dict(contest.pools)
    for role in Role:
        name, past = name_of(role), config.blocks.past(role)
        if name in contest.benches:
            learner_won = Outcome.CAPTURE if role == Role.EVADER else Outcome.TIMEOUT
            by_pool = played.opponent[:, past] == NOT_SCRIPTED
            pools[name] = credited(
                contest.benches[name],
                pools[name],
                played.slot[:, past],
                played.ended[:, past] & by_pool,
                played.outcome[:, past] == learner_won,
            )
    return dataclasses.replace(contest, pools=pools)


def snapshot(
    contest: Contest,
    learners: Learners,
    iteration: Array,
    config: DuelConfig,
    key: Key,
    *,
    per_iteration: int,
) -> Contest:
    """Offer the learners to their pools where a snapshot is due."""
    league = config.selfplay.league
    due = (iteration + 1) % in_iterations(league.snapshot_steps, per_iteration) == 0
    own = (contest.balance.capture_rate, 1 - contest.balance.capture_rate)
    pools = {}
    for role in Role:
        name = name_of(role)
        if name in contest.pools:
            new = offered(
                contest.pools[name],
                learners[name],
                born=iteration + 1,
                score=own[role],
                key=jax.random.fold_in(key, int(role)),
                eviction=league.eviction,
            )
            pools[name] = chosen(due, new, contest.pools[name])
    return dataclasses.replace(contest, pools=pools)


def entered(
    contest: Contest, learners: Learners, iteration: Array, done: Array, config: DuelConfig, key: Key
) -> Contest:
    """When the cold start is done, give the evader its pool entry and a rolling copy."""
    if contest.rolling is not None:
        contest = dataclasses.replace(contest, rolling=rollbacks.saved(contest.rolling, learners, done))
    if "evader" not in contest.pools:
        return contest
    pool = contest.pools["evader"]
    eviction = config.selfplay.league.eviction
    new = offered(
        pool, learners["evader"], born=iteration + 1, score=jnp.float32(0), key=key, eviction=eviction
    )
    return dataclasses.replace(contest, pools=contest.pools | {"evader": chosen(done, new, pool)})


def guarded(
    contest: Contest,
    learners: Learners,
    played: Played,
    active: dict[str, Array],
    iteration: Array,
    config: DuelConfig,
    *,
    per_iteration: int,
) -> tuple[Contest, Learners]:
    """Hold the noise above its floor, keep rolling copies, and roll back where play has collapsed."""
    hard = config.selfplay.stabilisers
    if hard.entropy_floor.enabled:
        floor = hard.entropy_floor.log_std
        learners = {
            name: eqx.tree_at(
                lambda s: s.network.log_std,
                s,
                jnp.where(active[name], jnp.maximum(s.network.log_std, floor), s.network.log_std),
            )
            for name, s in learners.items()
        }
    if contest.rolling is None:
        return contest, learners
    rolling = rollbacks.observed(
        contest.rolling,
        jnp.sum(played.ended).astype(jnp.float32),
        jnp.sum(played.outcome == Outcome.CAPTURE).astype(jnp.float32),
        hard.rollback.window,
    )
    entropies = {name: policy_entropy(s, config) for name, s in learners.items()}
    entropy = jnp.min(jnp.stack([jnp.where(active[n], e, jnp.inf) for n, e in entropies.items()]))
    cooldown = -(-hard.rollback.cooldown_steps // per_iteration)
    now = rollbacks.unhealthy(rolling, entropy, iteration, cooldown, hard.rollback)
    rolling, learners = rollbacks.rolled_back(rolling, learners, now, iteration, active, hard.rollback)
    due = (iteration + 1) % in_iterations(hard.rollback.every_steps, per_iteration) == 0
    rolling = rollbacks.saved(rolling, learners, due & ~now)
    return dataclasses.replace(contest, rolling=rolling), learners


def policy_entropy(learner: PpoState, config: DuelConfig) -> Float[Array, ""]:
    """Return the entropy of a learner's Gaussian."""
    return jnp.sum(log_std(learner.network, config.ppo) + 0.5 * jnp.log(2 * jnp.pi * jnp.e))


def evaluation(
    config: DuelConfig, world: Arena, learners: Learners, level: ArenaLevel, last: ArenaLevel
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""], Float[Array, "2"]]:
    """Play fixed first states: capture rate, mean capture time and mean length at a level, and panel scores.

    The panel is met at the last level always: scores of different levels could not be compared.
    """
    rules = config.selfplay.evaluation
    players = {
        role: learned_player(
            learners[name_of(role)], role, world, config.ppo, config.safety, sampled=rules.sampled
        )
        for role in Role
    }
    key = address(0, 0, Purpose.EVALUATE)
    first = starts(world, level, rules.games)
    games = play(world, first, players[Role.PURSUER], players[Role.EVADER], key, config.safety)
    seconds = jnp.where(games.captured, games.steps * config.arena.dt_s, 0.0)
    capture_s = jnp.sum(seconds) / jnp.sum(games.captured)
    scores = jnp.zeros(2)
    if rules.panel_games:
        for role in Role:
            names = PANEL[role]
            first = starts(world, last, rules.panel_games * len(names))
            theirs = mixed_player(names, role.other, world)
            pair = (players[role], theirs) if role == Role.PURSUER else (theirs, players[role])
            caught = jnp.mean(play(world, first, *pair, key, config.safety).captured)
            scores = scores.at[role].set(caught if role == Role.PURSUER else 1 - caught)
    return jnp.mean(games.captured), capture_s, jnp.mean(games.steps), scores


def evaluated(
    contest: Contest,
    learners: Learners,
    iteration: Array,
    config: DuelConfig,
    world: Arena,
    observed: Float[Array, "D N"],
    key: Key[Array, ""],
) -> tuple[Contest, Learners, Metrics]:
    """Evaluate, and let everything that looks at evaluations react: the only place where levels change."""
    selfplay, base = config.selfplay, config.arena.level
    n_stages = curricula.n_stages(selfplay.curriculum, base)
    now, last = (level_of_stage(contest, config, offset) for offset in (0, n_stages))
    rate, capture_s, steps, panel = evaluation(config, world, learners, now, last)
    before = contest.balance
    balance = balances.after_evaluation(
        before,
        rate,
        panel,
        config=selfplay.evaluation,
        collapse=selfplay.stabilisers.collapse,
        at_last_level=contest.curriculum.stage >= n_stages - 1,
    )
    contest = dataclasses.replace(contest, balance=balance)
    if selfplay.stabilisers.collapse.enabled:
        contest, learners = _restored(contest, learners, before, config)
    per_iteration = config.collect.worlds * config.collect.horizon
    schedule = schedules.after_evaluation(contest.schedule, rate, iteration, selfplay.schedule, per_iteration)
    curriculum, advance = curricula.after_evaluation(contest.curriculum, rate, selfplay.curriculum, base)
    schedule = _after_advance(schedule, advance, balance, config, per_iteration)
    anchor = contest.anchor
    if anchor is not None:
        fisher = ewc.fisher_diagonal(learners["evader"], observed, key, config.ppo)
        anchor = ewc.moved_anchor(anchor, learners["evader"], fisher, advance)
    contest = dataclasses.replace(contest, schedule=schedule, curriculum=curriculum, anchor=anchor)
    return contest, learners, evaluation_metrics(rate, capture_s, steps, panel)


def _after_advance(
    schedule: Schedule, advance: Array, balance: Balance, config: DuelConfig, per_iteration: int
) -> Schedule:
    curriculum = config.selfplay.curriculum
    warm = -(-curriculum.warm_start_steps // per_iteration)
    if curriculum.evader_first:
        schedule = chosen(advance, schedules.evader_turn(schedule, config.selfplay.schedule), schedule)
    return dataclasses.replace(
        schedule,
        warm_left=jnp.where(advance, warm, schedule.warm_left),
        stopped=schedule.stopped | (balance.converged & config.selfplay.evaluation.stop_when_converged),
    )


def _restored(
    contest: Contest, learners: Learners, before: Balance, config: DuelConfig
) -> tuple[Contest, Learners]:
    """Keep each role's best learner by panel score, and bring it back when the role has collapsed."""
    balance = contest.balance
    lost = balances.collapsed(balance, config.selfplay.stabilisers.collapse)
    best, after = {}, {}
    for role in Role:
        name = name_of(role)
        better = balance.panel[role] > before.best_panel[role]
        best[name] = chosen(better, learners[name], contest.best[name])
        after[name] = chosen(lost[role], best[name], learners[name])
    balance = balances.after_restore(balance, lost)
    return dataclasses.replace(contest, best=best, balance=balance), after


def evaluation_metrics(rate: Array, capture_s: Array, steps: Array, panel: Array) -> Metrics:
    """Name the results of an evaluation; all NaN in iterations without one."""
    return {
        "evaluation/capture_rate": rate,
        "evaluation/ne_gap": jnp.abs(2 * rate - 1),
        "evaluation/capture_time_s": capture_s,
        "evaluation/episode_steps": steps,
        "evaluation/panel_pursuer": panel[Role.PURSUER],
        "evaluation/panel_evader": panel[Role.EVADER],
    }


def contest_metrics(contest: Contest, config: DuelConfig) -> Metrics:
    """Say where the contest stands."""
    now, _ = levels(contest, config)
    schedule, balance = contest.schedule, contest.balance
    metrics = {
        "contest/phase": schedule.phase,
        "contest/active": schedule.active,
        "contest/frozen": schedule.frozen,
        "contest/stage": contest.curriculum.stage,
        "contest/advances": contest.curriculum.advances,
        "contest/spawn_max_m": now.spawn_max_m,
        "contest/balanced_streak": balance.balanced_streak,
        "contest/converged": balance.converged,
        "contest/restores": jnp.sum(balance.restores),
        "contest/rollbacks": jnp.int32(0) if contest.rolling is None else contest.rolling.count,
    }
    for name, pool in contest.pools.items():
        metrics[f"contest/pool_{name}"] = pool.size
    return metrics
