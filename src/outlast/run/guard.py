"""The guard against numbers that are not finite: stop, keep the last good state, dump what led there.

A learner refuses such an update by itself (its parameters stay finite), so what is left is to find the batch. The
run is exact, so the batch is played again from the last checkpoint instead of being kept at every iteration.
"""

from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from outlast.run import checkpoint, layout
from outlast.run.errors import RunProblem
from outlast.run.leaves import named, restored


class NonFinite(RunProblem):
    """An update was not finite."""

    def __init__(self, iteration: int, seed: int, name: str) -> None:
        super().__init__(f"iteration {iteration}, seed {seed}: {name} is not finite")
        self.iteration, self.seed, self.name = iteration, seed, name

    def at(self, path: Path) -> Self:
        """Say where the evidence is and what to do."""
        self.args = (
            f"{self.args[0]}; training stopped, the last good checkpoint is kept, the state and the batch that "
            f"led there are in {path}; lower the learning rate or look at the batch",
        )
        return self


def check_finite(iteration: int, metrics: dict[str, np.ndarray], seeds: list[int]) -> None:
    """Raise for the first seed with an update that was refused."""
    for name in metrics:
        if name.endswith("nonfinite"):
            bad = np.flatnonzero(np.asarray(metrics[name]) > 0)
            if bad.size:
                raise NonFinite(iteration, seeds[int(bad[0])], name.removesuffix("nonfinite") + "gradient")


def dump(group: Any, problem: NonFinite) -> Path:
    """Play again from the last good checkpoint up to the bad iteration; save its state and its batch."""
    saved, _ = checkpoint.load_newest(group.folder / layout.CHECKPOINTS)
    states = restored(saved.leaves, jax.eval_shape(group._init))
    step = jax.jit(lambda s: jax.lax.map(group.program.iterate, s)[0])
    for _ in range(problem.iteration - 1 - saved.iteration):
        states = step(states)
    place = group.seeds.index(problem.seed)
    state = jax.tree.map(lambda leaf: leaf[place], states)
    batch = jax.jit(group.program.play)(state)[1]
    folder = group.folder / layout.CRASH
    leaves = {f"state.{name}": leaf for name, leaf in named(state).items()}
    leaves |= {f"batch.{name}": leaf for name, leaf in named(batch).items()}
    facts = {"iteration": problem.iteration, "seed": problem.seed, "name": problem.name}
    return checkpoint.save(folder, iteration=problem.iteration, leaves=leaves, facts=facts)
