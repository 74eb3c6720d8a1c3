"""Every command: what it prints, how it ends, and one kind line for every mistake."""

import json
import os
import resource
import shutil
import subprocess
import sys

import pytest

from outlast.run import checkpoint, layout
from outlast.run.journal import read
from runs import SMALL, config_of, create, go_on

TINY = [part for setting in SMALL.split() for part in ("--set", setting)]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Train two seeds of a tiny run once."""
    folder = create(tmp_path_factory.mktemp("cli") / "kept", config := config_of("chase", 3), (0, 1))
    go_on(folder, config)
    return folder


@pytest.fixture
def run(kept, tmp_path):
    """Give a copy of the tiny run."""
    return shutil.copytree(kept, tmp_path / "kept")


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def refused(outlast, tmp_path, arguments, code, *words):
    """Fail unless a command ends with a code, one line on standard error, and not a byte changed."""
    before = contents(tmp_path)
    ended = outlast(*arguments)
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert ended.err.startswith("outlast: ") and ended.err.count("\n") == 1, ended.err
    for word in words:
        assert word in ended.err
    assert contents(tmp_path) == before


def train(*more):
    return ["train", "chase", "--out", "new", *more]


MISTAKES = {
    "preset": (["train", "chaes"], "unknown preset 'chaes'", "did you mean 'chase'"),
    "preset as path": (["train", "../chase"], "unknown preset"),
    "presets": (["presets", "dual"], "did you mean 'duel'"),
    "path": (train("--set", "ppo.learning_rat=1"), "ppo.learning_rat: no such field", "'ppo.learning_rate'"),
    "path of a section": (train("--set", "ppo=1"), "ppo", "no such field"),
    "no value": (train("--set", "ppo.epochs"), "write it as path.to.field=value"),
    "word": (train("--set", "ppo.epochs=two"), 'ppo.epochs = "two"', "allowed: 1 to 100"),
    "float": (train("--set", "ppo.epochs=1.5"), "ppo.epochs = 1.5", "allowed: 1 to 100"),
    "bool": (train("--set", "ppo.epochs=true"), "ppo.epochs = true"),
    "list": (train("--set", "ppo.epochs=[1]"), "ppo.epochs"),
    "nan": (train("--set", "ppo.learning_rate=nan"), "ppo.learning_rate = nan is not a finite number"),
    "inf": (train("--set", "ppo.learning_rate=-inf"), "not a finite number"),
    "1e999": (train("--set", "ppo.learning_rate=1e999"), "not a finite number"),
    "negative": (train("--set", "ppo.learning_rate=-1.0"), "ppo.learning_rate = -1.0", "allowed: 1e-07 to 1"),
    "large": (train("--set", "collect.worlds=10000000"), "collect.worlds = 10000000", "allowed: 1 to 65536"),
    "absurd": (train("--set", f"collect.worlds=1{'0' * 400}"), "out of any range"),
    "choice": (train("--set", "learner=nobody"), 'learner = "nobody"', "allowed: pursuer, evader, both"),
    "idle": (train("--set", "arena.sensing.radius_m=3.0"), "radius_m has no effect with mode = full"),
    "opponent": (train("--set", "opponents.nobody=1.0"), "opponents", "nobody"),
    "no seeds": (train("--seeds", "0"), "--seeds 0", "allowed: 1 to 4096"),
    "many seeds": (train("--seeds", "1000000"), "--seeds 1000000"),
    "seed": (train("--seed", "-1"), "--seed -1"),
    "seed word": (train("--seed", "one"), "argument --seed"),
    "large seed": (train("--seed", str(2**32)), "--seed 4294967296"),
    "workers": (train("--workers", "2"), "--workers 2", "allowed: 1 to 1"),
    "steps": (train("--steps", "0"), "run.steps = 0", "allowed: 1 to"),
    "many steps": (train("--steps", str(10**30)), "run.steps = 1000000000000000000000000000000"),
    "memory": (
        train("--set", "collect.worlds=65536", "--set", "collect.horizon=8192"),
        "this config needs about",
        "lower collect.worlds",
    ),
    "command": (["trian"], "trian"),
    "flag": (train("--sed", "1"), "--sed"),
    "nothing": ([], "COMMAND"),
    "resume": (["resume", "nowhere"], "nowhere: not a run directory"),
    "evaluate": (["evaluate", "nowhere", "--suite", "panel"], "nowhere: not a run directory"),
    "report": (["report", "nowhere"], "nowhere: not a run directory"),
    "verify": (["verify", "nowhere"], "nowhere: not a run directory"),
    "study": (["study", "nothing"], "nothing"),
    "row": (["study", "headline", "--only", "nobody"], "--only nobody", "allowed: chase, flee, duel-2M"),
    "variant": (["study", "ra", "--only", "ra3"], "--only ra3", "allowed: ra1 as given"),
    "response": (["evaluate", "nowhere", "--suite", "exploit", "--steps", "0"], "--steps 0", "allowed: 1 to"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_exit_code_2(outlast, tmp_path, name):
    refused(outlast, tmp_path, MISTAKES[name][0], 2, *MISTAKES[name][1:])


MISTAKES_ABOUT_A_RUN = {
    "existing": (["train", "chase", "--out", "kept"], "kept: exists already", "outlast resume kept"),
    "suite": (["evaluate", "kept", "--suite", "penal"], "--suite penal", "panel"),
    "wrong suite": (["evaluate", "kept", "--suite", "head-to-head"], "only the pursuer"),
    "games": (["evaluate", "kept", "--suite", "panel", "--games", "0"], "--games 0", "allowed: 1 to"),
    "steps": (["resume", "kept", "--steps", "0"], "--steps 0", "allowed: 1 to"),
}


@pytest.mark.parametrize("name", MISTAKES_ABOUT_A_RUN)
def test_a_mistake_about_a_run_changes_nothing_in_it(outlast, run, tmp_path, name):
    refused(outlast, tmp_path, MISTAKES_ABOUT_A_RUN[name][0], 2, *MISTAKES_ABOUT_A_RUN[name][1:])


FOREIGN = {
    "no JSON": lambda run: (run / layout.CONFIG).write_text("{"),
    "not text": lambda run: (run / layout.CONFIG).write_bytes(b"\xff\xfe\0"),
    "a list": lambda run: (run / layout.CONFIG).write_text("[]"),
    "deep": lambda run: (run / layout.CONFIG).write_text("[" * 100_000),
    "another program": lambda run: (run / layout.CONFIG).write_text('{"program": "tetris"}'),
    "other fields": lambda run: (run / layout.CONFIG).write_text('{"name": "chase", "epochs": 3}'),
    "a number that is none": lambda run: (run / layout.CONFIG).write_text('{"ppo": {"clip": NaN}}'),
    "no seeds": lambda run: (run / layout.SEEDS).unlink(),
    "bad seeds": lambda run: (run / layout.SEEDS).write_text('{"seeds": [-1]}'),
    "no config": lambda run: (run / layout.CONFIG).unlink(),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("arguments", [["resume", "kept"], ["evaluate", "kept", "--suite", "panel"]])
def test_an_unreadable_or_foreign_run_is_refused_and_kept(outlast, run, tmp_path, name, arguments):
    FOREIGN[name](run)
    refused(outlast, tmp_path, arguments, 2, "kept")


@pytest.mark.parametrize(
    "name", ["no JSON", "not text", "a list", "deep", "no seeds", "bad seeds", "no config"]
)
def test_a_report_of_an_unreadable_run_is_one_line(outlast, run, tmp_path, name):
    FOREIGN[name](run)
    before = contents(tmp_path)
    ended = outlast("report", "kept")
    assert ended.code in (2, 3) and ended.out == "" and ended.err.count("\n") == 1, ended.err
    assert contents(tmp_path) == before


def test_an_unreadable_group_of_a_run_is_one_line(outlast, tmp_path):
    layout.create(tmp_path / "kept", config_of("chase", 3), [0, 1], workers=2)
    (tmp_path / "kept" / "group-1" / layout.CONFIG).write_text("{")
    refused(outlast, tmp_path, ["resume", "kept"], 2, "group-1")


def test_a_run_that_has_saved_nothing_is_said_to_be_empty(outlast, tmp_path):
    create(tmp_path / "kept", config_of("chase", 3))
    refused(outlast, tmp_path, ["verify", "kept"], 3, "no good checkpoint")
    refused(outlast, tmp_path, ["evaluate", "kept", "--suite", "panel"], 2, "nothing has been saved yet")


def test_a_place_where_nothing_can_be_written_is_one_line(outlast, tmp_path):
    (tmp_path / "file").write_text("")
    refused(outlast, tmp_path, ["train", "chase", "--out", "file/run"], 3, "file")


def quantities(document):
    """List everything in a document that has a mean."""
    if isinstance(document, dict) and "mean" in document:
        return [document]
    inner = (
        document.values() if isinstance(document, dict) else document if isinstance(document, list) else []
    )
    return [found for part in inner for found in quantities(part)]


def whole(ended, n_seeds=2):
    """Return the one JSON document of a command, after looking at every quantity in it."""
    assert ended.code == 0, ended.err
    assert ended.out.count("\n") == 1
    document = json.loads(ended.out, parse_constant=pytest.fail)
    for quantity in quantities(document):
        assert {"mean", "ci95", "per_seed"} <= set(quantity)
        assert len(quantity["ci95"]) == 2 and len(quantity["per_seed"]) == n_seeds
    return document


def test_the_documents_of_a_run(outlast, run):
    verified = whole(outlast("verify", "kept", "--json"))
    assert verified["intact"] is True
    assert len(verified["state_digest"]) == len(verified["journal_digest"]) == 64
    before = {path: data for path, data in contents(run).items() if data}

    evaluated = whole(outlast("evaluate", "kept", "--suite", "panel", "--games", "8", "--json"))
    evaders = {"stationary", "random", "flee_away", "look_ahead", "corner", "orbit"}
    assert set(evaluated["capture_rate"]) >= evaders
    for rate in evaluated["capture_rate"].values():
        assert all(0 <= value <= 1 for value in [rate["mean"], *rate["per_seed"]])
    assert evaluated["seeds"] == [0, 1]
    assert json.loads((run / "evaluations" / "panel.json").read_text()) == evaluated

    reported = whole(outlast("report", "kept", "--json"))
    criteria = reported["runs"][0]["criteria"]
    assert {"finite", "finished"} <= {line["name"] for line in criteria}
    for line in criteria:
        assert {"name", "target", "value", "pass"} == set(line)
        assert isinstance(line["pass"], bool) and quantities(line["value"]) == [line["value"]]
    for path in reported["files"]:
        assert os.path.getsize(path) > 1000

    # Neither has touched what was there, and the digests say so.
    assert {path: path.read_bytes() for path in before} == before
    assert whole(outlast("verify", "kept", "--json")) == verified
    assert whole(outlast("evaluate", "kept", "--suite", "panel", "--games", "8", "--json")) == evaluated


def test_the_commands_speak_to_people_too(outlast, run):
    assert f"{run.name}/checkpoints/3: intact" in outlast("verify", "kept").out
    assert "finished" in outlast("report", "kept").out
    listed = outlast("presets")
    assert listed.code == 0 and {"chase", "duel", "flee"} <= {
        line.split()[0] for line in listed.out.splitlines() if line
    }
    shown = outlast("presets", "chase")
    assert shown.code == 0 and "collect.worlds" in shown.out and "flee_away" in shown.out


def test_training_from_the_command_line_and_a_new_budget(outlast, tmp_path):
    ended = outlast("train", "chase", "--out", "a", "--seed", "5", "--seeds", "2", "--steps", "256", *TINY)
    assert (ended.code, ended.out) == (0, "")
    assert "a: begins at iteration 0" in ended.err and "a: finished, 256 steps a seed" in ended.err
    assert layout.seeds_of(tmp_path / "a") == [5, 6]
    again = outlast("resume", "a", "--quiet")
    assert again.code == 0 and "restored iteration 2" in again.err
    more = outlast("resume", "a", "--steps", "384", "--quiet")
    assert more.code == 0 and "finished, 384 steps a seed" in more.err
    assert [line["iteration"] for line in read(tmp_path / "a" / layout.METRICS)] == [1, 2, 3]
    assert max(checkpoint.iterations(tmp_path / "a" / layout.CHECKPOINTS)) == 3


def test_without_a_name_a_run_gets_a_free_one(outlast, tmp_path):
    (tmp_path / "runs" / "chase").mkdir(parents=True)
    assert outlast("train", "chase", "--steps", "128", "--quiet", *TINY).code == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["chase", "chase-2"]


def help_cpu_s():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "--help"], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "train" in done.stdout and done.stderr == ""
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_answers_at_once():
    # Processor time, which a busy machine does not stretch as it does the clock.
    assert min(help_cpu_s() for _ in range(5)) < 0.3


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"], ["trian"]])
def test_help_imports_nothing_heavy(arguments):
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); import outlast.cli as cli; "
    code += "cli.main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    heavy = {"jax", "jaxlib", "numpy", "pydantic", "equinox", "optax", "rich", "matplotlib", "outlast.run"}
    assert not heavy & set(done.stdout.split()), done.stdout
    assert "argparse" in done.stdout
