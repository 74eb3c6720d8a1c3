"""Our batched world as a vector environment of stable-baselines3: one compiled call a step for all worlds."""

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from outlast.adapters.gym import ArenaVectorEnv


class BatchedArena(VecEnv):
    """An `ArenaVectorEnv` in its same-step mode; `infos` hold the last observation of games that ended."""

    def __init__(self, envs: ArenaVectorEnv, seed: int) -> None:
        self.envs, self.first_seed, self.actions = envs, seed, None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> np.ndarray:
        """Begin every game anew."""
        return self.envs.reset(seed=self.first_seed)[0]

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for the step."""
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Play one step of every game."""
        observations, rewards, terminated, truncated, more = self.envs.step(self.actions)
        ended = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for place in np.flatnonzero(ended):
            infos[place] = {
                "terminal_observation": more["final_obs"][place],
                "TimeLimit.truncated": bool(truncated[place] and not terminated[place]),
            }
        return observations, rewards.astype(np.float32), ended, infos

    def close(self) -> None:
        """Hold nothing that needs closing."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, once for every world."""
        return [getattr(self.envs, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: the worlds of a batch share everything."""
        raise NotImplementedError(attr_name)

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **more: Any) -> list[Any]:
        """Refuse: there are no single environments to call."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Say that nothing is wrapped."""
        return [False] * self.num_envs


def batched(n: int, config: Any, seed: int) -> BatchedArena:
    """Return `n` worlds of a configuration."""
    return BatchedArena(ArenaVectorEnv(n, config, autoreset_mode="SameStep"), seed)
