"""The shared vocabulary: what a world is, and the records that pass between the layers."""

from typing import Any, Protocol

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped

Metrics = dict[str, Shaped[Array, "..."]]
"""Named measures of one iteration; every value is a scalar per seed."""


class Step(eqx.Module):
    """What one step of a one-agent world hands back beside the successor state.

    `terminated` ends the game for good; `truncated` stops it at a limit, so the learner bootstraps
    from the true successor, which is the state returned by the step and never a reset one.
    """

    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class World(Protocol):
    """One instance of a one-agent world: no batch axis, no hidden state. `vmap` is the caller's.

    A level is data: it is an argument of `reset` and is carried in the state, so an episode keeps
    the level it was born with.
    """

    version: int
    """Bumped on any change of behaviour; golden hashes are kept per version."""
    observation_size: int
    n_actions: int

    def reset(self, key: Key[Array, ""], level: Any) -> PyTree:
        """Draw the first state of an episode."""
        ...

    def step(self, state: PyTree, action: Array) -> tuple[PyTree, Step]:
        """Advance one tick. The state returned is the true successor, also when the episode ended."""
        ...

    def observe(self, state: PyTree) -> Float[Array, " observation"]:
        """Return what the agent sees of a state."""
        ...

    def legal(self, state: PyTree) -> Bool[Array, " actions"]:
        """Return which actions are possible; never all false."""
        ...
