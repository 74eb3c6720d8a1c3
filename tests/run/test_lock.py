"""One process per run directory, through every way its owner can go."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from outlast.run.errors import Refused
from outlast.run.lock import NAME, run_lock

HOLD = """
import sys
from pathlib import Path
from outlast.run.lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def owner(folder):
    """Start a process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_process_is_refused_with_the_owner_named(tmp_path):
    with owner(tmp_path) as process:
        with pytest.raises(Refused) as caught, run_lock(tmp_path):
            pass
        assert f"in use by process {process.pid} on " in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 3


@pytest.mark.parametrize("ending", ["kill", "leave"])
def test_the_lock_is_free_when_its_owner_is_gone(tmp_path, ending):
    with owner(tmp_path) as process:
        process.send_signal(signal.SIGKILL) if ending == "kill" else process.stdin.close()
        assert process.wait() == (-signal.SIGKILL if ending == "kill" else 0)
        with run_lock(tmp_path):
            assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


def test_the_same_process_cannot_take_it_twice_but_again(tmp_path):
    with run_lock(tmp_path), pytest.raises(Refused, match=f"process {os.getpid()} "), run_lock(tmp_path):
        pass
    (tmp_path / NAME).write_text("a longer record of an owner that is gone " * 20)
    with run_lock(tmp_path):
        owner = json.loads((tmp_path / NAME).read_text())
    assert sorted(owner) == ["boot", "host", "pid", "started"]


def test_a_child_program_does_not_inherit_the_lock(tmp_path):
    with run_lock(tmp_path):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with run_lock(tmp_path):
            pass
    finally:
        child.kill()
        child.wait()


def test_an_owner_that_has_not_signed_yet_is_still_refused(tmp_path):
    with owner(tmp_path):
        (tmp_path / NAME).write_text("")
        with pytest.raises(Refused, match="in use by another process"), run_lock(tmp_path):
            pass


def test_two_directories_are_two_locks(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with run_lock(tmp_path / "a"), run_lock(tmp_path / "b"):
        owners = [json.loads((tmp_path / name / NAME).read_text())["pid"] for name in "ab"]
    assert owners == [os.getpid()] * 2
