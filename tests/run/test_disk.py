"""Every failing call, every kill and every power loss, in the scenario of `crashes.py`."""

import contextlib
import errno
import functools
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import crashes
import pytest
from crashes import Allowed, Calls, Killed, PowerLoss, do, drive, goes_on, leaves_of, lose, recovered

from outlast.run import disk
from outlast.run.checkpoint import STATE, Retention, load_newest, prune, save
from outlast.run.errors import DiskFull, NoCheckpoint, RunProblem
from outlast.run.journal import START, Journal


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Sync nothing for real: what a sync means here is decided by the model of the disk."""
    monkeypatch.setattr(disk, "os", Calls(do))


@pytest.fixture
def scenario(monkeypatch, tmp_path):
    """Run the scenario in a new directory under an `act`; give how it ended."""
    numbers = itertools.count()

    def run(act, make=Calls, attempt=lambda step: step()):
        root = tmp_path / str(next(numbers))
        root.mkdir()
        allowed, problem = Allowed(), None
        calls = make(act) if make is Calls else make(root, act, allowed)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", calls)
            try:
                drive(root, allowed, attempt)
            except (RunProblem, OSError, Killed) as error:
                problem = error
        return types.SimpleNamespace(root=root, allowed=allowed.now, calls=calls, problem=problem)

    return run


def test_scenario_without_faults_reaches_its_end_and_keeps_the_pinned(scenario):
    run = scenario(do)
    assert run.problem is None
    assert recovered(run.root) == "4c"
    present = {p.name for p in (run.root / "checkpoints").iterdir()}
    assert present == {"1", "3", "4", "quarantine"}
    assert [p.name for p in (run.root / "checkpoints/quarantine").iterdir()] == ["4-0"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("lasting", [False, True])
def test_any_failing_call_keeps_the_last_checkpoint(scenario, code, lasting):
    n_calls, n_problems = scenario(do).calls.n, 0
    for at in range(1, n_calls + 1):

        def act(n, name, real, args, at=at):
            # A full disk still removes files; a broken one does nothing.
            refuses = code == errno.EIO or name not in {"unlink", "rmdir"}
            if n == at or (lasting and n > at and refuses):
                if name == "pwrite":
                    real(args[0], args[1][: len(args[1]) // 2], args[2])
                raise OSError(code, os.strerror(code))
            return real(*args)

        run = scenario(act)
        n_problems += run.problem is not None
        if isinstance(run.problem, DiskFull):
            assert os.strerror(code) in str(run.problem)
            assert "the last good checkpoint is kept" in str(run.problem)
        assert recovered(run.root) in run.allowed, f"call {at}"
        goes_on(run.root)
    # Only a failure to remove what no longer matters may go unseen.
    assert n_problems > 0.9 * n_calls


def test_a_kill_at_any_call_leaves_old_or_new(scenario):
    for at in range(1, scenario(do).calls.n + 1):

        def act(n, name, real, args, at=at):
            if n == at and name == "pwrite":
                real(args[0], args[1][: len(args[1]) // 2], args[2])
            if n >= at:
                raise Killed
            return real(*args)

        run = scenario(act)
        assert isinstance(run.problem, Killed)
        assert recovered(run.root) in run.allowed, f"call {at}"
        goes_on(run.root)


def test_kills_while_recovering_leave_the_same_choice(scenario, monkeypatch):
    def stop(n, name, real, args, *, at):
        if n >= at:
            raise Killed
        return real(*args)

    for at in range(1, scenario(do).calls.n + 1, 3):
        run, version = scenario(functools.partial(stop, at=at)), "not recovered"
        for again in itertools.count(1):
            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                patch.setattr(disk, "os", Calls(functools.partial(stop, at=again)))
                version = recovered(run.root)
                break
        assert version in run.allowed


def test_sigkill_at_every_named_point(tmp_path):
    done = subprocess.run(
        [sys.executable, crashes.__file__, str(tmp_path)], capture_output=True, text=True, check=True
    )
    killed_at = json.loads(done.stdout)
    sources = [Path(disk.__file__).with_name(name).read_text() for name in ("checkpoint.py", "journal.py")]
    assert {name for name, _ in killed_at} == set(re.findall(r'reached\("([^"]*)"', "".join(sources)))
    for number, (name, status) in enumerate(killed_at, start=1):
        root = tmp_path / str(number)
        assert status == -signal.SIGKILL
        assert recovered(root) in json.loads((root / "allowed").read_text()), name
        goes_on(root)


def test_a_power_loss_after_any_call_leaves_old_or_new(scenario):
    run = scenario(do, PowerLoss)
    assert run.problem is None
    assert run.calls.violations == []
    assert len(run.calls.seen) > 300


@pytest.mark.parametrize("forgotten", ["fsync", "fsync_folder", "write_bytes"])
def test_the_power_loss_model_sees_a_missing_sync(scenario, monkeypatch, forgotten):
    def write_without_sync(path, *parts):
        fd = disk.os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        disk.write_at(fd, 0, b"".join(map(bytes, parts)))
        disk.os.close(fd)

    monkeypatch.setattr(disk, forgotten, write_without_sync if forgotten == "write_bytes" else lambda _: None)
    assert scenario(do, PowerLoss).calls.violations


def test_a_failed_sync_counts_as_a_failed_save_even_with_a_power_loss(scenario):
    syncs, seen = [], set()

    def note(n, name, real, args):
        syncs.extend([n] if name == "fsync" else [])
        return real(*args)

    def retry(step):
        try:
            step()
        except DiskFull:
            step()

    scenario(note)
    for at in syncs:

        def act(n, name, real, args, at=at):
            if n == at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args)

        run = scenario(act, functools.partial(PowerLoss, draws=1, since=at, seen=seen), retry)
        assert run.calls.violations == [], f"sync {at}"


def test_a_save_with_a_failing_sync_is_not_pruned_against(monkeypatch, tmp_path):
    n_failed = 0
    for at in range(1, 30):
        folder, syncs = tmp_path / str(at) / "checkpoints", itertools.count(1)
        save(folder, iteration=1, leaves=leaves_of("1a"), facts={})
        good = (folder / "1" / STATE).read_bytes()

        def act(n, name, real, args, at=at, syncs=syncs):
            if name == "fsync" and next(syncs) >= at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", Calls(act))
            try:
                save(folder, iteration=2, leaves=leaves_of("2a"), facts={})
            except DiskFull:
                n_failed += 1
                with contextlib.suppress(DiskFull):
                    prune(folder, Retention(last=1))
                assert good in [path.read_bytes() for path in folder.rglob(STATE)]
    assert n_failed == 6


def test_what_is_put_aside_outlives_a_power_loss(monkeypatch, tmp_path):
    calls = PowerLoss(tmp_path, do, Allowed(), since=float("inf"))
    monkeypatch.setattr(disk, "os", calls)
    save(tmp_path / "checkpoints", iteration=1, leaves=leaves_of("1a"), facts={})
    lose(tmp_path / "checkpoints" / "1" / STATE)
    with pytest.raises(NoCheckpoint, match="moved to"):
        load_newest(tmp_path / "checkpoints")
    assert calls.pending == []


def test_opening_a_journal_makes_its_name_and_what_it_keeps_durable(monkeypatch, tmp_path):
    calls = PowerLoss(tmp_path, do, Allowed(), since=float("inf"))
    monkeypatch.setattr(disk, "os", calls)
    journal = Journal.open(tmp_path / "events.jsonl", START)
    assert calls.pending == []
    journal.append([{"event": "start"}])
    journal.close()
    Journal.open(tmp_path / "events.jsonl", None).close()
    assert calls.top.durable["events.jsonl"].durable == b'{"event":"start"}\n'


def test_other_errors_of_the_system_are_not_called_a_full_disk():
    with pytest.raises(PermissionError), disk.writing("anything"):
        raise PermissionError(errno.EACCES, "no")


@pytest.mark.parametrize("code", sorted(disk.ADVICE))
def test_a_full_disk_says_what_to_do(code):
    with pytest.raises(DiskFull) as caught, disk.writing("checkpoint 7"):
        raise OSError(code, "x")
    kept = f"cannot write checkpoint 7: {os.strerror(code)}; the last good checkpoint is kept"
    assert str(caught.value) == f"{kept}; {disk.ADVICE[code]}"
    assert caught.value.exit_code == 3


def test_write_atomic_leaves_old_or_new_and_no_rubbish(monkeypatch, tmp_path):
    path = tmp_path / "config.json"
    disk.write_atomic(path, b"old")
    for at in itertools.count(1):

        def act(n, name, real, args, at=at):
            if n == at:
                raise OSError(errno.ENOSPC, "full")
            return real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", Calls(act))
            try:
                disk.write_atomic(path, b"the new one")
                break
            except OSError:
                assert path.read_bytes() in (b"old", b"the new one")
                assert os.listdir(tmp_path) == ["config.json"]
    assert path.read_bytes() == b"the new one"
    assert at == 7


def test_short_writes_are_continued(monkeypatch, tmp_path):
    def act(n, name, real, args):
        return real(args[0], args[1][:3], args[2]) if name == "pwrite" else real(*args)

    monkeypatch.setattr(disk, "os", Calls(act))
    disk.write_bytes(tmp_path / "x", b"12345678", b"", b"9")
    assert (tmp_path / "x").read_bytes() == b"123456789"


def test_verifying_needs_no_heavy_import():
    code = "import sys, outlast.run.checkpoint, outlast.run.journal, outlast.run.lock; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "jaxlib", "pydantic", "equinox", "optax"} & set(done.stdout.split())
