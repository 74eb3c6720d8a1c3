"""Several groups at once, each a process of its own: both cores work, each process stays single-threaded.

The parent only starts, shows and stops; a group never waits for another, so its bits do not depend on them.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from outlast.run import layout
from outlast.run.progress import Display
from outlast.run.signals import INTERRUPTED, stop_on_signals

POLL_SECONDS = 0.5
TAIL_BYTES = 1 << 16
SET_PARENT_DEATH_SIGNAL = 1


def train(parts: list[Path], *, total_steps: int, flags: list[str], quiet: bool) -> int:
    """Run every group to its end and return the worst exit code."""
    environment = os.environ | {"NPROC": os.environ.get("NPROC", "1")}
    with stop_on_signals() as stop:
        children = [
            subprocess.Popen(
                [sys.executable, "-m", "outlast", "resume", str(part), "--quiet", *flags],
                env=environment,
                preexec_fn=_die_with_parent,
                start_new_session=True,
            )
            for part in parts
        ]
        told = False
        with Display(f"{len(parts)} groups", total_steps, _steps_done(parts)[0], quiet=quiet) as display:
            while any(child.poll() is None for child in children):
                if stop.is_set and not told:
                    told = True
                    for child in children:
                        child.send_signal(signal.SIGTERM)
                time.sleep(POLL_SECONDS)
                display.show(*_steps_done(parts))
    codes = [child.returncode for child in children]
    bad = [code for code in codes if code not in (0, INTERRUPTED)]
    if bad:
        return bad[0] if bad[0] > 0 else 128 - bad[0]
    return INTERRUPTED if INTERRUPTED in codes else 0


def _die_with_parent() -> None:
    """Ask the kernel to stop this child when its parent dies, so that nothing is orphaned."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _steps_done(parts: list[Path]) -> tuple[int, str]:
    """Read from the ends of the journals how many steps are done, and how training goes."""
    done, metrics = 0, []
    for part in parts:
        record = _last_record(part / layout.METRICS)
        if record:
            done += record["steps"] * len(layout.seeds_of(part))
            metrics.append(record["metrics"])
    return done, _note(metrics)


def _note(metrics: list[dict]) -> str:
    """Say how the episodes of the last iterations went: the share of captures, or how long lives were."""
    episodes = sum(sum(found.get("episodes", ())) for found in metrics)
    if not episodes:
        return ""
    if all("captures" in found for found in metrics):
        return f"capture {sum(sum(found['captures']) for found in metrics) / episodes:.2f}"
    lives = [zip(found["episodes"], found["episode/steps"], strict=True) for found in metrics]
    return f"survival {sum(n * (steps or 0.0) for pairs in lives for n, steps in pairs) / episodes:.0f}"


def _last_record(path: Path) -> dict | None:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().split(b"\n")
        return json.loads(lines[-2]) if len(lines) > 1 else None
    except (OSError, ValueError):
        return None
