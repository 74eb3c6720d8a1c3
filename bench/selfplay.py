"""How fast is self-play with its pools and its evaluations included, beside the same learner against scripted
opponents, and what do five seeds cost? One process with one thread, and one with two threads.

A window is whole intervals between evaluations, so that each has its share of them.
"""

import functools
from collections.abc import Callable

from bench.measure import (
    Answer,
    Table,
    Window,
    at_least,
    at_most,
    interleaved,
    middle,
    ratios,
    repeated,
    spread,
    workers,
)

TINY = ("collect.worlds=32", "collect.horizon=8", "ppo.minibatches=2")
TINY_PAIR = (*TINY, "selfplay.evaluation.games=16", "selfplay.evaluation.every_steps=1024")
LEAST, SHARE, MOST_S = 200_000, 0.7, 60.0


def settings(preset: str, *, matched: bool, quick: bool) -> list[str]:
    """List what is set: nothing but for tiny games, or the game and learner of `duel` for the one-sided `chase`."""
    from outlast import programs

    found = list(TINY if preset == "chase" else TINY_PAIR) if quick else []
    if not matched:
        return found
    duel = programs.from_preset("duel", []).model_dump(mode="json")
    same = {name: duel["arena"][name] for name in ("obstacle_slots", "observed_obstacles", "fixed_speed")}
    same |= {f"level.{name}": value for name, value in duel["arena"]["level"].items()}
    own = [f"arena.{name}={str(value).lower()}" for name, value in same.items()]
    own += [f"ppo.{name}={duel['ppo'][name]}" for name in ("epochs", "minibatches")]
    return [*own, f"collect.worlds={duel['collect']['worlds']}", *found]


@functools.cache
def training(preset: str, n_seeds: int, matched: bool, quick: bool) -> Callable[[], float]:
    """Compile the training of some seeds, one after the other as in a run; a call is one evaluation interval."""
    import jax
    import jax.numpy as jnp

    from outlast import programs
    from outlast.selfplay.schedule import in_iterations

    config = programs.from_preset(preset, settings(preset, matched=matched, quick=quick))
    program = programs.program_of(config)
    interval = config.selfplay.evaluation.every_steps if config.learner == "both" else 200_000
    n = in_iterations(1024 if quick else interval, program.steps_per_iteration)
    iterate = jax.jit(lambda states: jax.lax.map(program.iterate, states), donate_argnums=0)
    seeds = jnp.arange(n_seeds, dtype=jnp.uint32)
    place = {"states": jax.jit(lambda: jax.lax.map(program.init, seeds))()}

    def run() -> float:
        for _ in range(n):
            place["states"], _ = iterate(place["states"])
        jax.block_until_ready(place["states"])
        return float(n_seeds * n * program.steps_per_iteration)

    return run


def steps(preset: str, n_seeds: int, matched: bool, quick: bool, seconds: float) -> tuple[float, float]:
    """Train for some seconds; count the world steps of all seeds."""
    return repeated(training(preset, n_seeds, matched, quick), seconds)


CASES = {
    "duel": ("duel", 1, False),
    "duel, 5 seeds": ("duel", 5, False),
    "ra1": ("ra1", 1, False),
    "one-sided": ("chase", 1, False),
    "one-sided, game and learner of duel": ("chase", 1, True),
}


def answer(*, quick: bool) -> Answer:
    """Measure all cases interleaved, with one thread and with two."""
    rounds, seconds = (2, 0.1) if quick else (5, 2.0)
    threads = (1,) if quick else (1, 2)
    rates: dict[str, list[float]] = {}
    with workers(*threads) as processes:
        contenders: dict[str, Window] = {
            f"{name} NPROC={worker.n_threads}": worker.window(steps, *case, quick)
            for worker in processes
            for name, case in CASES.items()
        }
        rates = interleaved(contenders, rounds=rounds, seconds=seconds)
    found = Answer(question=" ".join((__doc__ or "").split()), raw={"steps_per_s": rates})
    for n in threads:
        own = {name: rates[f"{name} NPROC={n}"] for name in CASES}
        rows = [
            [
                name,
                spread(rate, ",.0f"),
                spread(ratios(rate, own["one-sided"])),
                f"{1e7 * CASES[name][1] / middle(rate):.0f}",
            ]
            for name, rate in own.items()
        ]
        columns = ["training", "world steps a second", "of one-sided", "10M steps a seed, s"]
        found.tables.append(Table(f"{n} thread{'s' * (n > 1)}", columns, rows))
    found.criteria += criteria(rates, quick=quick)
    return found


def criteria(rates: dict[str, list[float]], *, quick: bool) -> list:
    """Judge the faster thread count of each; a quick run judges nothing."""

    def best(name: str) -> list[float]:
        return max((rate for key, rate in rates.items() if key.startswith(f"{name} NPROC")), key=middle)

    values: list[float | None] = [
        middle(best("duel")),
        middle(best("ra1")),
        middle(ratios(best("duel"), best("one-sided"))),
        middle(ratios(best("duel"), best("one-sided, game and learner of duel"))),
        1e7 / middle(best("duel")),
        5 * middle(best("duel")) / middle(best("duel, 5 seeds")),
    ]
    if quick:
        values = [None] * len(values)
    return [
        at_least("duel with pool and evaluation, steps/s", values[0], LEAST),
        at_least("ra1 with pool and evaluation, steps/s", values[1], LEAST),
        at_least("duel over one-sided training", values[2], SHARE),
        at_least("duel over one-sided training of the same game and learner", values[3], SHARE),
        at_most("10M steps of duel, seconds of training", values[4], MOST_S),
        at_most("5 seeds over one seed", values[5], 5.0),
    ]
