"""How many steps a second does the bare town make on one thread, by number of worlds, and what does sight cost?

Run with `NPROC=1 python bench/town_world.py --out town_world.json`. Random legal actions, reset from a pool as soon
as a life ends. The reset is applied at the *start* of the next step, from a carried `ended`: selected right
after the step, XLA recomputes the whole step once per field of the state, and the world is four times slower.
CPU seconds are given beside wall seconds because the machine may be shared.
"""

import argparse
import functools
import json
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from outlast.worlds.town import Town, load_pack
from outlast.worlds.town.scripted import random_legal

TICKS = 256
LAST = {"in_axes": -1, "out_axes": -1}


def births(town: Town, n_lives: int):
    """Draw a pool of first states, world axis last."""
    level = town.level(town.layout(jax.random.key(0)))
    keys = jax.random.split(jax.random.key(1), n_lives)
    return jax.jit(jax.vmap(lambda key: town.reset(key, level), out_axes=-1))(keys)


def rollout(town: Town, n_worlds: int, *, sees: bool):
    """Compile `TICKS` steps of all worlds: (states, ended, pool, key) -> (states, ended, rewards, lives, seen)."""
    act = jax.vmap(functools.partial(random_legal, town), **LAST)
    step = jax.vmap(town.step, **LAST)
    observe = jax.vmap(town.observe, in_axes=-1)

    def run(states, ended, pool, key):
        def tick(carry, draws):
            states, ended = carry
            uniform, offset = draws
            fresh = jax.tree.map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, offset, n_worlds, axis=-1), pool
            )
            states = jax.tree.map(functools.partial(jnp.where, ended), fresh, states)
            seen = observe(states) if sees else None
            states, result = step(states, act(states, uniform))
            ended = result.terminated | result.truncated
            return (states, ended), (result.reward, ended, seen)

        uniform_key, offset_key = jax.random.split(key)
        uniforms = jax.random.uniform(uniform_key, (TICKS, n_worlds))
        offsets = jax.random.randint(offset_key, (TICKS,), 0, n_worlds, jnp.int32)
        (states, ended), (rewards, ends, seen) = jax.lax.scan(tick, (states, ended), (uniforms, offsets))
        return states, ended, rewards.sum(), ends.sum(), seen

    return jax.jit(run)


def measure(pack: str, n_worlds: int, *, sees: bool, repeats: int) -> dict:
    """Return the median rate of one setting, the first two calls left out."""
    town = Town(load_pack(pack))
    pool = births(town, 2 * n_worlds)
    states = jax.tree.map(lambda leaf: leaf[..., :n_worlds], pool)
    ended = jnp.zeros(n_worlds, bool)
    run = rollout(town, n_worlds, sees=sees)
    wall_s, cpu_s, lives = [], [], 0
    for index in range(repeats + 2):
        before = time.perf_counter(), time.process_time()
        states, ended, _, died, _ = jax.block_until_ready(run(states, ended, pool, jax.random.key(index)))
        wall_s.append(time.perf_counter() - before[0])
        cpu_s.append(time.process_time() - before[1])
        lives += int(died)
    steps = TICKS * n_worlds
    return {
        "pack": pack,
        "observes": sees,
        "n_worlds": n_worlds,
        "steps_per_s": round(steps / float(np.median(wall_s[2:]))),
        "steps_per_cpu_s": round(steps / float(np.median(cpu_s[2:]))),
        "mean_life_ticks": round(steps * (repeats + 2) / lives, 1),
    }


def main() -> None:
    """Measure every setting, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--packs", nargs="+", default=["L1", "L3"])
    parser.add_argument("--worlds", nargs="+", type=int, default=[1, 16, 64, 256, 512, 1024, 4096])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    rows = []
    print(f"{'pack':6}{'observes':>10}{'worlds':>8}{'steps/s':>14}{'steps/CPU s':>14}{'mean life':>11}")
    for pack in options.packs:
        for sees in (False, True):
            for n_worlds in options.worlds:
                row = measure(pack, n_worlds, sees=sees, repeats=options.repeats)
                rows.append(row)
                print(
                    f"{pack:6}{sees!s:>10}{n_worlds:8}{row['steps_per_s']:14,}{row['steps_per_cpu_s']:14,}"
                    f"{row['mean_life_ticks']:11}",
                    flush=True,
                )
    machine = {"platform": platform.platform(), "jax": jax.__version__, "device": str(jax.devices()[0])}
    if options.out:
        result = {"question": __doc__.splitlines()[0], "machine": machine, "rows": rows}
        options.out.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
