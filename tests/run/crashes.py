"""One scenario that uses every protocol of the disk, and three ways to end it: a fault, a kill, a power loss.

The scenario tells after each step which versions may be found; recovering must give one of them, whole.
"""

import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from outlast.run import disk
from outlast.run.checkpoint import PINNED, STATE, Retention, load_newest, prune, save, state_digest
from outlast.run.errors import NoCheckpoint, RunProblem
from outlast.run.journal import START, Journal, read

WRITES = {"open", "pwrite", "fsync", "ftruncate", "rename", "mkdir", "unlink", "rmdir"}
HISTORY = {None: "", "1a": "1a", "2a": "1a2a", "3a": "1a2a3a", "3b": "1a2a3a3b", "4a": "1a2a3a3b4a"}
HISTORY["4c"] = "1a2a3a3b4c"


class Killed(BaseException):
    """The process is gone: nothing catches this, no clean-up does anything."""


class Calls:
    """Stands for `os` inside `disk`: numbers every call that matters and lets `act` decide what it does."""

    def __init__(self, act):
        self.n, self.act = 0, act

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in WRITES:
            return real

        def call(*args):
            self.n += 1
            return self.act(self.n, name, real if name != "fsync" else lambda fd: None, args)

        return call


def leaves_of(version):
    seed = int(version, 16)
    return {
        "world.position": np.arange(6, dtype=np.float32).reshape(2, 3) + seed,
        "learner.weights": np.full(7, seed, np.int64),
        "learner.count": np.array(seed, np.uint32),
    }


def drive(root, expect, attempt=lambda step: step()):
    """Save, replace, prune, lose the newest, recover, save again; `expect` is told what may be found."""
    folder, path, old = root / "checkpoints", root / "metrics.jsonl", None

    def step(version):
        attempt(lambda: journal.append([{"version": version, "loss": k / 3} for k in range(3)]))
        attempt(journal.sync)
        facts = {"version": version, "journal": journal.cursor}
        attempt(lambda: save(folder, iteration=int(version[0]), leaves=leaves_of(version), facts=facts))
        expect(version)
        attempt(lambda: prune(folder, Retention(last=2), verified=int(version[0])))

    expect(None)
    journal = Journal.open(path, START)
    try:
        for version in ("1a", "2a", "3a", "3b", "4a"):
            expect(old, version)
            step(version)
            old = version
            if version == "1a":
                disk.write_bytes(folder / "1" / PINNED)
        expect("4a", "3b")
        lose(folder / "4" / STATE)
        expect("3b")
        found, _ = load_newest(folder)
    finally:
        journal.close()
    journal = Journal.open(path, found.facts["journal"])
    try:
        expect("3b", "4c")
        step("4c")
    finally:
        journal.close()


def lose(path):
    fd = disk.open_file(path)
    try:
        disk.truncate(fd, 10)
        disk.fsync(fd)
    finally:
        disk.close(fd)


def recovered(root):
    """Resume as a new process would, and fail unless state, facts and journal are of one version."""
    try:
        found, _ = load_newest(root / "checkpoints")
    except NoCheckpoint:
        return None
    version = found.facts["version"]
    assert found.iteration == int(version[0])
    assert found.digest == state_digest(found.leaves) == state_digest(leaves_of(version))
    Journal.open(root / "metrics.jsonl", found.facts["journal"]).close()
    lines = [(line["version"], line["loss"]) for line in read(root / "metrics.jsonl")]
    assert lines == [(v, k / 3) for v in re.findall("..", HISTORY[version]) for k in range(3)]
    return version


def goes_on(root):
    """Save once more and find exactly that."""
    save(root / "checkpoints", iteration=9, leaves=leaves_of("9d"), facts={"version": "9d"})
    found, messages = load_newest(root / "checkpoints")
    assert (found.iteration, messages) == (9, [])
    assert {p.name for p in (root / "checkpoints").iterdir()} <= {"1", "2", "3", "4", "9", "quarantine"}


class Allowed:
    """Remembers the versions that may be found."""

    def __init__(self):
        self.now = (None,)

    def __call__(self, *versions):
        self.now = versions


def do(n, name, real, args):
    return real(*args)


def kill_at_each_point(base):
    """Fork the scenario once per point it reaches and kill it there; print where."""
    killed_at = []
    for number in itertools.count(1):
        root = base / str(number)
        root.mkdir()
        pid = os.fork()
        if pid == 0:
            run_until(root, number)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            return print(json.dumps(killed_at))
        killed_at.append(((root / "point").read_text(), os.waitstatus_to_exitcode(status)))


def run_until(root, number):
    points = itertools.count(1)

    def reached(name):
        if next(points) == number:
            (root / "point").write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)

    disk.reached, disk.os = reached, Calls(do)
    drive(root, lambda *versions: (root / "allowed").write_text(json.dumps(versions)))


class File:
    """A file as the platter has it, and the changes that only the cache has."""

    def __init__(self):
        self.durable, self.pending = b"", []

    def content(self, changes):
        data = bytearray(self.durable)
        for offset, piece in changes:
            if piece is None:
                del data[offset:]
            else:
                data.extend(bytes(max(0, offset - len(data))))
                data[offset : offset + len(piece)] = piece
        return bytes(data)

    def sync(self):
        self.durable, self.pending = self.content(self.pending), []

    def after_power_loss(self, rng):
        how = rng.choice(["lost", "kept", "torn"])
        if how != "torn":
            return self.content(self.pending if how == "kept" else [])
        kept = [change for change in self.pending if rng.random() < 0.7]
        halves = [(at, piece and piece[: len(piece) // 2] + bytes(len(piece) // 4)) for at, piece in kept]
        return self.content(rng.choice(pair) for pair in zip(kept, halves, strict=True))


class Folder:
    """A folder as the platter has it, and as processes see it."""

    def __init__(self):
        self.durable, self.current = {}, {}


class PowerLoss(Calls):
    """Stands for `os` and keeps a second, pessimistic file system beside the real one.

    Content survives only by `fsync` of the file, names only by `fsync` of the folder; of what is pending any
    part may survive without the rest. After each call such outcomes are built and recovered from.
    An fsync that fails forgets the pending content for good, as Linux does.
    """

    def __init__(self, root, act, allowed, *, draws=8, since=0, seen=None):
        super().__init__(act)
        self.draws, self.since = draws, since
        self.root, self.allowed, self.rng = root, allowed, random.Random(0)
        self.top, self.pending, self.fds = Folder(), [], {}
        self.seen, self.violations = set() if seen is None else seen, []

    def __getattr__(self, name):
        call = super().__getattr__(name)
        if name not in WRITES:
            return call

        def mirrored(*args):
            try:
                result = call(*args)
            except OSError:
                if name == "fsync" and isinstance(self.fds[args[0]], File):
                    self.fds[args[0]].pending.clear()
                raise
            getattr(self, f"on_{name}")(result, *args)
            if self.n >= self.since and not self.violations:
                self.lose_power()
            return result

        return mirrored

    def place(self, path):
        *parents, name = Path(path).relative_to(self.root).parts or [""]
        folder = self.top
        for part in parents:
            folder = folder.current[part]
        return folder, name

    def change(self, *entries):
        self.pending.append(entries)
        for folder, name, node in entries:
            folder.current[name] = node

    def on_open(self, fd, path, flags, mode=0):
        folder, name = self.place(path)
        node = folder.current.get(name) if name else self.top
        if node is None:
            node = File()
            self.change((folder, name, node))
        elif flags & os.O_TRUNC:
            node.pending.append((0, None))
        self.fds[fd] = node

    def on_pwrite(self, written, fd, data, offset):
        self.fds[fd].pending.append((offset, bytes(data[:written])))

    def on_ftruncate(self, _, fd, size):
        self.fds[fd].pending.append((size, None))

    def on_mkdir(self, _, path):
        self.change((*self.place(path), Folder()))

    def on_rename(self, _, source, target):
        (here, name), (there, new) = self.place(source), self.place(target)
        self.change((there, new, here.current[name]), (here, name, None))

    def on_unlink(self, _, path):
        self.change((*self.place(path), None))

    on_rmdir = on_unlink

    def on_fsync(self, _, fd):
        node = self.fds[fd]
        if isinstance(node, File):
            return node.sync()
        for entries in [e for e in self.pending if any(folder is node for folder, _, _ in e)]:
            self.pending.remove(entries)
            for folder, name, child in entries:
                folder.durable[name] = child

    def lose_power(self):
        n = len(self.pending)
        for mask in [0, 2**n - 1, *(self.rng.getrandbits(n + 1) for _ in range(self.draws * min(n, 4)))] * 2:
            view = {}
            for entries in (e for i, e in enumerate(self.pending) if mask >> i & 1):
                for folder, name, node in entries:
                    view.setdefault(id(folder), dict(folder.durable))[name] = node
            image = tuple(self.image(Path(), self.top, view))
            if (image, self.allowed.now) not in self.seen:
                self.seen.add((image, self.allowed.now))
                self.check(image)

    def image(self, path, node, view):
        if isinstance(node, File):
            yield path, node.after_power_loss(self.rng)
        elif isinstance(node, Folder):
            yield path, None
            for name, child in view.get(id(node), node.durable).items():
                yield from self.image(path / name, child, view)

    def check(self, image):
        root = self.root.with_name(f"{self.root.name}-{len(self.seen)}")
        for path, content in image:
            (root / path).mkdir() if content is None else (root / path).write_bytes(content)
        disk.os = Calls(do)
        try:
            version = recovered(root)
            if version not in self.allowed.now:
                self.violations.append(f"call {self.n}: {version} instead of {self.allowed.now}")
        except (AssertionError, RunProblem) as problem:
            self.violations.append(f"call {self.n}: {problem}")
        finally:
            disk.os = self
        shutil.rmtree(root)


if __name__ == "__main__":
    kill_at_each_point(Path(sys.argv[1]))
