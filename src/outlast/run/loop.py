"""The host loop of one group of seeds: compile, dispatch, save, log, stop.

All seeds run in one program, one after the other inside each iteration (`lax.map`): a seed's bits do not depend
on how many are trained beside it, and its working set stays in the cache.
"""

import contextlib
import functools
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from outlast.config import Section
from outlast.evaluate import BESIDE
from outlast.run import checkpoint, disk, episodes, identity, layout
from outlast.run.checkpoint import Checkpoint, Retention
from outlast.run.errors import Damaged, NoCheckpoint
from outlast.run.guard import NonFinite, check_finite, dump
from outlast.run.history import history_of
from outlast.run.journal import START, Journal
from outlast.run.leaves import named, restored
from outlast.run.lock import run_lock
from outlast.run.progress import Display
from outlast.run.signals import StopRequest, stop_on_signals
from outlast.run.tensorboard import event_writer

GROUPS_SHOWN = 12


@dataclass
class Best:
    """The best checkpoint so far by training score, over seeds."""

    iteration: int = 0
    score: float | None = None


@dataclass(frozen=True)
class Ended:
    """How a call of `train` ended."""

    iteration: int
    steps: int
    interrupted: bool
    steps_per_s: float


class Group:
    """One group of seeds in its directory: the program, its journals and where it stands."""

    def __init__(self, folder: Path, config: Section, program: Any, seeds: list[int]) -> None:
        self.folder, self.config, self.program, self.seeds = folder, config, program, seeds
        self.best = Best()
        self.journals: dict[str, Journal] = {}

    @property
    def last_iteration(self) -> int:
        """Return the iteration at which the budget is used up."""
        return -(-self.config.run.steps // self.program.steps_per_iteration)

    def open(self, *, fresh: bool) -> tuple[PyTree, int, list[str]]:
        """Restore the newest good checkpoint, or begin; also return what to tell the user."""
        shapes = jax.eval_shape(self._init)
        try:
            saved, messages = self._newest()
        except NoCheckpoint as problem:
            if self._has_history() and not fresh:
                raise NoCheckpoint(
                    f"{problem}; put a good copy back, or begin again with `--fresh`"
                ) from None
            self._open_journals({})
            # As a checkpoint would give it back: a resumed run must compile the very same program.
            return restored(named(jax.jit(self._init)()), shapes), 0, ["begins at iteration 0"]
        self.best = Best(**saved.facts["best"])
        return restored(saved.leaves, shapes), saved.iteration, [*messages, *_restored_lines(saved)]

    def _newest(self) -> tuple[Checkpoint, list[str]]:
        """Load the newest checkpoint with good journals; an older one writes a damaged journal's end anew."""
        told: list[str] = []
        before = None
        while True:
            try:
                saved, more = checkpoint.load_newest(self.folder / layout.CHECKPOINTS, before=before)
            except NoCheckpoint as problem:
                raise NoCheckpoint("; ".join([*told, str(problem)])) from None
            told, before = told + more, saved.iteration
            try:
                self._open_journals(saved.facts["journals"])
                return saved, told
            except Damaged as problem:
                told.append(f"{problem}; going back to before iteration {before}")

    def _has_history(self) -> bool:
        metrics, kept = self.folder / layout.METRICS, self.folder / layout.CHECKPOINTS
        # Anything in the folder counts: good ones that lack their journal, bad ones in quarantine.
        return bool(disk.names(kept)) or (metrics.exists() and metrics.stat().st_size > 0)

    def _init(self) -> PyTree:
        return jax.lax.map(self.program.init, jnp.array(self.seeds, jnp.uint32))

    def _open_journals(self, cursors: dict[str, Any]) -> None:
        self.close()
        lives = (layout.EPISODES,) if self.config.program == "survive" else ()
        for name in (layout.METRICS, layout.EVALUATIONS, *lives):
            self.journals[name] = Journal.open(self.folder / name, cursors.get(name, START))
        self.journals[layout.EVENTS] = Journal.open(self.folder / layout.EVENTS, None)

    def close(self) -> None:
        """Close the journals."""
        while self.journals:
            self.journals.popitem()[1].close()

    def compiled(self, states: PyTree) -> Any:
        """Compile one iteration of every seed; the state is donated."""
        step = jax.jit(lambda s: jax.lax.map(self.program.iterate, s), donate_argnums=0)
        return step.lower(states).compile()

    def log(self, event: str, **facts: Any) -> None:
        """Append to the events, which carry wall-clock facts and no promise of identity."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.journals[layout.EVENTS].append([{"event": event, "time": now, **facts}])

    def record(
        self, iteration: int, metrics: dict[str, np.ndarray], lives: dict[str, np.ndarray]
    ) -> dict[str, Any]:
        """Append one iteration to the journals and refuse to go on with numbers that are not finite."""
        if lives:
            self.journals[layout.EPISODES].append(episodes.episodes(iteration, lives, self.seeds))
        steps = iteration * self.program.steps_per_iteration
        line = {"iteration": iteration, "steps": steps, "metrics": metrics}
        self.journals[layout.METRICS].append([line])
        check_finite(iteration, metrics, self.seeds)
        return line

    def save(self, states: PyTree, iteration: int, metrics: dict[str, np.ndarray]) -> float:
        """Save a checkpoint and the light policy file, then prune; return the seconds it took."""
        begin = time.monotonic()
        for journal in self.journals.values():
            journal.sync()
        score = self._score(metrics)
        if score is not None and (self.best.score is None or score >= self.best.score):
            self.best = Best(iteration, score)
        cursors = {n: j.cursor for n, j in self.journals.items() if n != layout.EVENTS}
        facts = {"journals": cursors, "best": vars(self.best), "seeds": self.seeds}
        kept = self.folder / layout.CHECKPOINTS
        checkpoint.save(kept, iteration=iteration, leaves=named(states), facts=facts)
        self.save_policies(states, iteration)
        run = self.config.run
        best = frozenset({self.best.iteration} if run.keep_best else ())
        retention = Retention(last=run.keep_last, every=run.keep_every, best=best)
        for folder in (kept, self.folder / layout.POLICIES):
            checkpoint.prune(folder, retention, verified=iteration)
        return time.monotonic() - begin

    def save_policies(self, states: PyTree, iteration: int) -> None:
        """Save what is needed to play."""
        leaves = named(jax.vmap(self.program.policies)(states))
        folder = self.folder / layout.POLICIES
        checkpoint.save(folder, iteration=iteration, leaves=leaves, facts={"seeds": self.seeds})

    def _score(self, metrics: dict[str, np.ndarray]) -> float | None:
        if not metrics:
            return None
        per_seed = [self.program.score({k: v[i] for k, v in metrics.items()}) for i in range(len(self.seeds))]
        mean = float(np.mean(per_seed))
        return mean if np.isfinite(mean) else None


def _restored_lines(saved: Checkpoint) -> list[str]:
    groups = checkpoint.restored_groups(saved)
    parts = [f"{g.name} ({g.n_leaves} arrays, {g.n_bytes:,} bytes)" for g in groups[:GROUPS_SHOWN]]
    return [f"restored iteration {saved.iteration}: {', '.join(parts)}"]


def train(folder: Path, config: Section, program: Any, seeds: list[int], *, options: "Options") -> Ended:
    """Train one group until its budget is used up or a signal comes; every exit leaves a good checkpoint."""
    with run_lock(folder), stop_on_signals(options.tell) as stop:
        now = identity.identity(config, seeds)
        same = identity.check(folder, now, allow_different=options.allow_different)
        group = Group(folder, config, program, seeds)
        try:
            states, iteration, messages = group.open(fresh=options.fresh)
            if not same:
                messages.append("continued, not identical: the identity of this run has changed")
            for line in messages:
                options.tell(f"{folder}: {line}")
            group.log("started" if iteration == 0 else "resumed", iteration=iteration, messages=messages)
            return _iterate(group, states, iteration, stop, options)
        except NonFinite as problem:
            path = dump(group, problem)
            group.log("nonfinite", iteration=problem.iteration, dump=str(path))
            raise problem.at(path) from None
        finally:
            group.close()


@dataclass(frozen=True)
class Options:
    """How a call of `train` behaves towards its user."""

    tell: Any
    quiet: bool = False
    fresh: bool = False
    allow_different: bool = False


def _iterate(group: Group, states: PyTree, iteration: int, stop: StopRequest, options: Options) -> Ended:
    run, per_iteration = group.config.run, group.program.steps_per_iteration
    first, last = iteration, group.last_iteration
    metrics: dict[str, np.ndarray] = {}
    if iteration == 0:
        group.save(states, 0, metrics)
    elif checkpoint.newest_intact(group.folder / layout.POLICIES) != iteration:
        # A kill between the two saves, or damage: who evaluates now must not meet older policies.
        group.save_policies(states, iteration)
    begin = time.monotonic()
    step = group.compiled(states) if iteration < last else None
    group.log("compiled", seconds=time.monotonic() - begin)
    evaluate = evaluator(group) if run.evaluate_every else None
    history = history_of(group.folder, group.config, group.seeds)
    saved_at, saved_time, saving = iteration, time.monotonic(), 0.0
    title = f"{group.config.program} x{len(group.seeds)}"
    with (
        Display(title, last * per_iteration, first * per_iteration, quiet=options.quiet) as display,
        (
            event_writer(group.folder, first * per_iteration) if run.tensorboard else contextlib.nullcontext()
        ) as board,
    ):
        while iteration < last and not stop.is_set:
            states, device_metrics = step(states)
            iteration += 1
            metrics, lives = episodes.apart({n: np.asarray(v) for n, v in device_metrics.items()})
            line = group.record(iteration, metrics, lives)
            if history and (seen := history.take(line)):
                options.tell(f"{group.folder}: {seen}")
            if board:
                board(iteration * per_iteration, metrics)
            if evaluate and iteration % run.evaluate_every == 0:
                evaluate(states, iteration)
            display.show(iteration * per_iteration, group.program.note(metrics))
            if _is_due(run, iteration, time.monotonic() - saved_time):
                saving += group.save(states, iteration, metrics)
                saved_at, saved_time = iteration, time.monotonic()
        seconds = display.seconds
        if iteration != saved_at:
            saving += group.save(states, iteration, metrics)
    speed = (iteration - first) * per_iteration * len(group.seeds) / max(seconds, 1e-9)
    interrupted = stop.is_set and iteration < last
    group.log(
        "interrupted" if interrupted else "finished",
        iteration=iteration,
        steps_per_s=speed,
        seconds=seconds,
        saving_seconds=saving,
    )
    return Ended(iteration, iteration * per_iteration, interrupted, speed)


def _is_due(run: Any, iteration: int, seconds: float) -> bool:
    by_time = run.checkpoint_seconds > 0 and seconds >= run.checkpoint_seconds
    by_count = run.checkpoint_iterations > 0 and iteration % run.checkpoint_iterations == 0
    return by_time or by_count


def evaluator(group: Group) -> Any:
    """Return a function that plays evaluation games beside training and writes them down."""
    measure = functools.partial(BESIDE[group.config.program], group.program)
    play = jax.jit(lambda s: jax.lax.map(measure, s))

    def evaluate(states: PyTree, iteration: int) -> None:
        values = {name: np.asarray(value) for name, value in play(states).items()}
        line = {"iteration": iteration, "steps": iteration * group.program.steps_per_iteration}
        group.journals[layout.EVALUATIONS].append([line | {"values": values}])

    return evaluate
