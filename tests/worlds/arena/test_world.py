"""The state machine: speed limits, preparation, capture before timeout, and levels that are data."""

import dataclasses
import functools
from math import pi

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.worlds.arena import Commands, Outcome, Role, level_of
from outlast.worlds.arena.config import LevelConfig

from . import games
from .games import BOTH, PLAIN, SOLID, arena, play

FIXED = arena(fixed_speed=True)
LEVEL = LevelConfig(pursuer_speed_mps=1.0, evader_speed_mps=1.5)


def told(world, action, role, level=None):
    speed, turn = world.command(jnp.float32(action), level_of(LEVEL) if level is None else level, role)
    return float(speed), float(turn)


@pytest.mark.parametrize(
    ("action", "share", "turn"),
    [([-1, -1], 0, -1), ([1, 1], 1, 1), ([0, 0], 0.5, 0), ([9, -9], 1, -1), ([0.5, 0.25], 0.75, 0.25)],
)
def test_actions_are_affine_and_clipped(action, share, turn):
    assert told(PLAIN, action, Role.PURSUER) == pytest.approx((share * 1.0, turn * 2.84))
    assert told(PLAIN, action, Role.EVADER) == pytest.approx((share * 1.5, turn * 2.84))


@pytest.mark.parametrize(("action", "turn"), [([-1], -2.84), ([0.5], 1.42), ([7], 2.84)])
def test_at_fixed_speed_an_action_only_steers(action, turn):
    assert FIXED.action_size == 1
    assert told(FIXED, action, Role.PURSUER) == pytest.approx((1.0, turn))
    assert told(FIXED, action, Role.EVADER) == pytest.approx((1.5, turn))


def test_the_world_clips_commands_of_scripts_too():
    after, _ = games.step(PLAIN)(
        games.state(PLAIN), games.commands(pursuer=(99.0, 99.0), evader=(-5.0, -99.0))
    )
    obeyed = (
        after.pursuer.speed_mps,
        after.pursuer.turn_radps,
        after.evader.speed_mps,
        after.evader.turn_radps,
    )
    assert [float(u) for u in obeyed] == pytest.approx([1.0, 2.84, 0.0, -2.84])


def test_in_preparation_the_pursuer_turns_but_does_not_drive():
    at = games.level(PLAIN, prep_steps=5)
    first = games.state(PLAIN, (0, 0, 0), (3, 0, 0), at=at)
    state, turns = play(PLAIN, first, (1.0, 1.0), (1.0, 0.0), n=5)
    assert (float(state.pursuer.x_m), float(state.pursuer.y_m)) == (0.0, 0.0)
    assert float(state.pursuer.heading_rad) == pytest.approx(5 * 0.05, abs=1e-6)
    assert float(state.pursuer.speed_mps) == 0.0
    assert float(state.evader.x_m) == pytest.approx(3.25, abs=1e-6)
    assert int(state.step) == 5
    assert {int(turn.outcome) for turn in turns} == {Outcome.RUNNING}
    state, _ = play(PLAIN, state, (1.0, 0.0))  # step number prep_steps is the first that may drive
    assert float(state.pursuer.speed_mps) == 1.0
    assert float(state.pursuer.x_m) == pytest.approx(0.05 * np.cos(0.25), abs=1e-6)


def ended(turn):
    return int(turn.outcome), bool(turn.terminated), bool(turn.truncated)


def test_capture_is_inclusive():
    # 0.5 and 3.5 are exact in binary, so the distance is exactly the radius.
    exact = games.state(PLAIN, (3.0, 0.0, 0.0), (3.5, 0.0, 0.0))
    _, (turn,) = play(PLAIN, exact)
    assert ended(turn) == (Outcome.CAPTURE, True, False)
    beyond = games.state(PLAIN, (3.0, 0.0, 0.0), (np.nextafter(np.float32(3.5), 4), 0.0, 0.0))
    _, (turn,) = play(PLAIN, beyond)
    assert ended(turn) == (Outcome.RUNNING, False, False)


def test_capture_is_judged_after_the_motion():
    near = games.state(PLAIN, (0, 0, 0), (0.54, 0, 0))
    assert ended(play(PLAIN, near, pursuer=(1.0, 0.0))[1][0]) == (Outcome.CAPTURE, True, False)
    close = games.state(PLAIN, (0, 0, 0), (0.46, 0, 0))
    assert ended(play(PLAIN, close, evader=(1.0, 0.0))[1][0]) == (Outcome.RUNNING, False, False)


def test_capture_may_happen_in_preparation():
    at = games.level(PLAIN, prep_steps=10)
    first = games.state(PLAIN, (0, 0, 0), (0.52, 0, pi), at=at)
    assert ended(play(PLAIN, first, evader=(1.0, 0.0))[1][0]) == (Outcome.CAPTURE, True, False)


@functools.cache
def cut_short():
    return arena(timeout="truncates")


@pytest.mark.parametrize("world", [PLAIN, cut_short()], ids=["terminates", "truncates"])
def test_capture_beats_timeout(world):
    first = games.state(world, (0, 0, 0), (0.4, 0, 0), step=599)
    assert ended(play(world, first)[1][0]) == (Outcome.CAPTURE, True, False)


def test_timeout_ends_the_game_or_cuts_it():
    for world, flags in ((PLAIN, (True, False)), (cut_short(), (False, True))):
        last = games.state(world, step=599)
        assert ended(play(world, last)[1][0]) == (Outcome.TIMEOUT, *flags)
        before = games.state(world, step=598)
        assert ended(play(world, before)[1][0]) == (Outcome.RUNNING, False, False)


def test_contact_never_ends_a_game():
    first = games.state(SOLID, (4.8, 0, 0), (-2.0, 0, 0), (-1.2, 0.0, 0.5))
    state, turns = play(SOLID, first, (1.0, 0.0), (1.0, 0.0), n=10)
    assert all(bool(t.contacts.pursuer_wall) for t in turns[2:])
    assert all(bool(t.contacts.evader_obstacle) for t in turns[4:])
    assert {int(t.outcome) for t in turns} == {Outcome.RUNNING}
    assert float(state.evader.x_m) == pytest.approx(-1.85, abs=1e-5)


def test_the_carried_distance_is_the_distance():
    state, _ = play(SOLID, games.state(SOLID, (0, 1, 2), (3, -2, 0)), (1.0, 1.0), (0.7, -1.0), n=30)
    apart = np.hypot(
        float(state.evader.x_m) - float(state.pursuer.x_m), float(state.evader.y_m) - float(state.pursuer.y_m)
    )
    assert float(state.distance_m) == pytest.approx(apart, rel=1e-6)


LEVELS = (
    {"width_m": 10.0, "pursuer_speed_mps": 1.0, "max_steps": 20, "obstacles_min": 0, "obstacles_max": 0},
    {"width_m": 20.0, "height_m": 14.0, "evader_speed_mps": 2.5, "obstacles_min": 3, "obstacles_max": 3},
    {"width_m": 4.0, "height_m": 4.0, "spawn_max_m": 3.0, "capture_radius_m": 2.9, "max_steps": 31},
    {"height_m": 8.0, "prep_steps": 12, "spawn_min_m": 0.6, "spawn_max_m": 0.8, "obstacles_max": 2},
)
STEPS = 40


@functools.cache
def rollout():
    def one(key, level, inputs):
        def go(state, actions):
            told = [SOLID.command(actions[role], level, role) for role in BOTH]
            state, turn = SOLID.step(state, Commands(*told[0], *told[1]))
            return state, (state, turn)

        return jax.lax.scan(go, SOLID.reset(key, level), inputs)[1]

    inputs = np.random.default_rng(3).uniform(-1, 1, (STEPS, 2, 2)).astype(np.float32)
    return jax.jit(jax.vmap(lambda key, level: one(key, level, inputs), in_axes=(0, -1), out_axes=-1))


def test_worlds_of_one_batch_keep_their_own_levels():
    """What a world does in a mixed batch is what it does in a batch of its own kind."""
    levels = [games.level(SOLID, **changes) for changes in LEVELS]
    keys = jax.random.split(jax.random.key(5), len(levels))
    mixed = rollout()(keys, jax.tree.map(lambda *leaves: jnp.stack(leaves, -1), *levels))
    for place, level in enumerate(levels):
        alike = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(levels), -1), level)
        alone = rollout()(jnp.stack([keys[place]] * len(levels)), alike)
        # The same program on the same numbers: no tolerance.
        for a, b in zip(jax.tree.leaves(mixed), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(np.asarray(a)[..., place], np.asarray(b)[..., 0])
    _, turns = mixed
    outcomes = np.asarray(turns.outcome)
    first_end = [int(np.argmax(outcomes[:, b] != Outcome.RUNNING)) for b in range(4)]
    assert outcomes[first_end[0], 0] == Outcome.TIMEOUT
    assert first_end[0] == 19
    assert first_end[2] < 31  # a capture radius of 2.9 m in an arena of 4 m
    assert outcomes[first_end[2], 2] == Outcome.CAPTURE
    states, _ = mixed
    moved = np.abs(np.diff(np.asarray(states.pursuer.x_m)[:, 3]))
    assert moved[:11].max() == 0.0 < moved[11:].max()
    assert np.asarray(states.evader.speed_mps)[:, 1].max() > 1.5
    assert [int((np.asarray(states.obstacles.radius_m)[0, :, b] > 0).sum()) for b in (0, 1)] == [0, 3]


def test_an_episode_keeps_the_level_it_was_born_with():
    at = games.level(PLAIN, max_steps=77, evader_speed_mps=1.25)
    state = games.reset(PLAIN)(jax.random.key(0), at)
    after, _ = games.step(PLAIN)(state, games.commands())
    for field in dataclasses.fields(at):
        assert getattr(after.level, field.name) == getattr(at, field.name)
