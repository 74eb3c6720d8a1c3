"""The arena as a world: reset, step, observe, on one instance. Its state machine is the whole specification:

clip commands, freeze the pursuer in preparation, move both, resolve walls and obstacles, count the step, then
capture (inclusive) goes before timeout. Capture may happen in preparation; contact never ends a game.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from outlast.worlds.arena import sensing
from outlast.worlds.arena.config import ArenaConfig
from outlast.worlds.arena.dynamics import body_at, moved
from outlast.worlds.arena.observe import observation_fields, observe
from outlast.worlds.arena.reward import Moment, rewards
from outlast.worlds.arena.spawn import sample_obstacles, sample_positions
from outlast.worlds.arena.state import (
    ArenaLevel,
    ArenaState,
    Body,
    Commands,
    Contacts,
    Obstacles,
    Outcome,
    Role,
    Turn,
)


@dataclasses.dataclass(frozen=True)
class Arena:
    """One game of pursuit and evasion. `discount` is the learner's, for the distance potential."""

    config: ArenaConfig
    discount: float = 0.99
    version: int = 1

    @property
    def observation_size(self) -> int:
        """Count the entries of an observation."""
        return len(observation_fields(self.config))

    @property
    def action_size(self) -> int:
        """Count the entries of an action: turn only at fixed speed, else speed and turn."""
        return 1 if self.config.fixed_speed else 2

    @property
    def tracks_sight(self) -> bool:
        """Tell whether anything in this configuration depends on the line of sight."""
        reward, partial = self.config.reward, self.config.sensing.mode == "partial"
        return partial or reward.hiding > 0 or reward.pursuer_visibility > 0

    def reset(self, key: Key[Array, ""], level: ArenaLevel) -> ArenaState:
        """Draw obstacles, positions and headings for a new game at a level."""
        obstacle_key, place_key, heading_key = jax.random.split(key, 3)
        obstacles = sample_obstacles(obstacle_key, level, self.config)
        px, py, ex, ey = sample_positions(place_key, obstacles, level, self.config)
        headings = (2 * jax.random.uniform(heading_key, (2,)) - 1) * jnp.pi
        return self.state_at(body_at(px, py, headings[0]), body_at(ex, ey, headings[1]), obstacles, level)

    def state_at(self, pursuer: Body, evader: Body, obstacles: Obstacles, level: ArenaLevel) -> ArenaState:
        """Return the first state of a game with everything in given places."""
        n_cells = sensing.SEARCH_CELLS**2 if self.config.reward.search > 0 else 0
        never = jnp.full((n_cells,), -self.config.reward.stale_steps, jnp.int32)
        state = ArenaState(
            pursuer=pursuer,
            evader=evader,
            obstacles=obstacles,
            level=level,
            step=jnp.int32(0),
            distance_m=jnp.float32(0),
            sight_clear=jnp.bool_(True),
            evader_gap_m=jnp.float32(0),
            last_seen=never,
        )
        return self.measured(state)

    def measured(self, state: ArenaState) -> ArenaState:
        """Fill in the derived quantities that a state carries."""
        pursuer, evader, obstacles = state.pursuer, state.evader, state.obstacles
        dx, dy = evader.x_m - pursuer.x_m, evader.y_m - pursuer.y_m
        sight, gap = state.sight_clear, state.evader_gap_m
        if self.tracks_sight:
            sight = sensing.line_of_sight(
                pursuer.x_m, pursuer.y_m, evader.x_m, evader.y_m, obstacles=obstacles
            )
        if self.config.reward.obstacle_approach > 0:
            centre = jnp.sqrt((obstacles.x_m - evader.x_m) ** 2 + (obstacles.y_m - evader.y_m) ** 2)
            gap = jnp.maximum(jnp.min(centre - obstacles.radius_m), 0.0)
        return dataclasses.replace(
            state, distance_m=jnp.sqrt(dx * dx + dy * dy), sight_clear=sight, evader_gap_m=gap
        )

    def command(
        self, action: Float[Array, " action"], level: ArenaLevel, role: Role
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Map an action in [-1, 1] to (speed, turn rate): full turn at the ends, full speed at +1."""
        turn_limit = self.config.pursuer_turn_radps if role == Role.PURSUER else self.config.evader_turn_radps
        top = level.speed_mps(role)
        action = jnp.clip(action, -1.0, 1.0)
        if self.config.fixed_speed:
            return top, action[0] * turn_limit
        return (action[0] + 1) / 2 * top, action[1] * turn_limit

    def step(self, state: ArenaState, commands: Commands) -> tuple[ArenaState, Turn]:
        """Play one step. The state returned is the true successor, also when the game has ended."""
        config, level = self.config, state.level
        in_prep = state.step < level.prep_steps
        p_speed = jnp.where(in_prep, 0.0, jnp.clip(commands.pursuer_speed_mps, 0.0, level.pursuer_speed_mps))
        p_turn = jnp.clip(commands.pursuer_turn_radps, -config.pursuer_turn_radps, config.pursuer_turn_radps)
        e_speed = jnp.clip(commands.evader_speed_mps, 0.0, level.evader_speed_mps)
        e_turn = jnp.clip(commands.evader_turn_radps, -config.evader_turn_radps, config.evader_turn_radps)
        place = {
            "obstacles": state.obstacles,
            "level": level,
            "dt_s": config.dt_s,
            "radius_m": config.robot_radius_m,
        }
        pursuer, p_wall, p_obstacle = moved(state.pursuer, p_speed, p_turn, **place)
        evader, e_wall, e_obstacle = moved(state.evader, e_speed, e_turn, **place)
        after = dataclasses.replace(state, pursuer=pursuer, evader=evader, step=state.step + 1)
        after = self.measured(after)
        contacts = Contacts(p_wall, p_obstacle, e_wall, e_obstacle)
        return self._judged(state, after, contacts, in_prep)

    def _judged(
        self, before: ArenaState, after: ArenaState, contacts: Contacts, in_prep: Bool[Array, ""]
    ) -> tuple[ArenaState, Turn]:
        """Decide the outcome and the rewards of a step."""
        captured = after.distance_m <= after.level.capture_radius_m
        timed_out = ~captured & (after.step >= after.level.max_steps)
        after, stale = self._searched(after)
        radius = self.config.sensing.radius_m
        moment = Moment(
            distance_before_m=before.distance_m,
            distance_m=after.distance_m,
            evader_gap_before_m=before.evader_gap_m,
            evader_gap_m=after.evader_gap_m,
            diagonal_m=after.level.diagonal_m,
            captured=captured,
            timed_out=timed_out,
            in_prep=in_prep,
            has_obstacles=jnp.any(after.obstacles.present),
            sight_clear=after.sight_clear,
            pursuer_in_range=after.distance_m <= (radius if radius > 0 else jnp.inf),
            contacts=contacts,
            staleness=stale,
        )
        pursuer_reward, evader_reward = rewards(moment, self.config.reward, self.discount)
        truncates = self.config.timeout == "truncates"
        return after, Turn(
            pursuer_reward=pursuer_reward,
            evader_reward=evader_reward,
            outcome=jnp.where(
                captured, Outcome.CAPTURE, jnp.where(timed_out, Outcome.TIMEOUT, Outcome.RUNNING)
            ),
            terminated=captured if truncates else captured | timed_out,
            truncated=timed_out if truncates else jnp.zeros_like(timed_out),
            contacts=contacts,
        )

    def _searched(self, state: ArenaState) -> tuple[ArenaState, Float[Array, ""]]:
        """While the evader is out of view, stamp the cells the pursuer looks at and measure their staleness."""
        if self.config.reward.search == 0:
            return state, jnp.float32(0.0)
        in_view = sensing.cells_in_view(
            state.pursuer,
            obstacles=state.obstacles,
            level=state.level,
            radius_m=self.config.sensing.radius_m,
        )
        in_view &= ~sensing.opponent_visible(state, Role.PURSUER, config=self.config.sensing)
        stale = sensing.staleness(
            state.last_seen, in_view, step=state.step, stale_steps=self.config.reward.stale_steps
        )
        stamped = jnp.where(in_view, state.step, state.last_seen)
        return dataclasses.replace(state, last_seen=stamped), stale

    def observe(self, state: ArenaState, role: Role) -> Float[Array, " observation"]:
        """Return what one role sees."""
        return observe(state, role, self.config)
