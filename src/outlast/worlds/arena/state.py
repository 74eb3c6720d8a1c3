"""The records of the arena. Every field is a scalar or a row over obstacle slots; there is no batch axis.

Sines, cosines and distances are carried, not recomputed: under `vmap` with the world axis last this is what
keeps a step a handful of small fused loops.
"""

from enum import IntEnum

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from outlast.worlds.arena.config import LevelConfig

FAR_M = 1e6
"""Where absent obstacles are: no contact, no shadow, no mask needed in the geometry."""


class Role(IntEnum):
    """The two sides of the game."""

    PURSUER = 0
    EVADER = 1

    @property
    def other(self) -> "Role":
        """Return the opponent's role."""
        return Role(1 - self)


class Outcome(IntEnum):
    """How an episode stands."""

    RUNNING = 0
    CAPTURE = 1
    TIMEOUT = 2


class ArenaLevel(eqx.Module):
    """A level as data; see `LevelConfig` for the meaning of each field."""

    width_m: Float[Array, ""]
    height_m: Float[Array, ""]
    spawn_min_m: Float[Array, ""]
    spawn_max_m: Float[Array, ""]
    obstacles_min: Int[Array, ""]
    obstacles_max: Int[Array, ""]
    pursuer_speed_mps: Float[Array, ""]
    evader_speed_mps: Float[Array, ""]
    capture_radius_m: Float[Array, ""]
    max_steps: Int[Array, ""]
    prep_steps: Int[Array, ""]

    @property
    def diagonal_m(self) -> Float[Array, ""]:
        """Length of the arena's diagonal, the scale of distances."""
        return jnp.sqrt(self.width_m**2 + self.height_m**2)

    def speed_mps(self, role: Role) -> Float[Array, ""]:
        """Return a role's speed limit."""
        return self.pursuer_speed_mps if role == Role.PURSUER else self.evader_speed_mps


def level_of(config: LevelConfig) -> ArenaLevel:
    """Turn a configured level into data."""
    as_array = {int: jnp.int32, float: jnp.float32}
    return ArenaLevel(**{name: as_array[type(value)](value) for name, value in config})


class Body(eqx.Module):
    """One robot: its pose and the command it last obeyed."""

    x_m: Float[Array, ""]
    y_m: Float[Array, ""]
    heading_rad: Float[Array, ""]
    cos: Float[Array, ""]
    sin: Float[Array, ""]
    speed_mps: Float[Array, ""]
    turn_radps: Float[Array, ""]


class Obstacles(eqx.Module):
    """Round obstacles, padded: an absent one has no radius and lies far away."""

    x_m: Float[Array, " K"]
    y_m: Float[Array, " K"]
    radius_m: Float[Array, " K"]

    @property
    def present(self) -> Bool[Array, " K"]:
        """Tell which slots hold an obstacle."""
        return self.radius_m > 0


class ArenaState(eqx.Module):
    """Everything about one game in progress."""

    pursuer: Body
    evader: Body
    obstacles: Obstacles
    level: ArenaLevel
    step: Int[Array, ""]
    distance_m: Float[Array, ""]
    sight_clear: Bool[Array, ""]
    evader_gap_m: Float[Array, ""]
    last_seen: Int[Array, " cells"]

    def body(self, role: Role) -> Body:
        """Return a role's robot."""
        return self.pursuer if role == Role.PURSUER else self.evader


class Commands(eqx.Module):
    """What both robots are told to do in one step."""

    pursuer_speed_mps: Float[Array, ""]
    pursuer_turn_radps: Float[Array, ""]
    evader_speed_mps: Float[Array, ""]
    evader_turn_radps: Float[Array, ""]


class Contacts(eqx.Module):
    """What each robot touched in one step."""

    pursuer_wall: Bool[Array, ""]
    pursuer_obstacle: Bool[Array, ""]
    evader_wall: Bool[Array, ""]
    evader_obstacle: Bool[Array, ""]


class Turn(eqx.Module):
    """What one step of the game hands back beside the successor state."""

    pursuer_reward: Float[Array, ""]
    evader_reward: Float[Array, ""]
    outcome: Int[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    contacts: Contacts
