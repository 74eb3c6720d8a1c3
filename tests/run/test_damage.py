"""Damage to a real run, full disks, second processes and foreign identities: said in one line, nothing lost."""

import errno
import json
import os
import shutil
from types import SimpleNamespace

import pytest
from crashes import Calls, do

from outlast.cli import main
from outlast.run import checkpoint, disk, layout
from outlast.run.errors import Damaged, DiskFull, NoCheckpoint, Refused
from outlast.run.lock import run_lock
from outlast.run.verify import verify_run
from runs import config_of, create, finished, go_on, result, share_compiled_programs, state_of

LENGTH = 6
KEPT = {"checkpoint_iterations": 1, "keep_last": 3}


@pytest.fixture(scope="module", autouse=True)
def shared():
    """Compile once for the whole module."""
    with pytest.MonkeyPatch.context() as patch:
        share_compiled_programs(patch)
        yield


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Give the undisturbed run, and a copy of it stopped after iteration 4, with checkpoints 2, 3 and 4."""
    folder = create(tmp_path_factory.mktemp("straight") / "run", config := config_of("chase", LENGTH))
    go_on(folder, config)
    stopped = create(tmp_path_factory.mktemp("stopped") / "run", config := config_of("chase", 4, **KEPT))
    go_on(stopped, config)
    assert checkpoint.iterations(stopped / layout.CHECKPOINTS)[-3:] == [2, 3, 4]
    return SimpleNamespace(result=result(folder), stopped=stopped)


@pytest.fixture
def stopped(straight, tmp_path):
    """Give a run of its own, stopped after iteration 4."""
    return shutil.copytree(straight.stopped, tmp_path / "run")


def rest(folder, **flags):
    """Resume to the end; give what was told as one text."""
    return "\n".join(go_on(folder, config_of("chase", LENGTH, **KEPT), **flags))


def flip(path, at):
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def cut(path, at):
    """Truncate a file."""
    os.truncate(path, path.stat().st_size + at)


@pytest.mark.parametrize("ruin", [flip, cut])
@pytest.mark.parametrize(("name", "at"), [(checkpoint.STATE, -5), (checkpoint.MANIFEST, -100)])
def test_a_damaged_newest_checkpoint_costs_one_iteration_and_no_byte(straight, stopped, ruin, name, at):
    kept = stopped / layout.CHECKPOINTS
    ruin(kept / "4" / name, at)
    assert not verify_run([stopped])["intact"]
    assert verify_run([stopped])["groups"][0]["iteration"] == 3
    told = rest(stopped)
    assert f"checkpoint {kept / '4'}" in told and f"moved to {kept / 'quarantine' / '4-0'}" in told
    assert "restored iteration 3: games (" in told
    assert (kept / "quarantine" / "4-0" / name).exists()
    assert result(stopped) == straight.result
    assert "4-0" in (stopped / layout.EVENTS).read_text()


def test_no_good_checkpoint_is_refused_until_a_fresh_start_is_asked_for(straight, stopped):
    kept = stopped / layout.CHECKPOINTS
    for iteration in checkpoint.iterations(kept):
        cut(kept / str(iteration) / checkpoint.STATE, -1)
    for _ in range(2):
        with pytest.raises(
            NoCheckpoint, match="put a good copy back, or begin again with `--fresh`"
        ) as caught:
            rest(stopped)
        assert "\n" not in str(caught.value)
    assert (stopped / layout.METRICS).stat().st_size > 0
    assert "begins at iteration 0" in rest(stopped, fresh=True)
    assert result(stopped) == straight.result


def ends(folder):
    """Give where the journal stands at checkpoints 2, 3 and 4."""
    kept = folder / layout.CHECKPOINTS
    return [checkpoint.load(kept / str(k)).facts["journals"][layout.METRICS]["bytes"] for k in (2, 3, 4)]


def test_a_journal_damaged_at_its_end_is_written_anew_from_an_older_checkpoint(straight, stopped):
    flip(stopped / layout.METRICS, ends(stopped)[1] + 3)
    assert not verify_run([stopped])["intact"]
    told = rest(stopped)
    assert "metrics.jsonl: its first" in told and "going back to before iteration 4" in told
    assert "restored iteration 3" in told
    assert result(stopped) == straight.result
    assert verify_run([stopped])["intact"]


@pytest.mark.parametrize("ruin", ["flip", "cut", "unlink"])
def test_a_journal_damaged_before_every_checkpoint_is_refused_and_nothing_is_lost(straight, stopped, ruin):
    shutil.rmtree(stopped / layout.CHECKPOINTS / "0", ignore_errors=True)
    path = stopped / layout.METRICS
    good = path.read_bytes()
    before = {k: state_of(stopped, k) for k in (2, 3, 4)}
    {"flip": lambda: flip(path, 10), "cut": lambda: os.truncate(path, 10), "unlink": path.unlink}[ruin]()
    assert not verify_run([stopped])["intact"]
    with pytest.raises(NoCheckpoint, match="put a good copy back") as caught:
        rest(stopped)
    assert "metrics.jsonl" in str(caught.value) and "\n" not in str(caught.value)
    assert {k: state_of(stopped, k) for k in (2, 3, 4)} == before
    path.write_bytes(good)
    assert "restored iteration 4" in rest(stopped)
    assert result(stopped) == straight.result


def test_a_kill_between_state_and_policies_leaves_no_old_policy(straight, stopped, tmp_path):
    rest(stopped)
    shutil.rmtree(stopped / layout.POLICIES / str(LENGTH))
    rest(stopped)
    assert result(stopped) == straight.result
    flip(stopped / layout.POLICIES / str(LENGTH) / checkpoint.STATE, -5)
    rest(stopped)
    assert result(stopped) == straight.result


@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk_at_any_write_loses_nothing(straight, tmp_path, monkeypatch, lasting):
    def run(folder):
        go_on(create(folder, config := config_of("chase", 3, **KEPT)), config)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "os", calls := Calls(do))
        run(tmp_path / "all")
    n_problems, tried = 0, range(1, calls.n + 1, 31 if lasting else 13)
    for at in tried:
        folder = tmp_path / str(at)

        def act(n, name, real, args, at=at):
            # A full disk still removes files.
            if n == at or (lasting and n > at and name not in {"unlink", "rmdir"}):
                raise OSError(errno.ENOSPC, "full")
            return real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", Calls(act))
            try:
                run(folder)
            except DiskFull as problem:
                n_problems += 1
                assert "free some space, then resume" in str(problem) and "\n" not in str(problem)
        if not folder.exists():
            create(folder, config_of("chase", LENGTH))
        rest(folder)
        assert result(folder) == straight.result, f"call {at}"
    assert n_problems > 0.9 * len(tried)


def test_a_second_process_is_refused_and_changes_nothing(stopped):
    with run_lock(stopped):
        before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
        for more in ([], ["--steps", "12800"]):
            code, out, told = finished("resume", stopped, *more)
            assert (code, out, told.count("\n")) == (3, "", 1)
            assert f"in use by process {os.getpid()} on " in told
        assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before


def edited(folder, **changes):
    """Change fields of the identity that a run was started with."""
    path = folder / layout.IDENTITY
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"seeds": [3]}, "seeds was [3] and is [0]"),
        ({"jaxlib": "0.0.1", "cpu": "z80"}, 'jaxlib was "0.0.1" and is'),
        ({"threads": "8"}, 'threads was "8" and is "1"'),
        ({"x64": True}, "x64 was true and is false"),
    ],
)
def test_another_identity_is_refused_by_its_first_difference(straight, stopped, changes, line):
    edited(stopped, **changes)
    with pytest.raises(Refused) as caught:
        rest(stopped)
    assert line in str(caught.value) and "--allow-different" in str(caught.value)
    assert state_of(stopped, 4) == state_of(straight.stopped, 4)


def test_a_changed_config_is_another_identity(stopped):
    config = config_of("chase", LENGTH)
    ppo = config.ppo.model_copy(update={"learning_rate": 0.5})
    with pytest.raises(Refused, match="another identity: config was"):
        go_on(stopped, config.model_copy(update={"ppo": ppo}))


def test_what_goes_on_under_another_identity_is_marked_for_ever(stopped):
    edited(stopped, jaxlib="0.0.1")
    mark = "continued, not identical"
    assert mark in rest(stopped, allow_different=True)
    assert mark in rest(stopped)
    assert json.loads((stopped / layout.IDENTITY).read_text())["continued"] == mark


@pytest.mark.parametrize("ruin", ["missing", "not JSON", "not an object"])
def test_a_run_without_a_readable_identity_is_refused(stopped, ruin):
    path = stopped / layout.IDENTITY
    path.unlink() if ruin == "missing" else path.write_text("{" if ruin == "not JSON" else "7")
    with pytest.raises(Damaged, match=r"identity\.json: cannot be read"):
        rest(stopped)


def test_creation_that_is_killed_leaves_no_half_run(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def reached(name):
        raise Killed

    config = config_of("chase", 1)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "reached", reached)
        with pytest.raises(Killed):
            layout.create(tmp_path / "run", config, [0, 1, 2], workers=2)
    assert not (tmp_path / "run").exists()
    parts = layout.create(tmp_path / "run", config, [0, 1, 2], workers=2)
    assert os.listdir(tmp_path) == ["run"]
    assert [layout.seeds_of(part) for part in parts] == [[0, 2], [1]]
    assert parts == layout.groups(tmp_path / "run")


def test_verify_tells_of_damage_with_its_exit_code(stopped, capsys):
    assert main(["verify", str(stopped)]) == 0
    flip(stopped / layout.CHECKPOINTS / "3" / checkpoint.STATE, -1)
    assert main(["verify", str(stopped)]) == 3
    assert "leaf" in capsys.readouterr().out
