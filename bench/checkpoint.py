"""What does a checkpoint cost, as a share of training time at the default cadence? A save is everything from the
sync of the journals to the last prune, real syncs included. The share is taken from whole runs of the command line.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measure import Answer, Table, Worker, at_most, middle, spread, workers

CASES = (("chase", 1), ("chase", 5), ("duel", 1))
TINY = ("collect.worlds=16", "collect.horizon=8", "ppo.minibatches=2")
CADENCE_S, MOST = 30.0, 0.02


def saves(preset: str, n_seeds: int, overrides: tuple[str, ...], n_saves: int) -> dict[str, Any]:
    """Save the first state of a run again and again; return the seconds of each and the bytes of one."""
    import jax

    from outlast import programs
    from outlast.run import layout
    from outlast.run.loop import Group

    with tempfile.TemporaryDirectory() as name:
        config, folder = programs.from_preset(preset, list(overrides)), Path(name) / "run"
        layout.create(folder, config, list(range(n_seeds)))
        group = Group(folder, config, programs.program_of(config), list(range(n_seeds)))
        states, _, _ = group.open(fresh=False)
        jax.block_until_ready(states)
        seconds = [group.save(states, number, {}) for number in range(n_saves)]
        group.close()
        kept = folder / layout.CHECKPOINTS / str(n_saves - 1)
        return {"seconds": seconds[1:], "bytes": sum(path.stat().st_size for path in kept.iterdir())}


def whole_run(preset: str, n_seeds: int, overrides: tuple[str, ...], seconds: float) -> dict[str, float]:
    """Train for some seconds at the default cadence in a process of its own; return what its events say."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        arguments = ["train", preset, "--out", str(folder), "--seeds", str(n_seeds), "--quiet"]
        arguments += ["--steps", str(10**12), *(part for one in overrides for part in ("--set", one))]
        environment = os.environ | {"NPROC": "1", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "outlast", *arguments]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not _events(folder).get("compiled"):
                time.sleep(0.1)
            time.sleep(seconds)
            process.terminate()
        ended = _events(folder)["interrupted"]
        return {name: ended[name] for name in ("seconds", "saving_seconds", "iteration", "steps_per_s")}


def _events(folder: Path) -> dict[str, dict[str, Any]]:
    from outlast.run import journal, layout

    path = folder / layout.EVENTS
    return {event["event"]: event for event in journal.read(path)} if path.exists() else {}


def measured(worker: Worker, *, quick: bool) -> dict[str, dict[str, Any]]:
    """Measure every case: single saves, then one run long enough for three timed saves and the last one."""
    overrides, n_saves, seconds = (TINY, 4, 1.0) if quick else ((), 21, 3.2 * CADENCE_S)
    found = {}
    for preset, n_seeds in CASES[:1] if quick else CASES:
        single = worker.call(saves, preset, n_seeds, overrides, n_saves)
        run = whole_run(preset, n_seeds, overrides, seconds)
        found[f"{preset}, {n_seeds} seed{'s' * (n_seeds > 1)}"] = {"single": single, "run": run}
    return found


def answer(*, quick: bool) -> Answer:
    """Measure saves alone and in whole runs."""
    with workers(1) as (worker,):
        cases = measured(worker, quick=quick)
    found = Answer(question=" ".join((__doc__ or "").split()), raw={"cases": cases})
    rows, shares = [], []
    for name, case in cases.items():
        single, run = case["single"], case["run"]
        shares.append(run["saving_seconds"] / run["seconds"])
        rows.append(
            [
                name,
                f"{single['bytes'] / 1e6:,.2f}",
                spread([1e3 * s for s in single["seconds"]], ".1f"),
                f"{100 * middle(single['seconds']) / CADENCE_S:.3f}",
                f"{100 * shares[-1]:.3f}",
                f"{run['seconds']:.0f}",
            ]
        )
    columns = ["run", "MB", "one save, ms", "a save in 30 s, %", "whole run, %", "of seconds"]
    note = "The whole run saves every 30 s, and once more when it is stopped; the last save counts as well."
    found.tables.append(Table("Cost of checkpoints", columns, rows, note))
    share = None if quick else 100 * max(shares)
    found.criteria.append(at_most("checkpoints, share of training time", share, 100 * MOST, unit=" %"))
    return found
