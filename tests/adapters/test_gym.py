"""The Gymnasium adapter is the world itself: its games, its rewards, its ends, and the conventions of the API."""

import copy
import dataclasses
import functools
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from outlast.adapters import gym as adapter
from outlast.adapters.gym import ArenaEnv, ArenaVectorEnv
from outlast.config import validate
from outlast.programs import from_preset
from outlast.programs.duel_config import DuelConfig
from outlast.programs.play import scripted_commands
from outlast.worlds.arena import Commands, Outcome, Role

MODES = list(AutoresetMode)


def config_of(learner: str = "pursuer", opponents: dict | None = None, **arena) -> DuelConfig:
    """Return a configuration with short episodes."""
    names = opponents or ({"flee_away": 0.5, "random": 0.5} if learner == "pursuer" else {"lead": 1.0})
    level = {"max_steps": 40, "spawn_max_m": 4.0} | arena.pop("level", {})
    document = {"learner": learner, "opponents": names, "arena": {"level": level, **arena}}
    return validate(DuelConfig, document, source="test")


CONFIGS = {
    "pursuer": config_of(),
    "evader": config_of("evader"),
    "obstacles": config_of(obstacle_slots=2, observed_obstacles=2, level={"obstacles_max": 2}),
    "absolute": config_of("evader", observation="absolute", level={"evader_speed_mps": 1.5}),
    "fixed_speed": config_of(fixed_speed=True),
    "partial": config_of(sensing={"mode": "partial", "radius_m": 2.0}),
    "truncates": config_of(timeout="truncates"),
}


def actions_of(env: ArenaEnv, n: int, seed: int = 0) -> np.ndarray:
    """Return uniform actions for `n` steps."""
    return np.random.default_rng(seed).uniform(-1, 1, (n, *env.action_space.shape)).astype(np.float32)


def rolled_out(env: ArenaEnv, seed: int, n: int = 100) -> list:
    """Play uniform actions through whole episodes; give all that was returned."""
    seen = [env.reset(seed=seed)]
    for action in actions_of(env, n):
        seen.append(env.step(action))
        if seen[-1][2] or seen[-1][3]:
            seen.append(env.reset())
    return seen


def same(left: object, right: object) -> bool:
    """Compare nested returns as bytes."""
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.mark.parametrize("name", CONFIGS)
def test_gymnasium_accepts_the_environment(name):
    # Without a spec the checker warns that it cannot make the environment again; `test_made` covers that.
    with pytest.warns(UserWarning, match="not having a spec"):
        check_env(ArenaEnv(CONFIGS[name]))


@pytest.mark.parametrize("name", ["outlast/Chase-v0", "outlast/Flee-v0"])
def test_made_by_name(name):
    check_env(gymnasium.make(name).unwrapped)
    envs = gymnasium.make_vec(name, num_envs=3)
    assert isinstance(envs.unwrapped, ArenaVectorEnv)
    assert envs.reset(seed=0)[0].shape == envs.observation_space.shape


def test_stable_baselines_accepts_the_environment():
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(ArenaEnv(CONFIGS["pursuer"]))


@pytest.mark.parametrize("name", CONFIGS)
def test_observations_stay_inside_their_space(name):
    envs = ArenaVectorEnv(64, CONFIGS[name], autoreset_mode="SameStep")
    assert np.all(envs.single_observation_space.low < envs.single_observation_space.high)
    observations = [envs.reset(seed=1)[0]]
    rng = np.random.default_rng(0)
    for _ in range(100):
        # Corners of the action space reach walls and limits that a uniform draw does not.
        observations.append(envs.step(np.sign(rng.normal(size=envs.action_space.shape)))[0])
    for batch in observations:
        assert envs.observation_space.contains(batch)


def test_one_seed_gives_one_run():
    first, again = ArenaEnv(CONFIGS["pursuer"]), ArenaEnv(CONFIGS["pursuer"])
    run = rolled_out(first, 7)
    assert same(run, rolled_out(again, 7))
    assert same(run, rolled_out(first, 7)), "a seed must not depend on what was played before"
    assert not same(run, rolled_out(again, 8))


def test_a_copy_goes_on_alike():
    env = ArenaEnv(CONFIGS["pursuer"])
    env.reset(seed=3)
    env.step(env.action_space.sample())
    twin, actions = copy.deepcopy(env), actions_of(env, 5)
    assert all(same(env.step(action), twin.step(action)) for action in actions)


@pytest.mark.parametrize("name", ["pursuer", "evader", "obstacles"])
def test_plays_the_world_itself(name):
    config = CONFIGS[name]
    env, world, role = ArenaEnv(config), adapter.world_of(config), config.roles[0]
    observation, _ = env.reset(seed=11)
    draw = jax.jit(functools.partial(adapter.first_game, config))
    game = draw(jnp.uint32(11), jnp.int32(0))
    arena = game.arena
    for action in actions_of(env, 40):
        np.testing.assert_allclose(observation, world.observe(arena, role), atol=1e-5)
        game = dataclasses.replace(game, arena=arena)
        batch = jax.tree.map(lambda leaf: leaf[..., None], game)
        draws = adapter.opponent_draws(game)[:, None]
        theirs = scripted_commands(config, batch.arena, batch.opponent, draws, role.other)
        mine, theirs = world.command(action, arena.level, role), tuple(t[0] for t in theirs)
        both = mine + theirs if role == Role.PURSUER else theirs + mine
        arena, turn = world.step(arena, Commands(*both))
        observation, reward, terminated, truncated, info = env.step(action)
        expected = turn.pursuer_reward if role == Role.PURSUER else turn.evader_reward
        # The world runs uncompiled here, so its last bits differ.
        assert reward == pytest.approx(float(expected), abs=1e-5)
        assert (terminated, truncated) == (bool(turn.terminated), bool(turn.truncated))
        assert info["outcome"] == int(turn.outcome)
        assert info["distance_m"] == pytest.approx(float(arena.distance_m), abs=1e-4)
        if terminated or truncated:
            break


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_agrees_with_gymnasiums_own(mode):
    config, n = CONFIGS["pursuer"], 5
    ours = ArenaVectorEnv(n, config, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: ArenaEnv(config)] * n, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == mode
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    agree(ours.reset(seed=4), theirs.reset(seed=4))
    rng = np.random.default_rng(0)
    n_ended = 0
    for _ in range(130):
        actions = rng.uniform(-1, 1, ours.action_space.shape).astype(np.float32)
        returned = ours.step(actions)
        agree(returned, theirs.step(actions))
        n_ended += int(np.sum(returned[2] | returned[3]))
    assert n_ended >= 3 * n
    assert [r.dtype for r in returned[:4]] == [np.float32, np.float64, bool, bool]


def agree(ours: object, theirs: object) -> None:
    """Compare returns of two vector environments; batches of other widths differ in last bits."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            agree(ours[key], theirs[key])
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            agree(left, right)
    elif theirs.dtype == object:
        for left, right in zip(ours, theirs, strict=True):
            assert (left is None) == (right is None)
            if right is not None:
                np.testing.assert_allclose(left, right, atol=2e-4)
    else:
        np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_same_step_tells_the_true_last_observation():
    envs = ArenaVectorEnv(8, CONFIGS["truncates"], autoreset_mode="SameStep")
    envs.reset(seed=0)
    still = np.tile(np.array([-1.0, 0.0], np.float32), (8, 1))
    for _ in range(200):
        observations, _, terminated, truncated, infos = envs.step(still)
        if (terminated | truncated).any():
            break
    ended = terminated | truncated
    np.testing.assert_array_equal(infos["_final_obs"], ended)
    time_to_go = envs.single_observation_space.shape[0] - 2
    for place in np.flatnonzero(ended):
        last = infos["final_obs"][place]
        assert infos["final_info"]["step"][place] == round(40 * (1 - last[time_to_go]))
        assert observations[place][time_to_go] == 1.0
    assert np.all(infos["step"][ended] == 0)


@pytest.mark.parametrize(("timeout", "flags"), [("terminates", (True, False)), ("truncates", (False, True))])
def test_running_out_of_time_ends_as_configured(timeout, flags):
    env = ArenaEnv(config_of(opponents={"flee_away": 1.0}, timeout=timeout, level={"spawn_min_m": 3.0}))
    env.reset(seed=0)
    for _ in range(40):
        _, reward, terminated, truncated, info = env.step(np.array([-1.0, 0.0], np.float32))
    assert (terminated, truncated) == flags
    assert (info["outcome"], info["step"], info["is_success"], reward) == (Outcome.TIMEOUT, 40, False, -1.0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.action_space.sample())


def test_disabled_autoreset_restarts_on_demand():
    envs = ArenaVectorEnv(3, CONFIGS["evader"], autoreset_mode="Disabled")
    envs.reset(seed=0)
    ended = np.zeros(3, bool)
    while not ended.any():
        observations, _, terminated, truncated, _ = envs.step(np.zeros((3, 2), np.float32))
        ended = terminated | truncated
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(np.zeros((3, 2), np.float32))
    after, infos = envs.reset(options={"reset_mask": ended})
    np.testing.assert_array_equal(after[~ended], observations[~ended])
    np.testing.assert_array_equal(infos["_step"], ended)
    envs.step(np.zeros((3, 2), np.float32))


def test_wrappers_of_gymnasium_count_episodes():
    envs = RecordEpisodeStatistics(ArenaVectorEnv(4, CONFIGS["pursuer"]))
    envs.reset(seed=0)
    lengths = []
    for _ in range(100):
        infos = envs.step(np.zeros((4, 2), np.float32))[4]
        lengths += [int(v) for v in infos["episode"]["l"][infos["_episode"]]] if "episode" in infos else []
    assert lengths
    assert max(lengths) <= 40


def test_words_hold_every_bit():
    tree = {
        "a": jnp.array([[1.5, -0.0], [jnp.nan, jnp.inf]]),
        "b": jnp.array([True, False]),
        "c": jnp.array([-1, 2**31 - 1], jnp.int32),
        "d": jnp.array([2**32 - 1, 0], jnp.uint32),
    }
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype), tree)
    again = adapter.unpacked(adapter.words_of(tree), like)
    assert all(same(np.asarray(again[name]), np.asarray(tree[name])) for name in tree)


@pytest.mark.parametrize(
    "made",
    [
        lambda: ArenaEnv(render_mode="human"),
        lambda: ArenaEnv(from_preset("chase", ["learner=both", "opponents={}"])),
        lambda: ArenaVectorEnv(0),
        lambda: ArenaVectorEnv(2).reset(seed=[1, 2, 3]),
        lambda: ArenaVectorEnv(2).reset(options={"reset_mask": np.zeros(2, bool)}),
        lambda: ArenaVectorEnv(2).reset(options={"reset_mask": np.ones(3, bool)}),
    ],
)
def test_mistakes_are_refused(made):
    with pytest.raises(ValueError, match=r"learner|render_mode|num_envs|seeds|reset_mask"):
        made()


def test_outlast_does_not_need_gymnasium():
    code = "import outlast.adapters, outlast.cli, outlast.run.loop, sys; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
