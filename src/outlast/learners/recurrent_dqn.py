"""Q-learning with memory: a small convolution for what is around, an LSTM for what is not, trained through time.

Sequences are stretches of real streams. They start from the memory that was stored when they were played (or from
nothing), are unrolled through every tick with the memory handed on, and begin a fresh memory where a life begins.
The memory of play is a part of the games: learning reads stored copies and never touches it.
"""

from collections.abc import Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key
from pydantic import Field, model_validator

from outlast.config import Section
from outlast.core import Metrics
from outlast.learners import replay as replays
from outlast.learners.dqn import (
    Head,
    QConfig,
    QState,
    counted,
    descended,
    new_head,
    next_value,
    of_action,
    started,
    weighted_mean,
)
from outlast.learners.replay import Replay, ReplayConfig, Tick
from outlast.nets import Linear, Mlp, linear, mlp

KERNEL = 3


class MemoryConfig(Section):
    """The recurrent network and how it is trained through time."""

    width: int = Field(128, ge=1, le=2048, description="cells of the LSTM")
    channels: tuple[int, ...] = Field(
        (8,),
        max_length=3,
        strict=False,
        description="filters of each 3 x 3 convolution over the window; none for no window",
    )
    sequence: int = Field(16, ge=2, le=512, description="ticks learnt from in one sequence")
    burn_in: int = Field(0, ge=0, le=512, description="ticks before them that only warm the memory up")
    stored_state: bool = Field(True, description="start from the memory of play, instead of from nothing")
    trace: float = Field(
        0.7,
        ge=0.0,
        le=1.0,
        description="share of the return taken as it came, instead of from the next value",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for filters in self.channels:
            if not 1 <= filters <= 256:
                raise ValueError(f"channels: {filters} filters are out of range (allowed: 1 to 256)")
        if self.burn_in % self.sequence:
            raise ValueError(
                f"burn_in = {self.burn_in} is not a multiple of sequence = {self.sequence}: "
                "memory is stored once a sequence"
            )
        return self


class Sight(eqx.Module):
    """Convolutions over a square window, three cells wide, without a border; then one affine map."""

    filters: tuple[Linear, ...]
    out: Linear
    side: int = eqx.field(static=True)

    def __call__(self, window: Float[Array, "W N"]) -> Float[Array, "H N"]:
        """Map a window of 1 (place), 0 (nothing) and -1 (outside) to features."""
        side, n = self.side, window.shape[1]
        planes = jnp.stack([window == 1, window == -1]).astype(jnp.float32).reshape(2, side, side, n)
        for layer in self.filters:
            side = side - KERNEL + 1
            shifted = [planes[:, i : i + side, j : j + side] for i in range(KERNEL) for j in range(KERNEL)]
            patches = jnp.concatenate(shifted).reshape(-1, side * side * n)
            planes = jax.nn.relu(layer(patches)).reshape(-1, side, side, n)
        return jax.nn.relu(self.out(planes.reshape(-1, n)))


class RecurrentQNetwork(eqx.Module):
    """Q-values from what is seen now and what is remembered. A memory is the hidden rows over the cell rows."""

    sight: Sight | None
    body: Mlp
    inward: Linear
    onward: Float[Array, "G H"]
    read_out: Mlp
    head: Head
    n_window: int = eqx.field(static=True)

    @property
    def n_memory(self) -> int:
        """Count the rows of a memory."""
        return 2 * self.onward.shape[1]

    def encoded(self, columns: Float[Array, "D N"]) -> Float[Array, "G N"]:
        """Return what each column adds to the gates; it needs no memory, so all ticks go through at once."""
        features = self.body(columns[self.n_window :])
        if self.sight is not None:
            features = jnp.concatenate([features, self.sight(columns[: self.n_window])])
        return self.inward(features)

    def remembered(self, memory: Float[Array, "M B"], drive: Float[Array, "G B"]) -> Float[Array, "M B"]:
        """Return the memory after one tick."""
        hidden, cell = jnp.split(memory, 2)
        into, forget, candidate, out = jnp.split(drive + self.onward @ hidden, 4)
        cell = jax.nn.sigmoid(forget + 1.0) * cell + jax.nn.sigmoid(into) * jnp.tanh(candidate)
        return jnp.concatenate([jax.nn.sigmoid(out) * jnp.tanh(cell), cell])

    def read(self, memory: Float[Array, "M N"]) -> Float[Array, "A N"]:
        """Return the Q-values of each remembered column."""
        return self.head(self.read_out(memory[: memory.shape[0] // 2]))

    def __call__(
        self, columns: Float[Array, "D B"], memory: Float[Array, "M B"]
    ) -> tuple[Float[Array, "A B"], Float[Array, "M B"]]:
        """Return Q-values and the memory after one tick."""
        memory = self.remembered(memory, self.encoded(columns))
        return self.read(memory), memory


def new_learner(
    key: Key[Array, ""], fields: dict[str, int], n_actions: int, config: QConfig, rules: MemoryConfig
) -> QState:
    """Return an untrained learner; a field called a window, which comes first, is looked at by convolution."""
    keys = jax.random.split(key, 7)
    n_window = next((size for name, size in fields.items() if name in ("window", "s2_window")), 0)
    sight = None
    if n_window and rules.channels:
        sight = _new_sight(keys[0], round(n_window**0.5), rules.channels, config.hidden[0])
    n_window = n_window if sight is not None else 0
    n_flat = sum(fields.values()) - n_window
    n_features = config.hidden[0] * (1 if sight is None else 2)
    width = rules.width
    onward = jax.nn.initializers.orthogonal(1.0)(keys[3], (4 * width, width))
    return started(
        RecurrentQNetwork(
            sight=sight,
            body=mlp(keys[1], n_flat, config.hidden[:1], "relu", layer_norm=config.layer_norm),
            inward=linear(keys[2], n_features, 4 * width, gain=1.0),
            onward=onward,
            read_out=mlp(keys[4], width, config.hidden[1:], "relu", layer_norm=config.layer_norm),
            head=new_head(keys[5], (width, *config.hidden[1:])[-1], n_actions, dueling=config.dueling),
            n_window=n_window,
        )
    )


def _new_sight(key: Key[Array, ""], side: int, channels: Sequence[int], width: int) -> Sight:
    keys, sizes = jax.random.split(key, len(channels) + 1), (2, *channels)
    filters = [
        linear(k, a * KERNEL**2, b, gain=2**0.5)
        for k, a, b in zip(keys[1:], sizes[:-1], sizes[1:], strict=True)
    ]
    left = side - len(channels) * (KERNEL - 1)
    return Sight(tuple(filters), linear(keys[0], sizes[-1] * left**2, width, gain=2**0.5), side)


def unrolled(
    network: RecurrentQNetwork,
    seen: Float[Array, "T N D"],
    memory: Float[Array, "M N"],
    idle: Bool[Array, "T N"],
) -> Float[Array, "T M N"]:
    """Return the memory after every tick; after an idle tick, on which a life was replaced, it is empty again."""
    length, n, size = seen.shape
    drive = network.encoded(seen.reshape(length * n, size).T).reshape(-1, length, n)

    def step(memory: Array, tick: tuple[Array, Array]) -> tuple[Array, Array]:
        drive, is_idle = tick
        after = network.remembered(memory, drive)
        return jnp.where(is_idle, 0.0, after), after

    return jax.lax.scan(step, memory, (jnp.moveaxis(drive, 1, 0), idle))[1]


def q_values(network: RecurrentQNetwork, memories: Float[Array, "T M N"]) -> Float[Array, "T A N"]:
    """Read the Q-values of every tick of every sequence."""
    length, size, n = memories.shape
    flat = jnp.moveaxis(memories, 1, 0).reshape(size, length * n)
    return jnp.moveaxis(network.read(flat).reshape(-1, length, n), 1, 0)


def returns(
    reward: Float[Array, "T N"],
    following: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    *,
    discount: float,
    trace: float,
) -> Float[Array, "T N"]:
    """Return Peng's lambda-returns; `following[t]` values the true successor of tick t.

    A death is followed by nothing; a cut life and the end of the sequence are followed by the successor's value.
    """

    def backward(after: Array, tick: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        reward, following, dead, cut = tick
        mixed = jnp.where(cut, following, (1 - trace) * following + trace * after)
        total = reward + discount * jnp.where(dead, 0.0, mixed)
        return total, total

    return jax.lax.scan(backward, following[-1], (reward, following, terminated, truncated), reverse=True)[1]


def loss(
    network: RecurrentQNetwork,
    target: RecurrentQNetwork,
    ticks: Tick,
    memory: Float[Array, "M N"],
    share: Float[Array, ""],
    config: QConfig,
    rules: MemoryConfig,
) -> tuple[Float[Array, ""], tuple[Array, Array]]:
    """Return the mean loss of sequences, with the errors and values it came from.

    `ticks` holds burn-in, the learnt ticks and one more, whose value ends the last return.
    """
    first = rules.burn_in
    mine = unrolled(network, ticks.seen, memory, ticks.idle)[first:]
    online = q_values(network, mine)
    other = q_values(target, unrolled(target, ticks.seen, memory, ticks.idle)[first:])
    ticks = jax.tree.map(lambda leaf: leaf[first:], ticks)
    following = jax.vmap(lambda a, b, legal: next_value(a, b, legal.T, double=config.double))(
        online, other, ticks.legal
    )[1:]
    ticks = jax.tree.map(lambda leaf: leaf[:-1], ticks)
    reward = (ticks.extrinsic + share * ticks.intrinsic) * (1 - config.discount)
    aim = returns(
        reward,
        following,
        ticks.terminated,
        ticks.truncated,
        discount=config.discount,
        trace=rules.trace,
    )
    value = jax.vmap(of_action)(online[:-1], ticks.action)
    error = value - jax.lax.stop_gradient(aim)
    weight = (~ticks.idle).astype(jnp.float32)
    return weighted_mean(counted(error, config), weight), (error * weight, value)


def learn(
    state: QState,
    replay: Replay,
    key: Key[Array, ""],
    *,
    config: QConfig,
    rules: ReplayConfig,
    memory: MemoryConfig,
    share: Float[Array, ""],
    rate: Float[Array, ""],
) -> tuple[QState, Replay, Metrics]:
    """Improve a learner once from a batch of sequences."""
    length = memory.burn_in + memory.sequence + 1
    row, world = replays.drawn_sequences(replay, key, rules.batch, ahead=length, stride=memory.sequence)
    start = replay.memory[row // memory.sequence, world].T * memory.stored_state
    ticks = replays.window(replay, row, world, length)
    gradient, (error, value) = jax.grad(loss, has_aux=True)(
        state.network, state.target, ticks, start, share, config, memory
    )
    state, measures = descended(state, gradient, rate=rate, config=config)
    measures |= {
        "td_error": jnp.mean(jnp.abs(error)),
        "loss": jnp.mean(counted(error, config)),
        "q_mean": jnp.mean(value),
        "q_std": jnp.std(value),
    }
    return state, replay, measures
