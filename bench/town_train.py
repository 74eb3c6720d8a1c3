"""How many steps a second does training in the town make on two cores, at the presets' own ratio of learning to acting
and at the original's, and how fast is its bare world? Two processes with one thread each train a seed of their own.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.measure import Answer, Table, at_least, interleaved, middle, repeated, spread, together, workers

FLAT = ("q.double=false", "q.n_step=1", "q.glances=0", "q.hidden=[128,128]", "replay.batch=512")
"""The original's network and target on full sight: 16 samples a step in batches of 512."""
DEEP = ("q.double=false", "q.hidden=[128,128]", "memory.width=256", "memory.channels=[16,32]")
"""The original's network for partial sight: two convolutions, LSTM 256; 32 sequence steps a step, 8 in a sequence."""


class Case(NamedTuple):
    """One way to train: a preset with changes, its target, and what the original makes."""

    preset: str
    changes: tuple[str, ...]
    least: float
    original: float


CASES = {
    "L1, preset's ratio": Case("town-l1", (), 100_000, 490),
    "L1, original's ratio": Case("town-l1", (*FLAT, "replay.updates=32"), 50_000, 490),
    "L3, preset's ratio": Case("town-l3", ("lives.horizon=32",), 8_000, 68),
    "L3, original's ratio": Case(
        "town-l3",
        (*DEEP, "memory.sequence=8", "lives.horizon=8", "replay.batch=128", "replay.updates=16"),
        1_400,
        68,
    ),
}
WORLD_BATCHES, LEAST_WORLD = (256, 512, 1024), 2_000_000
ORIGINAL_WORLD = 544_000
"""Agent-steps a second of the original's world at its best, on the same kind of machine, both cores."""


@functools.cache
def program(name: str) -> Any:
    """Build the program of a case."""
    from outlast import programs

    case = CASES[name]
    return programs.program_of(programs.from_preset(case.preset, list(case.changes)))


@functools.cache
def iteration(name: str) -> Callable[[], float]:
    """Compile whole iterations and play until the replay is ready; then each call counts its steps."""
    import jax
    import jax.numpy as jnp

    one = program(name)
    step = jax.jit(one.iterate, donate_argnums=0)
    place = {"state": jax.jit(one.init)(jnp.uint32(0))}

    def run() -> float:
        place["state"], metrics = step(place["state"])
        jax.block_until_ready(metrics)
        return one.steps_per_iteration

    for _ in range(100):
        run()
        if int(place["state"].learner.updates):
            return run
    raise RuntimeError(f"{name}: nothing was learnt, so nothing is measured")


def steps(name: str, seconds: float) -> tuple[float, float]:
    """Train for some seconds; count world steps."""
    return repeated(iteration(name), seconds)


@functools.cache
def rollout(n_worlds: int) -> Callable[[], float]:
    """Compile the bare world with random residents; each call counts its steps."""
    import jax
    import jax.numpy as jnp

    from bench.town_world import TICKS, births
    from bench.town_world import rollout as compiled
    from outlast.worlds.town import Town, load_pack

    town = Town(load_pack("L1"))
    pool = births(town, 2 * n_worlds)
    place = {
        "states": jax.tree.map(lambda leaf: leaf[..., :n_worlds], pool),
        "ended": jnp.zeros(n_worlds, bool),
    }
    run_all, key = compiled(town, n_worlds, sees=False), jax.random.key(0)

    def run() -> float:
        states, ended, *_ = jax.block_until_ready(run_all(place["states"], place["ended"], pool, key))
        place.update(states=states, ended=ended)
        return TICKS * n_worlds

    return run


def world(n_worlds: int, seconds: float) -> tuple[float, float]:
    """Live for some seconds without learning; count world steps."""
    return repeated(rollout(n_worlds), seconds)


def learnt_per_step(name: str) -> float:
    """Return how many samples, or steps of sequences, are learnt from for one step that is lived."""
    config = program(name).config
    length = config.memory.sequence if config.learner == "recurrent_dqn" else 1
    return config.replay.updates * config.replay.batch * length / (config.stride * config.lives.worlds)


def answer(*, quick: bool) -> Answer:
    """Measure all cases in turns, on both cores at once; the bare world also on one."""
    rounds, seconds = (1, 0.2) if quick else (5, 1.5)
    batches = WORLD_BATCHES[:1] if quick else WORLD_BATCHES
    with workers(1, 1) as both:
        contenders = {name: together(both, steps, name) for name in CASES}
        contenders |= {f"world, {n}": together(both, world, n) for n in batches}
        contenders |= {f"world, {n}, one core": both[0].window(world, n) for n in batches}
        ratios = {name: both[0].call(learnt_per_step, name) for name in CASES}
        rates = interleaved(contenders, rounds=rounds, seconds=seconds)
    found = Answer(
        question=" ".join((__doc__ or "").split()), raw={"rates": rates, "learnt_per_step": ratios}
    )
    found.tables = [_training(rates, ratios), _world(rates, batches)]
    best = max((rates[f"world, {n}"] for n in batches), key=middle)
    found.criteria = [at_least("bare town L1, best batch", middle(best), LEAST_WORLD, unit=" steps/s")]
    for name, case in CASES.items():
        found.criteria.append(at_least(f"training {name}", middle(rates[name]), case.least, unit=" steps/s"))
    told = [
        "The original's figures (L1 490, L3 68 steps/s, L1 world 544,000 agent-steps/s) were measured on two cores of",
        "the same kind, but not in these rounds: ratios to them are orders of magnitude.",
    ]
    found.notes = [" ".join(told)]
    return found


def _training(rates: dict[str, list[float]], ratios: dict[str, float]) -> Table:
    rows = [
        [
            name,
            f"{ratios[name]:g}",
            spread(rates[name], ",.0f"),
            f"{middle(rates[name]) / case.original:,.0f}",
        ]
        for name, case in CASES.items()
    ]
    columns = [
        "training, two processes",
        "learnt from per step",
        "steps/s, both together",
        "times the original",
    ]
    note = "Learnt from are samples (L1) or steps of sequences (L3, recurrent; with the original's ratio LSTM 256)."
    return Table("Training in the town", columns, rows, note)


def _world(rates: dict[str, list[float]], batches: tuple[int, ...]) -> Table:
    rows = [
        [f"{n:,}"]
        + [spread(rates[f"world, {n}{suffix}"], ",.0f") for suffix in (", one core", "")]
        + [f"{middle(rates[f'world, {n}']) / ORIGINAL_WORLD:.1f}"]
        for n in batches
    ]
    columns = ["worlds in a process", "one core, steps/s", "both cores, steps/s", "times the original's best"]
    return Table("The bare town, L1, random residents", columns, rows)
