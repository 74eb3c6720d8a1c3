"""The projection against oracles on 100,000 problems, degenerate ones included, and what it promises a caller."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qp_oracle
from qp_oracle import HIGH, LOW, degenerate_problems, random_problems, reach, twin_problems
from scipy.optimize import linprog

from outlast.safety.qp import (
    TOLERANCE,
    HalfPlanes,
    Status,
    analytic_box,
    exact_box,
    project,
    reach_of,
    residual,
)


def planes_of(a, b):
    return HalfPlanes(a[..., 0], a[..., 1], b)


project_one = jax.jit(project, static_argnames="weights")
LIMITS = {"low": jnp.array(LOW), "high": jnp.array(HIGH)}


@jax.jit
@jax.vmap
def project_all(nominal, a, b):
    return project(nominal, planes_of(a, b), **LIMITS)


def solved(problems):
    answer = project_all(*problems)
    return np.float64(answer.command), np.array(answer.status)


def relative_residual(command, a, b):
    unit = reach(a)
    return (np.einsum("nkc,nc->nk", np.float64(a), command) + b) / np.where(unit > 0, unit, 1.0)


def weighted_distance(command, nominal):
    return np.sqrt(np.sum(qp_oracle.WEIGHTS * (command - nominal) ** 2, axis=-1))


@pytest.mark.parametrize(
    ("draw", "n", "k"),
    [
        (random_problems, 40_000, 8),
        (random_problems, 10_000, 2),
        (degenerate_problems, 40_000, 8),
        (twin_problems, 10_000, 3),
    ],
)
def test_projection_is_exact_to_the_tolerance(draw, n, k):
    """No row is missed by more than the tolerance, and no point of the set tightened by the tolerance is nearer.

    This backward error is the strongest statement that holds for nearly parallel rows too: there a float32
    rounding of the data itself moves the exact answer by any amount. Well conditioned answers follow below.
    """
    problems = draw(np.random.default_rng(0), n, k)
    command, status = solved(problems)
    _, farthest, surely_feasible, _ = qp_oracle.solve(*problems, slack=-TOLERANCE)
    _, nearest, maybe_feasible, _ = qp_oracle.solve(*problems, slack=TOLERANCE)
    feasible = status != Status.INFEASIBLE
    assert np.all(feasible[surely_feasible])
    assert not np.any(feasible & ~maybe_feasible)
    assert np.all(relative_residual(command, *problems[1:])[feasible] >= -TOLERANCE)
    assert np.all((command >= LOW) & (command <= HIGH))
    moved = weighted_distance(command, problems[0])
    assert np.all(moved[surely_feasible] <= farthest[surely_feasible])
    assert np.all(moved[feasible] >= nearest[feasible])
    assert np.sum(status == Status.ACTIVE) > n // 4
    assert np.sum(status == Status.INFEASIBLE) > n // 20


def test_projection_equals_the_oracle_where_the_answer_is_well_conditioned():
    """On random rows, an answer on one line or where two cross at over 0.1 rad is right to 1e-5 of the box.

    2.5 tolerances: one for the first row, up to that again along it for the second.
    """
    problems = random_problems(np.random.default_rng(1), 20_000)
    command, status = solved(problems)
    exact, _, feasible, active = qp_oracle.solve(*problems)
    assert np.array_equal(feasible, status != Status.INFEASIBLE)
    scaled = np.concatenate([problems[1], np.broadcast_to(_SIDES, (len(command), 4, 2))], axis=1)
    scaled = scaled / np.sqrt(qp_oracle.WEIGHTS)
    unit = scaled / np.linalg.norm(scaled, axis=-1, keepdims=True)
    first, second = (unit[np.arange(len(command)), line] for line in active.T)
    sine = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    good = feasible & ((active[:, 1] < 0) | (sine > 0.1))
    box = np.sqrt(np.sum(qp_oracle.WEIGHTS * (np.float64(HIGH - LOW) / 2) ** 2))
    assert np.max(weighted_distance(command, exact)[good]) <= 1e-5 * box
    assert good.sum() > 0.65 * len(command)


_SIDES = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])


@pytest.mark.parametrize("draw", [random_problems, degenerate_problems])
def test_nothing_binds_means_the_nominal_bit_for_bit(draw):
    problems = draw(np.random.default_rng(2), 20_000)
    command, status = solved(problems)
    inactive = status == Status.INACTIVE
    inside = np.all((problems[0] >= LOW) & (problems[0] <= HIGH), axis=1)
    free = inside & np.all(relative_residual(np.float64(problems[0]), *problems[1:]) >= 0, axis=1)
    assert np.all(inactive[free])
    assert np.array_equal(command[inactive & inside], np.float64(problems[0])[inactive & inside])
    assert free.sum() > 1000


@pytest.mark.parametrize("draw", [random_problems, degenerate_problems])
def test_projecting_again_changes_nothing(draw):
    nominal, a, b = draw(np.random.default_rng(3), 20_000)
    once = project_all(nominal, a, b)
    again = project_all(once.command, a, b)
    feasible = once.status != Status.INFEASIBLE
    assert np.all(again.status[feasible] == Status.INACTIVE)
    assert np.array_equal(again.command[feasible], once.command[feasible])


def test_infeasible_returns_the_nominal_clipped_to_the_box():
    problems = random_problems(np.random.default_rng(4), 5000)
    command, status = solved(problems)
    infeasible = status == Status.INFEASIBLE
    assert np.array_equal(command[infeasible], np.clip(problems[0], LOW, HIGH)[infeasible])
    assert infeasible.sum() > 500


@pytest.mark.parametrize("draw", [random_problems, degenerate_problems])
def test_infeasibility_agrees_with_a_linear_program(draw):
    """The LP finds the largest margin (in units of each row's reach) that all rows can have at once.

    Inside +- TOLERANCE of 0 either answer is right; outside there is no excuse. HiGHS itself is good to 1e-7.
    """
    nominal, a, b = draw(np.random.default_rng(5), 500)
    status = np.array(project_all(nominal, a, b).status)
    unit = reach(a)
    unit = np.where(unit > 0, unit, 1.0)
    margins = []
    for slope, offset in zip(a / unit[..., None], b / unit, strict=True):
        rows = np.column_stack([-slope, np.ones(len(offset))])
        bounds = [(LOW[0], HIGH[0]), (LOW[1], HIGH[1]), (None, 1.0)]
        found = linprog([0, 0, -1], A_ub=rows, b_ub=offset, bounds=bounds)
        assert found.status == 0
        margins.append(-found.fun)
    margins = np.array(margins)
    # An inactive nominal may lie outside the box by a rounding; nothing else is let through.
    assert np.all(status[margins > TOLERANCE] != Status.INFEASIBLE)
    assert np.all(status[margins < -TOLERANCE] == Status.INFEASIBLE)
    decided = np.abs(margins) > TOLERANCE
    assert np.sum(decided & (margins < 0)) > 50
    assert np.sum(decided) > (490 if draw is random_problems else 320)


@pytest.mark.slow
def test_projection_agrees_with_qpax():
    """100,000 feasible problems. The limits are those of the interior point method, in float64, against the
    brute force: it converges on 78 % of them to a weighted error of 8e-6 (99 %) and 3.5e-4 (worst of 10,000).
    """
    qpax = pytest.importorskip("qpax")
    nominal, a, b = random_problems(np.random.default_rng(6), 150_000)
    command, status = solved((nominal, a, b))
    keep = np.flatnonzero(status != Status.INFEASIBLE)[:100_000]
    assert len(keep) == 100_000
    with jax.enable_x64(True):
        rows = np.concatenate([-np.float64(a), np.broadcast_to(-_SIDES, (len(a), 4, 2))], axis=1)
        limits = np.concatenate(
            [np.float64(b), np.broadcast_to([-LOW[0], HIGH[0], -LOW[1], HIGH[1]], (len(a), 4))], 1
        )
        quadratic = jnp.diag(jnp.array(2 * qp_oracle.WEIGHTS))
        empty = jnp.zeros((0, 2)), jnp.zeros(0)

        @jax.jit
        @jax.vmap
        def interior(nominal, rows, limits):
            answer = qpax.solve_qp(quadratic, -quadratic @ nominal, *empty, rows, limits, solver_tol=1e-6)
            return answer[0], answer[4]

        theirs, converged = interior(np.float64(nominal)[keep], rows[keep], limits[keep])
        theirs, converged = np.array(theirs), np.array(converged) == 1
    assert converged.mean() > 0.7
    difference = weighted_distance(command[keep], theirs)[converged]
    assert np.quantile(difference, 0.99) < 5e-5
    assert np.max(difference) < 5e-3


def test_rows_may_be_permuted_scaled_repeated_and_padded():
    """Other ways to write one problem: the answers differ by rounding, and by more only at the thinnest vertices."""
    nominal, a, b = random_problems(np.random.default_rng(7), 4000, k=4)
    command, status = solved((nominal, a, b))
    order = np.array([2, 0, 3, 1])
    zeros = np.zeros_like(a)
    ones = np.ones_like(b)
    for other_a, other_b in [
        (a[:, order], b[:, order]),
        (a * 7.3, b * np.float32(7.3)),
        (np.concatenate([a, a], 1), np.concatenate([b, b], 1)),
        (np.concatenate([a, zeros], 1), np.concatenate([b, ones], 1)),
        (np.concatenate([a, a], 1), np.concatenate([b, b + 0.1], 1)),
    ]:
        again, again_status = solved((nominal, other_a, other_b))
        assert np.array_equal(again_status, status)
        difference = np.max(np.abs(again - command) * np.sqrt(qp_oracle.WEIGHTS), axis=1)
        assert np.quantile(difference, 0.999) < 1e-5 * 6.7
        assert np.max(difference) < 1e-3


def test_mirrored_problem_has_the_mirrored_answer():
    nominal, a, b = random_problems(np.random.default_rng(8), 4000)
    mirror = np.array([1.0, -1.0], np.float32)
    command, status = solved((nominal, a, b))
    mirrored, mirrored_status = solved((nominal * mirror, a * mirror, b))
    assert np.array_equal(mirrored_status, status)
    # Every intermediate number is the same up to sign, so the answer is.
    np.testing.assert_array_equal(mirrored * mirror, command)


def test_a_row_of_zeros_decides_by_its_offset():
    exact, analytic = jax.jit(exact_box), jax.jit(analytic_box)
    for offset, status in [(1.0, Status.INACTIVE), (0.0, Status.INACTIVE), (-0.1, Status.INFEASIBLE)]:
        planes = HalfPlanes(jnp.zeros(1), jnp.zeros(1), jnp.array([offset]))
        assert project_one(jnp.array([0.5, 0.0]), planes, **LIMITS).status == status
        assert bool(exact(planes, **LIMITS)[2]) == (status != Status.INFEASIBLE)
        assert bool(analytic(planes, **LIMITS)[2]) == (status != Status.INFEASIBLE)


def test_no_rows_at_all_is_the_box():
    planes = HalfPlanes(jnp.zeros(0), jnp.zeros(0), jnp.zeros(0))
    answer = project_one(jnp.array([1.5, -3.0]), planes, **LIMITS)
    # The nearest point of a box is the clip, to the last bit: the final clip lands on the bound itself.
    np.testing.assert_array_equal(answer.command, np.array([1.0, HIGH[1] * -1]))
    assert answer.status == Status.ACTIVE


def test_fixed_speed_leaves_the_turn_rate():
    """A box of no width, as for a robot that drives at one speed: at v = 1 the row says w >= 0.5."""
    low, high = jnp.array([1.0, -2.84]), jnp.array([1.0, 2.84])
    planes = HalfPlanes(jnp.array([-1.0]), jnp.array([2.0]), jnp.array([0.0]))
    answer = project_one(jnp.array([1.0, -1.0]), planes, low=low, high=high)
    assert answer.status == Status.ACTIVE
    np.testing.assert_allclose(answer.command, [1.0, 0.5], atol=2.84 * TOLERANCE)
    planes = HalfPlanes(jnp.array([-1.0]), jnp.array([0.2]), jnp.array([0.0]))
    assert project_one(jnp.array([1.0, -1.0]), planes, low=low, high=high).status == Status.INFEASIBLE


def test_weights_choose_between_braking_and_steering():
    planes = HalfPlanes(jnp.array([-1.0]), jnp.array([-1.0]), jnp.array([0.5]))
    low, high = jnp.array([0.0, -3.0]), jnp.array([1.0, 3.0])
    for weights in [(1.0, 1.0), (4.0, 1.0), (1.0, 4.0)]:
        change = project_one(jnp.array([0.8, 0.2]), planes, low=low, high=high, weights=weights).command
        brake, steer = 0.8 - change[0], 0.2 - change[1]
        # KKT: the ratio of the changes is the inverse ratio of the prices; they share the missing 0.5.
        np.testing.assert_allclose(brake * weights[0], steer * weights[1], rtol=1e-5)
        np.testing.assert_allclose(brake + steer, 0.5, rtol=1e-5)


def test_residual_and_reach_are_the_rows_written_out():
    nominal, a, b = random_problems(np.random.default_rng(9), 100)
    planes = planes_of(jnp.array(a), jnp.array(b))
    values = jax.vmap(residual)(planes, nominal)
    # A sum of three float32 terms of size up to 30.
    np.testing.assert_allclose(values, np.einsum("nkc,nc->nk", np.float64(a), nominal) + b, atol=1e-5)
    reaches = jax.vmap(lambda p: reach_of(p, **LIMITS))(planes)
    np.testing.assert_allclose(reaches, reach(a), rtol=1e-5)


def test_boxes_hold_every_allowed_command():
    """The exact box touches the allowed set on all four sides; the analytic one contains it."""
    nominal, a, b = random_problems(np.random.default_rng(10), 1000, k=4)
    planes = planes_of(jnp.array(a), jnp.array(b))
    low, high, some = jax.jit(jax.vmap(lambda p: exact_box(p, **LIMITS)))(planes)
    wide_low, wide_high, wide_some = jax.jit(jax.vmap(lambda p: analytic_box(p, **LIMITS)))(planes)
    _, _, feasible, _ = qp_oracle.solve(nominal, a, b)
    assert np.array_equal(some, feasible)
    assert np.all(wide_some[feasible])
    extremes = {}
    far = 1e6
    for name, direction in {"v": (1, 0), "w": (0, 1)}.items():
        for sign in (-1, 1):
            goal = sign * far * np.broadcast_to(np.float64(direction), nominal.shape)
            extremes[name, sign] = _support(goal, a, b)
    for axis, name in enumerate("vw"):
        # Vertices of lines as thin as random ones get lose some digits: 1e-4 of a range of 1 and 5.68.
        np.testing.assert_allclose(low[feasible, axis], extremes[name, -1][feasible, axis], atol=1e-4)
        np.testing.assert_allclose(high[feasible, axis], extremes[name, 1][feasible, axis], atol=1e-4)
    assert np.all(wide_low[feasible] <= low[feasible] + 1e-4)
    assert np.all(wide_high[feasible] >= high[feasible] - 1e-4)
    assert np.array_equal(low[~some], np.broadcast_to(LOW, low[~some].shape))
    assert np.any(wide_high[feasible] > high[feasible] + 0.1)


def _support(goal, a, b):
    """Return the allowed command farthest along a direction: the projection of a point very far out that way."""
    return qp_oracle.solve(goal, a, b)[0]
