"""What a scrub remembers counts for the cluster, level and metadata that it was made of (scrub/SCRUB.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedbk.errors import StorageError, UsageError
from embedbk.ids import NO_ENTRY
from embedbk.scrub.state import ScrubProgress

TOKEN = bytes(16)


def test_a_range_counts_while_the_metadata_is_the_same(tmp_path: Path) -> None:
    state = ScrubProgress(tmp_path / "state", TOKEN, "crc")
    state.note(7, b"metadata", 40)
    state.save()
    state.note(7, b"metadata", 90)
    state.save()
    again = ScrubProgress(tmp_path / "state", TOKEN, "crc")
    assert again.done_up_to(7, b"metadata") == 90
    assert again.done_up_to(7, b"other metadata") == NO_ENTRY
    assert again.done_up_to(8, b"metadata") == NO_ENTRY


def test_a_line_that_is_cut_off_is_a_range_that_was_not_finished(tmp_path: Path) -> None:
    """At every byte: what is read is what was written whole, and what is noted behind it is read, too."""
    path = tmp_path / "state"
    state = ScrubProgress(path, TOKEN, "crc")
    state.note(7, b"one", 40)
    state.save()
    kept = path.stat().st_size
    state.note(8, b"two", 50)
    state.save()
    whole = path.read_bytes()
    for size in range(kept, len(whole)):
        path.write_bytes(whole[:size])
        cut = ScrubProgress(path, TOKEN, "crc")
        assert cut.done_up_to(7, b"one") == 40
        is_whole = size == len(whole) - 1  # But for its last line break.
        assert cut.done_up_to(8, b"two") == (50 if is_whole else NO_ENTRY)
        cut.note(9, b"three", 60)
        cut.save()
        assert ScrubProgress(path, TOKEN, "crc").done_up_to(9, b"three") == 60


def test_a_file_that_two_scrubs_began_at_once_is_a_state(tmp_path: Path) -> None:
    """Each of them puts a head. Seen: whoever read it next ended with a KeyError, each time."""
    path = tmp_path / "state"
    both = [ScrubProgress(path, TOKEN, "crc") for _ in range(2)]
    for number, each in enumerate(both):
        each.note(7 + number, b"metadata", 40 + number)
        each.save()
    again = ScrubProgress(path, TOKEN, "crc")
    assert [again.done_up_to(each, b"metadata") for each in (7, 8)] == [40, 41]


def test_a_head_of_another_cluster_further_behind_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "state", tmp_path / "other"
    ScrubProgress(path, TOKEN, "crc").save()
    ScrubProgress(other, bytes(15) + b"1", "crc").save()
    path.write_text(path.read_text() + other.read_text())
    with pytest.raises(UsageError, match="is no state of a scrub of this cluster"):
        ScrubProgress(path, TOKEN, "crc")


def test_a_line_that_is_nested_too_deep_is_none_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    ScrubProgress(path, TOKEN, "crc").save()
    path.write_text(path.read_text() + "[" * 100_000 + "\n")
    assert ScrubProgress(path, TOKEN, "crc").done_up_to(7, b"metadata") == NO_ENTRY


@pytest.mark.parametrize("head", ["", "{}", "[1]", "no json", '{"v": 2}', "\x00"])
def test_what_is_no_state_is_refused_and_left_as_it_is(tmp_path: Path, head: str) -> None:
    path = tmp_path / "state"
    path.write_text(head + "\nmore\n")
    with pytest.raises(UsageError, match="is no state of a scrub of this cluster"):
        ScrubProgress(path, TOKEN, "crc")
    assert path.read_text() == head + "\nmore\n"


def test_one_of_another_cluster_or_level_is_refused(tmp_path: Path) -> None:
    ScrubProgress(tmp_path / "state", TOKEN, "crc").save()
    for token, level in ((bytes(15) + b"1", "crc"), (TOKEN, "compare")):
        with pytest.raises(UsageError):
            ScrubProgress(tmp_path / "state", token, level)


def test_one_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        ScrubProgress(tmp_path, TOKEN, "crc")
    state = ScrubProgress(tmp_path / "none" / "state", TOKEN, "crc")
    state.note(1, b"", 1)
    with pytest.raises(StorageError):
        state.save()


def test_behind_a_whole_scrub_all_begins_anew(tmp_path: Path) -> None:
    state = ScrubProgress(tmp_path / "state", TOKEN, "crc")
    state.note(7, b"metadata", 40)
    state.save()
    state.finish()
    assert ScrubProgress(tmp_path / "state", TOKEN, "crc").done_up_to(7, b"metadata") == NO_ENTRY


def test_a_file_whose_head_was_cut_off_begins_anew(tmp_path: Path) -> None:
    """SCRUB.md, state: a scrub that was killed at its first save, or a full disk, keeps no later one from its work."""
    path = tmp_path / "state"
    ScrubProgress(path, TOKEN, "crc").save()
    head = path.read_bytes()
    for size in range(len(head)):
        path.write_bytes(head[:size])
        state = ScrubProgress(path, TOKEN, "crc")
        state.note(9, b"three", 60)
        state.save()
        state.note(9, b"three", 70)
        state.save()
        assert ScrubProgress(path, TOKEN, "crc").done_up_to(9, b"three") == 70
