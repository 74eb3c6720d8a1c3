"""Is memory flat over 2,000 iterations? Whole runs of the command line with frequent saves and evaluations beside
training; the resident memory of the process is read from outside, against the iterations it has written down.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measure import Answer, Table, at_most, middle

ITERATIONS, EVERY_S, MOST = 2000, 0.1, 2.0
RUN = ("run.checkpoint_iterations=20", "run.checkpoint_seconds=0", "run.evaluate_every=100")
CASES = {
    "chase": ("collect.worlds=64", "collect.horizon=32"),
    "duel": ("collect.worlds=48", "collect.horizon=16", "selfplay.evaluation.every_steps=76800"),
}


def steps_of(overrides: tuple[str, ...]) -> int:
    """Return the world steps of one iteration."""
    numbers = {name: int(value) for name, _, value in (text.partition("=") for text in overrides)}
    return numbers["collect.worlds"] * numbers["collect.horizon"]


def resident_mb(pid: int) -> float | None:
    """Return the resident memory of a process, as long as it lives."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError):
        return None


def watched(preset: str, overrides: tuple[str, ...], n_iterations: int) -> list[tuple[int, float]]:
    """Train in a process of its own; return (iterations done, resident MB) through its life."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        steps = n_iterations * steps_of(overrides)
        arguments = ["train", preset, "--out", str(folder), "--steps", str(steps), "--quiet"]
        arguments += [part for one in (*overrides, *RUN) for part in ("--set", one)]
        environment = os.environ | {"NPROC": "1", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "outlast", *arguments]
        seen, lines, journal = [], 0, folder / "metrics.jsonl"
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            while not journal.exists() and process.poll() is None:
                time.sleep(EVERY_S)
            with open(journal, "rb") as file:
                while process.poll() is None:
                    lines += file.read().count(b"\n")
                    resident = resident_mb(process.pid)
                    if resident:
                        seen.append((lines, resident))
                    time.sleep(EVERY_S)
        if process.returncode:
            raise RuntimeError(f"{preset} ended with {process.returncode}")
        return seen


def between(seen: list[tuple[int, float]], first: float, last: float) -> float:
    """Return the median memory between two shares of the iterations."""
    end = seen[-1][0]
    return middle([mb for done, mb in seen if first * end <= done <= last * end])


def answer(*, quick: bool) -> Answer:
    """Watch every case."""
    n_iterations = 200 if quick else ITERATIONS
    cases: dict[str, Any] = {
        name: watched(name, overrides, n_iterations)
        for name, overrides in (list(CASES.items())[:1] if quick else CASES.items())
    }
    found = Answer(question=" ".join((__doc__ or "").split()), raw={"iterations_and_mb": cases})
    rows, growths = [], []
    for name, seen in cases.items():
        early, late = between(seen, 0.1, 0.2), between(seen, 0.9, 1.0)
        growths.append(100 * (late / early - 1))
        rows.append([name, f"{seen[-1][0]:,}", f"{early:,.1f}", f"{late:,.1f}", f"{growths[-1]:+.2f}"])
    columns = ["run", "iterations", "second tenth, MB", "last tenth, MB", "growth, %"]
    found.tables.append(
        Table("Resident memory", columns, rows, "Medians of what was read ten times a second.")
    )
    growth = None if quick else max(growths)
    found.criteria.append(at_most("growth of memory over 2,000 iterations", growth, MOST, unit=" %"))
    return found
