"""Every reward term of the game, each a function named by what it measures, and their composition.

Terminal rewards are zero-sum. Which shaping terms are: distance, potential and (outside the visibility mode)
the pursuer's visibility; the others pay one side only.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from outlast.worlds.arena.config import RewardConfig
from outlast.worlds.arena.state import Contacts


class Moment(eqx.Module):
    """What the reward terms look at: one step, before and after."""

    distance_before_m: Float[Array, ""]
    distance_m: Float[Array, ""]
    evader_gap_before_m: Float[Array, ""]
    evader_gap_m: Float[Array, ""]
    diagonal_m: Float[Array, ""]
    captured: Bool[Array, ""]
    timed_out: Bool[Array, ""]
    in_prep: Bool[Array, ""]
    has_obstacles: Bool[Array, ""]
    sight_clear: Bool[Array, ""]
    pursuer_in_range: Bool[Array, ""]
    contacts: Contacts
    staleness: Float[Array, ""]

    @property
    def goes_on(self) -> Bool[Array, ""]:
        """Tell whether the game goes on after this step."""
        return ~(self.captured | self.timed_out)


def closing(moment: Moment) -> Float[Array, ""]:
    """Metres gained on the evader, over the diagonal."""
    return (moment.distance_before_m - moment.distance_m) / moment.diagonal_m


def distance_potential(moment: Moment, discount: float) -> Float[Array, ""]:
    """Shape by discount * phi(after) - phi(before) with phi = -distance / diagonal, and phi = 0 at the end.

    In this form it cannot change which policies are optimal (Ng, Harada and Russell, 1999).
    """
    after = jnp.where(moment.goes_on, -moment.distance_m / moment.diagonal_m, 0.0)
    return discount * after + moment.distance_before_m / moment.diagonal_m


def obstacle_closing(moment: Moment) -> Float[Array, ""]:
    """Metres the evader gained on the surface of its nearest obstacle, over the diagonal; not at the end."""
    gained = (moment.evader_gap_before_m - moment.evader_gap_m) / moment.diagonal_m
    return jnp.where(moment.goes_on & moment.has_obstacles, gained, 0.0)


def in_sight(moment: Moment) -> Float[Array, ""]:
    """One while the game goes on and the pursuer has the evader in range and in clear sight."""
    return (moment.goes_on & moment.sight_clear & moment.pursuer_in_range).astype(jnp.float32)


def hidden(moment: Moment) -> Float[Array, ""]:
    """One while an obstacle hides the evader and the game goes on."""
    return (moment.goes_on & ~moment.sight_clear & moment.has_obstacles).astype(jnp.float32)


def out_of_sight(moment: Moment) -> Float[Array, ""]:
    """Plus one while an obstacle hides the evader, minus one while it is seen."""
    return jnp.where(moment.sight_clear, -1.0, 1.0)


def pursuer_base(moment: Moment, config: RewardConfig, discount: float) -> Float[Array, ""]:
    """Sum the pursuer's own terms, which the zero-sum modes turn round for the evader."""
    reward = config.capture_bonus * moment.captured + config.timeout_penalty * moment.timed_out
    if config.distance_scale > 0:
        paid = config.prep_shaping | ~moment.in_prep
        reward += config.distance_scale * closing(moment) * paid
    if config.potential > 0:
        reward += config.potential * distance_potential(moment, discount)
    if config.pursuer_visibility > 0:
        reward += config.pursuer_visibility * in_sight(moment)
    return reward


def evader_mode(base: Float[Array, ""], moment: Moment, config: RewardConfig) -> Float[Array, ""]:
    """Pay the evader by the configured mode; ends are zero-sum in each."""
    if config.evader_mode == "occlusion":
        return -base + config.hiding * hidden(moment)
    if config.evader_mode == "visibility":
        decoupled = moment.goes_on & moment.has_obstacles
        return jnp.where(decoupled, config.hiding * out_of_sight(moment), -base)
    return -base


def rewards(
    moment: Moment, config: RewardConfig, discount: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the rewards of pursuer and evader for one step."""
    pursuer = pursuer_base(moment, config, discount)
    evader = evader_mode(pursuer, moment, config)
    contacts = moment.contacts
    if config.survival_bonus > 0:
        evader += config.survival_bonus * moment.goes_on
    if config.obstacle_approach > 0:
        evader += config.obstacle_approach * obstacle_closing(moment)
    if config.obstacle_contact > 0:
        pursuer -= config.obstacle_contact * contacts.pursuer_obstacle
        evader -= config.obstacle_contact * contacts.evader_obstacle
    if config.wall_contact > 0:
        pursuer -= config.wall_contact * contacts.pursuer_wall
        evader -= config.wall_contact * contacts.evader_wall
    if config.search > 0:
        pursuer += config.search * moment.staleness
    return jnp.float32(pursuer), jnp.float32(evader)
