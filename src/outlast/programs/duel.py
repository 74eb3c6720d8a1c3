"""The arena's training program: `iterate` plays every game for a few steps, then lets the learner learn.

One role learns against a weighted mixture of scripted opponents, drawn when an episode starts and kept to its
end. Everything that changes is in `DuelState`; randomness is addressed by (seed, iteration, purpose).
"""

import dataclasses
from typing import Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree
from pydantic import Field, model_validator

from outlast.config import RunSection, Section
from outlast.core import Metrics
from outlast.keys import Purpose, address
from outlast.learners import ppo
from outlast.learners.ppo import Batch, PpoConfig, PpoState
from outlast.learners.returns import advantages
from outlast.worlds.arena import Arena, ArenaConfig, ArenaState, Commands, Outcome, Role, level_of, scripted


class CollectConfig(Section):
    """How many games are played at once, and for how many steps between updates."""

    worlds: int = Field(256, ge=1, le=65_536, description="games played in parallel, per seed")
    horizon: int = Field(64, ge=1, le=8192, description="steps of each game between updates")


class DuelConfig(Section):
    """One role of the arena learns against scripted opponents."""

    program: Literal["duel"] = "duel"
    learner: Literal["pursuer", "evader"] = Field("pursuer", description="which role learns")
    opponents: dict[str, float] = Field(
        {"flee_away": 1.0}, description="weights of the scripted opponents, drawn at each episode's start"
    )
    arena: ArenaConfig = ArenaConfig()
    collect: CollectConfig = CollectConfig()
    ppo: PpoConfig = PpoConfig()
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        known = scripted.panel(self.role.other)
        for name, weight in self.opponents.items():
            if name not in known:
                raise ValueError(
                    f"opponents.{name}: no such opponent of a {self.learner} (allowed: {', '.join(known)})"
                )
            if not 0.0 <= weight <= 1e6:
                raise ValueError(f"opponents.{name} = {weight} is out of range (allowed: 0 to 1000000)")
        if not sum(self.opponents.values()) > 0:
            raise ValueError("opponents: at least one weight must be above 0")
        rows = self.collect.worlds * self.collect.horizon
        if rows % self.ppo.minibatches:
            raise ValueError(
                f"ppo.minibatches = {self.ppo.minibatches} does not divide "
                f"collect.worlds x collect.horizon = {rows}"
            )
        return self

    @property
    def role(self) -> Role:
        """Return the role that learns."""
        return Role[self.learner.upper()]

    @property
    def active_opponents(self) -> dict[str, float]:
        """Return the opponents with a weight, and their shares."""
        total = sum(self.opponents.values())
        return {name: weight / total for name, weight in self.opponents.items() if weight > 0}


class Games(eqx.Module):
    """Games in progress; the world axis is last."""

    arena: ArenaState
    opponent: Int[Array, " B"]
    episode_return: Float[Array, " B"]
    start_distance_m: Float[Array, " B"]


class DuelState(eqx.Module):
    """Everything that changes during a run of one seed."""

    seed: Int[Array, ""]
    iteration: Int[Array, ""]
    learner: PpoState
    games: Games


class Played(eqx.Module):
    """One step of every game, as it was seen before the step and as it ended."""

    observation: Float[Array, "D B"]
    raw: Float[Array, "A B"]
    log_probability: Float[Array, " B"]
    value: Float[Array, " B"]
    reward: Float[Array, " B"]
    terminated: Bool[Array, " B"]
    truncated: Bool[Array, " B"]
    final_value: Float[Array, " B"]
    outcome: Int[Array, " B"]
    opponent: Int[Array, " B"]
    episode_steps: Int[Array, " B"]
    episode_return: Float[Array, " B"]
    start_distance_m: Float[Array, " B"]


@dataclasses.dataclass(frozen=True)
class Duel:
    """The program of one configuration."""

    config: DuelConfig

    @property
    def world(self) -> Arena:
        """Return the world that is trained in."""
        return Arena(self.config.arena, discount=self.config.ppo.discount)

    @property
    def steps_per_iteration(self) -> int:
        """Count the world steps of one iteration of one seed."""
        return self.config.collect.worlds * self.config.collect.horizon

    def init(self, seed: Int[Array, ""]) -> DuelState:
        """Return the state before the first iteration."""
        world, config = self.world, self.config
        learner = ppo.new_learner(
            address(seed, 0, Purpose.NETWORKS), world.observation_size, world.action_size, config.ppo
        )
        games = self.fresh_games(address(seed, 0, Purpose.WORLDS), config.collect.worlds)
        return DuelState(jnp.asarray(seed, jnp.uint32), jnp.int32(0), learner, games)

    def fresh_games(self, key: Key[Array, ""], n: int) -> Games:
        """Draw first states and opponents of `n` games."""
        world, level = self.world, level_of(self.config.arena.level)
        world_key, opponent_key = jax.random.split(key)
        arena = jax.vmap(lambda k: world.reset(k, level), out_axes=-1)(jax.random.split(world_key, n))
        shares = np.cumsum(list(self.config.active_opponents.values()))[:-1].astype(np.float32)
        draws = jax.random.uniform(opponent_key, (n, 1))
        opponent = jnp.sum(draws >= shares, axis=-1).astype(jnp.int32)
        return Games(arena, opponent, jnp.zeros(n), arena.distance_m)

    def iterate(self, state: DuelState) -> tuple[DuelState, Metrics]:
        """Play `horizon` steps of every game and learn from them once."""
        games, played, last_value = self.play(state)
        learner, learned = self.learn(state, played, last_value)
        metrics = self.episode_metrics(played) | {f"learner/{k}": v for k, v in learned.items()}
        return DuelState(state.seed, state.iteration + 1, learner, games), metrics

    def play(self, state: DuelState) -> tuple[Games, Played, Float[Array, " B"]]:
        """Collect one rollout; also return the value of the state it stops in.

        Games that end are replaced from a pool drawn for this iteration. Each step reads the pool at another
        offset, so a world that ends twice does not start twice from the same place.
        """
        config, world = self.config.collect, self.world
        act_key = address(state.seed, state.iteration, Purpose.ACT)
        noise = jax.random.normal(act_key, (config.horizon, world.action_size, config.worlds))
        draws = jnp.zeros((config.horizon, scripted.N_DRAWS, 1))
        if "random" in self.config.active_opponents:
            opponent_key = address(state.seed, state.iteration, Purpose.OPPONENT)
            draws = jax.random.uniform(opponent_key, (config.horizon, scripted.N_DRAWS, config.worlds))
        pool = self.reset_pool(address(state.seed, state.iteration, Purpose.RESET))
        observe = jax.vmap(lambda arena: world.observe(arena, self.config.role), in_axes=-1, out_axes=-1)

        def step(carry: tuple[Games, Array], inputs: tuple) -> tuple[tuple[Games, Array], Played]:
            games, observation = carry
            t, step_noise, step_draws = inputs
            games, played = self.advance(games, observation, state.learner, step_noise, step_draws)
            games = replace_ended(games, played.terminated | played.truncated, pool, t)
            return (games, observe(games.arena)), played

        start = (state.games, observe(state.games.arena))
        (games, observation), played = jax.lax.scan(step, start, (jnp.arange(config.horizon), noise, draws))
        return games, played, ppo.values(state.learner, observation, self.config.ppo)

    def reset_pool(self, key: Key[Array, ""]) -> Games:
        """Draw new games, repeated to the width that every offset of an iteration can read."""
        worlds, width = self.config.collect.worlds, self.config.collect.worlds + self.config.collect.horizon
        fresh = self.fresh_games(key, max(worlds // 2, 1))
        place = jnp.arange(width) % max(worlds // 2, 1)
        return jax.tree.map(lambda leaf: leaf[..., place], fresh)

    def advance(
        self, games: Games, observation: Array, learner: PpoState, noise: Array, draws: Array
    ) -> tuple[Games, Played]:
        """Let both sides act in every game; the games returned hold the true successors."""
        config, world, role = self.config, self.world, self.config.role
        choice = ppo.choose(learner, observation, noise, config.ppo)

        def turn(arena: ArenaState, opponent: Array, action: Array, draw: Array) -> tuple:
            mine = world.command(action, arena.level, role)
            theirs = self.opponent_command(arena, opponent, draw)
            both = mine + theirs if role == Role.PURSUER else theirs + mine
            return world.step(arena, Commands(*both))

        arena, result = jax.vmap(turn, in_axes=-1, out_axes=-1)(
            games.arena, games.opponent, choice.action, jnp.broadcast_to(draws, (2, games.opponent.shape[0]))
        )
        reward = result.pursuer_reward if role == Role.PURSUER else result.evader_reward
        final_value = choice.value
        if config.arena.timeout == "truncates":
            last = jax.vmap(lambda a: world.observe(a, role), in_axes=-1, out_axes=-1)(arena)
            final_value = ppo.values(learner, last, config.ppo)
        total = games.episode_return + reward
        played = Played(
            observation=observation,
            raw=choice.raw,
            log_probability=choice.log_probability,
            value=choice.value,
            reward=reward,
            terminated=result.terminated,
            truncated=result.truncated,
            final_value=final_value,
            outcome=result.outcome,
            opponent=games.opponent,
            episode_steps=arena.step,
            episode_return=total,
            start_distance_m=games.start_distance_m,
        )
        return Games(arena, games.opponent, total, games.start_distance_m), played

    def opponent_command(self, arena: ArenaState, opponent: Array, draw: Array) -> tuple[Array, Array]:
        """Return what the scripted opponent of one game does."""
        policies = scripted.panel(self.config.role.other)
        commands = [
            policies[name](arena, self.config.role.other, draw, self.config.arena)
            for name in self.config.active_opponents
        ]
        speed, turn = commands[0]
        for index, (other_speed, other_turn) in enumerate(commands[1:], start=1):
            speed = jnp.where(opponent == index, other_speed, speed)
            turn = jnp.where(opponent == index, other_turn, turn)
        return speed, turn

    def learn(self, state: DuelState, played: Played, last_value: Array) -> tuple[PpoState, Metrics]:
        """Turn a rollout into rows and let the learner learn from them."""
        config = self.config.ppo
        successor = jnp.concatenate([played.value[1:], last_value[None]])
        if self.config.arena.timeout == "truncates":
            successor = jnp.where(played.truncated, played.final_value, successor)
        gains = advantages(
            played.reward,
            played.value,
            successor,
            played.terminated,
            played.truncated,
            discount=config.discount,
            trace=config.trace,
        )
        batch = Batch(
            observations=flat(played.observation),
            actions=flat(played.raw),
            log_probabilities=played.log_probability.ravel(),
            values=played.value.ravel(),
            advantages=gains.ravel(),
            returns=(gains + played.value).ravel(),
        )
        rate = ppo.step_size(config, state.iteration.astype(jnp.float32) * self.steps_per_iteration)
        key = address(state.seed, state.iteration, Purpose.SHUFFLE)
        return ppo.learn(state.learner, batch, key, config=config, rate=rate)

    def episode_metrics(self, played: Played) -> Metrics:
        """Summarise the episodes that ended in this iteration; means are NaN when none did."""
        ended = played.terminated | played.truncated
        captured = played.outcome == Outcome.CAPTURE
        n = jnp.sum(ended)

        def mean(values: Array) -> Array:
            return jnp.where(n > 0, jnp.sum(jnp.where(ended, values, 0.0)) / jnp.maximum(n, 1), jnp.nan)

        metrics = {
            "episodes": n,
            "captures": jnp.sum(captured),
            "episode/capture_rate": mean(captured.astype(jnp.float32)),
            "episode/steps": mean(played.episode_steps),
            "episode/return": mean(played.episode_return),
            "episode/start_distance_m": mean(played.start_distance_m),
        }
        for index, name in enumerate(self.config.active_opponents):
            met = played.opponent == index
            metrics[f"episodes/{name}"] = jnp.sum(ended & met)
            metrics[f"captures/{name}"] = jnp.sum(captured & met)
        return metrics

    def score(self, metrics: dict[str, float]) -> float:
        """Return how well the learner does, for keeping the best checkpoint."""
        rate = metrics["episode/capture_rate"]
        return rate if self.config.role == Role.PURSUER else 1.0 - rate

    def note(self, metrics: dict[str, np.ndarray]) -> str:
        """Say in a few words how training goes."""
        episodes = np.sum(metrics["episodes"])
        return f"capture {np.sum(metrics['captures']) / episodes:.2f}" if episodes else "no episode ended yet"

    def policies(self, state: DuelState) -> dict[str, PyTree]:
        """Return what is needed to play, by role: no optimiser, no games."""
        return {self.config.learner: {"network": state.learner.network, "moments": state.learner.moments}}

    def player_state(self, policies: PyTree) -> PpoState:
        """Return a learner that can play, from a light policy file."""
        mine = policies[self.config.learner]
        return PpoState(mine["network"], (), mine["moments"], jnp.int32(0))


def replace_ended(games: Games, ended: Bool[Array, " B"], pool: Games, offset: Int[Array, ""]) -> Games:
    """Start a new game wherever one has ended."""
    n = ended.shape[0]

    def pick(old: Array, fresh: Array) -> Array:
        return jnp.where(ended, jax.lax.dynamic_slice_in_dim(fresh, offset, n, axis=-1), old)

    return jax.tree.map(pick, games, pool)


def flat(entries: Float[Array, "T D B"]) -> Float[Array, "D N"]:
    """Lay time and worlds out as one axis of columns."""
    return jnp.moveaxis(entries, 1, 0).reshape(entries.shape[1], -1)
