"""What a person sees while a run goes on: a bar with speed, time left and the score; plain lines without a terminal."""

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 10.0


class Display:
    """Show progress in steps on standard error; used as a context."""

    def __init__(self, title: str, total: int, done: int, *, quiet: bool = False) -> None:
        self._total, self._first, self._begin = total, done, time.monotonic()
        self._last_line = self._begin
        self._title, self._quiet = title, quiet
        console = Console(stderr=True)
        self._plain = not console.is_terminal
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,}/{task.total:,} steps"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=quiet or self._plain,
        )
        self._task = self._bar.add_task(title, total=total, completed=done, speed="", note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    @property
    def seconds(self) -> float:
        """Return the time since the display began."""
        return time.monotonic() - self._begin

    def show(self, done: int, note: str) -> None:
        """Update the display."""
        if done <= self._first < self._total:
            # Processes start and compile: their seconds say nothing about the speed to come.
            self._begin, note = time.monotonic(), "compiling"
        speed = (done - self._first) / max(self.seconds, 1e-9)
        self._bar.update(self._task, completed=done, speed=f"{speed:,.0f} steps/s", note=note)
        if self._plain and not self._quiet and time.monotonic() - self._last_line > PLAIN_SECONDS:
            self._last_line = time.monotonic()
            parts = [f"{done:,}/{self._total:,} steps"]
            if speed > 0:
                left_s = max(self._total - done, 0) / speed
                parts += [f"{speed:,.0f} steps/s", f"{left_s:,.0f} s left"]
            print(f"{self._title}: {', '.join(filter(None, [*parts, note]))}", file=sys.stderr, flush=True)
