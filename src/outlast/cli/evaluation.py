"""Evaluate a run: read its newest policies or states, play a suite, keep the document beside the run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from outlast.config import BadInput, Section
from outlast.evaluate import OPPONENT_SUITES, STATE_SUITES, SUITES, TRAINING_SUITES
from outlast.programs import program_of
from outlast.run import checkpoint, disk, layout
from outlast.run.leaves import restored


def evaluate_run(
    folder: Path,
    config: Section,
    suite: str,
    games: int | None = None,
    steps: int | None = None,
    against: tuple[Path, Section] | None = None,
) -> dict[str, Any]:
    """Measure the newest of every seed with one suite and write `evaluations/<suite>.json`.

    Where `games` or `steps` are not given, the suite's own defaults hold. `against` is a run of the other role.
    """
    on_policies, on_states = SUITES.get(config.program, {}), STATE_SUITES.get(config.program, {})
    known = on_policies | on_states
    if suite not in known:
        raise BadInput(
            f"--suite {suite}: unknown for {config.program} (allowed: {', '.join(known) or 'none'})"
        )
    if steps is not None and suite not in TRAINING_SUITES:
        raise BadInput(f"--steps has no effect with --suite {suite} (only with {', '.join(TRAINING_SUITES)})")
    program = program_of(config)
    if against is not None and suite not in OPPONENT_SUITES:
        raise BadInput(
            f"--against has no effect with --suite {suite} (only with {', '.join(OPPONENT_SUITES)})"
        )
    given = {"games": games, "steps": steps, "against": against and opponent_of(config, *against)}
    given = {name: value for name, value in given.items() if value is not None}
    if suite in on_states:
        states, iteration, seeds = newest_states(folder, program)
        document = on_states[suite](program, states, **given)
    else:
        policies, iteration, seeds = newest_policies(folder, program)
        document = on_policies[suite](program, jax.vmap(program.players)(policies), **given)
    document |= {"run": str(folder), "iteration": iteration, "seeds": seeds}
    kept = folder / "evaluations"
    with disk.writing(f"{kept}"):
        disk.make_folder(kept)
        disk.write_atomic(kept / f"{suite}.json", json.dumps(document, allow_nan=False).encode() + b"\n")
    return document


def opponent_of(config: Section, folder: Path, theirs: Section) -> tuple[Any, PyTree]:
    """Return the program and the newest learners (axis S) of the role that a run did not learn."""
    if config.learner == "both" or theirs.program != "duel" or theirs.learner in (config.learner, "both"):
        raise BadInput(f"--against {folder}: it needs two runs of one role each, and not of the same")
    if theirs.arena.level != config.arena.level:
        raise BadInput(f"--against {folder}: it was trained at another arena.level")
    program = program_of(theirs)
    policies, _, _ = newest_policies(folder, program)
    return program, jax.vmap(program.players)(policies)[theirs.learner]


def newest_policies(folder: Path, program: Any) -> tuple[PyTree, list[int], list[int]]:
    """Stack the newest policies of all seeds of a run; also give their iterations and the seeds."""
    return _newest(folder, program, layout.POLICIES, lambda states: jax.vmap(program.policies)(states))


def newest_states(folder: Path, program: Any) -> tuple[PyTree, list[int], list[int]]:
    """Stack the newest full states of all seeds of a run; also give their iterations and the seeds."""
    return _newest(folder, program, layout.CHECKPOINTS, lambda states: states)


def _newest(
    folder: Path, program: Any, kind: str, part_of: Callable[[PyTree], PyTree]
) -> tuple[PyTree, list[int], list[int]]:
    stacks, iterations, seeds = [], [], []
    for part in layout.groups(folder):
        own = layout.seeds_of(part)
        shapes = jax.eval_shape(lambda s: part_of(jax.lax.map(program.init, s)), jnp.array(own, jnp.uint32))
        kept = part / kind
        newest = max(checkpoint.iterations(kept), default=None)
        if newest is None:
            raise BadInput(f"{part}: nothing has been saved yet; train it first")
        saved = checkpoint.load(kept / str(newest))
        stacks.append(restored(saved.leaves, shapes))
        iterations.append(saved.iteration)
        seeds += own
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *stacks), iterations, seeds
