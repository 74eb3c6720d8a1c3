"""The one-sided arena for Gymnasium: a role to be learned against the weighted scripted opponents of a `DuelConfig`.

A game is packed into one column of words, so that a step of one world or of thousands is one compiled call with
one array back. Needs the extra `gym`; nothing else in the package imports this module.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Float, Int, PyTree, UInt32

from outlast.config import canonical_json
from outlast.keys import Purpose, address
from outlast.programs import from_json, from_preset
from outlast.programs.duel_config import DuelConfig
from outlast.programs.play import scripted_commands
from outlast.worlds.arena import Arena, ArenaConfig, ArenaState, Commands, Outcome, Role, level_of
from outlast.worlds.arena.observe import observation_fields
from outlast.worlds.arena.scripted import N_DRAWS

ROUNDING = 1e-5
RESTARTS_AT_ONCE = 32
SEEDS = 2**32
REWARD, TERMINATED, TRUNCATED, OUTCOME, DISTANCE, STEP, OPPONENT = range(7)
N_FACTS = 7


class Game(eqx.Module):
    """One game in progress and the address of its randomness."""

    arena: ArenaState
    opponent: Int[Array, ""]
    seed: UInt32[Array, ""]
    episode: Int[Array, ""]


class Programs(NamedTuple):
    """The compiled programs of one configuration and number of worlds; a report is facts, then observation."""

    step: Callable[[Array, np.ndarray], tuple[Array, Array]]
    restart: Callable[[Array, np.ndarray, np.ndarray, np.ndarray], tuple[Array, Array]]
    n_words: int


def words_of(tree: PyTree) -> Int[Array, "S N"]:
    """Pack a tree with the world axis last into words, bit for bit."""
    rows = []
    for leaf in jax.tree.leaves(tree):
        as_word = (
            leaf.astype(jnp.int32) if leaf.dtype == bool else jax.lax.bitcast_convert_type(leaf, jnp.int32)
        )
        rows.append(as_word.reshape(-1, leaf.shape[-1]))
    return jnp.concatenate(rows)


def unpacked(words: Int[Array, "S N"], like: PyTree) -> PyTree:
    """Return the tree that was packed; `like` gives the shapes of one instance."""
    shapes, structure = jax.tree.flatten(like)
    leaves, begin = [], 0
    for shape in shapes:
        rows = words[begin : begin + shape.size].reshape(*shape.shape, words.shape[-1])
        begin += shape.size
        is_bool = shape.dtype == bool
        leaves.append(rows.astype(bool) if is_bool else jax.lax.bitcast_convert_type(rows, shape.dtype))
    return jax.tree.unflatten(structure, leaves)


def first_game(config: DuelConfig, seed: UInt32[Array, ""], episode: Int[Array, ""]) -> Game:
    """Draw a game from its address: the same seed and episode, the same game, in a batch of any size."""
    world_key, opponent_key = jax.random.split(address(seed, episode, Purpose.WORLDS))
    shares = np.array(list(config.scripted_shares(config.roles[0].other).values()))
    opponent = jnp.sum(jax.random.uniform(opponent_key) >= np.cumsum(shares)[:-1].astype(np.float32))
    arena = world_of(config).reset(world_key, level_of(config.arena.level))
    return Game(arena, opponent.astype(jnp.int32), seed, episode)


def world_of(config: DuelConfig) -> Arena:
    """Return the world that a configuration trains in."""
    return Arena(config.arena, discount=config.ppo.discount)


def played(config: DuelConfig, games: Game, actions: Float[Array, "N A"]) -> tuple[Game, Float[Array, "R N"]]:
    """Let both sides act once in every game; also return the reports of the true successors."""
    role, world = config.roles[0], world_of(config)
    draws = jnp.zeros((N_DRAWS, actions.shape[0]))
    if "random" in config.scripted_shares(role.other):
        draws = jax.vmap(opponent_draws, in_axes=-1, out_axes=-1)(games)
    theirs = scripted_commands(config, games.arena, games.opponent, draws, role.other)

    def one(game: Game, action: Array, theirs: tuple[Array, Array]) -> tuple[Game, Array]:
        mine = world.command(action, game.arena.level, role)
        both = Commands(*(mine + theirs if role == Role.PURSUER else theirs + mine))
        arena, turn = world.step(game.arena, both)
        reward = turn.pursuer_reward if role == Role.PURSUER else turn.evader_reward
        game = Game(arena, game.opponent, game.seed, game.episode)
        return game, report(config, game, reward, turn.terminated, turn.truncated, turn.outcome)

    return jax.vmap(one, in_axes=(-1, 0, -1), out_axes=-1)(games, actions, theirs)


def opponent_draws(game: Game) -> Float[Array, " draws"]:
    """Return the draws of a random opponent for the step that a game is at."""
    key = jax.random.fold_in(address(game.seed, game.episode, Purpose.OPPONENT), game.arena.step)
    return jax.random.uniform(key, (N_DRAWS,))


def report(config: DuelConfig, game: Game, *judged: Array) -> Float[Array, " R"]:
    """Return everything that a caller is told of a game: facts, then the observation."""
    facts = (*judged, game.arena.distance_m, game.arena.step, game.opponent)
    entries = jnp.stack([jnp.asarray(fact, jnp.float32) for fact in facts])
    return jnp.concatenate([entries, world_of(config).observe(game.arena, config.roles[0])])


@functools.lru_cache(maxsize=32)
def compiled_programs(config_json: str, n: int) -> Programs:
    """Return the programs of `n` worlds; environments of equal configuration share them."""
    config = from_json(config_json, source="the environment's configuration")
    draw = functools.partial(first_game, config)
    like = jax.eval_shape(draw, jnp.uint32(0), jnp.int32(0))
    n_words = sum(leaf.size for leaf in jax.tree.leaves(like))
    nothing = (jnp.float32(0), jnp.bool_(False), jnp.bool_(False), jnp.int32(Outcome.RUNNING))

    def step(words: Array, actions: Array) -> tuple[Array, Array]:
        games, reports = played(config, unpacked(words, like), actions)
        return words_of(games), reports.T

    def restart(words: Array, places: Array, seeds: Array, episodes: Array) -> tuple[Array, Array]:
        games = jax.vmap(draw, out_axes=-1)(seeds, episodes)
        words = words.at[:, places].set(words_of(games), mode="drop")
        return words, jax.vmap(lambda game: report(config, game, *nothing), in_axes=-1)(games)

    return Programs(jax.jit(step), jax.jit(restart), n_words)


class Worlds:
    """Games on the device, and which episode of which seed each of them plays."""

    def __init__(self, config: DuelConfig, n: int) -> None:
        self._programs = compiled_programs(canonical_json(config, without=("run",)), n)
        self._words: Any = np.zeros((self._programs.n_words, n), np.int32)
        self._seeds, self._episodes = np.zeros(n, np.uint32), np.full(n, -1, np.int32)
        self._width = min(n, RESTARTS_AT_ONCE)

    def seed(self, places: np.ndarray, seeds: np.ndarray) -> None:
        """Give worlds a seed; their next episode is its first."""
        self._seeds[places], self._episodes[places] = seeds, -1

    def restart(self, places: np.ndarray) -> Float[np.ndarray, "W R"]:
        """Begin the next episode of some worlds; return their reports."""
        self._episodes[places] += 1
        n, reports = len(self._seeds), []
        for begin in range(0, len(places), self._width):
            some = places[begin : begin + self._width]
            # Places past the end are dropped by the scatter: a call has one shape, whatever number ended.
            padded = np.full(self._width, n, np.int32)
            padded[: len(some)] = some
            which = np.minimum(padded, n - 1)
            self._words, rows = self._programs.restart(
                self._words, padded, self._seeds[which], self._episodes[which]
            )
            reports.append(np.asarray(rows)[: len(some)])
        return np.concatenate(reports)

    def step(self, actions: Float[np.ndarray, "N A"]) -> Float[np.ndarray, "N R"]:
        """Play one step of every world; return the reports of the true successors."""
        self._words, reports = self._programs.step(self._words, actions)
        return np.asarray(reports)


class ArenaEnv(gymnasium.Env):
    """One game at a time. `info` holds outcome, distance_m, step, opponent and, as a bool, is_success.

    `reset(seed=s)` plays the first episode of seed s, each plain `reset()` the next one.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, config: DuelConfig | None = None, *, render_mode: str | None = None) -> None:
        self.config = checked(config, render_mode)
        self.observation_space, self.action_space = spaces(self.config)
        self._worlds, self._place = Worlds(self.config, 1), np.zeros(1, np.int64)
        self._is_seeded, self._running = False, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None or not self._is_seeded:
            drawn = int(self.np_random.integers(SEEDS)) if seed is None else seed
            self._worlds.seed(self._place, np.array([drawn % SEEDS], np.uint32))
            self._is_seeded = True
        row = self._worlds.restart(self._place)[0]
        self._running = True
        return row[N_FACTS:].copy(), self._info(row[:N_FACTS].tolist())

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Play one step."""
        if not self._running:
            raise ResetNeeded("the episode has ended or has not begun: call reset() first")
        row = self._worlds.step(np.asarray(action, np.float32).reshape(1, -1))[0]
        facts = row[:N_FACTS].tolist()
        terminated, truncated = facts[TERMINATED] > 0, facts[TRUNCATED] > 0
        self._running = not (terminated or truncated)
        return row[N_FACTS:].copy(), facts[REWARD], terminated, truncated, self._info(facts)

    def _info(self, facts: list[float]) -> dict[str, Any]:
        outcome = int(facts[OUTCOME])
        return {
            "outcome": outcome,
            "distance_m": facts[DISTANCE],
            "step": int(facts[STEP]),
            "opponent": int(facts[OPPONENT]),
            "is_success": outcome == won_by(self.config.roles[0]),
        }


class ArenaVectorEnv(VectorEnv):
    """Many games, stepped by one compiled call; world i of seed s plays the episodes of `ArenaEnv` with seed s + i.

    The three autoreset modes of Gymnasium mean here what they mean in `SyncVectorEnv`.
    """

    def __init__(
        self,
        num_envs: int,
        config: DuelConfig | None = None,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs = {num_envs} is out of range (allowed: 1 or more)")
        self.num_envs, self.config = num_envs, checked(config, render_mode)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self.single_action_space = spaces(self.config)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._worlds, self._is_seeded = Worlds(self.config, num_envs), False
        self._reports = np.zeros((num_envs, N_FACTS + self.single_observation_space.shape[0]), np.float32)
        self._ended = np.ones(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in every world, or in those of `options["reset_mask"]`."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        chosen = self._chosen(options)
        places = np.flatnonzero(chosen)
        if seed is None and not self._is_seeded:
            seed = int(self.np_random.integers(SEEDS))
        if seed is not None:
            seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else list(seed)
            if len(seeds) != self.num_envs:
                raise ValueError(f"{len(seeds)} seeds for {self.num_envs} worlds")
            given = np.array([i for i in places if seeds[i] is not None], np.int64)
            self._worlds.seed(given, np.array([seeds[i] % SEEDS for i in given], np.uint32))
            self._is_seeded = True
        self._restart(places)
        return self._reports[:, N_FACTS:].copy(), self._infos(self._reports, chosen)

    def _chosen(self, options: dict[str, Any] | None) -> np.ndarray:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, bool)
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (self.num_envs,):
            raise ValueError(f"options['reset_mask'] must be a bool array of shape ({self.num_envs},)")
        if not mask.any():
            raise ValueError("options['reset_mask'] chooses no world")
        return mask

    def _restart(self, places: np.ndarray) -> None:
        self._reports[places] = self._worlds.restart(places)
        self._ended[places] = False

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one step of every world and restart those that ended, now or at the next step, by the mode."""
        before, mode = self._ended.copy(), self.autoreset_mode
        if before.any() and (mode != AutoresetMode.NEXT_STEP or not self._is_seeded):
            raise ResetNeeded(f"{int(before.sum())} episodes have ended or not begun: call reset() first")
        self._reports = self._worlds.step(np.asarray(actions, np.float32)).copy()
        if before.any():
            self._restart(np.flatnonzero(before))
        judged = self._reports[:, :N_FACTS].copy()
        terminated, truncated = judged[:, TERMINATED] > 0, judged[:, TRUNCATED] > 0
        self._ended = terminated | truncated
        final: dict[str, Any] = {}
        if mode == AutoresetMode.SAME_STEP and self._ended.any():
            final = self._final(self._ended.copy())
            self._restart(np.flatnonzero(self._ended))
        everywhere = np.ones(self.num_envs, bool)
        infos = self._infos(self._reports, everywhere) | final
        observations = self._reports[:, N_FACTS:].copy()
        return observations, judged[:, REWARD].astype(np.float64), terminated, truncated, infos

    def _final(self, ended: np.ndarray) -> dict[str, Any]:
        observations = np.full(self.num_envs, None, dtype=object)
        for place in np.flatnonzero(ended):
            observations[place] = self._reports[place, N_FACTS:].copy()
        infos = self._infos(self._reports, ended)
        return {
            "final_obs": observations,
            "_final_obs": ended,
            "final_info": infos,
            "_final_info": ended.copy(),
        }

    def _infos(self, reports: np.ndarray, told: np.ndarray) -> dict[str, Any]:
        facts = np.where(told[:, None], reports[:, :N_FACTS], 0.0)
        infos = {
            "outcome": facts[:, OUTCOME].astype(np.int64),
            "distance_m": facts[:, DISTANCE].astype(np.float64),
            "step": facts[:, STEP].astype(np.int64),
            "opponent": facts[:, OPPONENT].astype(np.int64),
            "is_success": facts[:, OUTCOME] == won_by(self.config.roles[0]),
        }
        return infos | {f"_{name}": told.copy() for name in infos}


def checked(config: DuelConfig | None, render_mode: str | None) -> DuelConfig:
    """Return the configuration of an environment (preset `chase` for None), or say what cannot be."""
    if render_mode is not None:
        raise ValueError(f"render_mode = {render_mode!r}: the arena is not drawn here (allowed: None)")
    config = from_preset("chase", []) if config is None else config
    if len(config.roles) != 1:
        raise ValueError(f"learner = {config.learner!r}: an environment has one (allowed: pursuer, evader)")
    return config


def won_by(role: Role) -> Outcome:
    """Return the outcome that a role plays for."""
    return Outcome.CAPTURE if role == Role.PURSUER else Outcome.TIMEOUT


def spaces(config: DuelConfig) -> tuple[Box, Box]:
    """Return the observation and the action space of one world."""
    bounds = [
        observation_bounds(name, config.arena, config.roles[0]) for name in observation_fields(config.arena)
    ]
    low, high = (np.array(column, np.float32) for column in zip(*bounds, strict=True))
    actions = world_of(config).action_size
    return Box(low - ROUNDING, high + ROUNDING), Box(-1.0, 1.0, (actions,), np.float32)


def observation_bounds(name: str, config: ArenaConfig, role: Role) -> tuple[float, float]:
    """Return the least and greatest value that an entry of the observation can take, but for rounding."""
    level, part = config.level, name.split(" ", 2)[2] if name.startswith("obstacle ") else name
    speeds = level.pursuer_speed_mps, level.evader_speed_mps
    speed = turn = 1.0
    if config.observation == "absolute":
        # The originals' layout measures both robots by the limits of the pursuer.
        speed = max(1.0, speeds[1] / speeds[0])
        turn = max(1.0, config.evader_turn_radps / config.pursuer_turn_radps)
    if part in ("own turn rate", "opponent turn rate"):
        return -turn, turn
    if part in ("own speed", "opponent speed"):
        return 0.0, speed
    if part == "speed ratio":
        return -1.0, max(1.0, speeds[role.other] / speeds[role] - 1.0)
    if part == "radius":
        return 0.0, config.obstacle_radius_max_m
    shares = ("distance", "nearest wall in x", "nearest wall in y", "opponent visible", "time to go")
    return (0.0 if part in (*shares, "preparation left") else -1.0), 1.0


def arena_env(preset: str = "chase", overrides: Sequence[str] = (), **options: Any) -> ArenaEnv:
    """Return the environment of a preset, with `path.to.field=value` overrides."""
    return ArenaEnv(from_preset(preset, list(overrides)), **options)


def arena_vector_env(
    num_envs: int, preset: str = "chase", overrides: Sequence[str] = (), **options: Any
) -> ArenaVectorEnv:
    """Return the vector environment of a preset, with `path.to.field=value` overrides."""
    return ArenaVectorEnv(num_envs, from_preset(preset, list(overrides)), **options)


for _name in ("chase", "flee"):
    gymnasium.register(
        f"outlast/{_name.title()}-v0",
        entry_point=f"{__name__}:arena_env",
        vector_entry_point=f"{__name__}:arena_vector_env",
        kwargs={"preset": _name},
    )
