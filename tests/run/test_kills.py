"""Real processes, killed: at random moments, at every named point of the protocols, and politely by signals."""

import itertools
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from outlast.run import checkpoint, disk, layout
from runs import config_of, create, finished, go_on, result, share_compiled_programs, started

ITERATIONS = 300
SETTINGS = {"checkpoint_iterations": 1, "keep_last": 3}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Give the runs that nobody has killed, by budget and name."""
    kept = {}

    def run(iterations=ITERATIONS, name="chase"):
        key = (iterations, name)
        if key not in kept:
            kept[key] = tmp_path_factory.mktemp("straight") / "run"
            create(kept[key], config := config_of(name, iterations))
            go_on(kept[key], config)
        return result(kept[key])

    return run


@pytest.fixture(scope="module", autouse=True)
def shared():
    """Compile once for the runs of this process."""
    with pytest.MonkeyPatch.context() as patch:
        share_compiled_programs(patch)
        yield


def done(folder):
    """Return the newest checkpoint that a killed process may have acknowledged."""
    return max(checkpoint.iterations(folder / layout.CHECKPOINTS), default=-1)


def wait_until_past(folder, iteration, process):
    """Wait for a checkpoint after an iteration, or for the end of the process."""
    while done(folder) <= iteration and process.poll() is None:
        time.sleep(0.005)


def kill_at_random(folder, kills, seed):
    """Kill a run again and again, some while they start and some while they train; count those that hit."""
    rng, hits = random.Random(seed), 0
    while hits < kills:
        before = done(folder)
        with started("resume", folder, "--quiet") as process:
            if rng.random() < 0.8:
                wait_until_past(folder, before, process)
                time.sleep(rng.uniform(0.0, 0.2))
            else:
                time.sleep(rng.uniform(0.0, 4.0))
            process.kill()
            _, told = process.communicate()
            assert process.returncode in (0, -signal.SIGKILL), told
            hits += process.returncode == -signal.SIGKILL
        # Never back past a checkpoint that was there.
        assert done(folder) >= before
        if process.returncode == 0:
            return hits
    return hits


SLOW = pytest.mark.slow
SIGKILLS = [("chase", 5), ("town", 3), ("memory", 3)]
SIGKILLS += [pytest.param(name, 100, marks=SLOW) for name, _ in SIGKILLS]


@pytest.mark.parametrize(("name", "kills"), SIGKILLS)
def test_sigkill_at_random_times(straight, tmp_path, name, kills):
    iterations = (60 if name == "chase" else 30) * kills
    folder = create(tmp_path / "run", config_of(name, iterations, **SETTINGS))
    assert kill_at_random(folder, kills, seed=kills) == kills
    code, _, told = finished("resume", folder, "--quiet")
    assert code == 0, told
    assert result(folder) == straight(iterations, name)
    assert set(os.listdir(folder)) == {
        *(layout.CHECKPOINTS, layout.POLICIES, layout.METRICS, layout.EVALUATIONS, layout.EVENTS),
        *(layout.CONFIG, layout.SEEDS, layout.DEFAULTS, layout.IDENTITY, "run.lock"),
        *(() if name == "chase" else (layout.EPISODES,)),
    }
    assert len(checkpoint.iterations(folder / layout.CHECKPOINTS)) <= SETTINGS["keep_last"] + 1


class Killed(BaseException):
    """The process is gone: nothing catches this, no clean-up does anything."""


def scenario(folder, attempt=lambda step: step()):
    """Train, lose the newest checkpoint to damage, go on: every protocol is used."""
    settings = SETTINGS | {"keep_last": 2}
    attempt(lambda: go_on(folder, config_of("chase", 3, **settings)))
    newest = folder / layout.CHECKPOINTS / str(done(folder)) / checkpoint.STATE
    newest.write_bytes(newest.read_bytes()[:-1])
    attempt(lambda: go_on(folder, config_of("chase", 5, **settings)))


def reached_points(folder):
    """Run the scenario to its end; list the named points it reaches, in order."""
    names: list[str] = []
    create(folder, config_of("chase", 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "reached", names.append)
        scenario(folder)
    return names


def test_a_kill_at_every_named_point_of_a_whole_run(straight, tmp_path, monkeypatch):
    names = reached_points(tmp_path / "points")
    assert result(tmp_path / "points") == straight(5)
    sources = [Path(disk.__file__).with_name(name).read_text() for name in ("checkpoint.py", "journal.py")]
    assert set(names) == set(re.findall(r'reached\("([^"]*)"', "".join(sources)))
    places = [[i for i, at in enumerate(names) if at == name] for name in dict.fromkeys(names)]
    for at in sorted({at for found in places for at in (found[0], found[-1])}):
        folder, points = create(tmp_path / str(at), config_of("chase", 5)), itertools.count()

        def reached(name, at=at, points=points):
            if next(points) >= at:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(disk, "reached", reached)
            with pytest.raises(Killed):
                scenario(folder)
        go_on(folder, config_of("chase", 5))
        assert result(folder) == straight(5), f"point {at}: {names[at]}"


KILL_AT = """
import os, signal, sys
from outlast.run import disk
name = sys.argv.pop(1)
disk.reached = lambda at: os.kill(os.getpid(), signal.SIGKILL) if at == name else None
from outlast.cli import main
sys.exit(main())
"""


@pytest.mark.slow
def test_sigkill_at_every_named_point_one_after_the_other_in_one_run(straight, tmp_path):
    names = list(dict.fromkeys(reached_points(tmp_path / "points")))
    folder = create(tmp_path / "run", config_of("chase", 60, **SETTINGS))
    killed_at = []
    for name in names:
        if name.startswith("quarantine") or name == "save: after set aside":
            newest = folder / layout.CHECKPOINTS / str(done(folder)) / checkpoint.STATE
            newest.write_bytes(newest.read_bytes()[:-1])
        code, _, told = finished(name, "resume", folder, "--quiet", by=["-c", KILL_AT])
        killed_at += [name] if code == -signal.SIGKILL else []
        assert code in (0, -signal.SIGKILL), told
    assert set(killed_at) == set(names)
    assert finished("resume", folder, "--quiet")[0] == 0
    assert result(folder) == straight(60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves(straight, tmp_path, number):
    folder = create(tmp_path / "run", config_of("chase", 10**6, checkpoint_iterations=20))
    with started("resume", folder, "--quiet") as process:
        wait_until_past(folder, 0, process)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    last = done(folder)
    assert f"interrupted and saved at {last * 128:,} steps; go on with `outlast resume {folder}`" in told
    assert (folder / layout.METRICS).read_text().count("\n") == last
    assert result(folder) == straight(last)
    last_event = (folder / layout.EVENTS).read_text().splitlines()[-1]
    assert '"event":"interrupted"' in last_event


BUSY = """
import hashlib
from outlast.run.signals import stop_on_signals
with stop_on_signals(lambda line: print(line, flush=True)):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_leaves_at_once_even_out_of_compiled_code(number):
    with started(by=["-c", BUSY]) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert "a second signal leaves at once" in process.stdout.readline()
        begin = time.monotonic()
        process.send_signal(number)
        # The work would take minutes; a busy machine needs a moment to end a process.
        assert process.wait(timeout=10) == 130
    assert time.monotonic() - begin < 10
