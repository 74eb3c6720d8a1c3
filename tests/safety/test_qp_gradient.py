"""The derivative of the projection: the float64 oracle's differences, and the stated choice where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qp_oracle
from qp_oracle import HIGH, LOW, degenerate_problems, random_problems

from outlast.safety.qp import HalfPlanes, Status, project


def command_of(nominal, a, b, low, high):
    return project(nominal, HalfPlanes(a[:, 0], a[:, 1], b), low=low, high=high).command


def status_of(nominal, a, b):
    return project(nominal, HalfPlanes(a[:, 0], a[:, 1], b), low=jnp.array(LOW), high=jnp.array(HIGH)).status


jacobians = jax.jit(
    jax.vmap(jax.jacrev(command_of, argnums=(0, 1, 2, 3, 4)), in_axes=(0, 0, 0, None, None)),
)
forward_jacobians = jax.jit(
    jax.vmap(jax.jacfwd(command_of, argnums=(0, 1, 2, 3, 4)), in_axes=(0, 0, 0, None, None)),
)


def finite_differences(nominal, a, b):
    """Return the oracle's derivatives, flat [B, 2, parameters], and where they mean something.

    The step is 1e-6 in float64. They mean something where forward and backward differences agree and the same lines are
    active on both sides, so no kink lies between.
    """
    n, k = b.shape
    flat = np.concatenate([nominal, a.reshape(n, -1), b], axis=1).astype(np.float64)
    step, columns, smooth = 1e-6, [], np.ones(n, bool)
    _, _, feasible, active = qp_oracle.solve(nominal, a, b)
    for column in range(flat.shape[1] + 4):
        ends = []
        for sign in (-1, 1):
            moved, limits = flat.copy(), np.float64(np.concatenate([LOW, HIGH]))
            if column < flat.shape[1]:
                moved[:, column] += sign * step
            else:
                limits[column - flat.shape[1]] += sign * step
            found = qp_oracle.solve(
                moved[:, :2],
                moved[:, 2 : 2 + 2 * k].reshape(n, k, 2),
                moved[:, 2 + 2 * k :],
                low=limits[:2],
                high=limits[2:],
            )
            smooth &= found[2] & np.all(found[3] == active, axis=1)
            ends.append(found[0])
        columns.append((ends[1] - ends[0]) / (2 * step))
    return np.stack(columns, axis=-1), smooth & feasible, active


def flat_jacobian(parts, n):
    nominal, a, b, low, high = (np.array(part) for part in parts)
    return np.concatenate([nominal, a.reshape(n, 2, -1), b, low, high], axis=-1)


def test_derivatives_equal_finite_differences_on_every_kind_of_active_set():
    n = 1000
    problems = random_problems(np.random.default_rng(20), n, k=5)
    expected, smooth, active = finite_differences(*problems)
    kinds = {
        "none": active[:, 0] < 0,
        "a row": (active[:, 0] >= 0) & (active[:, 0] < 5) & (active[:, 1] < 0),
        "a side": (active[:, 0] >= 5) & (active[:, 1] < 0),
        "two rows": (active[:, 1] >= 0) & (active[:, 1] < 5),
        "a row and a side": (active[:, 0] >= 0) & (active[:, 0] < 5) & (active[:, 1] >= 5),
        "two sides": (active[:, 0] >= 5) & (active[:, 1] >= 0),
    }
    for derivative in (jacobians, forward_jacobians):
        found = flat_jacobian(derivative(*problems, LOW, HIGH), n)
        size = np.maximum(1.0, np.max(np.abs(expected), axis=(1, 2)))
        error = np.max(np.abs(found - expected), axis=(1, 2)) / size
        for name, which in kinds.items():
            which = which & smooth
            assert which.sum() >= 5, name
            # float32 normals, divided by the sine of the angle at a vertex, against differences good to 1e-9.
            assert np.quantile(error[which], 0.95) < 1e-4, name
            assert np.max(error[which]) < 1e-2, name


def test_derivatives_are_finite_whatever_the_problem():
    for draw in (random_problems, degenerate_problems):
        problems = draw(np.random.default_rng(21), 10_000)
        for part in jacobians(*problems, LOW, HIGH):
            assert np.all(np.isfinite(part))


def jacobian_at(nominal, rows):
    rows = np.array(rows, np.float32)
    nominal = jnp.array(nominal, jnp.float32)
    a, b = jnp.array(rows[:, :2]), jnp.array(rows[:, 2])
    parts = jax.tree.map(lambda v: np.array(v[0]), jacobians(nominal[None], a[None], b[None], LOW, HIGH))
    return parts, Status(int(jax.jit(status_of)(nominal, a, b)))


def test_a_nominal_that_only_touches_a_row_or_a_side_keeps_the_identity():
    for touching, row in [([0.5, 0.0], [-1.0, 0.0, 0.5]), (HIGH, [-1.0, 0.0, 3.0])]:
        (nominal, *rest), status = jacobian_at(touching, [row])
        assert status == Status.INACTIVE
        np.testing.assert_array_equal(nominal, np.eye(2))
        assert not any(np.any(part) for part in rest)


def test_of_two_equal_rows_one_carries_the_derivative():
    row = [-1.0, 0.1, 0.3]
    (alone, _, alone_b, *_), _ = jacobian_at([0.9, 0.0], [row])
    (both, _, both_b, *_), status = jacobian_at([0.9, 0.0], [row, row])
    assert status == Status.ACTIVE
    np.testing.assert_array_equal(both, alone)
    np.testing.assert_array_equal(both_b[:, 0], alone_b[:, 0])
    assert not np.any(both_b[:, 1])


def test_a_row_that_only_touches_the_answer_counts_as_absent():
    """The foot on the first row lies exactly on the second: the answer keeps sliding along the first."""
    first, second = [-1.0, 0.0, 0.5], [-1.0, -1.0, 0.5]
    (alone, *_), _ = jacobian_at([0.8, 0.0], [first])
    (both, _, b, *_), status = jacobian_at([0.8, 0.0], [first, second])
    assert status == Status.ACTIVE
    np.testing.assert_array_equal(both, alone)
    assert not np.any(b[:, 1])


def test_an_infeasible_problem_has_the_derivative_of_the_clip():
    impossible = [[1.0, 0.0, -2.0]]
    (nominal, a, b, *_), status = jacobian_at([0.5, 5.0], impossible)
    assert status == Status.INFEASIBLE
    np.testing.assert_array_equal(nominal, np.diag([1.0, 0.0]))
    assert not np.any(a)
    assert not np.any(b)


def test_any_nesting_of_transformations_agrees():
    """One by one in a scan, `vmap` over the last axis, `vmap` of `vmap` past the block size, and `grad` outside `vmap`.

    Other programs round differently: 1e-4 of a gradient, times the inverse sine of the angle at a thin vertex.
    """
    problems = tuple(jnp.array(v) for v in random_problems(np.random.default_rng(22), 300, k=2))

    def loss(nominal, a, b):
        return jnp.sum(command_of(nominal, a, b, jnp.array(LOW), jnp.array(HIGH)) ** 2)

    gradient = jax.grad(loss, argnums=(0, 2))
    one_by_one = jax.jit(lambda *v: jax.lax.scan(lambda c, row: (c, gradient(*row)), 0, v)[1])(*problems)
    grouped = (v.reshape(2, 150, *v.shape[1:]) for v in problems)
    nested = jax.jit(jax.vmap(jax.vmap(gradient)))(*grouped)
    last = jax.jit(jax.grad(lambda *v: jnp.sum(jax.vmap(loss, in_axes=-1)(*v)), argnums=(0, 2)))
    last = last(*(jnp.moveaxis(v, 0, -1) for v in problems))
    candidates = [
        jax.tree.map(lambda v: v.reshape(300, *v.shape[2:]), nested),
        jax.tree.map(lambda v: jnp.moveaxis(v, -1, 0), last),
    ]
    assert all(np.abs(leaf).sum() > 100 for leaf in jax.tree.leaves(one_by_one))
    for candidate in candidates:
        for found, expected in zip(candidate, one_by_one, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shared", [(True, False, False), (False, True, True)])
def test_shared_arguments_may_stay_unbatched(shared):
    """One row set for many commands, one command for many row sets, more than a block: as if repeated."""
    nominal, a, b = (jnp.array(v) for v in random_problems(np.random.default_rng(23), 200, k=3))
    low, high = jnp.array(LOW), jnp.array(HIGH)

    def command(nominal, a, b):
        return command_of(nominal, a, b, low, high)

    arguments = [v[0] if fixed else v for v, fixed in zip((nominal, a, b), shared, strict=True)]
    axes = [None if fixed else 0 for fixed in shared]
    repeated = [
        jnp.broadcast_to(v, (200, *v.shape)) if f else v for v, f in zip(arguments, shared, strict=True)
    ]
    found = jax.jit(jax.vmap(command, in_axes=axes))(*arguments)
    # Two programs may round differently; the tolerance of the projection, 4e-6 of 6.7 in weighted units.
    np.testing.assert_allclose(found, jax.jit(jax.vmap(command))(*repeated), atol=3e-5)
