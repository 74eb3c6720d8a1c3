"""A replay of streams: what every world saw and did, tick after tick, in one time-major ring.

The row after a transition always holds its true successor: a world that ended spends one tick, an idle row, on being
replaced. So no successor is stored twice, a truncated life bootstraps from where it stopped, and a sequence cut
anywhere is a real stretch of a stream.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key
from pydantic import Field

from outlast.config import Section

LEAST_PRIORITY = 1e-6


class ReplayConfig(Section):
    """What is kept, and how much is learnt from it."""

    capacity: int = Field(65_536, ge=64, le=100_000_000, description="transitions kept, over all worlds")
    batch: int = Field(512, ge=1, le=65_536, description="transitions, or sequences, in one update")
    every: int = Field(16, ge=1, le=4096, description="ticks of every world between rounds of updates")
    updates: int = Field(4, ge=0, le=4096, description="updates in one round")
    starts: int = Field(4096, ge=0, le=10**9, description="transitions seen before the first update")
    prioritised: bool = Field(False, description="draw by temporal-difference error instead of evenly")
    alpha: float = Field(0.6, ge=0.0, le=2.0, description="exponent of the priority")
    beta: float = Field(0.4, ge=0.0, le=1.0, description="share of the bias that is corrected at the start")
    beta_steps: int = Field(
        2_000_000, ge=1, le=10**12, description="world steps until the bias is corrected whole"
    )

    def model_post_init(self, context: object) -> None:
        """Refuse settings that would do nothing."""
        if not self.prioritised:
            for name in ("alpha", "beta", "beta_steps"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect with prioritised = false")


class Tick(eqx.Module):
    """One tick of every world as it is stored; each leaf may have a leading time axis."""

    seen: Float[Array, "... B D"]
    action: Int[Array, "... B"]
    extrinsic: Float[Array, "... B"]
    intrinsic: Float[Array, "... B"]
    terminated: Bool[Array, "... B"]
    truncated: Bool[Array, "... B"]
    idle: Bool[Array, "... B"]
    """Nothing was done: the world had ended and was being replaced."""
    legal: Bool[Array, "... B A"]

    @property
    def ended(self) -> Bool[Array, "... B"]:
        """Tell which lives ended in this tick."""
        return self.terminated | self.truncated


class Replay(eqx.Module):
    """The ring. `ticks` has T rows; `memory` holds what a recurrent policy remembered before every stride-th row."""

    ticks: Tick
    memory: Float[Array, "K B M"]
    priority: Float[Array, "T B"] | None
    written: Int[Array, ""]

    @property
    def rows(self) -> int:
        """Count the rows of the ring."""
        return self.ticks.action.shape[0]

    @property
    def worlds(self) -> int:
        """Count the streams."""
        return self.ticks.action.shape[1]

    @property
    def filled(self) -> Int[Array, ""]:
        """Count the rows that hold something."""
        return jnp.minimum(self.written, self.rows)


def new_replay(
    config: ReplayConfig, *, worlds: int, n_observations: int, n_actions: int, n_memory: int, stride: int
) -> Replay:
    """Return an empty ring of whole strides, at least `capacity` transitions wide."""
    rows = stride * max(2, -(-config.capacity // (worlds * stride)))
    number, flag, whole = jnp.zeros((rows, worlds)), jnp.zeros((rows, worlds), bool), (rows, worlds)
    ticks = Tick(
        seen=jnp.zeros((*whole, n_observations)),
        action=jnp.zeros(whole, jnp.int32),
        extrinsic=number,
        intrinsic=number,
        terminated=flag,
        truncated=flag,
        idle=jnp.ones(whole, bool),
        legal=jnp.zeros((*whole, n_actions), bool),
    )
    priority = jnp.zeros(whole) if config.prioritised else None
    return Replay(ticks, jnp.zeros((rows // stride, worlds, n_memory)), priority, jnp.int32(0))


def added(replay: Replay, ticks: Tick, memory: Float[Array, "B M"]) -> Replay:
    """Write one stride of rows over the oldest; `memory` is what the policy remembered before the first of them."""
    stride = ticks.action.shape[0]
    place = replay.written % replay.rows

    def write(ring: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(ring, new, place, axis=0)

    remembered = jax.lax.dynamic_update_slice_in_dim(replay.memory, memory[None], place // stride, axis=0)
    priority = replay.priority
    if priority is not None:
        # What is new is as urgent as the most urgent so far; an idle row is never drawn.
        top = jnp.max(priority)
        priority = write(priority, jnp.where(ticks.idle, 0.0, jnp.where(top > 0, top, 1.0)))
    return Replay(jax.tree.map(write, replay.ticks, ticks), remembered, priority, replay.written + stride)


def oldest(replay: Replay) -> Int[Array, ""]:
    """Return the row that was written first."""
    return (replay.written - replay.filled) % replay.rows


def drawn(replay: Replay, key: Key[Array, ""], n: int, *, ahead: int) -> tuple[Array, Array]:
    """Draw rows and worlds evenly among the rows that have `ahead` rows after them."""
    words = jax.random.uniform(key, (2, n))
    usable = jnp.maximum(replay.filled - ahead, 1)
    age = jnp.minimum((words[0] * usable).astype(jnp.int32), usable - 1)
    world = jnp.minimum((words[1] * replay.worlds).astype(jnp.int32), replay.worlds - 1)
    return (oldest(replay) + age) % replay.rows, world


def drawn_sequences(
    replay: Replay, key: Key[Array, ""], n: int, *, ahead: int, stride: int
) -> tuple[Array, Array]:
    """Draw the first rows of sequences, evenly among the strides that have `ahead` rows in all."""
    words = jax.random.uniform(key, (2, n))
    usable = jnp.maximum((replay.filled - ahead) // stride + 1, 1)
    age = jnp.minimum((words[0] * usable).astype(jnp.int32), usable - 1)
    world = jnp.minimum((words[1] * replay.worlds).astype(jnp.int32), replay.worlds - 1)
    return (oldest(replay) + age * stride) % replay.rows, world


def drawn_by_priority(
    replay: Replay, key: Key[Array, ""], n: int, *, ahead: int, alpha: float
) -> tuple[Array, Array, Float[Array, " n"]]:
    """Draw rows and worlds in proportion to priority ** alpha; also return the chance of each draw."""
    age = (jnp.arange(replay.rows) - oldest(replay)) % replay.rows
    usable = age < replay.filled - ahead
    weight = jnp.where((replay.priority > 0) & usable[:, None], replay.priority**alpha, 0.0)
    by_row = jnp.cumsum(jnp.sum(weight, axis=1))
    words = jax.random.uniform(key, (2, n))
    row = jnp.searchsorted(by_row, words[0] * by_row[-1], side="right")
    row = jnp.minimum(row, replay.rows - 1)
    inside = jnp.cumsum(weight[row], axis=1)
    # The last world that has any weight at all: rounding must not pick one without.
    world = jnp.sum((words[1] * inside[:, -1])[:, None] >= inside, axis=1)
    world = jnp.minimum(world, replay.worlds - 1)
    return row, world, weight[row, world] / jnp.maximum(by_row[-1], LEAST_PRIORITY)


def reprioritised(replay: Replay, row: Array, world: Array, errors: Float[Array, " n"]) -> Replay:
    """Set the priority of what was drawn to the size of its error; idle rows stay out."""
    # One that is not finite would spread to all that is added later.
    size = jnp.where(jnp.isfinite(errors), jnp.abs(errors), 0.0) + LEAST_PRIORITY
    urgency = jnp.where(replay.ticks.idle[row, world], 0.0, size)
    return eqx.tree_at(lambda r: r.priority, replay, replay.priority.at[row, world].set(urgency))


def importance(chance: Float[Array, " n"], beta: Float[Array, ""]) -> Float[Array, " n"]:
    """Return the weights that undo a share `beta` of the bias of drawing by chance, the largest being 1."""
    weight = jnp.where(chance > 0, jnp.maximum(chance, 1e-12) ** -beta, 0.0)
    return weight / jnp.maximum(jnp.max(weight), 1e-12)


def window(replay: Replay, row: Int[Array, " n"], world: Int[Array, " n"], length: int) -> Tick:
    """Gather `length` consecutive ticks of each drawn stream; leaves are [length, n, ...]."""
    rows = (row + jnp.arange(length)[:, None]) % replay.rows
    return jax.tree.map(lambda ring: ring[rows, world], replay.ticks)
