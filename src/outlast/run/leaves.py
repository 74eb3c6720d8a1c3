"""The state as named arrays, and back: what a checkpoint holds, and how a policy file becomes a policy."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from outlast.run.errors import Damaged


def named(tree: PyTree) -> dict[str, np.ndarray]:
    """Return every leaf by its path, as host arrays."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def restored(leaves: Mapping[str, np.ndarray], like: PyTree) -> PyTree:
    """Fill a tree of shapes with saved arrays; a leaf that is missing, extra or of another shape is named.

    Arrays are copied: a donated buffer must never be the memory of the arrays that were read.
    """
    expected, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [_name(path) for path, _ in expected]
    extra = sorted(set(leaves) - set(names))
    if extra:
        raise Damaged(f"the checkpoint holds {extra[0]}, which this program does not know")
    arrays = []
    for name, (_, shape) in zip(names, expected, strict=True):
        if name not in leaves:
            raise Damaged(f"the checkpoint does not hold {name}")
        leaf = leaves[name]
        if leaf.shape != shape.shape or leaf.dtype != shape.dtype:
            raise Damaged(
                f"{name} is {leaf.dtype}{list(leaf.shape)}, expected {shape.dtype}{list(shape.shape)}"
            )
        arrays.append(jnp.array(leaf, copy=True))
    return jax.tree_util.tree_unflatten(structure, arrays)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
