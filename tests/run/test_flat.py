"""Nothing grows with the number of lives, also when every life survives to the limit."""

import gc
from pathlib import Path

import pytest

from outlast.run import checkpoint, layout
from outlast.run.journal import read
from runs import create, go_on, of_the_town

WORLDS, HORIZON, LIMIT = 64, 128, 3
LIVES = WORLDS * HORIZON // (LIMIT + 1)
"""Lives in one iteration: each takes its ticks and one more to be replaced."""
SURVIVORS = f"""
pack={Path(__file__).with_name("tiny_town.toml")} town.layout.policy=per_run town.max_steps={LIMIT}
lives.worlds={WORLDS} lives.horizon={HORIZON} replay.capacity=4096 replay.batch=16 replay.every=64 replay.updates=1
replay.prioritised=true q.hidden=[8] curiosity.enabled=true curiosity.hidden=8 curiosity.embedding=4
curiosity.samples=8 curriculum.kind=adversarial run.checkpoint_seconds=0 run.checkpoint_iterations=5 run.keep_last=2
"""


def resident_bytes():
    """Return the memory that this process holds."""
    gc.collect()
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def config(iterations):
    return of_the_town([*SURVIVORS.split(), f"run.steps={iterations * WORLDS * HORIZON}"])


def checkpoint_bytes(folder):
    kept = folder / layout.CHECKPOINTS
    return (kept / str(max(checkpoint.iterations(kept))) / checkpoint.STATE).stat().st_size


@pytest.mark.slow
def test_memory_is_flat_over_a_hundred_thousand_survivors(tmp_path):
    folder = create(tmp_path / "run", config(10))
    # The first stretch compiles and fills the ring; each stretch compiles anew, which the second shows as well.
    go_on(folder, config(10))
    go_on(folder, config(12))
    before, size = resident_bytes(), checkpoint_bytes(folder)
    go_on(folder, config(64))
    grown = resident_bytes() - before
    lines = [line["metrics"] for line in read(folder / layout.METRICS)]
    lives = sum(line["episodes"][0] for line in lines)
    assert lives == sum(line["deaths/limit"][0] for line in lines) == 64 * LIVES > 100_000
    assert sum(1 for _ in read(folder / layout.EPISODES)) == lives
    assert checkpoint_bytes(folder) == size
    # The 85,000 lives since then would take 5 MB at 64 bytes each; a compiled program takes as much once.
    assert grown < max(0.02 * before, 10e6), f"{grown:,} bytes more than {before:,}"
