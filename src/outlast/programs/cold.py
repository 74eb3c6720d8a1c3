"""The cold start: before the first game the evader learns to navigate and to flee, in games of its own.

It ends with the evader in its pool and, where rolling copies are kept, in those too.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from outlast.core import Metrics, Step
from outlast.keys import Purpose, address
from outlast.learners import ppo
from outlast.learners.ppo import PpoState
from outlast.learners.returns import advantages
from outlast.programs.duel_config import DuelConfig
from outlast.programs.play import flat
from outlast.selfplay.schedule import in_iterations
from outlast.worlds.arena import Arena, level_of
from outlast.worlds.arena.navigation import Navigation, NavigationState


class ColdGames(eqx.Module):
    """Navigation episodes in progress, world axis last, and what they have earned so far."""

    worlds: NavigationState
    returns: Float[Array, " B"]


class ColdStep(eqx.Module):
    """One step of every navigation episode."""

    observation: Float[Array, "D B"]
    choice: ppo.Choice
    result: Step
    final_value: Float[Array, " B"]
    returns: Float[Array, " B"]


def cold_iterations(config: DuelConfig, per_iteration: int) -> int:
    """Count the iterations of the cold start."""
    cold = config.selfplay.schedule.cold_start
    return in_iterations(cold.steps, per_iteration) if cold.enabled else 0


def fresh_cold_games(config: DuelConfig, world: Arena, key: Array, n: int) -> ColdGames:
    """Draw navigation episodes."""
    navigation = Navigation(world, config.selfplay.schedule.cold_start.goals)
    level = level_of(config.arena.level)
    worlds = jax.vmap(lambda k: navigation.reset(k, level), out_axes=-1)(jax.random.split(key, n))
    return ColdGames(worlds, jnp.zeros(n))


def cold_iteration(
    config: DuelConfig,
    world: Arena,
    evader: PpoState,
    games: ColdGames,
    seed: Array,
    iteration: Int[Array, ""],
) -> tuple[PpoState, ColdGames, Metrics]:
    """Play the navigation episodes for one horizon and let the evader learn from them."""
    navigation = Navigation(world, config.selfplay.schedule.cold_start.goals)
    n, horizon = config.collect.worlds, config.collect.horizon
    noise = jax.random.normal(address(seed, iteration, Purpose.ACT), (horizon, world.action_size, n))
    fresh = fresh_cold_games(config, world, address(seed, iteration, Purpose.RESET), n)
    observe = jax.vmap(navigation.observe, in_axes=-1, out_axes=-1)
    play = jax.vmap(navigation.step, in_axes=-1, out_axes=-1)

    def step(carry: tuple[ColdGames, Array], step_noise: Array) -> tuple[tuple, ColdStep]:
        games, seen = carry
        choice = ppo.choose(evader, seen, step_noise, config.ppo)
        worlds, result = play(games.worlds, choice.action)
        final_value = ppo.values(evader, observe(worlds), config.ppo)
        total = games.returns + result.reward
        ended = result.terminated | result.truncated
        after = jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, ColdGames(worlds, total))
        return (after, observe(after.worlds)), ColdStep(seen, choice, result, final_value, total)

    (games, last_seen), played = jax.lax.scan(step, (games, observe(games.worlds)), noise)
    batch = _batch(config, played, ppo.values(evader, last_seen, config.ppo))
    key = address(seed, iteration, Purpose.SHUFFLE)
    evader, learned = ppo.learn(
        evader, batch, key, config=config.ppo, rate=jnp.float32(config.ppo.learning_rate)
    )
    ended = played.result.terminated | played.result.truncated
    episodes = jnp.sum(ended)
    earned = jnp.sum(jnp.where(ended, played.returns, 0.0)) / jnp.maximum(episodes, 1)
    metrics = {f"evader/{name}": value for name, value in learned.items()}
    metrics["episode/evader_return"] = jnp.where(episodes > 0, earned, jnp.nan)
    return evader, games, metrics


def _batch(config: DuelConfig, played: ColdStep, last_value: Array) -> ppo.Batch:
    values = played.choice.value
    successor = jnp.concatenate([values[1:], last_value[None]])
    successor = jnp.where(played.result.truncated, played.final_value, successor)
    gains = advantages(
        played.result.reward,
        values,
        successor,
        played.result.terminated,
        played.result.truncated,
        discount=config.ppo.discount,
        trace=config.ppo.trace,
    )
    columns = ppo.Batch(
        observations=flat(played.observation),
        actions=flat(played.choice.raw),
        log_probabilities=played.choice.log_probability.ravel(),
        values=values.ravel(),
        advantages=gains.ravel(),
        returns=(gains + values).ravel(),
    )
    minibatch = columns.values.shape[0] // config.ppo.minibatches * config.ppo.minibatches
    return jax.tree.map(lambda leaf: leaf[..., :minibatch], columns)


def silent(shapes: Metrics) -> Metrics:
    """Return metrics of the given shapes that say nothing: NaN, or zero for counts."""

    def nothing(name: str, shape: jax.ShapeDtypeStruct) -> Array:
        is_count = name.endswith("nonfinite") or not jnp.issubdtype(shape.dtype, jnp.floating)
        return jnp.full(shape.shape, 0 if is_count else jnp.nan, shape.dtype)

    return {name: nothing(name, shape) for name, shape in shapes.items()}
