"""The shield on thousands of random situations, in arenas of any size: what it promises, tier by tier."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from duels import FAST

from outlast.safety import feasibility
from outlast.safety.barrier import half_planes
from outlast.safety.config import ShieldConfig
from outlast.safety.export import Filter, Situation
from outlast.safety.qp import TOLERANCE, reach_of, residual
from outlast.safety.shield import Tier, clearances, limits_of, rows_of, shielded
from outlast.worlds.arena import Arena, ArenaConfig, Commands, LevelConfig, Role, level_of
from outlast.worlds.arena.dynamics import body_at
from outlast.worlds.arena.state import Obstacles, Outcome

N = 2000
WORLD = Arena(ArenaConfig(obstacle_slots=2, level=LevelConfig(capture_radius_m=0.05, spawn_min_m=0.0)))
SHIELD = ShieldConfig(when="always", separation_m=0.35, other_speed_share=0.3)
over = functools.partial(jax.vmap, in_axes=-1, out_axes=-1)
one_step = jax.jit(over(WORLD.step), compiler_options=FAST)


@functools.cache
def situations():
    """Draw arenas of 2 to 30 m, two obstacles, both robots and a command each; many are close to something."""
    rng = np.random.default_rng(5)
    width, height = rng.uniform(2, 30, (2, N))
    level = level_of(WORLD.config.level)
    level = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (N,)), level)
    level = eqx.tree_at(
        lambda at: (at.width_m, at.height_m), level, (jnp.float32(width), jnp.float32(height))
    )
    robots = []
    for _ in range(2):
        x, y = (rng.uniform(-0.5, 0.5, N) * (size - 0.3) for size in (width, height))
        robots.append(body_at(*(jnp.asarray(v, jnp.float32) for v in (x, y, rng.uniform(-np.pi, np.pi, N)))))
    own = robots[0]
    radius = rng.uniform(0.3, 1.0, (2, N))
    gap, angle = rng.uniform(0.16, 1.5, (2, N)), rng.uniform(-np.pi, np.pi, (2, N))
    things = Obstacles(
        *(
            jnp.asarray(v, jnp.float32)
            for v in (
                np.asarray(own.x_m) + (radius + gap) * np.cos(angle),
                np.asarray(own.y_m) + (radius + gap) * np.sin(angle),
                radius,
            )
        )
    )
    state = jax.vmap(WORLD.state_at, in_axes=-1, out_axes=-1)(*robots, things, level)
    chosen = rng.uniform([[0.0], [-2.84]], [[1.0], [2.84]], (2, N)).astype(np.float32)
    return state, jnp.asarray(chosen)


@functools.cache
def compiled(is_checked, is_learned):
    """Compile the shield once; every number of its configuration is an argument."""

    def run(state, chosen, numbers, model):
        switches = {"hard_check": is_checked, "classifier": is_learned}
        config = SHIELD.model_copy(update=numbers | switches)
        return shielded(state, *chosen, Role.PURSUER, config, WORLD.config, model)

    return jax.jit(run, compiler_options=FAST)


NUMBERS = ("kappa_per_s", "lookahead_m", "margin_m", "speed_weight", "turn_weight", "other_speed_share")


@functools.cache
def filtered(is_checked=True, **changes):
    numbers = {name: jnp.float32(changes.get(name, getattr(SHIELD, name))) for name in NUMBERS}
    return compiled(is_checked, False)(*situations(), numbers, None)


@functools.cache
def stepped(is_checked=True):
    """Let the world play the applied commands; the other robot stands."""
    state, _ = situations()
    still = jnp.zeros(N)
    commands = Commands(*filtered(is_checked).applied, still, still)
    return one_step(state, commands)


def missed(command):
    """Return how far each row of each situation is missed, in units of what it varies by over the box."""
    state, _ = situations()

    def one(arena, command):
        rows = rows_of(arena, Role.PURSUER, SHIELD, WORLD.config)
        planes, (low, high) = (
            half_planes(rows, kappa_per_s=SHIELD.kappa_per_s),
            limits_of(arena, Role.PURSUER, WORLD.config),
        )
        reach = jnp.maximum(reach_of(planes, low=low, high=high, weights=SHIELD.weights), 1e-6)
        return jnp.where(rows.active, -residual(planes, command) / reach, -jnp.inf)

    return np.asarray(jax.jit(over(one), compiler_options=FAST)(state, jnp.asarray(command)))


def tiers(done):
    return np.asarray(done.tier)


def test_every_tier_but_the_learned_one_is_met():
    assert set(tiers(filtered())) == set(Tier) - {Tier.PREDICTED}
    assert set(tiers(filtered(False))) == set(Tier) - {Tier.PREDICTED, Tier.BRAKED}


def test_a_free_command_is_applied_bit_for_bit_and_only_a_free_one_violates_nothing():
    done = filtered()
    free = tiers(done) == Tier.FREE
    chosen, applied = np.asarray(done.chosen), np.asarray(done.applied)
    assert (chosen[:, free] == applied[:, free]).all()
    worst = missed(chosen).max(axis=0)
    # `TOLERANCE` is the projection's, in float32; the residual here is computed again, with a rounding of its own.
    assert (worst[free] <= 2 * TOLERANCE).all()
    assert (worst[tiers(filtered(False)) != Tier.FREE] > 0).all()


def test_the_applied_command_violates_no_feasible_row():
    """While the hard check steps in, standing may be less than a row asks for; without it nothing may."""
    done = filtered(False)
    worst = missed(done.applied)
    exact = tiers(done) == Tier.EXACT
    assert exact.sum() > 50
    assert (worst[:, exact] <= 2 * TOLERANCE).all()
    dropped = tiers(done) == Tier.NO_OBSTACLES
    assert (worst[np.r_[0:4, 6]][:, dropped] <= 2 * TOLERANCE).all()
    assert (worst[4:6][:, dropped].max(axis=0) > 0).all()
    apart = tiers(done) == Tier.NO_ARENA
    assert (worst[6:][:, apart] <= 2 * TOLERANCE).all()
    assert (np.asarray(done.infeasible) == (tiers(done) > Tier.EXACT)).all()


def test_commands_stay_within_their_limits():
    for is_checked in (True, False):
        applied = np.asarray(filtered(is_checked).applied)
        assert (applied[0] >= 0).all() and (applied[0] <= 1).all() and (np.abs(applied[1]) <= 2.84).all()


def test_no_robot_that_is_clear_touches_anything_in_the_next_step():
    state, _ = situations()
    room = jax.jit(over(lambda a: clearances(a, Role.PURSUER, WORLD.config)))(state)
    clear = np.asarray(jnp.min(room, axis=0)) > 0
    assert clear.sum() > N / 2

    def touched(is_checked):
        contacts = stepped(is_checked)[1].contacts
        return np.asarray(contacts.pursuer_wall | contacts.pursuer_obstacle) & clear

    assert not touched(True).any()
    assert touched(False).any()  # what the check is for


def test_braking_turns_away_from_the_nearest_thing():
    done = filtered()
    state, _ = situations()
    braked = tiers(done) == Tier.BRAKED
    assert (np.asarray(done.applied)[0, braked] == 0).all()
    turned, _ = stepped()

    def towards(arena):
        moved = eqx.tree_at(
            lambda a: (a.pursuer.x_m, a.pursuer.y_m),
            arena,
            (arena.pursuer.x_m + 0.01 * arena.pursuer.cos, arena.pursuer.y_m + 0.01 * arena.pursuer.sin),
        )
        room = [clearances(a, Role.PURSUER, WORLD.config) for a in (arena, moved)]
        return jnp.min(room[1]) - jnp.min(room[0])

    before, after = (
        np.asarray(jax.jit(over(towards), compiler_options=FAST)(s))[braked] for s in (state, turned)
    )
    # Heading further from the nearest thing, or held by the rows of another; 0.01 m ahead is less than linear.
    assert np.mean(after >= before - 1e-5) > 0.9


@pytest.mark.parametrize("separation_m", [0.0, 0.35])
def test_head_on_capture_is_possible(separation_m):
    """The original's row between the points ahead ended at 0.55 m, outside the capture radius of 0.5 m."""
    world = Arena(ArenaConfig())
    shield = ShieldConfig(when="always", separation_m=separation_m)
    place = [(jnp.float32(x), jnp.float32(0), jnp.float32(h)) for x, h in ((-1.0, 0.0), (1.0, np.pi))]
    none = Obstacles(*(jnp.zeros(0) for _ in range(3)))
    state = world.state_at(*(body_at(*p) for p in place), none, level_of(world.config.level))

    @functools.partial(jax.jit, compiler_options=FAST)
    def advance(state):
        one = jax.tree.map(lambda leaf: leaf[..., None], state)
        done = shielded(one, jnp.ones(1), jnp.zeros(1), Role.PURSUER, shield, world.config)
        still = jnp.float32(0)
        return world.step(state, Commands(*done.applied[:, 0], still, still))

    for _ in range(60):
        state, turn = advance(state)
        if turn.terminated:
            break
    assert turn.outcome == Outcome.CAPTURE


def test_the_robust_row_brakes_earlier():
    speeds = [np.asarray(filtered(other_speed_share=share).applied)[0].mean() for share in (0.0, 1.0)]
    assert speeds[1] < speeds[0]


@pytest.mark.parametrize(
    "change",
    [
        {"kappa_per_s": 1.0},
        {"lookahead_m": 0.3},
        {"margin_m": 0.3},
        {"speed_weight": 1.0},
        {"turn_weight": 100.0},
    ],
)
def test_every_setting_changes_what_is_applied(change):
    other = filtered(**change)
    assert (np.asarray(other.applied) != np.asarray(filtered().applied)).any()


def test_the_classifier_acts_once_it_is_sure():
    new = feasibility.untrained()
    sure = feasibility.Feasibility(new.weights.at[-1].set(5.0), jnp.full(2, 100.0))
    green = feasibility.Feasibility(sure.weights, jnp.array([1000.0, 10.0]))
    plain = tiers(filtered())
    numbers = {name: jnp.float32(getattr(SHIELD, name)) for name in NUMBERS}
    untrained, unready, acting = (
        compiled(True, True)(*situations(), numbers, model) for model in (new, green, sure)
    )
    assert (tiers(untrained) == plain).all()
    assert (tiers(unready) == plain).all()
    assert (tiers(acting)[plain == Tier.FREE] == Tier.PREDICTED).mean() > 0.9  # the rest is braked
    retreating = tiers(acting) == Tier.PREDICTED
    np.testing.assert_allclose(np.asarray(acting.applied)[0, retreating], 0.1, rtol=1e-6)


def test_the_exported_filter_is_the_same_filter():
    state, chosen = situations()
    done, one = filtered(), Filter(SHIELD, WORLD.config)
    a, chosen = jax.tree.map(np.asarray, (state, chosen))
    applied, expected = np.asarray(done.applied), tiers(done)
    for i in range(N):
        own, other = a.pursuer, a.evader
        things = [
            tuple(float(v[k, i]) for v in (a.obstacles.x_m, a.obstacles.y_m, a.obstacles.radius_m))
            for k in (0, 1)
        ]
        at = Situation(
            *(float(v[i]) for v in (own.x_m, own.y_m, own.heading_rad)),
            1.0,
            2.84,
            float(a.level.width_m[i]),
            float(a.level.height_m[i]),
            things,
            (float(other.x_m[i]), float(other.y_m[i]), 1.0),
        )
        speed, turn, tier = one(at, *(float(c) for c in chosen[:, i]))
        assert tier == expected[i], i
        # The projection's tolerance, 4e-6 of the box's radius of 6.8 in weighted units, once for each of them.
        np.testing.assert_allclose((speed, turn), applied[:, i], atol=6e-5)


def test_a_learned_classifier_is_not_exported():
    with pytest.raises(ValueError, match="classifier"):
        Filter(SHIELD.model_copy(update={"classifier": True}), WORLD.config)
