"""Streams for the tests of replay and of the Q-learners: written out by hand, or made up at random.

What is seen names the tick and the world, so that whatever is drawn can be traced to its place.
"""

import equinox as eqx
import jax
import numpy as np

from outlast.learners import replay as replays
from outlast.learners.replay import ReplayConfig, Tick

N_ACTIONS = 3
ADD = jax.jit(replays.added)


def config(*, worlds, rows, **fields):
    """Return the rules of a ring of so many rows; sections are not checked, rings may be tiny."""
    return ReplayConfig().model_copy(update={"capacity": worlds * rows, **fields})


def empty(worlds, rows, stride=1, *, n_seen=2, n_memory=1, **fields):
    """Return an empty ring."""
    rules = config(worlds=worlds, rows=rows, **fields)
    sizes = {"n_observations": n_seen, "n_actions": N_ACTIONS, "n_memory": n_memory, "stride": stride}
    shapes = jax.eval_shape(lambda: replays.new_replay(rules, worlds=worlds, **sizes))
    ring = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return eqx.tree_at(lambda r: r.ticks.idle, ring, np.ones_like(ring.ticks.idle))


def ticks(length, worlds, *, first=0, seed=0, ends=0.25, **given):
    """Return ticks first, first + 1, ... of some worlds; after the end of a life comes an idle tick."""
    rng = np.random.default_rng([seed, first])
    ended, idle = np.zeros((length, worlds), bool), np.zeros((length, worlds), bool)
    for t in range(length):
        idle[t] = ended[t - 1] if t else False
        ended[t] = ~idle[t] & (rng.random(worlds) < ends)
    dies = rng.random((length, worlds)) < 0.5
    when, where = np.meshgrid(np.arange(first, first + length), np.arange(worlds), indexing="ij")
    legal = rng.random((length, worlds, N_ACTIONS)) < 0.6
    legal[..., 0] = True
    made = {
        "seen": np.stack([when, where], axis=-1),
        "action": rng.integers(0, N_ACTIONS, (length, worlds)),
        "extrinsic": np.where(idle, 0.0, rng.normal(size=(length, worlds))),
        "intrinsic": np.where(idle, 0.0, rng.normal(size=(length, worlds))),
        "terminated": ended & dies,
        "truncated": ended & ~dies,
        "idle": idle,
        "legal": legal,
    } | {name: np.asarray(value) for name, value in given.items()}
    dtypes = {"seen": "f4", "action": "i4", "extrinsic": "f4", "intrinsic": "f4"}
    # Numpy, for each slice of a jax array is a program of its own to compile.
    return Tick(**{name: value.astype(dtypes.get(name, bool)) for name, value in made.items()})


def cut(stream, start, stop):
    """Return some ticks of a stream."""
    return jax.tree.map(lambda leaf: leaf[start:stop], stream)


def filled(ring, stream, stride=1):
    """Add a stream stride by stride; the memory before tick t is t, in every row."""
    n_memory, worlds = ring.memory.shape[2], ring.worlds
    for t in range(0, stream.action.shape[0], stride):
        ring = ADD(ring, cut(stream, t, t + stride), np.full((worlds, n_memory), t, np.float32))
    return ring


def written(stream, *, stride=1, rows=None, n_memory=1, **fields):
    """Return a ring that holds a stream, whole unless `rows` says less."""
    length, worlds = stream.action.shape
    ring = empty(worlds, rows or length, stride, n_seen=stream.seen.shape[-1], n_memory=n_memory, **fields)
    if stream.legal.shape[-1] != N_ACTIONS:
        shape = (*ring.ticks.legal.shape[:2], stream.legal.shape[-1])
        ring = eqx.tree_at(lambda r: r.ticks.legal, ring, np.zeros(shape, bool))
    return filled(ring, stream, stride)
