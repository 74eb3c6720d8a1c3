"""The arena's training program. `iterate` plays every game for a few steps, then lets the learners learn.

Either one role learns against scripted opponents, or both learn from the same games against each other and
against their past. Everything that changes is in `DuelState`; randomness is addressed by (seed, iteration, purpose).
"""

import dataclasses
import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from outlast.core import Metrics
from outlast.keys import Purpose, address
from outlast.learners import ewc, policies, ppo, rnd
from outlast.learners.ppo import Batch, PpoState
from outlast.learners.returns import advantages
from outlast.learners.shuffle import permutation
from outlast.programs import contest as contests
from outlast.programs.cold import ColdGames, cold_iteration, cold_iterations, fresh_cold_games, silent
from outlast.programs.contest import Contest
from outlast.programs.duel_config import DuelConfig
from outlast.programs.play import (
    Cast,
    Games,
    Played,
    Side,
    collect,
    flat,
    fresh_games,
    name_of,
    needs_draws,
    reset_pool,
)
from outlast.safety import feasibility
from outlast.safety.shield import Tier
from outlast.selfplay import schedule as schedules
from outlast.worlds.arena import Arena, ArenaLevel, Outcome, Role, level_of
from outlast.worlds.arena.scripted import N_DRAWS


class DuelState(eqx.Module):
    """Everything that changes during a run of one seed."""

    seed: Int[Array, ""]
    iteration: Int[Array, ""]
    learners: dict[str, PpoState]
    games: Games
    contest: Contest | None
    cold: ColdGames | None


@dataclasses.dataclass(frozen=True)
class Duel:
    """The program of one configuration."""

    config: DuelConfig
    size_fields: ClassVar = "collect.worlds, collect.horizon"

    @property
    def world(self) -> Arena:
        """Return the world that is trained in."""
        return Arena(self.config.arena, discount=self.config.ppo.discount)

    @property
    def steps_per_iteration(self) -> int:
        """Count the world steps of one iteration of one seed."""
        return self.config.collect.worlds * self.config.collect.horizon

    def init(self, seed: Int[Array, ""], level: ArenaLevel | None = None) -> DuelState:
        """Return the state before the first iteration; self-play may begin at another level than the config's."""
        world, config = self.world, self.config
        key = address(seed, 0, Purpose.NETWORKS)
        learners = {
            name_of(role): ppo.new_learner(
                jax.random.fold_in(key, int(role)), world.observation_size, world.action_size, config.ppo
            )
            for role in config.roles
        }
        for name, learner in learners.items():
            if config.safety.of(name).classifier:
                learners[name] = dataclasses.replace(learner, feasibility=feasibility.untrained())
        contest = None
        level = before = level or level_of(config.arena.level)
        if config.learner == "both":
            contest = contests.first_contest(config, world, learners, seed, level)
            level, before = contests.levels(contest, config)
        games_key = address(seed, 0, Purpose.WORLDS)
        games = fresh_games(config, world, level, before, games_key, config.collect.worlds)
        cold = None
        if self.n_cold:
            cold_key = address(seed, 0, Purpose.EXPLORE)
            cold = fresh_cold_games(config, world, cold_key, config.collect.worlds)
        return DuelState(jnp.asarray(seed, jnp.uint32), jnp.int32(0), learners, games, contest, cold)

    @property
    def n_cold(self) -> int:
        """Count the iterations of the evader's cold start."""
        return cold_iterations(self.config, self.steps_per_iteration)

    def iterate(self, state: DuelState) -> tuple[DuelState, Metrics]:
        """Play `horizon` steps of every game and learn from them once; the first ones may be the cold start."""
        if not self.n_cold:
            return self.contest_iteration(state)
        is_cold = state.iteration < self.n_cold
        return jax.lax.cond(is_cold, self.cold_iteration, self.contest_iteration, state)

    def cold_iteration(self, state: DuelState) -> tuple[DuelState, Metrics]:
        """Let the evader learn alone; at the end it enters its pool and the rolling copies."""
        config, contest = self.config, state.contest
        evader, cold, learned = cold_iteration(
            config, self.world, state.learners["evader"], state.cold, state.seed, state.iteration
        )
        learners = state.learners | {"evader": evader}
        done = state.iteration + 1 >= self.n_cold
        key = address(state.seed, state.iteration, Purpose.LEAGUE)
        contest = contests.entered(contest, learners, state.iteration, done, config, key)
        metrics = silent(jax.eval_shape(self.contest_iteration, state)[1]) | learned
        metrics |= contests.contest_metrics(contest, config)
        state = dataclasses.replace(state, learners=learners, cold=cold, contest=contest)
        return dataclasses.replace(state, iteration=state.iteration + 1), metrics

    def contest_iteration(self, state: DuelState) -> tuple[DuelState, Metrics]:
        """Play `horizon` steps of every game and learn from them once."""
        state, played, last = self.play(state)
        metrics = self.episode_metrics(played)
        if state.contest is None:
            learners = {}
            for name in state.learners:
                learners[name], learned = self.learn(state, name, played, last[name])
                metrics |= {f"learner/{key}": value for key, value in learned.items()}
            return dataclasses.replace(state, learners=learners, iteration=state.iteration + 1), metrics
        state, more = self.contend(state, played, last)
        return dataclasses.replace(state, iteration=state.iteration + 1), metrics | more

    def play(self, state: DuelState) -> tuple[DuelState, Played, dict[str, Float[Array, " L"]]]:
        """Collect one rollout; the state returned holds the games as they are after it."""
        config, world, here = self.config, self.world, (state.seed, state.iteration)
        level = before = level_of(config.arena.level)
        contest, warm = state.contest, jnp.bool_(False)
        if contest is not None:
            contest = contests.with_new_opponents(
                contest, state.games, config, address(*here, Purpose.LEAGUE)
            )
            level, before = contests.levels(contest, config)
            warm = contest.schedule.warm_left > 0
        size = policies.noise_size(world.action_size, config.ppo)
        shape = (config.collect.horizon, len(Role), size, config.collect.worlds)
        if config.learner != "both":
            shape = (shape[0], 1, *shape[2:])
        noise = jax.random.normal(address(*here, Purpose.ACT), shape)
        noise = jnp.broadcast_to(noise, (shape[0], len(Role), *shape[2:]))
        draws = jnp.zeros((config.collect.horizon, N_DRAWS, config.collect.worlds))
        if needs_draws(config):
            draws = jax.random.uniform(address(*here, Purpose.OPPONENT), draws.shape)
        pool = reset_pool(config, world, level, before, address(*here, Purpose.RESET), warm)
        cast = Cast(state.learners, contest.benches if contest is not None else {})
        games, played, last = collect(config, world, state.games, cast, pool, noise, draws)
        return dataclasses.replace(state, games=games, contest=contest), played, last

    def contend(self, state: DuelState, played: Played, last: dict[str, Array]) -> tuple[DuelState, Metrics]:
        """Let both roles learn as the schedule says, then tend pools, schedule, curriculum and stabilisers."""
        config, per_iteration = self.config, self.steps_per_iteration
        here = (state.seed, state.iteration)
        contest = contests.credit(state.contest, played, config)
        active = contests.trains(contest, played, state.iteration, config)
        state = dataclasses.replace(state, contest=contest)
        learners, metrics = {}, {}
        for name in state.learners:
            learners[name], learned = self.learn_if(active[name], state, name, played, last[name])
            metrics |= {f"{name}/{key}": value for key, value in learned.items()}
        observed = self.evader_sample(state, played)
        if contest.novelty is not None:
            contest = self.renewed_novelty(contest, played, state)
        contest, learners = contests.guarded(
            contest, learners, played, active, state.iteration, config, per_iteration=per_iteration
        )
        contest = contests.snapshot(
            contest,
            learners,
            state.iteration,
            config,
            address(*here, Purpose.LEAGUE),
            per_iteration=per_iteration,
        )
        contest = self.phase_counted(contest, state.iteration)
        due = (state.iteration + 1) % schedules.in_iterations(
            config.selfplay.evaluation.every_steps, per_iteration
        ) == 0
        key = address(*here, Purpose.EVALUATE)
        nothing = contests.evaluation_metrics(*[jnp.float32(jnp.nan)] * 3, jnp.full(2, jnp.nan))
        contest, learners, found = jax.lax.cond(
            due,
            lambda c, ls: contests.evaluated(c, ls, state.iteration + 1, config, self.world, observed, key),
            lambda c, ls: (c, ls, nothing),
            contest,
            learners,
        )
        metrics |= found | contests.contest_metrics(contest, config)
        return dataclasses.replace(state, learners=learners, contest=contest), metrics

    def phase_counted(self, contest: Contest, iteration: Array) -> Contest:
        """Step the schedule, and count a phase for the curriculum when one is over."""
        config, rules = self.config, self.config.selfplay.schedule
        now, _ = contests.levels(contest, config)
        schedule, over = schedules.next_phase(
            contest.schedule, rules, self.steps_per_iteration, now.obstacles_max > 0
        )
        schedule = schedules.forced(schedule, iteration + 1, rules, self.steps_per_iteration)
        if rules.kind == "together":
            every = schedules.in_iterations(config.selfplay.evaluation.every_steps, self.steps_per_iteration)
            over = (iteration + 1) % every == 0
        counted = contests.curricula.counted(contest.curriculum, over)
        return dataclasses.replace(contest, schedule=schedule, curriculum=counted)

    def learn_if(
        self, active: Bool[Array, ""], state: DuelState, name: str, played: Played, last_value: Array
    ) -> tuple[PpoState, Metrics]:
        """Learn where active; else return the learner as it is, with measures of zero."""
        learn = functools.partial(self.learn, state, name, played, last_value)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(learn)[1])
        return jax.lax.cond(active, learn, lambda: (state.learners[name], zeros))

    def learn(
        self, state: DuelState, name: str, played: Played, last_value: Array
    ) -> tuple[PpoState, Metrics]:
        """Turn one side of a rollout into samples and let its learner learn from them."""
        config, contest, role = self.config, state.contest, Role[name.upper()]
        batch = self.batch(played, name, last_value, self.bonus(contest, played.sides[name], name))
        steps = state.iteration.astype(jnp.float32) * self.steps_per_iteration
        rate = ppo.step_size(config.ppo, steps)
        penalty = None
        if contest is not None:
            rate *= schedules.rate_share(contest.balance.gap, config.selfplay.schedule)
            if name == "evader" and contest.anchor is not None:
                weight = config.selfplay.stabilisers.ewc.weight
                penalty = functools.partial(ewc.penalty, anchor=contest.anchor, weight=weight)
        key = jax.random.fold_in(address(state.seed, state.iteration, Purpose.SHUFFLE), int(role))
        learner, metrics = ppo.learn(
            state.learners[name], batch, key, config=config.ppo, rate=rate, penalty=penalty
        )
        return self.with_feasibility(learner, played, name), metrics

    def with_feasibility(self, learner: PpoState, played: Played, name: str) -> PpoState:
        """Let the classifier of a role's shield, where it has one, learn from what the shield met."""
        if learner.feasibility is None:
            return learner
        done = played.shields[name]
        model = feasibility.learned(learner.feasibility, flat(done.features), done.infeasible.ravel())
        return dataclasses.replace(learner, feasibility=model)

    def batch(self, played: Played, name: str, last_value: Array, bonus: Array | float) -> Batch:
        """Lay out one side's samples with their advantages."""
        config, side = self.config.ppo, played.sides[name]
        live = self.config.blocks.live(Role[name.upper()])
        truncated = played.truncated[:, live]
        successor = jnp.concatenate([side.value[1:], last_value[None]])
        if self.config.arena.timeout == "truncates":
            successor = jnp.where(truncated, side.final_value, successor)
        gains = advantages(
            side.reward + bonus,
            side.value,
            successor,
            played.terminated[:, live],
            truncated,
            discount=config.discount,
            trace=config.trace,
        )
        return Batch(
            observations=flat(side.observation),
            actions=flat(side.raw),
            log_probabilities=side.log_probability.ravel(),
            values=side.value.ravel(),
            advantages=gains.ravel(),
            returns=(gains + side.value).ravel(),
            limits=None if side.limits is None else flat(side.limits),
        )

    def bonus(self, contest: Contest | None, side: Side, name: str) -> Array | float:
        """Return the evader's bonus for unfamiliar observations, where that is on."""
        if contest is None or contest.novelty is None or name != "evader":
            return 0.0
        novelty = rnd.bonus(contest.novelty, flat(side.observation))
        return self.config.selfplay.stabilisers.rnd.weight * novelty.reshape(side.reward.shape)

    def renewed_novelty(self, contest: Contest, played: Played, state: DuelState) -> Contest:
        """Let novelty learn what the evader has just seen."""
        rules, seen = self.config.selfplay.stabilisers.rnd, flat(played.sides["evader"].observation)
        key = address(state.seed, state.iteration, Purpose.NOVELTY)
        picks = permutation(key, seen.shape[1])[: rules.update_samples]
        novelty = rnd.learned(contest.novelty, seen, picks, learning_rate=rules.learning_rate)
        return dataclasses.replace(contest, novelty=novelty)

    def evader_sample(self, state: DuelState, played: Played) -> Float[Array, "D N"]:
        """Pick the evader's observations that a Fisher estimate uses; none without EWC."""
        rules = self.config.selfplay.stabilisers.ewc
        if not rules.enabled:
            return jnp.zeros((self.world.observation_size, 0))
        seen = flat(played.sides["evader"].observation)
        key = address(state.seed, state.iteration, Purpose.STUDY)
        return seen[:, permutation(key, seen.shape[1])[: rules.samples]]

    def episode_metrics(self, played: Played) -> Metrics:
        """Summarise the episodes that ended in this iteration; means are NaN when none did."""
        ended, captured = played.ended, played.outcome == Outcome.CAPTURE
        n = jnp.sum(ended)

        def mean(values: Array) -> Array:
            return jnp.where(n > 0, jnp.sum(jnp.where(ended, values, 0.0)) / jnp.maximum(n, 1), jnp.nan)

        metrics = {
            "episodes": n,
            "captures": jnp.sum(captured),
            "episode/capture_rate": mean(captured.astype(jnp.float32)),
            "episode/steps": mean(played.episode_steps),
            "episode/start_distance_m": mean(played.start_distance_m),
        }
        for name, total in played.returns.items():
            metrics["episode/return" if len(played.returns) == 1 else f"episode/{name}_return"] = mean(total)
        metrics |= shield_metrics(played)
        if self.config.learner != "both":
            for index, name in enumerate(self.config.scripted_shares(self.config.roles[0].other)):
                met = played.opponent == index
                metrics[f"episodes/{name}"] = jnp.sum(ended & met)
                metrics[f"captures/{name}"] = jnp.sum(captured & met)
            return metrics
        both = slice(self.config.blocks.pursuer, self.config.blocks.pursuer + self.config.blocks.both)
        metrics["episodes/current"] = jnp.sum(ended[:, both])
        metrics["captures/current"] = jnp.sum(captured[:, both])
        met = (played.opponent >= 0).at[:, both].set(False)
        metrics["episodes/scripted"] = jnp.sum(ended & met)
        return metrics

    def score(self, metrics: dict[str, float]) -> float:
        """Return how well the learner does, for keeping the best checkpoint."""
        rate = metrics["episode/capture_rate"]
        if self.config.learner == "both":
            return 1.0 - abs(2 * rate - 1)
        return rate if self.config.learner == "pursuer" else 1.0 - rate

    def note(self, metrics: dict[str, np.ndarray]) -> str:
        """Say in a few words how training goes."""
        episodes = np.sum(metrics["episodes"])
        return f"capture {np.sum(metrics['captures']) / episodes:.2f}" if episodes else "no episode ended yet"

    def policies(self, state: DuelState) -> dict[str, PyTree]:
        """Return what is needed to play, by role: no optimiser, no games."""
        found = {}
        for name, learner in state.learners.items():
            found[name] = {"network": learner.playing, "moments": learner.moments}
            if learner.feasibility is not None:
                found[name]["feasibility"] = learner.feasibility
        return found

    def players(self, policies: PyTree) -> dict[str, PpoState]:
        """Return learners that can play, from a light policy file."""
        return {
            name: PpoState(
                mine["network"], (), mine["moments"], jnp.int32(0), feasibility=mine.get("feasibility")
            )
            for name, mine in policies.items()
        }


def shield_metrics(played: Played) -> Metrics:
    """Say how often each shield stepped in, by how much and by which tier, and what its robot touched even so.

    Rates are shares of steps, sizes means over all steps, tiers and contacts counts.
    """
    metrics: Metrics = {}
    for name, done in played.shields.items():
        change = jnp.abs(done.applied - done.chosen)
        tiers = {f"{tier.name.lower()}": jnp.sum(done.tier == tier) for tier in Tier if tier != Tier.FREE}
        touched = {kind: jnp.sum(getattr(played.contacts, f"{name}_{kind}")) for kind in ("wall", "obstacle")}
        found = {
            "intervention_rate": jnp.mean(done.tier != Tier.FREE),
            "infeasible_rate": jnp.mean(done.infeasible),
            "speed_change_mps": jnp.mean(change[:, 0]),
            "turn_change_radps": jnp.mean(change[:, 1]),
            "least_margin_m": jnp.min(done.margin_m),
            **tiers,
            **{f"{kind}_contacts": count for kind, count in touched.items()},
        }
        metrics |= {f"shield/{name}/{measure}": value for measure, value in found.items()}
    return metrics
