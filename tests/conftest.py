"""One thread, one compile cache, warnings as errors: set before anything imports jax."""

import gc
import hashlib
import os
from pathlib import Path

os.environ["NPROC"] = "1"  # XLA reads it once; one thread is the mode in which bits are promised
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import pytest


def _cache_folder():
    """Keep programs of different processors apart: loading a foreign one can crash."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "unknown")
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return root / "outlast" / "tests" / hashlib.sha256(flags.encode()).hexdigest()[:12]


jax.config.update("jax_compilation_cache_dir", str(_cache_folder()))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

hypothesis.settings.register_profile(
    "outlast", derandomize=True, deadline=None, database=None, print_blob=False, max_examples=60
)
hypothesis.settings.load_profile("outlast")


def pytest_configure(config):
    """Let a torn cache entry (a test run that was killed) cost a compilation, not a failure."""
    config.addinivalue_line(
        "filterwarnings", "ignore:Error (reading|writing) persistent compilation cache:UserWarning"
    )


MOST_MAPS = 25_000
"""Linux lets a process have 65,530 memory maps, and every compiled program takes some: past them, XLA aborts."""


@pytest.fixture(autouse=True, scope="module")
def _room_for_programs():
    """Forget compiled programs between files before there are too many; the cache on disk still has them."""
    yield
    with open("/proc/self/maps") as maps:
        full = sum(1 for _ in maps) > MOST_MAPS
    if full:
        jax.clear_caches()
        gc.collect()
