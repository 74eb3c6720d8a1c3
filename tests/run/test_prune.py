"""Retention is a pure choice; pruning never touches the pinned, nor the last that is good."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from outlast.run import disk
from outlast.run.checkpoint import PINNED, STATE, Retention, doomed, iterations, load_newest, prune, save


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def saved(folder, *numbers):
    for number in numbers:
        save(folder, iteration=number, leaves={"n": np.array(number)}, facts={})


@pytest.mark.parametrize(
    ("retention", "gone"),
    [
        (Retention(last=3), [0, 10, 15, 20]),
        (Retention(last=1), [0, 10, 15, 20, 25, 30]),
        (Retention(last=9), []),
        (Retention(last=1, every=10), [15, 25]),
        (Retention(last=2, every=20, best=frozenset({15, 99})), [10, 25]),
    ],
)
def test_retention_keeps_the_last_the_multiples_and_the_best(retention, gone):
    assert doomed([40, 0, 10, 30, 15, 25, 20], retention) == gone


@given(st.sets(st.integers(0, 50)), st.integers(1, 5), st.integers(0, 9), st.frozensets(st.integers(0, 50)))
def test_the_newest_is_never_doomed_and_asking_twice_changes_nothing(present, last, every, best):
    gone = doomed(present, Retention(last=last, every=every, best=best))
    kept = present - set(gone)
    assert set(gone) <= present - best
    assert len(kept) >= min(last, len(present))
    assert max(present, default=None) == max(kept, default=None)
    assert doomed(kept, Retention(last=last, every=every, best=best)) == []


def test_retention_of_nothing_is_refused():
    with pytest.raises(ValueError, match="last = 0"):
        Retention(last=0)


def test_prune_keeps_what_is_pinned(folder):
    saved(folder, 1, 2, 3, 4)
    (folder / "2" / PINNED).touch()
    assert prune(folder, Retention(last=1), verified=4) == [1, 3]
    assert disk.names(folder) == ["2", "4"]


def test_prune_never_removes_the_newest_that_is_good(folder):
    saved(folder, 1, 2, 3, 4)
    for number in (3, 4):
        (folder / str(number) / STATE).write_bytes(b"")
    assert prune(folder, Retention(last=1)) == [1, 3]
    assert load_newest(folder)[0].iteration == 2


def test_prune_removes_nothing_where_nothing_is_good(folder):
    saved(folder, 1, 2)
    for number in (1, 2):
        (folder / str(number) / STATE).write_bytes(b"")
    assert prune(folder, Retention(last=1)) == []
    assert iterations(folder) == [1, 2]
