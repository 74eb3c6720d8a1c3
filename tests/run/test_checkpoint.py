"""A checkpoint comes back as the bytes it was, or is refused: every flip, cut, swap and edit is seen."""

import hashlib
import json
import random
import shutil

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from safetensors.numpy import load_file

from outlast.run import disk
from outlast.run.checkpoint import (
    CODES,
    FORMAT,
    MANIFEST,
    PINNED,
    STATE,
    Group,
    iterations,
    load,
    load_newest,
    restored_groups,
    save,
    state_digest,
)
from outlast.run.errors import Damaged, DiskFull, NoCheckpoint, Refused

LEAVES = {
    "learner.weights": np.array([[1.5, -0.0], [np.nan, np.inf]], np.float32),
    "learner.mirror": np.array([[2.5, 0.0], [1.0, 3.0]], np.float32),
    "world.empty": np.zeros((0, 3), np.uint8),
    "step": np.array(7, np.int64),
}
FACTS = {"identity": {"platform": "cpu"}, "journal": {"bytes": 12}, "score": 1e-7, "é": None}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def saved(folder, *numbers, leaves=LEAVES):
    """Save one checkpoint per number, each with its number as a leaf."""
    for number in numbers:
        save(folder, iteration=number, leaves={**leaves, "n": np.array(number)}, facts=FACTS)
    return folder / str(numbers[-1])


def same(a, b):
    """Compare names, dtypes, shapes and bytes, so that a NaN equals itself and -0 differs from 0."""
    return {n: (x.dtype, x.shape, x.tobytes()) for n, x in a.items()} == {
        n: (x.dtype, x.shape, x.tobytes()) for n, x in b.items()
    }


def edit(path, change):
    """Change the manifest as someone who knows how its digest is made."""
    document = json.loads((path / MANIFEST).read_bytes())
    del document["digest"]
    change(document)
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    document["digest"] = hashlib.sha256(text).hexdigest()
    (path / MANIFEST).write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))


def test_what_was_saved_comes_back(folder):
    path = save(folder, iteration=12, leaves=LEAVES, facts=FACTS)
    found, messages = load_newest(folder)
    assert path == folder / "12"
    assert (found.iteration, found.facts, messages) == (12, FACTS, [])
    assert same(found.leaves, LEAVES)
    assert found.digest == state_digest(LEAVES)
    assert sorted(p.name for p in path.iterdir()) == [MANIFEST, STATE]


def test_any_safetensors_library_reads_the_state(folder):
    assert same(load_file(save(folder, iteration=1, leaves=LEAVES, facts={}) / STATE), LEAVES)


def test_saving_what_was_loaded_gives_the_same_bytes(folder, tmp_path):
    first = save(folder, iteration=3, leaves=LEAVES, facts=FACTS)
    found = load(first)
    again = save(tmp_path / "b", iteration=3, leaves=dict(reversed(found.leaves.items())), facts=found.facts)
    assert [(again / n).read_bytes() for n in (STATE, MANIFEST)] == [
        (first / n).read_bytes() for n in (STATE, MANIFEST)
    ]


def test_loaded_leaves_are_the_callers_own(folder):
    path = save(folder, iteration=1, leaves=LEAVES, facts={})
    load(path).leaves["step"][...] = 8
    assert load(path).leaves["step"] == 7


arrays = hnp.arrays(
    dtype=st.sampled_from(sorted(CODES)).map(np.dtype),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text().filter(lambda name: name != "__metadata__"), arrays, max_size=6))
def test_random_leaves_come_back_bit_for_bit(tmp_path_factory, leaves):
    folder = tmp_path_factory.mktemp("random")
    found = load(save(folder, iteration=0, leaves=leaves, facts={}))
    assert same(found.leaves, leaves)
    assert found.digest == state_digest(leaves)


def test_layout_in_memory_does_not_matter(folder):
    grid = np.arange(12.0).reshape(3, 4)
    views = {"t": grid.T, "step": grid[:, ::2], "big": grid.astype(">f8"), "fortran": np.asfortranarray(grid)}
    found = load(save(folder, iteration=1, leaves=views, facts={}))
    assert {n: a.tolist() for n, a in found.leaves.items()} == {n: a.tolist() for n, a in views.items()}
    assert found.digest == state_digest(views)


@pytest.mark.parametrize(
    "change",
    [
        {"b": np.array([1.0, 2.0])},
        {"a": np.array([1.0, 3.0])},
        {"a": np.array([1.0, 2.0], np.float32)},
        {"a": np.array([1.0, 2.0]).view(np.int64)},
        {"a": np.array([[1.0, 2.0]])},
        {"a": np.array([1.0, 2.0]), "b": np.zeros(0)},
    ],
)
def test_the_digest_sees_name_value_dtype_shape_and_presence(change):
    assert state_digest(change) != state_digest({"a": np.array([1.0, 2.0])})


@pytest.mark.parametrize("leaf", [np.array(["text"]), np.array([None]), np.zeros(1, complex)])
def test_what_cannot_be_saved_is_named_and_nothing_is_written(folder, leaf):
    with pytest.raises(TypeError, match=r"leaf 'a\.b'"):
        save(folder, iteration=1, leaves={"a.b": leaf}, facts={})
    assert not folder.exists()


def damages(content):
    """Flip a bit of every byte, and its case; cut at every length; add a byte."""
    for at in range(len(content)):
        for bit in {at % 8, 5}:
            yield content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        yield content[:at]
    yield content + b"\0"


@pytest.mark.parametrize("name", [STATE, MANIFEST])
def test_every_flip_and_every_cut_falls_back_and_is_put_aside(folder, name, monkeypatch):
    monkeypatch.setattr(disk, "fsync_folder", lambda path: None)
    newest = saved(folder, 1, 2)
    good = (newest / name).read_bytes()
    for bad in damages(good):
        (newest / name).write_bytes(bad)
        found, messages = load_newest(folder)
        assert found.iteration == 1
        aside = folder / "quarantine" / "2-0"
        assert len(messages) == 1
        assert messages[0].startswith(f"checkpoint {newest}: ")
        assert messages[0].endswith(f"; moved to {aside}")
        assert (aside / name).read_bytes() == bad
        (aside / name).write_bytes(good)
        aside.rename(newest)
    assert load_newest(folder)[0].iteration == 2


def test_a_thousand_random_flips_of_any_bit(folder):
    path = save(folder, iteration=1, leaves={"a": np.arange(300, dtype=np.float32)}, facts={})
    rng, content = random.Random(0), bytearray((path / STATE).read_bytes())
    for _ in range(1000):
        at, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
        content[at] ^= bit
        (path / STATE).write_bytes(content)
        with pytest.raises(Damaged):
            load(path)
        content[at] ^= bit
    (path / STATE).write_bytes(content)
    assert load(path).leaves["a"][299] == 299


def test_a_damaged_leaf_is_named(folder):
    path = saved(folder, 1)
    content = bytearray((path / STATE).read_bytes())
    content[-1] ^= 1
    (path / STATE).write_bytes(content)
    with pytest.raises(Damaged, match=r"checkpoint .*/1: leaf step is not as it was written"):
        load(path)


def test_two_leaves_of_equal_shape_cannot_change_places(folder):
    path = saved(folder, 1)
    content = (path / STATE).read_bytes()
    a, b = LEAVES["learner.weights"].tobytes(), LEAVES["learner.mirror"].tobytes()
    swapped = content.replace(a, b"?" * 16).replace(b, a).replace(b"?" * 16, b)
    assert sorted(swapped) == sorted(content)
    (path / STATE).write_bytes(swapped)
    with pytest.raises(Damaged, match="leaf learner"):
        load(path)
    # Nor by someone who corrects the digest of the whole file, but not those of the leaves.
    edit(path, lambda d: d.update(state_sha256=hashlib.sha256(swapped).hexdigest()))
    with pytest.raises(Damaged, match="leaf learner"):
        load(path)


def leaf(**changes):
    return lambda document: document["leaves"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (leaf(name="other"), "header|sizes"),
        (leaf(dtype="int32"), "header|sizes"),
        (leaf(dtype="object"), "not as it was written"),
        (leaf(shape=[4]), "header|sizes"),
        (leaf(shape=[-2, -2]), "not a list of sizes"),
        (leaf(shape=[2**40, 2**40]), "sizes do not add up"),
        (leaf(shape="22"), "not as it was written"),
        (leaf(extra=1), "not as it was written"),
        (lambda d: d["leaves"].pop(), "sizes do not add up"),
        (lambda d: d.update(iteration=2), "holds iteration 2"),
        (lambda d: d.update(state_bytes=10**15), "sizes do not add up"),
        (lambda d: d.pop("facts"), "not as it was written"),
        (lambda d: d.update(state_sha256="0" * 64), "state.safetensors is not as it was written"),
    ],
)
def test_an_edited_manifest_is_seen_even_with_its_digest_corrected(folder, change, reason):
    path = saved(folder, 1)
    edit(path, lambda document: None)
    assert load(path).facts == FACTS
    edit(path, change)
    with pytest.raises(Damaged, match=reason):
        load(path)


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"digest":1}']
)
def test_a_manifest_of_anything_else_is_damage(folder, content):
    path = saved(folder, 1)
    (path / MANIFEST).write_bytes(content)
    with pytest.raises(Damaged, match=r"manifest\.json is not as it was written"):
        load(path)


def test_a_version_from_the_future_is_refused_and_left_alone(folder):
    path = saved(folder, 1, 2)
    edit(path, lambda document: document.update(format=FORMAT + 1))
    before = (path / MANIFEST).read_bytes()
    with pytest.raises(Refused, match=rf"checkpoint {path}: format 2, this program reads 1"):
        load_newest(folder)
    assert (path / MANIFEST).read_bytes() == before
    assert iterations(folder) == [1, 2]


def test_newest_is_by_number_and_only_directories_with_the_right_name_count(folder):
    saved(folder, 9, 10)
    (folder / "010").mkdir()
    (folder / "11x").mkdir()
    (folder / ".saving-12").mkdir()
    assert iterations(folder) == [9, 10]
    assert load_newest(folder)[0].iteration == 10


@pytest.mark.parametrize(
    "ruin", ["empty files", "empty directory", "a file", "no state", "no manifest", "copy"]
)
def test_a_newest_that_is_no_checkpoint_falls_back(folder, ruin):
    newest = saved(folder, 1, 2)
    if ruin == "copy":
        shutil.rmtree(newest)
        shutil.copytree(folder / "1", newest)
    elif ruin == "empty files":
        (newest / STATE).write_bytes(b"")
        (newest / MANIFEST).write_bytes(b"")
    elif ruin.startswith("no "):
        (newest / {"no state": STATE, "no manifest": MANIFEST}[ruin]).unlink()
    else:
        shutil.rmtree(newest)
        newest.mkdir() if ruin == "empty directory" else newest.write_text("")
    found, messages = load_newest(folder)
    assert found.iteration == 1
    assert len(messages) == 1
    assert iterations(folder) == [1]


def test_nothing_to_load_says_what_was_put_aside(folder):
    with pytest.raises(NoCheckpoint, match=rf"^no checkpoint in {folder}$"):
        load_newest(folder)
    (saved(folder, 5) / STATE).unlink()
    with pytest.raises(
        NoCheckpoint, match=rf"state.safetensors is missing; moved to {folder}/quarantine/5-0$"
    ):
        load_newest(folder)


def test_quarantine_never_overwrites(folder):
    for n in range(3):
        (saved(folder, 4) / STATE).write_text(f"bad {n}")
        with pytest.raises(NoCheckpoint):
            load_newest(folder)
    assert [(folder / f"quarantine/4-{n}" / STATE).read_text() for n in range(3)] == [
        "bad 0",
        "bad 1",
        "bad 2",
    ]


def test_a_fault_that_passes_does_not_condemn(folder, monkeypatch):
    saved(folder, 1, 2)
    faults = [OSError(5, "a loose cable")]

    def open_to_read(path):
        if faults:
            raise faults.pop()
        return real(path)

    real = disk.open_to_read
    monkeypatch.setattr(disk, "open_to_read", open_to_read)
    found, messages = load_newest(folder)
    assert (found.iteration, messages, faults) == (2, [], [])


@pytest.mark.parametrize(
    ("error", "raised"), [(OSError(5, "broken"), Damaged), (PermissionError(13, "no"), OSError)]
)
def test_only_a_broken_disk_is_damage_and_not_a_missing_permission(folder, monkeypatch, error, raised):
    path = saved(folder, 1)

    def open_to_read(path):
        raise error

    monkeypatch.setattr(disk, "open_to_read", open_to_read)
    with pytest.raises(raised):
        load(path)
    assert iterations(folder) == [1]


def test_leftovers_of_a_killed_save_go_at_the_next(folder):
    saved(folder, 1)
    for name in (".saving-2", ".pruned-0", ".replaced-1"):
        (folder / name).mkdir()
        (folder / name / STATE).write_text("half")
    saved(folder, 3)
    assert disk.names(folder) == ["1", "3"]


def test_saving_again_replaces_and_keeps_the_pin(folder):
    path = saved(folder, 1)
    (path / PINNED).touch()
    save(folder, iteration=1, leaves={"other": np.ones(2)}, facts={})
    assert same(load(path).leaves, {"other": np.ones(2)})
    assert disk.names(folder) == ["1"]
    assert disk.names(path) == [PINNED, MANIFEST, STATE]


@pytest.mark.parametrize("name", [STATE, MANIFEST])
def test_a_save_that_reads_back_differently_fails_and_the_old_one_returns(folder, monkeypatch, name):
    saved(folder, 1)

    def write_bytes(path, *parts):
        real(path, *parts)
        if path.name == name:
            path.write_bytes(path.read_bytes()[:-1] + b"!")

    real = disk.write_bytes
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_bytes", write_bytes)
        with pytest.raises(Damaged, match=r"gave back other bytes .* moved to .*quarantine/1-0"):
            save(folder, iteration=1, leaves={}, facts={})
    found, messages = load_newest(folder)
    assert (found.facts, messages) == (FACTS, [])


def test_a_failed_save_gives_its_space_back(folder, monkeypatch):
    saved(folder, 1)

    def full(path):
        raise OSError(28, "full")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "fsync_folder", lambda path: full(path) if path.name == ".saving-2" else None)
        with pytest.raises(DiskFull, match=r"cannot write checkpoint .*/2: No space left on device"):
            saved(folder, 2)
    assert disk.names(folder) == ["1"]


def test_the_groups_are_counted(folder):
    path = save(folder, iteration=1, leaves=LEAVES, facts={})
    assert restored_groups(load(path)) == [Group("learner", 2, 32), Group("step", 1, 8), Group("world", 1, 0)]
