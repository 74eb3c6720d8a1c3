"""How many steps a second does the bare arena make on one thread, by number of worlds, and what do resets and
observations cost? Both robots move in a step; commands are drawn beforehand, as any policy would give them.
"""

import functools
from collections.abc import Callable
from typing import Any

from bench.measure import (
    Answer,
    Table,
    Window,
    at_least,
    interleaved,
    middle,
    ratios,
    repeated,
    spread,
    workers,
)

HORIZON = 64
SIZES, QUICK_SIZES = (64, 256, 1024, 4096), (64, 256)
PARTS = ("step", "with resets", "with resets and observations")
NAIVE_WORLDS = 256


def world_and_level(obstacles: int) -> tuple[Any, Any]:
    """Return the arena with a number of obstacles in every episode, all of them seen."""
    from outlast.worlds.arena import Arena, ArenaConfig, LevelConfig, level_of

    level = LevelConfig(obstacles_min=obstacles, obstacles_max=obstacles)
    config = ArenaConfig(obstacle_slots=obstacles, observed_obstacles=obstacles, level=level)
    return Arena(config), level_of(level)


def drawn_commands(n: int) -> Any:
    """Draw what both robots do, for one rollout, within their limits."""
    import jax

    from outlast.worlds.arena import Commands

    draws = jax.random.uniform(jax.random.key(1), (4, HORIZON, n))
    return Commands(draws[0], 5.68 * draws[1] - 2.84, draws[2], 5.68 * draws[3] - 2.84)


@functools.cache
def batched(n: int, obstacles: int, part: str) -> Callable[[], float]:
    """Compile rollouts the way training plays them: world axis last, ended games replaced from a pool."""
    import jax
    import jax.numpy as jnp

    from outlast.worlds.arena import Role

    world, level = world_and_level(obstacles)
    last = {"in_axes": -1, "out_axes": -1}

    def roll(state: Any, pool: Any, commands: Any) -> tuple[Any, Any]:
        def step(state: Any, inputs: tuple) -> tuple[Any, Any]:
            t, command = inputs
            state, turn = jax.vmap(world.step, **last)(state, command)
            if part != "step":
                ended = turn.terminated | turn.truncated

                def pick(fresh: Any, old: Any) -> Any:
                    return jnp.where(ended, jax.lax.dynamic_slice_in_dim(fresh, t, n, axis=-1), old)

                state = jax.tree.map(pick, pool, state)
            seen = None
            if part == PARTS[2]:
                seen = jax.vmap(lambda s: world.observe(s, Role.PURSUER), **last)(state)
            return state, (turn.pursuer_reward, turn.terminated, seen)

        return jax.lax.scan(step, state, (jnp.arange(HORIZON), commands))

    draw = jax.jit(lambda keys: jax.vmap(lambda k: world.reset(k, level), out_axes=-1)(keys))
    place = {"state": draw(jax.random.split(jax.random.key(0), n))}
    pool, commands = draw(jax.random.split(jax.random.key(2), n + HORIZON)), drawn_commands(n)
    compiled = jax.jit(roll)

    def run() -> float:
        place["state"], out = compiled(place["state"], pool, commands)
        jax.block_until_ready(out)
        return float(n * HORIZON)

    return run


@functools.cache
def naive(n: int, obstacles: int) -> Callable[[], float]:
    """Compile the textbook form: `vmap` of one instance, world axis first, a reset computed at every step."""
    import jax
    import jax.numpy as jnp

    from outlast.worlds.arena import Role

    world, level = world_and_level(obstacles)

    def one(state: Any, command: Any, key: Any) -> tuple[Any, Any]:
        after, turn = world.step(state, command)
        fresh = world.reset(key, level)
        ended = turn.terminated | turn.truncated
        after = jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, after)
        return after, (turn.pursuer_reward, turn.terminated, world.observe(after, Role.PURSUER))

    def roll(state: Any, commands: Any, key: Any) -> tuple[Any, Any]:
        def step(state: Any, inputs: tuple) -> tuple[Any, Any]:
            command, step_key = inputs
            return jax.vmap(one)(state, command, jax.random.split(step_key, n))

        return jax.lax.scan(step, state, (commands, jax.random.split(key, HORIZON)))

    keys = jax.random.split(jax.random.key(0), n)
    place = {"state": jax.jit(jax.vmap(lambda k: world.reset(k, level)))(keys)}
    commands, compiled = drawn_commands(n), jax.jit(roll)

    def run() -> float:
        place["state"], out = compiled(place["state"], commands, jax.random.key(3))
        jax.block_until_ready(out)
        return float(n * HORIZON)

    return run


def steps(n: int, obstacles: int, part: str, seconds: float) -> tuple[float, float]:
    """Play for some seconds; count world steps."""
    run = naive(n, obstacles) if part == "naive" else batched(n, obstacles, part)
    return repeated(run, seconds)


def answer(*, quick: bool) -> Answer:
    """Measure every size, obstacle count and part, interleaved."""
    sizes, rounds, seconds = (QUICK_SIZES, 2, 0.1) if quick else (SIZES, 5, 0.3)
    cases = [(n, k, part) for k in (0, 2) for n in sizes for part in PARTS]
    cases += [(NAIVE_WORLDS, k, "naive") for k in (0, 2)]
    with workers(1) as (worker,):
        contenders: dict[str, Window] = {repr(case): worker.window(steps, *case) for case in cases}
        rates = interleaved(contenders, rounds=rounds, seconds=seconds)
    found = Answer(question=" ".join((__doc__ or "").split()), raw={"steps_per_s": rates})
    for k in (0, 2):
        reference = rates[repr((NAIVE_WORLDS, k, "naive"))]
        rows = [
            [
                f"{n:,}",
                part,
                spread([r / 1000000.0 for r in rates[repr((n, k, part))]]),
                spread(ratios(rates[repr((n, k, part))], reference), ".1f"),
            ]
            for n in sizes
            for part in PARTS
        ]
        rows.append(
            [f"{NAIVE_WORLDS:,}", "reference: textbook vmap", spread([r / 1e6 for r in reference]), "1"]
        )
        title = f"{k} obstacles, one thread"
        found.tables.append(Table(title, ["worlds", "what", "million steps/s", "of the reference"], rows))
    best = max(middle(rates[repr((n, 0, PARTS[1]))]) for n in sizes)
    found.criteria.append(at_least("bare world with resets, million steps/s", best / 1e6, 8.0))
    return found
