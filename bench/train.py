"""How many steps a second does training make on one thread, which share of the machine's matrix product rate is that,
and where does the time go? Counted are the products of policies, values, past opponents and updates, nothing else.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.measure import (
    GEMM_SIZES,
    Answer,
    Table,
    Window,
    at_least,
    best_gemm,
    gemm_contenders,
    interleaved,
    middle,
    ratios,
    repeated,
    spread,
    workers,
)

LEAST = 0.55
WIDE = ("ppo.network.hidden=[256,256]",)
ONLY_FLEE = ("opponents.look_ahead=0", "opponents.corner=0", "opponents.orbit=0")
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "chase, 2x64": ("chase", ()),
    "chase, 2x256": ("chase", WIDE),
    "chase against flee_away only, 2x64": ("chase", ONLY_FLEE),
    "chase with 4 epochs, 2x64": ("chase", ("ppo.epochs=4",)),
}
JUDGED, PROFILED = ("chase, 2x64", "chase, 2x256"), ("chase, 2x64",)
PARTS = ("play", "play, no look_ahead", "learn", "gradients", "tanh", "products")


class Trained(NamedTuple):
    """A program with a state that is not at its beginning, and what one iteration counts."""

    program: Any
    state: Any
    steps: float
    operations: float


@functools.cache
def trained(case: str, extra: tuple[str, ...] = ()) -> Trained:
    """Build a case of training and count the operations of its products."""
    import jax
    import jax.numpy as jnp

    from outlast import programs

    preset, overrides = CASES[case]
    config = programs.from_preset(preset, [*overrides, *extra])
    program = programs.program_of(config)
    state = jax.jit(program.iterate)(jax.jit(program.init)(jnp.uint32(0)))[0]
    return Trained(program, state, program.steps_per_iteration, float(operations(program, state)))


def operations(program: Any, state: Any) -> int:
    """Count floating-point operations of products in one iteration in which every learner learns."""
    config, total = program.config, 0
    for role in config.roles:
        learner = state.learners[role.name.lower()].network
        forward, backward = learner.flops()
        live, past = config.blocks.live(role), config.blocks.past(role)
        samples = (live.stop - live.start) * config.collect.horizon
        total += samples * (forward + config.ppo.epochs * (forward + backward))
        acting = sum(2 * layer.weight.size for layer in (*learner.actor.layers, learner.mean))
        # Both seats of the bench act for every world of the past.
        total += 2 * (past.stop - past.start) * config.collect.horizon * acting
    return total


@functools.cache
def iteration(case: str) -> Callable[[], float]:
    """Compile whole iterations, the state handed on as in a run; each counts its steps."""
    import jax
    import jax.numpy as jnp

    program, state, steps, _ = trained(case)
    place, step = {"state": jax.tree.map(jnp.copy, state)}, jax.jit(program.iterate, donate_argnums=0)

    def run() -> float:
        place["state"], metrics = step(place["state"])
        jax.block_until_ready(metrics)
        return steps

    return run


def steps(case: str, seconds: float) -> tuple[float, float]:
    """Train for some seconds; count world steps."""
    return repeated(iteration(case), seconds)


@functools.cache
def part(case: str, name: str) -> Callable[[], float]:
    """Compile one part of an iteration alone; each call counts one."""
    import jax

    extra = ("opponents.look_ahead=0",) if name == "play, no look_ahead" else ()
    program, state, _, _ = trained(case, extra)
    if name.startswith("play"):
        compiled, arguments = jax.jit(program.play), (state,)
    else:
        _, played, last = jax.jit(program.play)(state)
        if name == "learn":
            compiled = jax.jit(lambda s, p, v: program.learn(s, "pursuer", p, v))
            arguments = (state, played, last["pursuer"])
        else:
            batch = jax.jit(lambda p, v: program.batch(p, "pursuer", v, 0.0))(played, last["pursuer"])
            compiled = jax.jit(functools.partial(PIECES[name], program.config))
            arguments = (state.learners["pursuer"].network, batch)

    def run() -> float:
        jax.block_until_ready(compiled(*arguments))
        return 1.0

    return run


def _gradients(config: Any, network: Any, batch: Any) -> Any:
    """Take as many gradients as an iteration does, of minibatches in the order they lie in: no shuffle, no Adam."""
    import jax
    import jax.numpy as jnp

    from outlast.learners import ppo

    n = batch.values.shape[0] // config.ppo.minibatches

    def one(total: Any, index: Any) -> tuple[Any, None]:
        share = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, index * n, n, axis=-1), batch)
        return jax.tree.map(jnp.add, total, ppo._gradient(network, share, config.ppo)[0]), None

    order = jnp.tile(jnp.arange(config.ppo.minibatches), config.ppo.epochs)
    return jax.lax.scan(one, jax.tree.map(jnp.zeros_like, network), order)[0]


def _activations(config: Any, network: Any, batch: Any) -> Any:
    """Take as many tanh as an iteration does, in blocks that fit the cache."""
    import jax
    import jax.numpy as jnp

    width, n = 2 * sum(config.ppo.network.hidden), batch.values.shape[0]
    block = jnp.linspace(-2.0, 2.0, width * 256).reshape(width, 256)
    calls = (1 + config.ppo.epochs) * n // 256
    return jax.lax.scan(lambda x, _: (jnp.tanh(x), None), block, None, length=calls)[0]


def _products(config: Any, network: Any, batch: Any) -> Any:
    """Multiply hidden layers with 1,024 columns, over and over: the products of an iteration at their own shape."""
    import jax
    import jax.numpy as jnp

    weight = network.actor.layers[-1].weight
    columns = jnp.ones((weight.shape[1], 1024)) * batch.values[0]
    calls = product_calls(config, weight.size)
    return jax.lax.scan(lambda x, _: (weight @ x, None), columns, None, length=calls)[0]


def product_calls(config: Any, weights: int) -> int:
    """Return a number of products that takes some milliseconds."""
    return max(1, 2 * 10**9 // (2 * 1024 * weights))


PIECES: dict[str, Callable[..., Any]] = {
    "gradients": _gradients,
    "tanh": _activations,
    "products": _products,
}


def times(case: str, name: str, seconds: float) -> tuple[float, float]:
    """Run one part for some seconds; count how often."""
    return repeated(part(case, name), seconds)


def counted(case: str) -> dict[str, float]:
    """Return what one iteration of a case counts."""
    found = trained(case)
    weights = found.program.config.ppo.network.hidden[-1] ** 2
    calls = product_calls(found.program.config, weights)
    return {"steps": found.steps, "operations": found.operations, "products": 2.0 * 1024 * weights * calls}


def answer(*, quick: bool) -> Answer:
    """Measure products, training and its parts, interleaved in one process with one thread."""
    rounds, seconds = (2, 0.2) if quick else (5, 0.5)
    cases, profiled = (JUDGED, PROFILED) if quick else (tuple(CASES), PROFILED)
    with workers(1) as (worker,):
        contenders: dict[str, Window] = gemm_contenders(worker)
        contenders |= {case: worker.window(steps, case) for case in cases}
        contenders |= {
            f"{case}: {name}": worker.window(times, case, name) for case in profiled for name in PARTS
        }
        counts = {case: worker.call(counted, case) for case in cases}
        rates = interleaved(contenders, rounds=rounds, seconds=seconds)
    found = Answer(question=" ".join((__doc__ or "").split()), raw={"rates": rates, "counts": counts})
    shares = {case: _shares(case, rates, counts) for case in cases}
    found.tables = [_speed_table(cases, rates, counts, shares)]
    found.tables += [_profile(case, rates, counts) for case in profiled]
    for case in JUDGED:
        found.criteria.append(at_least(f"{case}, share of the GEMM rate", middle(shares[case]), LEAST))
    return found


def _shares(case: str, rates: dict[str, list[float]], counts: dict[str, Any]) -> list[float]:
    per_step = counts[case]["operations"] / counts[case]["steps"]
    return [share * per_step for share in ratios(rates[case], best_gemm(rates, 1))]


def _speed_table(
    cases: tuple[str, ...],
    rates: dict[str, list[float]],
    counts: dict[str, Any],
    shares: dict[str, list[float]],
) -> Table:
    rows = []
    for case in cases:
        per_step = counts[case]["operations"] / counts[case]["steps"]
        rows.append(
            [
                case,
                spread(rates[case], ",.0f"),
                f"{per_step / 1e3:,.1f}",
                spread([rate * per_step / 1e9 for rate in rates[case]], ".0f"),
                spread(shares[case]),
            ]
        )
    best = max(GEMM_SIZES, key=lambda size: middle(rates[f"gemm {size} NPROC=1"]))
    products = spread([r / 1e9 for r in best_gemm(rates, 1)], ".0f")
    rows.append([f"products of {best} x {best} matrices", "", "", products, "1"])
    columns = [
        "one thread, one process",
        "steps/s",
        "thousand operations/step",
        "GFLOP/s",
        "share of the GEMM rate",
    ]
    note = (
        f"The reference is the fastest of square float32 products of {', '.join(map(str, GEMM_SIZES))} in XLA, in the "
        "same process with the same one thread, in the same rounds."
    )
    return Table("Training, one seed", columns, rows, note)


def _profile(case: str, rates: dict[str, list[float]], counts: dict[str, Any]) -> Table:
    """Say where the time of one iteration goes."""
    ms = {name: 1e3 / middle(rates[f"{case}: {name}"]) for name in PARTS}
    whole = 1e3 * counts[case]["steps"] / middle(rates[case])
    speed = counts[case]["products"] / ms["products"] * 1e3
    own_shape = counts[case]["operations"] / speed * 1e3
    at_gemm_rate = counts[case]["operations"] / middle(best_gemm(rates, 1)) * 1e3
    rows = [
        ["whole iteration", whole],
        ["playing: policy, value, world, opponents, resets", ms["play"]],
        ["- of it for the evader `look_ahead`", ms["play"] - ms["play, no look_ahead"]],
        ["learning", ms["learn"]],
        ["- of it gradients; the rest is advantages, shuffle, gathers, Adam", ms["gradients"]],
        ["all tanh of the iteration, alone", ms["tanh"]],
        [f"all products at the speed of the hidden layer's own shape ({speed / 1e9:.0f} GFLOP/s)", own_shape],
        ["all products at the GEMM rate", at_gemm_rate],
    ]
    shown = [[name, f"{value:.1f}", f"{100 * value / whole:.0f}"] for name, value in rows]
    note = (
        "Each part was compiled and timed alone, so parts need not add up. An iteration of nothing but these tanh and "
        f"these products at their own shape would reach {at_gemm_rate / (own_shape + ms['tanh']):.2f} of the GEMM rate."
    )
    return Table(f"Where the time goes: {case}", ["part", "ms", "% of the whole"], shown, note)
