"""What a policy is told: the box (vector V17 in units of the action), the rows, and the projection of an action."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.safety.config import SafetyReward, ShieldConfig
from outlast.safety.limits import LEAST_WIDTH, box_limits, projected, row_limits
from outlast.safety.reward import safety_reward
from outlast.safety.shield import Applied, shielded
from outlast.worlds.arena import Arena, ArenaConfig, LevelConfig, Role, level_of
from outlast.worlds.arena.dynamics import body_at
from outlast.worlds.arena.state import Obstacles

WORLD = Arena(ArenaConfig(obstacle_slots=1, level=LevelConfig(width_m=20.0, height_m=20.0)))
SHIELD = ShieldConfig(when="always", bounds="exact", kappa_per_s=1.0, margin_m=0.0)


def at(*pairs):
    """Stand at the origin, facing along x, with one obstacle of radius 0.5 at each place, game by game."""
    n = len(pairs)
    x, y = (jnp.asarray(v, jnp.float32)[None] for v in zip(*pairs, strict=True))
    zero = jnp.zeros(n)
    level = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n,)), level_of(WORLD.config.level))
    place = jax.vmap(WORLD.state_at, in_axes=-1, out_axes=-1)
    return place(
        body_at(zero, zero, zero),
        body_at(zero + 5, zero, zero),
        Obstacles(x, y, jnp.full((1, n), 0.5)),
        level,
    )


GAMES = at((0.9, 0.2), (5.0, 5.0), (0.62, 0.0))


@pytest.mark.parametrize("bounds", ["exact", "analytic"])
def test_v17_in_units_of_the_action(bounds):
    config = SHIELD.model_copy(update={"bounds": bounds})
    box = np.asarray(box_limits(GAMES, Role.PURSUER, config, WORLD.config))
    # Half the last decimal of the vector, twice over, because the range of an action is 2.
    np.testing.assert_allclose(box[:, 0], [-1, -1, 2 * 0.231938 - 1, 1], atol=6e-5)
    np.testing.assert_allclose(box[:, 1], [-1, -1, 1, 1], atol=1e-6)
    assert (box[2:] - box[:2] >= LEAST_WIDTH * (1 - 1e-4)).all()  # the difference is rounded
    assert (np.abs(box) <= 1).all()


def test_the_projection_of_an_action_is_the_shields():
    action = jnp.array([[1.0, 1.0, -0.2], [0.0, 0.3, 0.5]])
    rows = row_limits(GAMES, Role.PURSUER, SHIELD, WORLD.config)
    found = np.asarray(jax.jit(projected)(action, rows))
    command = (action[0] + 1) / 2, action[1] * 2.84
    plain = SHIELD.model_copy(update={"hard_check": False})
    done = shielded(GAMES, *command, Role.PURSUER, plain, WORLD.config)
    expected = np.stack([2 * done.applied[0] - 1, done.applied[1] / 2.84])
    # Two scalings of one projection; its tolerance, 4e-6 of 14 in these units, on either side.
    np.testing.assert_allclose(found[:, :2], expected[:, :2], atol=1e-4)
    assert found[0, 0] < 1.0
    np.testing.assert_array_equal(found[:, 1], action[:, 1])


def test_the_gradient_goes_through_the_active_row():
    rows = row_limits(GAMES, Role.PURSUER, SHIELD, WORLD.config)
    action = jnp.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    jacobian = np.asarray(jax.jacrev(functools.partial(projected, limits=rows))(action))
    free, bound = jacobian[:, 1, :, 1], jacobian[:, 0, :, 0]
    np.testing.assert_allclose(free, np.eye(2), atol=1e-6)
    # Held in a corner, by the row and by the greatest turn: nothing moves it.
    np.testing.assert_allclose(bound, 0.0, atol=1e-4)


def applied(chosen, given, margin_m, shortfall):
    none = jnp.zeros(1, bool)
    return Applied(
        jnp.array(chosen)[:, None],
        jnp.array(given)[:, None],
        jnp.zeros(1, jnp.int32),
        none,
        jnp.array([margin_m]),
        jnp.array([shortfall]),
        None,
    )


def paid(done, **weights):
    top = jnp.array([[1.0], [2.84]])
    return float(safety_reward(done, top, SafetyReward(**weights))[0])


def test_the_terms_of_the_reward_by_hand():
    near = applied([1.0, 0.0], [0.5, 1.42], 0.25, 0.3)
    assert paid(near, margin=0.05) == pytest.approx(0.05 * 0.25, rel=1e-6)
    assert paid(near, margin=0.05, margin_full_m=0.2) == pytest.approx(0.05, rel=1e-6)
    assert paid(near, violation=2.0) == pytest.approx(-0.6, rel=1e-6)
    # The correction in units of the action: (-1, 0.5), squared 1.25.
    assert paid(near, intervention=3.0) == pytest.approx(-3 * (1 - np.exp(-12.5)), rel=1e-6)
    assert paid(near, intervention=3.0, intervention_scale=5.0) == pytest.approx(
        -3 * (1 - np.exp(-0.25)), rel=1e-6
    )
    inside = eqx.tree_at(lambda d: d.margin_m, near, jnp.array([-0.1]))
    assert paid(inside, margin=0.05) == 0.0
