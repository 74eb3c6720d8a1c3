"""What does the shield cost: training steps a second with it and without it, and the microseconds of one action,
exported to plain Python? Training is the preset `duel-safe`, the same games and learner in all contenders.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

from bench.measure import (
    Answer,
    Table,
    at_least,
    at_most,
    interleaved,
    middle,
    ratios,
    repeated,
    spread,
    workers,
)

WORLDS = (64, 256)
SETTINGS: dict[str, dict[str, Any]] = {
    "no shield": {"safety.pursuer.when": "never"},
    "shield": {},
    "shield on both robots": {"safety.evader.when": "always"},
    "shield with classifier": {"safety.pursuer.classifier": True},
    "beta, exact bounds": {"ppo.distribution": "beta", "safety.pursuer.bounds": "exact"},
    "barriernet": {"ppo.distribution": "barrier", "ppo.barrier.gradient": False},
    "barriernet with gradient": {"ppo.distribution": "barrier"},
}
SITUATIONS, REPEATS = 2000, 5


@functools.cache
def trainer(setting: str, worlds: int) -> Callable[[], float]:
    """Compile one training program; each call is one iteration, and counts its world steps."""
    import jax
    import jax.numpy as jnp

    from outlast import programs

    fields = SETTINGS[setting] | {"collect.worlds": worlds}
    texts = [f"{path}={str(value).lower()}" for path, value in fields.items()]
    program = programs.program_of(programs.from_preset("duel-safe", texts))
    iterate, kept = jax.jit(program.iterate), [jax.jit(program.init)(jnp.uint32(0))]

    def run() -> float:
        kept[0] = jax.block_until_ready(iterate(kept[0])[0])
        return float(program.steps_per_iteration)

    return run


def trained(setting: str, worlds: int, seconds: float) -> tuple[float, float]:
    """Train for some seconds; count world steps."""
    return repeated(trainer(setting, worlds), seconds)


def exported() -> list[float]:
    """Time single actions of the exported filter on random situations with two obstacles: microseconds each."""
    import numpy as np

    from outlast.programs import from_preset
    from outlast.safety.export import Filter, Situation

    config, rng = from_preset("duel-safe", []), np.random.default_rng(0)
    one, times = Filter(config.safety.pursuer, config.arena), []
    for _ in range(SITUATIONS):
        x, y = rng.uniform(-4.8, 4.8, 2).tolist()
        things = []
        for gap, angle, radius in rng.uniform([0.2, -3.1, 0.3], [2.0, 3.1, 1.0], (2, 3)).tolist():
            away = radius + gap
            things.append((x + away * float(np.cos(angle)), y + away * float(np.sin(angle)), radius))
        at = Situation(x, y, float(rng.uniform(-3.1, 3.1)), 1.0, 2.84, 10.0, 10.0, things)
        speed, turn = float(rng.uniform(0, 1)), float(rng.uniform(-2.84, 2.84))
        tries = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            one(at, speed, turn)
            tries.append(time.perf_counter() - begin)
        times.append(min(tries) * 1e6)
    return times


def answer(*, quick: bool) -> Answer:
    """Measure training interleaved, then the exported filter alone."""
    sizes, rounds, seconds = (WORLDS[:1], 2, 0.2) if quick else (WORLDS, 5, 2.0)
    with workers(1) as (worker,):
        contenders = {
            f"{name}, {worlds}": worker.window(trained, name, worlds) for worlds in sizes for name in SETTINGS
        }
        rates = interleaved(contenders, rounds=rounds, seconds=seconds)
        times = worker.call(exported)
    found = Answer(
        question=" ".join((__doc__ or "").split()), raw={"steps_per_s": rates, "exported_us": times}
    )
    for worlds in sizes:
        bare = rates[f"no shield, {worlds}"]
        rows = [
            [
                name,
                spread([r / 1000 for r in rates[f"{name}, {worlds}"]], ",.0f"),
                spread(ratios(rates[f"{name}, {worlds}"], bare)),
            ]
            for name in SETTINGS
        ]
        found.tables.append(
            Table(f"{worlds} worlds, one thread", ["setting", "thousand steps/s", "of no shield"], rows)
        )
        share = middle(ratios(rates[f"shield, {worlds}"], bare))
        found.criteria.append(at_least(f"training with the shield, of without, {worlds} worlds", share, 0.6))
    found.criteria.append(at_most("one exported action, median", middle(times), 50.0, unit=" us"))
    found.criteria.append(at_most("one exported action, slowest of 2,000", max(times), 50.0, unit=" us"))
    return found
