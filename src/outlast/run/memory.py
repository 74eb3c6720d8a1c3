"""How much memory a config needs, told before anything is compiled."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from outlast.config import BadInput

COPIES = 3
PROCESS_BYTES = 600_000_000


def check_memory(program: Any, seeds: int, workers: int) -> int:
    """Return the bytes a run needs; refuse a config that cannot fit into this machine."""
    need = workers * (PROCESS_BYTES + estimate(program, seeds))
    free = available_bytes()
    if need > free:
        raise BadInput(
            f"this config needs about {need / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
            f"lower {program.size_fields}, the network or --seeds"
        )
    return need


def estimate(program: Any, seeds: int) -> int:
    """Estimate the bytes of one process: the state of all seeds, and one seed's rollout, each a few times."""
    state = jax.eval_shape(program.init, jax.ShapeDtypeStruct((), jnp.uint32))
    rollout = jax.eval_shape(program.play, state)
    return COPIES * (seeds * _bytes(state) + _bytes(rollout))


def _bytes(tree: PyTree) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available_bytes() -> int:
    """Return the memory that is free for use now."""
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo does not say MemAvailable")
