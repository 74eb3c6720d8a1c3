"""What every world promises, for the arena: bytes, traces, types, finite numbers, JSON, and golden games.

To change the golden numbers on purpose: bump `Arena.version`, then
`OUTLAST_GOLDEN=write python -m pytest tests/worlds/arena/test_contract.py -k golden`, and commit the file.
"""

import functools
import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from outlast.worlds.arena import Commands, Outcome, Role
from outlast.worlds.arena.scene import scene

from . import games
from .games import BOTH, RA, arena

EVERYTHING = arena(
    reward={
        "distance_scale": 1.0,
        "potential": 1.0,
        "pursuer_visibility": 0.1,
        "evader_mode": "occlusion",
        "hiding": 0.1,
        "survival_bonus": 0.01,
        "obstacle_approach": 5.0,
        "obstacle_contact": 0.2,
        "wall_contact": 0.1,
        "search": 0.01,
    },
    sensing={"mode": "partial", "radius_m": 4.0, "cone_deg": 120.0},
    level={
        "obstacles_min": 1,
        "obstacles_max": 3,
        "prep_steps": 20,
        "evader_speed_mps": 1.2,
        "max_steps": 150,
    },
    obstacle_slots=3,
    observed_obstacles=2,
    timeout="truncates",
)
WORLDS = {"plain": games.PLAIN, "ra": RA, "everything": EVERYTHING}
each_world = pytest.mark.parametrize("name", WORLDS)
STEPS, B = 200, 4


@functools.cache
def rollout(name):
    """Return a compiled run of open-loop actions: every state, turn and observation."""
    world = WORLDS[name]

    def go(key, actions):
        def step(state, action):
            told = [world.command(action[role], state.level, role) for role in BOTH]
            after, turn = world.step(state, Commands(*told[0], *told[1]))
            return after, (after, turn, [world.observe(after, role) for role in BOTH])

        return jax.lax.scan(step, world.reset(key, games.level(world)), actions)[1]

    return jax.jit(jax.vmap(go, in_axes=(0, None), out_axes=-1))


def actions(name, seed=0):
    """Return actions of both roles, a little beyond their bounds now and then."""
    size = (STEPS, 2, WORLDS[name].action_size)
    return np.random.default_rng(seed).uniform(-1.2, 1.2, size).astype(np.float32)


@functools.cache
def played(name):
    """Play B games for 200 steps, beyond their ends too, as a batch in training would."""
    keys = jax.random.split(jax.random.key(11), B)
    return jax.tree.map(np.asarray, rollout(name)(keys, actions(name)))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def digest(tree):
    return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves(tree))).hexdigest()


@each_world
def test_the_same_key_gives_the_same_bytes_and_another_key_others(name):
    keys = jax.random.split(jax.random.key(11), B)
    again = rollout(name)(keys, actions(name))
    assert digest(again) == digest(played(name))
    other = rollout(name)(jax.random.split(jax.random.key(12), B), actions(name))
    assert digest(other) != digest(played(name))


@each_world
def test_compiled_and_eager_agree(name):
    """Compare a game step by step, each step from the same state.

    Fusion may keep a product unrounded inside a multiply-add: a float32 result moves by a rounding or two of its
    largest term. Terms are at most 20 m here, whose spacing is 2e-6. Integers and flags must be equal.
    """
    world = WORLDS[name]
    state = games.reset(world)(jax.random.key(3), games.level(world))
    with jax.disable_jit():
        slow = world.reset(jax.random.key(3), games.level(world))
    same_within_rounding(state, slow)
    for action in actions(name, seed=1)[:6]:
        told = [world.command(jnp.asarray(action[role]), state.level, role) for role in BOTH]
        told = Commands(*told[0], *told[1])
        with jax.disable_jit():
            slow = world.step(state, told), [world.observe(state, role) for role in BOTH]
        fast = games.step(world)(state, told), list(games.observe(world)(state))
        same_within_rounding(fast, slow)
        state = fast[0][0]


def same_within_rounding(fast, slow):
    assert jax.tree.structure(fast) == jax.tree.structure(slow)
    for a, b in zip(leaves(fast), leaves(slow), strict=True):
        assert a.dtype == b.dtype
        if a.dtype == np.float32:
            # 50 is the largest weight (obstacle approach); it multiplies a difference over the diagonal.
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-5)
        else:
            np.testing.assert_array_equal(a, b)


@each_world
def test_one_trace_serves_every_level_state_and_command(name):
    world, traces = WORLDS[name], []

    @jax.jit
    def step(state, told):
        traces.append(1)
        after, turn = world.step(state, told)
        return after, turn, [world.observe(after, role) for role in BOTH]

    state = games.reset(world)(jax.random.key(0), games.level(world))
    for speed in (0.0, 1.0):
        state, _, _ = step(state, games.commands((speed, 0.5), (1.0, -speed)))
    other = games.level(world, width_m=6.0, max_steps=3, capture_radius_m=0.1, prep_steps=7)
    for key in range(3):
        step(games.reset(world)(jax.random.key(key), other), games.commands())
    assert len(traces) == 1


@each_world
def test_types_are_stable_and_strong(name):
    """A successor has the very types of a first state, weak types too: else a scan or a second call retraces."""
    world = WORLDS[name]
    first = jax.eval_shape(world.reset, jax.random.key(0), games.level(world))
    after, turn = jax.eval_shape(world.step, first, games.commands())
    assert jax.tree.structure(first) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
    kinds = {name: leaf.dtype for name, leaf in vars(turn).items() if name != "contacts"}
    assert kinds == {
        "pursuer_reward": jnp.float32,
        "evader_reward": jnp.float32,
        "outcome": jnp.int32,
        "terminated": jnp.bool_,
        "truncated": jnp.bool_,
    }
    assert {leaf.dtype for leaf in jax.tree.leaves(turn.contacts)} == {jnp.dtype(bool)}


@each_world
def test_no_rank_is_promoted_in_a_step(name):
    """Shapes meet by design, never by accident (the batched draws of `reset` broadcast on purpose)."""
    world = WORLDS[name]
    first = jax.eval_shape(world.reset, jax.random.key(0), games.level(world))
    with jax.numpy_rank_promotion("raise"):
        after, _ = jax.eval_shape(lambda s, c: world.step(s, c), first, games.commands())
        for role in BOTH:
            jax.eval_shape(lambda s, role=role: world.observe(s, role), after)


@each_world
def test_everything_is_finite_under_random_play(name):
    states, turns, seen = played(name)
    for leaf in leaves((states, turns, seen)):
        assert np.isfinite(leaf).all()
    # Egocentric and absolute entries alike stay of order one; the radius in metres is the largest.
    assert np.abs(np.stack(seen)).max() <= 2.0


@each_world
def test_games_end_only_by_capture_or_at_the_limit(name):
    states, turns, _ = played(name)
    outcome, step = turns.outcome, states.step
    close = states.distance_m <= states.level.capture_radius_m
    late = ~close & (step >= states.level.max_steps)
    np.testing.assert_array_equal(outcome == Outcome.CAPTURE, close)
    np.testing.assert_array_equal(outcome == Outcome.TIMEOUT, late)
    truncates = WORLDS[name].config.timeout == "truncates"
    np.testing.assert_array_equal(turns.truncated, late & truncates)
    np.testing.assert_array_equal(turns.terminated, close | (late & (not truncates)))
    np.testing.assert_array_equal(step[:, 0], np.arange(1, STEPS + 1))


def test_the_default_layout_does_not_depend_on_its_batch():
    """A world in a batch of B is the world alone, up to the rounding of another vector width."""
    keys = jax.random.split(jax.random.key(11), B)
    alone = rollout("plain")(keys[:1], actions("plain"))
    for a, b in zip(leaves(played("plain")), leaves(alone), strict=True):
        # Open-loop commands: roundings of 1e-6 a step add up over 200 steps, at worst linearly.
        np.testing.assert_allclose(a[..., 0], b[..., 0], atol=2e-4)


def test_a_scene_is_strict_json_and_shows_the_state():
    world = games.SOLID
    state = games.state(world, (1.0, -2.0, 0.5, 0.75), (-3.0, 4.0, -1.0, 0.25), (0.0, 0.0, 0.5), step=7)
    document = json.loads(json.dumps(scene(state), allow_nan=False))
    assert document == {
        "kind": "arena",
        "width_m": 10.0,
        "height_m": 10.0,
        "step": 7,
        "max_steps": 600,
        "distance_m": pytest.approx(np.hypot(4, 6), rel=1e-6),
        "pursuer": {"x_m": 1.0, "y_m": -2.0, "heading_rad": 0.5, "speed_mps": 0.75},
        "evader": {"x_m": -3.0, "y_m": 4.0, "heading_rad": -1.0, "speed_mps": 0.25},
        "obstacles": [{"x_m": 0.0, "y_m": 0.0, "radius_m": 0.5}],
    }


def test_roles_are_each_others_opponents():
    assert [role.other for role in Role] == [Role.EVADER, Role.PURSUER]


GOLDEN = Path(__file__).parents[2] / "golden" / "arena.json"
SAMPLED = slice(19, None, 20)


def machine():
    """Name what decides the last bits: jaxlib and the instruction set."""
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    isa = next((name for name in ("avx512f", "avx2", "avx", "asimd") if name in flags), "base")
    return f"jaxlib {version('jaxlib')}, {platform.machine()}, {isa}"


def summary(name):
    """Return every 20th step of the four games, rounded, and the hash of every byte."""
    states, turns, seen = played(name)
    rows = {
        "pursuer": [states.pursuer.x_m, states.pursuer.y_m, states.pursuer.heading_rad],
        "evader": [states.evader.x_m, states.evader.y_m, states.evader.heading_rad],
        "rewards": [turns.pursuer_reward, turns.evader_reward],
        "outcome": [turns.outcome],
        "seen": [entry.sum(axis=1) for entry in seen],
    }
    numbers = {
        key: np.round(np.stack(value)[:, SAMPLED].astype(float), 5).tolist() for key, value in rows.items()
    }
    return {"sha256": digest((states, turns, seen)), "numbers": numbers}


@each_world
def test_golden_games(name):
    """The same 200 scripted steps as ever; a change of behaviour must bump the world's version.

    Bytes are compared where the numbers were made (same jaxlib and instruction set); elsewhere, and first, the
    rounded trajectories, whose open-loop commands let roundings of 1e-6 a step grow to 2e-4 at most.
    """
    key, now = f"version {WORLDS[name].version}, {name}", summary(name)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("OUTLAST_GOLDEN") == "write":
        golden |= {key: now, "made on": machine()}
        GOLDEN.write_text(
            json.dumps(golden, sort_keys=True, separators=(",", ":")).replace('"version', '\n"version') + "\n"
        )
    assert key in golden, f"no golden game for {key}: see the top of this file"
    then = golden[key]
    for row, values in then["numbers"].items():
        # Headings jump by a turn at pi; the cosine of the difference does not, but none comes near it here.
        np.testing.assert_allclose(now["numbers"][row], values, atol=1e-3, err_msg=row)
    if golden["made on"] == machine():
        assert now["sha256"] == then["sha256"]
