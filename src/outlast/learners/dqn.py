"""Q-learning without memory: a network of values, a target network, and updates from a replay of streams.

Values are learnt in units of reward per tick: every reward is multiplied by (1 - discount), so a value is the
discounted mean of the rewards to come, whatever the discount.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree
from pydantic import Field

from outlast.config import Section
from outlast.core import Metrics
from outlast.learners import replay as replays
from outlast.learners.replay import Replay, ReplayConfig
from outlast.nets import Linear, Mlp, linear, mlp

ADAM = optax.scale_by_adam(eps=1e-8)
ILLEGAL = -1e9
GLANCE_WIDTH, GLIMPSE, SHARPNESS = 64, 6, 8.0


class QConfig(Section):
    """Hyperparameters of a Q-learner, with memory or without."""

    hidden: tuple[int, ...] = Field(
        (128, 128), min_length=1, max_length=6, strict=False, description="width of each hidden layer"
    )
    glances: int = Field(
        0, ge=0, le=64, description="places looked at at a time, chosen by need; 0 sees all offsets at once"
    )
    layer_norm: bool = Field(True, description="standardise each hidden layer, which steadies learning")
    dueling: bool = Field(False, description="add up a value of the state and advantages of the actions")
    double: bool = Field(True, description="choose the next action online, value it by the target")
    learning_rate: float = Field(5e-4, ge=1e-7, le=1.0, description="Adam's step size")
    learning_rate_final: float = Field(
        1.0, ge=0.0, le=1.0, description="share of the step size left after learning_rate_decay_steps"
    )
    learning_rate_decay_steps: int = Field(
        0, ge=0, le=10**12, description="world steps over which the step size falls linearly; 0 keeps it"
    )
    discount: float = Field(0.99, ge=0.0, le=0.99999, description="discount per tick")
    n_step: int = Field(3, ge=1, le=64, description="rewards taken as they came before bootstrapping")
    target_every: int = Field(200, ge=1, le=10**9, description="updates between copies to the target network")
    gap: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="advantage learning: share of an action's shortfall added to it, for a clearer choice",
    )
    loss: Literal["squared", "huber"] = Field("huber", description="how an error is counted")
    max_gradient_norm: float = Field(10.0, ge=1e-4, le=1e6, description="gradients are clipped to this norm")

    def model_post_init(self, context: object) -> None:
        """Bound every width, and refuse settings that would do nothing."""
        for width in self.hidden:
            if not 1 <= width <= 4096:
                raise ValueError(f"hidden width {width} is out of range (allowed: 1 to 4096)")
        if (self.learning_rate_decay_steps == 0) != (self.learning_rate_final == 1.0):
            raise ValueError(
                "learning_rate_final and learning_rate_decay_steps belong together: set both, or neither"
            )


class Head(eqx.Module):
    """Reads Q-values out of features; with `value` as advantages around it."""

    advantage: Linear
    value: Linear | None

    def __call__(self, features: Float[Array, "H N"]) -> Float[Array, "A N"]:
        """Return the Q-values of each column."""
        advantage = self.advantage(features)
        if self.value is None:
            return advantage
        return self.value(features) + advantage - jnp.mean(advantage, axis=0, keepdims=True)


def new_head(key: Key[Array, ""], width: int, n_actions: int, *, dueling: bool) -> Head:
    """Return a head that finds every action worth about nothing."""
    advantage_key, value_key = jax.random.split(key)
    value = linear(value_key, width, 1, gain=0.01) if dueling else None
    return Head(linear(advantage_key, width, n_actions, gain=0.01), value)


class Glance(eqx.Module):
    """Looks at a few places at a time: needs decide which, and only where those are goes on.

    Each head weighs the places by what is known beside their offsets; the weighted offset is its glimpse.
    """

    query: Mlp
    weigh: Linear
    start: int = eqx.field(static=True)
    n_places: int = eqx.field(static=True)

    def __call__(self, columns: Float[Array, "D N"]) -> Float[Array, "E N"]:
        """Return the columns with all offsets replaced by glimpses."""
        first, last = self.start, self.start + 2 * self.n_places
        offsets, rest = columns[first:last], jnp.concatenate([columns[:first], columns[last:]])
        n = columns.shape[1]
        logits = self.weigh(self.query(rest)).reshape(-1, self.n_places, n)
        deployed = rest[first : first + self.n_places] > 0
        share = jax.nn.softmax(jnp.where(deployed, logits, ILLEGAL), axis=1)
        x, y = (jnp.sum(share * part, axis=1) for part in jnp.split(offsets, 2))
        glimpse = [x, y, jnp.abs(x), jnp.abs(y), jnp.tanh(SHARPNESS * x), jnp.tanh(SHARPNESS * y)]
        return jnp.concatenate([rest, *glimpse])


class QNetwork(eqx.Module):
    """Q-values of each column, from what is seen now."""

    glance: Glance | None
    body: Mlp
    head: Head

    def __call__(self, columns: Float[Array, "D N"]) -> Float[Array, "A N"]:
        """Return the Q-values of each column."""
        return self.head(self.body(columns if self.glance is None else self.glance(columns)))


class QState(eqx.Module):
    """Everything that a Q-learner changes."""

    network: PyTree
    target: PyTree
    optimiser: optax.OptState
    updates: Int[Array, ""]


def new_learner(key: Key[Array, ""], fields: dict[str, int], n_actions: int, config: QConfig) -> QState:
    """Return an untrained learner; glances need offsets of places among the fields."""
    body_key, head_key, glance_key = jax.random.split(key, 3)
    size, glance = sum(fields.values()), None
    if config.glances:
        glance = _new_glance(glance_key, fields, config.glances)
        size += GLIMPSE * config.glances - fields["offsets"]
    body = mlp(body_key, size, config.hidden, "relu", layer_norm=config.layer_norm)
    head = new_head(head_key, config.hidden[-1], n_actions, dueling=config.dueling)
    return started(QNetwork(glance, body, head))


def _new_glance(key: Key[Array, ""], fields: dict[str, int], heads: int) -> Glance:
    names = list(fields)
    start = sum(fields[name] for name in names[: names.index("offsets")])
    n_places = fields["offsets"] // 2
    query_key, weigh_key = jax.random.split(key)
    query = mlp(query_key, sum(fields.values()) - fields["offsets"], (GLANCE_WIDTH,), "relu")
    return Glance(query, linear(weigh_key, GLANCE_WIDTH, heads * n_places, gain=1.0), start, n_places)


def started(network: PyTree) -> QState:
    """Return the learner of a fresh network."""
    return QState(network, network, ADAM.init(network), jnp.int32(0))


def best(q: Float[Array, "A N"], legal: Bool[Array, "A N"]) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """Return the best legal action of each column and its value."""
    masked = jnp.where(legal, q, ILLEGAL)
    top = jnp.max(masked, axis=0)
    # The first best by two plain reductions: an argmax of a batch is far slower on a CPU.
    places = jnp.arange(q.shape[0])[:, None]
    return jnp.min(jnp.where(masked == top, places, q.shape[0]), axis=0), top


def of_action(q: Float[Array, "A N"], action: Int[Array, " N"]) -> Float[Array, " N"]:
    """Return the value of one action per column."""
    return jnp.sum(jnp.where(jnp.arange(q.shape[0])[:, None] == action, q, 0.0), axis=0)


def next_value(
    online: Float[Array, "A N"], target: Float[Array, "A N"], legal: Bool[Array, "A N"], *, double: bool
) -> Float[Array, " N"]:
    """Return what the target network gives for the best legal action, which the online one may choose."""
    if not double:
        return best(target, legal)[1]
    return of_action(target, best(online, legal)[0])


def step_size(config: QConfig, steps_done: Float[Array, ""]) -> Float[Array, ""]:
    """Return the learning rate after a number of world steps."""
    if config.learning_rate_decay_steps == 0:
        return jnp.float32(config.learning_rate)
    share = jnp.clip(steps_done / config.learning_rate_decay_steps, 0.0, 1.0)
    return config.learning_rate * (1.0 - share * (1.0 - config.learning_rate_final))


class Sample(eqx.Module):
    """Transitions to learn from, one per column; the successor lies up to `n_step` ticks ahead."""

    seen: Float[Array, "D N"]
    action: Int[Array, " N"]
    reward: Float[Array, " N"]
    legal: Bool[Array, "A N"]
    later_seen: Float[Array, "D N"]
    later_legal: Bool[Array, "A N"]
    later_discount: Float[Array, " N"]
    weight: Float[Array, " N"]


def sample_of(
    replay: Replay,
    row: Int[Array, " N"],
    world: Int[Array, " N"],
    weight: Float[Array, " N"],
    share: Float[Array, ""],
    config: QConfig,
) -> Sample:
    """Fold `n_step` ticks of each drawn stream into one transition; `share` weighs the intrinsic reward, once.

    The sum stops where a life ends: at a death nothing follows, at a cut the true successor is valued.
    """
    ticks, n = replay.ticks, config.n_step
    rows = (row + jnp.arange(n)[:, None]) % replay.rows
    reward = (ticks.extrinsic[rows, world] + share * ticks.intrinsic[rows, world]) * (1 - config.discount)
    terminated, truncated = ticks.terminated[rows, world], ticks.truncated[rows, world]
    factor, total, taken = jnp.ones_like(weight), jnp.zeros_like(weight), jnp.zeros(weight.shape, jnp.int32)
    going, dead = jnp.ones(weight.shape, bool), jnp.zeros(weight.shape, bool)
    for t in range(n):
        total = total + jnp.where(going, factor * reward[t], 0.0)
        factor = jnp.where(going, factor * config.discount, factor)
        taken = taken + going
        dead = dead | (going & terminated[t])
        going = going & ~(terminated[t] | truncated[t])
    later = (row + taken) % replay.rows
    return Sample(
        seen=ticks.seen[row, world].T,
        action=ticks.action[row, world],
        reward=total,
        legal=ticks.legal[row, world].T,
        later_seen=ticks.seen[later, world].T,
        later_legal=ticks.legal[later, world].T,
        later_discount=jnp.where(dead, 0.0, factor),
        weight=jnp.where(ticks.idle[row, world], 0.0, weight),
    )


def loss(
    network: QNetwork, target: QNetwork, sample: Sample, config: QConfig
) -> tuple[Float[Array, ""], tuple[Array, Array]]:
    """Return the mean loss of a sample, with the errors and values it came from."""
    value = of_action(network(sample.seen), sample.action)
    online = network(sample.later_seen) if config.double else jnp.zeros_like(sample.later_legal, jnp.float32)
    later = next_value(online, target(sample.later_seen), sample.later_legal, double=config.double)
    aim = sample.reward + sample.later_discount * later
    if config.gap > 0:
        now = target(sample.seen)
        aim = aim - config.gap * (best(now, sample.legal)[1] - of_action(now, sample.action))
    aim = jax.lax.stop_gradient(aim)
    error = value - aim
    return weighted_mean(counted(error, config), sample.weight), (error, value)


def counted(error: Array, config: QConfig) -> Array:
    """Count errors: squared, or beyond 1 linearly."""
    return 0.5 * error**2 if config.loss == "squared" else optax.losses.huber_loss(error)


def weighted_mean(values: Array, weight: Array) -> Float[Array, ""]:
    """Return the mean of values by weight; zero where nothing has any."""
    return jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight > 0), 1)


def descended(
    state: QState, gradient: PyTree, *, rate: Float[Array, ""], config: QConfig
) -> tuple[QState, Metrics]:
    """Take one step of Adam, and copy to the target when it is due; a gradient that is not finite changes nothing."""
    norm = optax.tree.norm(gradient)
    finite = jnp.isfinite(norm)
    shrink = jnp.minimum(1.0, config.max_gradient_norm / jnp.maximum(norm, 1e-12))
    direction, moved = ADAM.update(jax.tree.map(lambda g: g * shrink, gradient), state.optimiser)
    stepped = jax.tree.map(lambda p, d: p - rate * d, state.network, direction)
    network, optimiser = _where(finite, (stepped, moved), (state.network, state.optimiser))
    updates = state.updates + 1
    target = _where(updates % config.target_every == 0, network, state.target)
    measures = {"gradient_norm": norm, "nonfinite": (~finite).astype(jnp.float32)}
    return QState(network, target, optimiser, updates), measures


def _where(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def learn(
    state: QState,
    replay: Replay,
    key: Key[Array, ""],
    *,
    config: QConfig,
    rules: ReplayConfig,
    share: Float[Array, ""],
    rate: Float[Array, ""],
    beta: Float[Array, ""],
) -> tuple[QState, Replay, Metrics]:
    """Improve a learner once from a drawn batch; `share` is the weight of the intrinsic reward."""
    if rules.prioritised:
        row, world, chance = replays.drawn_by_priority(
            replay, key, rules.batch, ahead=config.n_step, alpha=rules.alpha
        )
        weight = replays.importance(chance, beta)
    else:
        row, world = replays.drawn(replay, key, rules.batch, ahead=config.n_step)
        weight = jnp.ones(rules.batch)
    sample = sample_of(replay, row, world, weight, share, config)
    gradient, (error, value) = jax.grad(loss, has_aux=True)(state.network, state.target, sample, config)
    state, measures = descended(state, gradient, rate=rate, config=config)
    if rules.prioritised:
        replay = replays.reprioritised(replay, row, world, error)
    measures |= {
        "td_error": jnp.mean(jnp.abs(error)),
        "loss": weighted_mean(counted(error, config), sample.weight),
        "q_mean": jnp.mean(value),
        "q_std": jnp.std(value),
    }
    return state, replay, measures
