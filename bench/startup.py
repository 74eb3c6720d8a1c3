"""How long until a run trains? Seconds of start-up and compiling in a first process, with nothing in the compile cache,
and in a second one that finds the first one's programs there. And how fast does `outlast --help` answer?
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measure import Answer, Table, at_most, middle, spread

PRESETS = ("chase", "duel")
HELP_S = 0.3


def timed(command: list[str], **more: str) -> float:
    """Run a command; return its seconds."""
    begin = time.perf_counter()
    environment = os.environ | {"NPROC": "1", "JAX_PLATFORMS": "cpu"} | more
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def outlast(*arguments: str) -> list[str]:
    """Return the command line of the program in this interpreter."""
    return [sys.executable, "-m", "outlast", *arguments]


def started(preset: str, cache: Path) -> dict[str, float]:
    """Train for one iteration in a process of its own; return its seconds, and those it spent compiling."""
    from outlast.run import journal, layout

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        command = outlast("train", preset, "--out", str(folder), "--steps", "1", "--quiet")
        whole = timed(command, OUTLAST_CACHE=str(cache))
        events = {event["event"]: event for event in journal.read(folder / layout.EVENTS)}
        return {
            "whole": whole,
            "compile": events["compiled"]["seconds"],
            "train": events["finished"]["seconds"],
        }


def measured(rounds: int, presets: tuple[str, ...]) -> dict[str, Any]:
    """Measure every case as often as there are rounds; each round begins with an empty cache."""
    found: dict[str, Any] = {"help": [], "python": []}
    for _ in range(rounds):
        found["python"].append(timed([sys.executable, "-c", "pass"]))
        found["help"].append(timed(outlast("--help")))
        for preset in presets:
            with tempfile.TemporaryDirectory() as cache:
                for turn in ("first", "second"):
                    found.setdefault(f"{preset}, {turn} process", []).append(started(preset, Path(cache)))
    return found


def answer(*, quick: bool) -> Answer:
    """Time whole processes."""
    timed(outlast("--help"))
    cases = measured(1 if quick else 3, PRESETS[:1] if quick else PRESETS)
    found = Answer(question=" ".join((__doc__ or "").split()), raw=cases)
    rows = []
    for name, runs in cases.items():
        if name in ("help", "python"):
            continue
        rest = [run["whole"] - run["compile"] - run["train"] for run in runs]
        parts = ([run["whole"] for run in runs], [run["compile"] for run in runs], rest)
        rows.append([name, *(spread(part) for part in parts)])
    columns = [
        "run",
        "whole, s",
        "compile or load the iteration, s",
        "start-up: imports, first state, saves, s",
    ]
    note = (
        "A run of one iteration, from its command to its end; the second process finds the first one's cache."
    )
    found.tables.append(Table("Start-up", columns, rows, note))
    rows = [
        [f"`{name}`", spread(cases[key], ".3f")]
        for name, key in (("outlast --help", "help"), ("python -c pass", "python"))
    ]
    found.tables.append(Table("Help", ["command", "s"], rows))
    found.criteria.append(at_most("`outlast --help`", middle(cases["help"]), HELP_S, unit=" s"))
    return found
