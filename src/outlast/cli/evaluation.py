"""Evaluate a run: read its newest light policies, play a suite, keep the document beside the run."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from outlast.config import BadInput, Section
from outlast.evaluate import SUITES
from outlast.programs import program_of
from outlast.run import checkpoint, disk, layout
from outlast.run.leaves import restored


def evaluate_run(folder: Path, config: Section, suite: str, games: int) -> dict[str, Any]:
    """Play one suite with the newest policies of every seed and write `evaluations/<suite>.json`."""
    suites = SUITES[config.program]
    if suite not in suites:
        raise BadInput(f"--suite {suite}: unknown for {config.program} (allowed: {', '.join(suites)})")
    program = program_of(config)
    policies, iteration, seeds = newest_policies(folder, program)
    document = suites[suite](program, jax.vmap(program.players)(policies), games)
    document |= {"run": str(folder), "iteration": iteration, "seeds": seeds}
    kept = folder / "evaluations"
    with disk.writing(f"{kept}"):
        disk.make_folder(kept)
        disk.write_atomic(kept / f"{suite}.json", json.dumps(document, allow_nan=False).encode() + b"\n")
    return document


def newest_policies(folder: Path, program: Any) -> tuple[PyTree, list[int], list[int]]:
    """Stack the newest policies of all seeds of a run; also give their iterations and the seeds."""
    stacks, iterations, seeds = [], [], []
    for part in layout.groups(folder):
        own = layout.seeds_of(part)
        shapes = jax.eval_shape(
            lambda s: jax.vmap(program.policies)(jax.lax.map(program.init, s)), jnp.array(own, jnp.uint32)
        )
        kept = part / layout.POLICIES
        newest = max(checkpoint.iterations(kept), default=None)
        if newest is None:
            raise BadInput(f"{part}: no policy has been saved yet; train it first")
        saved = checkpoint.load(kept / str(newest))
        stacks.append(restored(saved.leaves, shapes))
        iterations.append(saved.iteration)
        seeds += own
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *stacks), iterations, seeds
