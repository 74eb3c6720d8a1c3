"""Shuffling without sorting. A sort of 16,384 indices costs as much as an epoch of a small network on a CPU."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key


def permutation(key: Key[Array, ""], n: int) -> Int[Array, " n"]:
    """Return a pseudo-random permutation of 0..n-1: a keyed bijection for powers of two, else a sort."""
    bits = n.bit_length() - 1
    if n != 1 << bits or bits < 2:
        return jax.random.permutation(key, n).astype(jnp.int32)
    mask, shift = jnp.uint32(n - 1), max(bits // 2, 1)
    words = jax.random.bits(key, (6,), jnp.uint32)
    x = jnp.arange(n, dtype=jnp.uint32) ^ (words[0] & mask)
    for multiplier, offset in ((words[1], words[2]), (words[3], words[4]), (words[5], words[0])):
        x = (x * (multiplier | 1) + offset) & mask
        x = x ^ (x >> shift)
    return x.astype(jnp.int32)
