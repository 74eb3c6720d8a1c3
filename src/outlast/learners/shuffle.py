"""Shuffling without sorting: a sort of 16,384 indices costs as much as an epoch of a small network on a CPU."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

ROUNDS = 3


def permutation(key: Key[Array, ""], n: int) -> Int[Array, " n"]:
    """Return a pseudo-random permutation of 0..n-1: a keyed bijection of the next power of two, cut to n."""
    bits = max((n - 1).bit_length(), 2)
    mask, shift = jnp.uint32((1 << bits) - 1), bits // 2
    words = jax.random.bits(key, (2 * ROUNDS,), jnp.uint32)
    x = jnp.arange(1 << bits, dtype=jnp.uint32) ^ (words[0] & mask)
    for multiplier, offset in words.reshape(ROUNDS, 2):
        x = (x * (multiplier | 1) + offset) & mask
        x = x ^ (x >> shift)
    if n == 1 << bits:
        return x.astype(jnp.int32)
    kept = x < n
    place = jnp.where(kept, jnp.cumsum(kept) - 1, n)
    return jnp.zeros(n, jnp.int32).at[place].set(x.astype(jnp.int32), mode="drop")
