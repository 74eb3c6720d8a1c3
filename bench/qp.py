"""How long does one exact safety projection take, and how much longer do general solvers take for the same problems?

Run with `NPROC=1 python bench/qp.py --out qp.json`. Ratios against SLSQP (what the original filter calls) and, where it
is installed, qpax (a batched interior point method) are measured in the same process on the same problems, so
they survive a change of machine; the microseconds do not.
"""

import argparse
import importlib.util
import json
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from outlast.safety.qp import WEIGHTS, HalfPlanes, Status, project

LOW, HIGH = np.array([0.0, -2.84], np.float32), np.array([1.0, 2.84], np.float32)
BATCHES, ROWS = (1, 256, 4096), (4, 8, 16)


def problems(n: int, k: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw rows as barriers make them: about two in three bind, few are infeasible."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, k, 2)) * [1.0, 0.1]
    drawn = rng.uniform(LOW, HIGH, size=(n, 2)), a, rng.uniform(0.0, 1.5, size=(n, k))
    return tuple(v.astype(np.float32) for v in drawn)


def answer(nominal, a, b):
    """Project one command."""
    return project(nominal, HalfPlanes(a[:, 0], a[:, 1], b), low=jnp.array(LOW), high=jnp.array(HIGH))


def loss(nominal, a, b):
    """Return something to differentiate."""
    return jnp.sum(answer(nominal, a, b).command ** 2)


def microseconds(function, arguments, *, n: int, repeats: int) -> float:
    """Return the median time of one problem, of a compiled function that was called before."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return float(np.median(times)) / n * 1e6


def slsqp(nominal, a, b) -> np.ndarray:
    """Solve one problem the way the original did."""
    nominal, a, b = (np.float64(v) for v in (nominal, a, b))
    weights = np.array(WEIGHTS)
    return minimize(
        lambda u: np.sum(weights * (u - nominal) ** 2),
        np.clip(nominal, LOW, HIGH),
        jac=lambda u: 2 * weights * (u - nominal),
        bounds=list(zip(LOW, HIGH, strict=True)),
        constraints={"type": "ineq", "fun": lambda u: a @ u + b, "jac": lambda u: a},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 100},
    ).x


def reference_slsqp(nominal, a, b, commands) -> dict[str, float]:
    """Time SLSQP on the feasible problems given, and how far its answers are from ours."""
    start = time.perf_counter()
    theirs = np.array([slsqp(*problem) for problem in zip(nominal, a, b, strict=True)])
    elapsed = time.perf_counter() - start
    return {
        "us": elapsed / len(nominal) * 1e6,
        "largest_difference": float(np.max(np.abs(theirs - commands))),
    }


def reference_qpax(nominal, a, b, *, repeats: int) -> dict[str, float]:
    """Time qpax in float32 on the same batch, and how often it says it converged."""
    import qpax

    sides = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    limits = jnp.array([-LOW[0], HIGH[0], -LOW[1], HIGH[1]])
    cost = jnp.diag(2 * jnp.array(WEIGHTS))

    @jax.jit
    @jax.vmap
    def interior(nominal, a, b):
        rows, offsets = -jnp.concatenate([a, sides]), jnp.concatenate([b, limits])
        solved = qpax.solve_qp(cost, -cost @ nominal, jnp.zeros((0, 2)), jnp.zeros(0), rows, offsets)
        return solved[0], solved[4]

    us = microseconds(interior, (nominal, a, b), n=len(nominal), repeats=repeats)
    return {"us": us, "converged": float(jnp.mean(interior(nominal, a, b)[1]))}


def measured(repeats: int) -> dict[str, object]:
    """Measure everything; see the module's question."""
    forward, backward = jax.jit(jax.vmap(answer)), jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1, 2))))
    ours = []
    for n in BATCHES:
        for k in ROWS:
            arguments = tuple(map(jnp.asarray, problems(n, k)))
            us = {
                "us": microseconds(forward, arguments, n=n, repeats=repeats),
                "gradient_us": microseconds(backward, arguments, n=n, repeats=repeats),
            }
            ours.append({"batch": n, "rows": k, **us})
            print(
                f"batch {n:5d}  rows {k:2d} + box  {us['us']:8.2f} us  with gradient {us['gradient_us']:8.2f} us"
            )
    batch = problems(4096, 8)
    found = forward(*batch)
    base = next(row["us"] for row in ours if row["batch"] == 4096 and row["rows"] == 8)
    some = np.flatnonzero(np.asarray(found.status) != Status.INFEASIBLE)[:300]
    references = {"slsqp": reference_slsqp(*(v[some] for v in batch), np.asarray(found.command)[some])}
    if importlib.util.find_spec("qpax"):
        references["qpax"] = reference_qpax(*batch, repeats=max(3, repeats // 10))
    for name, reference in references.items():
        reference["ratio"] = reference["us"] / base
        print(f"{name}: {reference['ratio']:.0f} times the time of ours  {reference}")
    shares = np.bincount(np.asarray(found.status), minlength=3) / 4096
    return {
        "ours": ours,
        "references": references,
        "status_shares": dict(zip(STATUS_NAMES, shares, strict=True)),
    }


STATUS_NAMES = [status.name.lower() for status in Status]


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True, help="where to write the JSON")
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    result = {
        "question": __doc__.splitlines()[0],
        "machine": {"platform": platform.platform(), "device": str(jax.devices()[0]), "jax": jax.__version__},
        **measured(options.repeats),
    }
    options.out.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
