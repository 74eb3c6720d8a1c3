"""A journal is cut back to its cursor, never edited, and reads the same bytes after any kill."""

import json
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from outlast.run import disk
from outlast.run.errors import Damaged, DiskFull
from outlast.run.journal import START, Journal, line_of, read

LINES = [{"iteration": i, "loss": np.float32(0.1) * i} for i in range(5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def written(path, records, cursor=START):
    """Append and close; give the cursor."""
    journal = Journal.open(path, cursor)
    journal.append(records)
    journal.close()
    return journal.cursor


def test_opening_at_a_cursor_leaves_no_line_twice(path):
    cursor = written(path, LINES[:3])
    whole = written(path, LINES[3:], cursor)
    straight = path.read_bytes()
    assert written(path, LINES[3:], cursor) == whole
    assert path.read_bytes() == straight
    assert [line["iteration"] for line in read(path)] == [0, 1, 2, 3, 4]
    assert (whole["bytes"], whole["lines"]) == (len(straight), 5)


def test_the_cursor_does_not_depend_on_how_lines_were_grouped(path, tmp_path):
    journal = Journal.open(path, START)
    for line in LINES:
        journal.append([line])
    journal.append([])
    journal.close()
    assert journal.cursor == written(tmp_path / "other", LINES)


def test_every_cut_and_every_edit_of_the_prefix_is_damage(path):
    cursor = written(path, LINES)
    good = path.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            path.write_bytes(bad)
            with pytest.raises(Damaged, match=r"metrics\.jsonl"):
                Journal.open(path, cursor)
            assert path.read_bytes() == bad


def test_a_torn_line_is_not_read_and_is_cut_when_opened_without_a_cursor(path):
    cursor = written(path, LINES)
    good = path.read_bytes()
    torn = line_of({"iteration": 5})
    for n_bytes in range(1, len(torn)):
        path.write_bytes(good + torn[:n_bytes])
        assert [line["iteration"] for line in read(path)] == [0, 1, 2, 3, 4]
        journal = Journal.open(path, None)
        journal.close()
        assert journal.cursor == cursor
        assert path.read_bytes() == good


def test_start_forgets_everything(path):
    written(path, LINES)
    Journal.open(path, START).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("junk", [b"{]\n", b"\0\0\0\n", b"7\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_junk_in_the_middle_is_damage_and_at_the_end_is_a_torn_line(path, junk):
    path.write_bytes(line_of({"a": 1}) + junk)
    assert list(read(path)) == [{"a": 1}]
    path.write_bytes(line_of({"a": 1}) + junk + line_of({"a": 2}))
    with pytest.raises(Damaged, match=r"metrics\.jsonl: line 2"):
        list(read(path))


def test_numbers_are_written_so_that_they_come_back(path):
    record = {
        "f32": np.float32(0.1),
        "f64": 0.1,
        "nan": math.nan,
        "inf": [np.float32(np.inf), -math.inf],
        "int": np.int64(2**53 + 1),
        "bool": np.bool_(True),
        "array": np.array([[1.5, np.nan]], np.float32),
        "deep": {"b": (1, None), "a": "é\n"},
    }
    written(path, [record])
    assert path.read_bytes() == (
        b'{"array":[[1.5,null]],"bool":true,"deep":{"a":"\\u00e9\\n","b":[1,null]},"f32":0.10000000149011612,'
        b'"f64":0.1,"inf":[null,null],"int":9007199254740993,"nan":null}\n'
    )


def test_what_is_not_json_is_refused_before_anything_is_written(path):
    journal = Journal.open(path, START)
    with pytest.raises(TypeError, match="a set cannot"):
        journal.append([{"good": 1}, {"bad": {1}}])
    journal.append([{"good": 2}])
    journal.close()
    assert list(read(path)) == [{"good": 2}]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float32_survives_bit_for_bit(value):
    back = np.float32(json.loads(line_of({"x": np.float32(value)}))["x"])
    assert back.tobytes() == np.float32(value).tobytes()


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.floats(allow_nan=False))))
def test_the_order_of_keys_does_not_change_a_byte(record):
    assert line_of(dict(reversed(record.items()))) == line_of(record)


def test_a_failed_append_counts_for_nothing(path, monkeypatch):
    journal = Journal.open(path, START)
    journal.append(LINES[:2])

    def full(fd, offset, data):
        real(fd, offset, data[: len(data) - 5])
        raise OSError(28, "full")

    real = disk.write_at
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_at", full)
        with pytest.raises(DiskFull, match=r"metrics\.jsonl: No space"):
            journal.append(LINES[2:])
    assert journal.cursor["lines"] == 2
    journal.append(LINES[2:3])
    journal.close()
    assert list(read(path)) == [json.loads(line_of(line)) for line in LINES[:3]]


def test_lines_that_the_disk_lost_after_a_failed_sync_are_not_confirmed(path, monkeypatch):
    journal = Journal.open(path, START)
    journal.append(LINES[:2])
    journal.sync()
    journal.append(LINES[2:])

    def broken(fd):
        raise OSError(5, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "fsync", broken)
        with pytest.raises(DiskFull):
            journal.sync()
    good = path.read_bytes()
    path.write_bytes(good[: journal.durable.n_bytes] + bytes(len(good) - journal.durable.n_bytes))
    with pytest.raises(Damaged, match="lost lines"):
        journal.sync()
    path.write_bytes(good)
    journal.sync()
    journal.close()
    assert journal.durable.cursor == journal.cursor
