"""The only place where a random key is made. Randomness is an address, not a stream.

`key = f(seed, iteration, purpose)`: nothing random is stored in a checkpoint, an evaluation cannot disturb
training, and cutting a run into pieces cannot change it.
"""

from enum import IntEnum

import jax
from jaxtyping import Array, Int, Key


class Purpose(IntEnum):
    """What a key is for. Numbers are part of every run's identity: append, never renumber."""

    NETWORKS = 0
    WORLDS = 1
    RESET = 2
    ACT = 3
    OPPONENT = 4
    SHUFFLE = 5
    EVALUATE = 6
    PROBE = 7
    EXPLORE = 8
    REPLAY = 9
    LEAGUE = 10
    LAYOUT = 11
    NOVELTY = 12
    STUDY = 13


def address(seed: Int[Array, ""] | int, iteration: Int[Array, ""] | int, purpose: Purpose) -> Key[Array, ""]:
    """Return the key of one purpose in one iteration of one seed."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), iteration), int(purpose))
