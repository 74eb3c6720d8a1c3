"""The exact two-variable safety QP: the nearest allowed command, by enumeration of active sets.

`barrier` turns geometry into half-planes over the command (speed, turn rate); this module projects a command
onto their intersection with the box of limits. No iteration and no branch, so the cost never varies.
"""

from enum import IntEnum
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.lax import optimization_barrier, stop_gradient
from jaxtyping import Array, Bool, Float, Int

WEIGHTS = (150.0, 1.0)
"""Price of changing speed [(m/s)^-2] and turn rate [(rad/s)^-2]: steering is preferred to braking."""

TOLERANCE = 4e-6
"""How far a returned command may miss a row, as a share of what that row varies over the box (`reach_of`).

34 float32 roundings. The search accepts half of it, so that rounding (a few 1e-7) never turns a degenerate
vertex into an empty set; a command counts as allowed up to three quarters, so that what was projected stays
put when projected again; the last quarter is for the rounding of that very test. Absolute for a row of zeros.
"""

_SLACK = TOLERANCE / 2
_TOUCH = 0.75 * TOLERANCE
_PARALLEL = 1e-6
"""Sine below which two lines count as parallel: over the whole box they then part by less than `_SLACK`."""
_ZERO = 1e-12
_BLOCK = 128


class Status(IntEnum):
    """What the projection had to do."""

    INACTIVE = 0
    """The nominal command satisfies everything (to `TOLERANCE`) and is returned bit for bit."""
    ACTIVE = 1
    """The nearest allowed command is returned."""
    INFEASIBLE = 2
    """No command is allowed; the nominal one is returned, clipped to the box, for the caller to replace."""


class HalfPlanes(eqx.Module):
    """Rows `a_v v + a_w w + b >= 0`. A masked row is (0, 0, 1), which always holds."""

    a_v: Float[Array, " K"]
    a_w: Float[Array, " K"]
    b: Float[Array, " K"]


class Projection(eqx.Module):
    """The command to apply, and a `Status`."""

    command: Float[Array, "2"]
    status: Int[Array, ""]


class _Lines(NamedTuple):
    """All rows and the four sides of the box, where the cost is the distance and the box has radius 1.

    `n . x + o >= 0` with unit n, or n = 0 for a row that does not depend on the command.
    """

    n_v: Array
    n_w: Array
    o: Array
    centre: Array
    scale: Array


class _Cut(NamedTuple):
    """What the other rows leave of each line, as an interval of the position t along it.

    Axes: lines, rows where there are two, then any batch axes, last.
    """

    possible: Array
    low: Array
    high: Array
    loose_low: Array
    loose_high: Array
    lows: Array
    highs: Array
    cot: Array


def residual(planes: HalfPlanes, command: Float[Array, "2"]) -> Float[Array, " K"]:
    """Return the left-hand side of every row at a command; negative is a violation."""
    return planes.a_v * command[0] + planes.a_w * command[1] + planes.b


def reach_of(
    planes: HalfPlanes,
    *,
    low: Float[Array, "2"],
    high: Float[Array, "2"],
    weights: tuple[float, float] = WEIGHTS,
) -> Float[Array, " K"]:
    """Return how much each row varies from the middle of the box: the unit in which `TOLERANCE` is stated."""
    _, scale = _frame(low, high, weights)
    return jnp.sqrt((planes.a_v * scale[0]) ** 2 + (planes.a_w * scale[1]) ** 2)


def project(
    nominal: Float[Array, "2"],
    planes: HalfPlanes,
    *,
    low: Float[Array, "2"],
    high: Float[Array, "2"],
    weights: tuple[float, float] = WEIGHTS,
) -> Projection:
    """Return the command in the box that satisfies every row at the least weighted squared change.

    Differentiable in everything but `weights`: the active set is found without derivatives, and the problem
    with its rows as equalities is differentiated. At a degenerate problem that is one of the limits of nearby
    Jacobians: a row that is only touched (zero multiplier) counts as absent, of equal rows one counts.
    An infeasible problem has the gradient of the clipped nominal. The nominal may lie outside the box;
    `TOLERANCE` holds for one within ten box widths.
    """
    lines = _lines(planes, low, high, weights)
    z = (nominal - lines.centre) / lines.scale
    first, second, shift, status = _active_set(
        *(stop_gradient(v) for v in (lines.n_v, lines.n_w, lines.o, z[0], z[1]))
    )
    step = _step(lines, z, first, second, shift)
    boxed = jnp.where(nominal < low, low, jnp.where(nominal > high, high, nominal))
    moved = nominal + jnp.where(status == Status.ACTIVE, step * lines.scale, 0.0)
    # The clip removes rounding only; its derivative, a half at a bound that the nominal touches, has no place here.
    moved = moved + stop_gradient(jnp.clip(moved, low, high) - moved)
    return Projection(jnp.where(status == Status.INFEASIBLE, boxed, moved), status)


def exact_box(
    planes: HalfPlanes, *, low: Float[Array, "2"], high: Float[Array, "2"]
) -> tuple[Float[Array, "2"], Float[Array, "2"], Bool[Array, ""]]:
    """Return the smallest box around the allowed commands, and whether there are any; the limits if not."""
    lines = _lines(planes, low, high, (1.0, 1.0))
    cut = _cut(lines.n_v, lines.n_w, lines.o)
    some = jnp.any(cut.possible)
    ends = jnp.stack([cut.low, cut.high])
    ends_v = -lines.o[None] * lines.n_v[None] - ends * lines.n_w[None]
    ends_w = -lines.o[None] * lines.n_w[None] + ends * lines.n_v[None]

    def extent(axis: int, at: Array) -> tuple[Array, Array]:
        at = jnp.clip(lines.centre[axis] + lines.scale[axis] * at, low[axis], high[axis])
        smallest = jnp.min(jnp.where(cut.possible[None], at, jnp.inf))
        largest = jnp.max(jnp.where(cut.possible[None], at, -jnp.inf))
        return jnp.where(some, smallest, low[axis]), jnp.where(some, largest, high[axis])

    (v_low, v_high), (w_low, w_high) = extent(0, ends_v), extent(1, ends_w)
    return jnp.stack([v_low, w_low]), jnp.stack([v_high, w_high]), some


def analytic_box(
    planes: HalfPlanes, *, low: Float[Array, "2"], high: Float[Array, "2"]
) -> tuple[Float[Array, "2"], Float[Array, "2"], Bool[Array, ""]]:
    """Return a cheaper box around the exact one: each row bounds speed, then turn rate, at its kindest.

    Its corners may violate a row, so a projection behind it is still needed. The limits if it is empty.
    """
    v_low, v_high = _bound(planes.a_v, planes.b + _kindest(planes.a_w, low[1], high[1]), low[0], high[0])
    w_low, w_high = _bound(planes.a_w, planes.b + _kindest(planes.a_v, v_low, v_high), low[1], high[1])
    some = (v_low <= v_high) & (w_low <= w_high)
    some &= jnp.all((planes.a_v != 0) | (planes.a_w != 0) | (planes.b >= 0))
    smallest, largest = jnp.stack([v_low, w_low]), jnp.stack([v_high, w_high])
    return jnp.where(some, smallest, low), jnp.where(some, largest, high), some


def _kindest(a: Array, low: Array, high: Array) -> Array:
    return jnp.maximum(a * low, a * high)


def _bound(a: Array, rest: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Tighten one variable's bounds by `a u + rest >= 0`."""
    at = -rest / jnp.where(a == 0, 1.0, a)
    return (
        jnp.max(jnp.where(a > 0, at, low), initial=low),
        jnp.min(jnp.where(a < 0, at, high), initial=high),
    )


def _frame(low: Array, high: Array, weights: tuple[float, float]) -> tuple[Array, Array]:
    price = jnp.sqrt(jnp.asarray(weights, low.dtype))
    radius = jnp.sqrt(jnp.sum((price * (high - low) / 2) ** 2))
    return (low + high) / 2, jnp.maximum(radius, _ZERO) / price


def _lines(planes: HalfPlanes, low: Array, high: Array, weights: tuple[float, float]) -> _Lines:
    centre, scale = stop_gradient(_frame(low, high, weights))
    sides = jnp.asarray([1.0, -1.0, 0.0, 0.0], low.dtype)
    a_v = jnp.concatenate([planes.a_v, sides])
    a_w = jnp.concatenate([planes.a_w, jnp.roll(sides, 2)])
    b = jnp.concatenate([planes.b, jnp.stack([-low[0], high[0], -low[1], high[1]])])
    o = a_v * centre[0] + a_w * centre[1] + b
    a_v, a_w = a_v * scale[0], a_w * scale[1]
    square = a_v * a_v + a_w * a_w
    zero = square <= _ZERO**2
    length = jnp.sqrt(jnp.where(zero, 1.0, square))
    return _Lines(
        jnp.where(zero, 0.0, a_v / length), jnp.where(zero, 0.0, a_w / length), o / length, centre, scale
    )


def _cut(n_v: Array, n_w: Array, o: Array) -> _Cut:
    cos = n_v[:, None] * n_v[None] + n_w[:, None] * n_w[None]
    sin = n_v[:, None] * n_w[None] - n_w[:, None] * n_v[None]
    excess = o[:, None] * cos - o[None]
    below, above = sin >= _PARALLEL, sin <= -_PARALLEL
    parallel = ~(below | above)
    inverse = 1.0 / jnp.where(parallel, 1.0, sin)
    at, slack = excess * inverse, _SLACK * jnp.abs(inverse)
    lows, highs = jnp.where(below, at, -jnp.inf), jnp.where(above, at, jnp.inf)
    low, high = jnp.max(lows, axis=1), jnp.min(highs, axis=1)
    loose_low = jnp.max(jnp.where(below, at - slack, -jnp.inf), axis=1)
    loose_high = jnp.min(jnp.where(above, at + slack, jnp.inf), axis=1)
    possible = jnp.all(~parallel | (excess <= _SLACK), axis=1) & (loose_low <= loose_high)
    possible &= (n_v != 0) | (n_w != 0)
    return _Cut(possible, low, high, loose_low, loose_high, lows, highs, cos * inverse)


@custom_vmap
def _active_set(
    n_v: Array, n_w: Array, o: Array, z_v: Array, z_w: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the active lines, first and second, the way along the first to the solution, and the status.

    On line i the best point is the foot of z, moved no further than the other rows demand. It is the solution
    exactly when the multiplier of i is not negative (that of the row that moved it never is). Choosing by the
    multiplier, not by the distance, keeps the error linear in the rounding: distances near the optimum are
    flat, and comparing them would lose half the digits.
    """
    cut = _cut(n_v, n_w, o)
    depth = n_v * z_v[None] + n_w * z_w[None] + o
    foot = n_v * z_w[None] - n_w * z_v[None]
    nearest = jnp.clip(jnp.clip(foot, cut.low, cut.high), cut.loose_low, cut.loose_high)
    stays = (foot >= cut.loose_low) & (foot <= cut.loose_high)
    shift = jnp.where(stays, 0.0, nearest - foot)
    second = jnp.argmax(jnp.where(shift[:, None] > 0, cut.lows, -cut.highs), axis=1)
    index = jnp.arange(o.shape[0], dtype=second.dtype).reshape((-1,) + (1,) * (o.ndim - 1))
    cot = jnp.sum(jnp.where(index[None] == second[:, None], cut.cot, 0.0), axis=1)
    multiplier = jnp.where(cut.possible, -depth - shift * cot, -jnp.inf)
    first = jnp.argmax(multiplier, axis=0)
    chosen = index == first[None]
    shift = jnp.sum(jnp.where(chosen, shift, 0.0), axis=0)
    second = jnp.sum(jnp.where(chosen, second, 0), axis=0)
    outside = jnp.where(jnp.any(cut.possible, axis=0), Status.ACTIVE, Status.INFEASIBLE)
    status = jnp.where(jnp.all(depth >= -_TOUCH, axis=0), Status.INACTIVE, outside)
    return first, jnp.where(shift == 0, o.shape[0], second), shift, status.astype(jnp.int32)


@_active_set.def_vmap
def _active_set_batched(axis_size: int, in_batched: list[bool], *arrays: Array) -> tuple[tuple, tuple]:
    """Solve a batch in blocks whose pairs of lines stay in a core's cache, with the batch axis last in memory.

    Together 7 times faster than a plain `vmap`. A transposition would only relabel the axes; stacking row by row
    really moves the data, and the barrier keeps the compiler from fusing that into the search, where it would be
    redone for every pair of lines.
    """
    if axis_size > _BLOCK and jax.default_backend() == "cpu":
        varying = [v for v, batched in zip(arrays, in_batched, strict=True) if batched]

        def one(values: list[Array]) -> tuple[Array, Array, Array, Array]:
            rest = iter(values)
            return _active_set(*(next(rest) if b else v for v, b in zip(arrays, in_batched, strict=True)))

        return jax.lax.map(one, varying, batch_size=_BLOCK), (True,) * 4

    def last(v: Array, batched: bool) -> Array:
        return jnp.moveaxis(v, 0, -1) if batched else jnp.broadcast_to(v[..., None], (*v.shape, axis_size))

    def rows_last(v: Array, batched: bool) -> Array:
        rows = (v[:, i] if batched else v[i] for i in range(v.shape[int(batched)]))
        return jnp.stack([last(row, batched) for row in rows])

    moved = [f(v, b) for f, v, b in zip([rows_last] * 3 + [last] * 2, arrays, in_batched, strict=True)]
    found = _active_set(*optimization_barrier(tuple(moved)))
    return tuple(jnp.moveaxis(v, -1, 0) for v in found), (True,) * 4


def _step(lines: _Lines, z: Array, first: Array, second: Array, shift: Array) -> Array:
    """Return the way from z to the solution: to the first line, then along it to the second, if any."""
    index = jnp.arange(lines.o.shape[0], dtype=first.dtype)

    def row(i: Array) -> tuple[Array, Array, Array]:
        # A masked sum: gathers under `vmap` are slow, and their transposes, scatters, slower.
        chosen = index == i
        return tuple(jnp.sum(jnp.where(chosen, v, 0.0)) for v in lines[:3])

    (i_v, i_w, i_o), (j_v, j_w, j_o) = row(first), row(second)
    foot = i_v * z[1] - i_w * z[0]
    cos, sin = i_v * j_v + i_w * j_w, i_v * j_w - i_w * j_v
    clipped = second < lines.o.shape[0]
    along = (i_o * cos - j_o) / jnp.where(clipped, sin, 1.0) - foot
    # The search's value, which respects every row to `_SLACK`, with the derivative of the vertex.
    along = jnp.where(clipped, shift + along - stop_gradient(along), 0.0)
    depth = i_v * z[0] + i_w * z[1] + i_o
    return jnp.stack([-depth * i_v - along * i_w, -depth * i_w + along * i_v])
