"""What the benchmarks share: worker processes with their own thread count, interleaved windows, and the record
of an answer. Absolute figures belong to one machine at one moment; ratios are taken inside one round.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("jax", "jaxlib", "numpy", "gymnasium", "stable-baselines3", "torch")
GEMM_SIZES = (256, 512, 1024, 2048)
Window = Callable[[float], tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Table:
    """One table of an answer; cells are text or numbers."""

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Criterion:
    """A target that was set before, and what was measured."""

    name: str
    target: str
    value: float | None
    passed: bool | None


@dataclasses.dataclass
class Answer:
    """What one benchmark found: tables for people, targets, and the raw measurements."""

    question: str
    tables: list[Table] = dataclasses.field(default_factory=list)
    criteria: list[Criterion] = dataclasses.field(default_factory=list)
    raw: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)


def at_least(name: str, value: float | None, least: float, *, unit: str = "") -> Criterion:
    """Return a criterion that asks for a value or more; an unknown value passes nothing."""
    return Criterion(name, f"at least {least:,g}{unit}", value, None if value is None else value >= least)


def at_most(name: str, value: float | None, most: float, *, unit: str = "") -> Criterion:
    """Return a criterion that asks for a value or less; an unknown value passes nothing."""
    return Criterion(name, f"at most {most:,g}{unit}", value, None if value is None else value <= most)


class Worker:
    """A process of its own, because jax reads `NPROC` once; calls run there one at a time."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool = concurrent.futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn"), initializer=_start, initargs=(n_threads,)
        )

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a module's function in the process and return what it returns."""
        return self.begun(function, *arguments).result()

    def begun(self, function: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future:
        """Start a module's function in the process and do not wait for it."""
        return self._pool.submit(function, *arguments)

    def window(self, function: Callable[..., Any], *arguments: Any) -> Window:
        """Return a contender: called with seconds, it runs that long in the process."""
        return lambda seconds: self.call(function, *arguments, seconds)

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


def _start(n_threads: int) -> None:
    # Nothing has imported jax in this process yet: the benchmarks import it inside their functions.
    os.environ["NPROC"] = str(n_threads)
    os.environ["JAX_PLATFORMS"] = "cpu"


def together(workers: list[Worker], function: Callable[..., Any], *arguments: Any) -> Window:
    """Return a contender that runs in every process at the same time; their rates add up."""

    def window(seconds: float) -> tuple[float, float]:
        calls = [worker.begun(function, *arguments, seconds) for worker in workers]
        return sum(done / elapsed for done, elapsed in (call.result() for call in calls)), 1.0

    return window


@contextmanager
def workers(*n_threads: int) -> Iterator[list[Worker]]:
    """Run one process for each thread count."""
    all_of_them = [Worker(n) for n in n_threads]
    try:
        yield all_of_them
    finally:
        for worker in all_of_them:
            worker.close()


def repeated(run: Callable[[], float], seconds: float) -> tuple[float, float]:
    """Run until the time is up; return what the runs counted and the seconds they took."""
    begin, done = time.perf_counter(), 0.0
    while True:
        done += run()
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return done, elapsed


def interleaved(contenders: dict[str, Window], *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return each contender's rate in each round; all of them run in every round, after a warm-up window."""
    for window in contenders.values():
        window(0.0)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        # The order rotates, so that no contender always follows the same one.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            done, elapsed = contenders[name](seconds)
            rates[name].append(done / elapsed)
    return rates


def middle(values: list[float]) -> float:
    """Return the median."""
    return float(np.median(values))


def ratios(over: list[float], under: list[float]) -> list[float]:
    """Return the quotients round by round."""
    return [a / b for a, b in zip(over, under, strict=True)]


def spread(values: list[float], form: str = ",.2f") -> str:
    """Write a median with the least and greatest value."""
    return f"{middle(values):{form}} ({min(values):{form}} to {max(values):{form}})"


@functools.cache
def _product(size: int) -> tuple[Callable, Any]:
    import jax
    import jax.numpy as jnp

    matrix = jax.random.normal(jax.random.key(0), (size, size), jnp.float32)
    return jax.jit(lambda a: a @ a), matrix


def gemm(size: int, seconds: float) -> tuple[float, float]:
    """Multiply square float32 matrices with XLA; count operations."""
    multiply, matrix = _product(size)
    return repeated(lambda: multiply(matrix).block_until_ready() is not None and 2.0 * size**3, seconds)


def gemm_contenders(worker: Worker) -> dict[str, Window]:
    """Return matrix products of several sizes as contenders."""
    return {f"gemm {size} NPROC={worker.n_threads}": worker.window(gemm, size) for size in GEMM_SIZES}


def best_gemm(rates: dict[str, list[float]], n_threads: int) -> list[float]:
    """Return the rate of the size that was fastest over all rounds."""
    sizes = [rates[f"gemm {size} NPROC={n_threads}"] for size in GEMM_SIZES]
    return max(sizes, key=middle)


def machine() -> dict[str, Any]:
    """Describe the machine without naming it."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
