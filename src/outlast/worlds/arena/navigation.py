"""The evader's cold start: half the episodes are a run to goals, half a flight from a slow chaser.

In a goal episode the pursuer's robot stands on the goal, so the observation is that of the game; goals are drawn in
the arena's own frame, where the evader can be, clear of obstacles.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from outlast.core import Step
from outlast.worlds.arena.dynamics import body_at
from outlast.worlds.arena.scripted import pure_pursuit
from outlast.worlds.arena.spawn import sample_positions
from outlast.worlds.arena.state import ArenaLevel, ArenaState, Commands, Role
from outlast.worlds.arena.world import Arena

EPISODE_STEPS = 300
GOAL_RADIUS_M, GOAL_BONUS, GOAL_WEIGHT = 0.5, 10.0, 0.5
FLEE_WEIGHT, CAUGHT, WALL_PENALTY = 0.5, -10.0, 0.1
CHASER_SHARE = 0.5


class NavigationState(eqx.Module):
    """An arena with a task: goals to reach (the next ones are drawn at the start), or a chaser to flee."""

    arena: ArenaState
    is_goal: Bool[Array, ""]
    goals_x: Float[Array, " goals"]
    goals_y: Float[Array, " goals"]
    reached: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Navigation:
    """The cold start as a one-agent world of the evader."""

    arena: Arena
    goals: int

    def reset(self, key: Key[Array, ""], level: ArenaLevel) -> NavigationState:
        """Draw a game, a task and its goals."""
        game_key, task_key, goal_key = jax.random.split(key, 3)
        arena = self.arena.reset(game_key, dataclasses.replace(level, prep_steps=jnp.int32(0)))
        arena = eqx.tree_at(lambda a: a.level.max_steps, arena, jnp.int32(EPISODE_STEPS))
        places = jax.vmap(lambda k: sample_positions(k, arena.obstacles, level, self.arena.config)[:2])(
            jax.random.split(goal_key, self.goals)
        )
        is_goal = jax.random.uniform(task_key) < 0.5
        state = NavigationState(arena, is_goal, places[:, 0], places[:, 1], jnp.int32(0))
        return self._with_goal(state)

    def _with_goal(self, state: NavigationState) -> NavigationState:
        """Stand the pursuer's robot on the goal of a goal episode."""
        place = jnp.minimum(state.reached, self.goals - 1)
        # A sum over one-hot weights: an indexed read of a batch would be a slow gather.
        here = jnp.arange(self.goals) == place
        x, y = jnp.sum(state.goals_x * here), jnp.sum(state.goals_y * here)
        goal = body_at(x, y, jnp.zeros_like(x))
        pursuer = jax.tree.map(lambda g, p: jnp.where(state.is_goal, g, p), goal, state.arena.pursuer)
        arena = dataclasses.replace(state.arena, pursuer=pursuer)
        return dataclasses.replace(state, arena=self.arena.measured(arena))

    def step(self, state: NavigationState, action: Float[Array, " A"]) -> tuple[NavigationState, Step]:
        """Let the evader act; a reached goal moves on, the last one or a capture ends the episode."""
        config, level = self.arena.config, state.arena.level
        speed, turn = pure_pursuit(state.arena, Role.PURSUER, jnp.zeros(2), config)
        moves = jnp.where(state.is_goal, 0.0, 1.0)
        mine = self.arena.command(action, level, Role.EVADER)
        arena, played = self.arena.step(
            state.arena, Commands(moves * speed * CHASER_SHARE, moves * turn, *mine)
        )
        there = state.is_goal & (arena.distance_m <= GOAL_RADIUS_M)
        caught = ~state.is_goal & (arena.distance_m <= level.capture_radius_m)
        share = arena.distance_m / level.diagonal_m
        goal_reward = GOAL_BONUS * there - GOAL_WEIGHT * share
        reward = jnp.where(state.is_goal, goal_reward, FLEE_WEIGHT * share + CAUGHT * caught)
        reward = reward - WALL_PENALTY * (state.is_goal & played.contacts.evader_wall)
        after = dataclasses.replace(state, arena=arena, reached=state.reached + there)
        finished = caught | (state.is_goal & (after.reached >= self.goals))
        out_of_time = ~finished & (arena.step >= EPISODE_STEPS)
        return self._with_goal(after), Step(jnp.float32(reward), finished, out_of_time)

    def observe(self, state: NavigationState) -> Float[Array, " observation"]:
        """Return what the evader sees: the goal, or the chaser, in the pursuer's place."""
        return self.arena.observe(state.arena, Role.EVADER)
