"""TensorBoard event files, continuous through resume: what a resumed run plays again is purged first."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from outlast.config import BadInput
from outlast.run import layout


@contextmanager
def event_writer(folder: Path, steps_done: int) -> Iterator[Callable[[int, dict[str, np.ndarray]], None]]:
    """Yield a function that writes the metrics of one iteration at a step count, going on after `steps_done`."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise BadInput("run.tensorboard = true needs the extra `tb`: pip install 'outlast[tb]'") from None
    path = str(folder / layout.TENSORBOARD)
    with SummaryWriter(path, purge_step=steps_done + 1 if steps_done > 0 else None) as writer:

        def write(steps: int, metrics: dict[str, np.ndarray]) -> None:
            for name, values in metrics.items():
                # A table, such as the ways between places, is no curve.
                for place, value in enumerate(values if values.ndim == 1 else ()):
                    if np.isfinite(value):
                        writer.add_scalar(f"{name}/seed-{place}", float(value), steps)

        yield write
