"""One of several members whose log has less than it was used for: it goes on in doubt, and only the only one refuses
(P10.3, P9.2)."""

from __future__ import annotations

import pytest

from embedbk.errors import StorageError
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_vocabulary import Boot, Doubt, Entry, Persist
from embedbk.storage.member_notes import MemoryNotes, Used
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore

IDENTITY = MemberIdentity(b"t" * 16, b"1" * 16)
M2, M3 = (MemberId(f"m{number}", bytes([number]) * 16) for number in (2, 3))
THREE = Configuration((IDENTITY.member, M2, M3))


class Life:
    """A member of three: its log begins with their configuration; each step is synced and noted."""

    def __init__(self, configuration: Configuration = THREE) -> None:
        self.notes, self.journal = MemoryNotes(), MemoryJournal()
        self.sequence = 0
        self.start()
        self.step(Persist(1, 1, None, 0, (Entry(1, 1, configuration),)))

    def start(self, *, may_have_lost: bool = False) -> MetadataStore:
        self.store = MetadataStore(
            self.journal,
            self.journal.first_token(),
            new_identity=IDENTITY,
            notes=self.notes,
            may_have_lost=may_have_lost,
        )
        self.journal.commit()
        self.store.durable()
        return self.store

    def step(self, record: Persist) -> None:
        self.sequence += 1
        record.sequence = self.sequence
        self.store.persist(record)
        self.journal.commit()
        assert self.store.durable() == self.sequence

    def restart(self, lost: int = 0) -> Doubt | None:
        """lost: so many records at the end are gone, though they were synced."""
        records = self.journal.crash()
        self.journal, self.sequence = MemoryJournal(records[: len(records) - lost]), 0
        return self.start().beginning.doubt


def test_what_was_lost_behind_the_note_is_a_doubt_with_its_bounds() -> None:
    """I79: it may have acknowledged everything up to the noted entry, in the noted term."""
    life = Life()
    life.step(Persist(0, 4, Boot(M2, b"n"), 1, (Entry(2, 4, None), Entry(3, 4, None))))
    assert life.restart() is None
    life.step(Persist(0, 5, None, 3, (Entry(4, 5, None),)))
    assert life.restart(lost=2) == Doubt(5, 4), "its own start's record, and the step"


def test_a_doubt_lasts_over_starts_until_the_core_has_none() -> None:
    """The note under which less was found is written anew by that very start: it must still tell."""
    life = Life()
    life.step(Persist(0, 4, None, 1, (Entry(2, 4, None), Entry(3, 4, None))))
    assert life.restart(lost=1) == Doubt(4, 3)
    assert life.restart() == Doubt(4, 3)
    life.step(Persist(0, 6, None, 1, (Entry(2, 6, None),)))
    assert life.restart() == Doubt(6, 3)
    life.store.end_doubt()
    life.step(Persist(0, 6, None, 2, (Entry(3, 6, None),)))
    assert life.restart() is None


def test_a_doubt_is_noted_before_the_start_that_found_it_writes_anything() -> None:
    """I81: its own first record fills the place of the one that is missing; killed before it noted anything else, it
    is followed by a start that finds as many records as were used."""
    life = Life()
    life.step(Persist(0, 4, None, 1, (Entry(2, 4, None), Entry(3, 4, None))))
    records = life.journal.crash()
    life.journal = MemoryJournal(records[:-1])
    MetadataStore(life.journal, life.journal.first_token(), new_identity=IDENTITY, notes=life.notes)
    life.journal.commit()  # It is killed here.
    assert life.restart() == Doubt(4, 3)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_entries_that_were_lawfully_taken_back_are_no_loss(is_stopped: bool) -> None:
    """I79: judged by the newest durable record, never by the highest acknowledged index: a truncation and a
    power cut of all must leave members that elect."""
    life = Life()
    life.step(Persist(0, 4, None, 1, tuple(Entry(index, 4, None) for index in range(2, 9))))
    life.step(Persist(0, 5, None, 2, ()))
    if is_stopped:
        life.store.close()
    assert life.restart() is None
    assert life.store.beginning.log.last_index == 2


def test_the_only_member_refuses_as_ever() -> None:
    """P9.2: it has nobody to ask."""
    life = Life(Configuration((IDENTITY.member,)))
    life.step(Persist(0, 4, None, 1, (Entry(2, 4, None),)))
    with pytest.raises(StorageError, match="were durable"):
        life.restart(lost=1)
    assert life.start(may_have_lost=True).begins_generation


@pytest.mark.parametrize("is_joint", [True, False])
def test_whoever_was_ever_one_of_several_as_far_as_the_log_goes_is_in_doubt(is_joint: bool) -> None:
    """I77: the newest configuration that stands holds, also one that only begins a change."""
    other = Configuration((IDENTITY.member,), (M2,)) if is_joint else Configuration((M2, M3))
    life = Life(other)
    life.step(Persist(0, 4, None, 1, (Entry(2, 4, None),)))
    assert life.restart(lost=1) == Doubt(4, 2)


def test_an_owners_word_does_not_tell_what_one_of_several_acknowledged() -> None:
    """P10.3: a generation is begun by whoever leads; a copy of unknown age joins anew."""
    life = Life()
    life.step(Persist(0, 4, None, 1, (Entry(2, 4, None),)))
    records = life.journal.crash()
    life.journal = MemoryJournal(records)
    with pytest.raises(StorageError, match="cannot begin a generation") as refused:
        life.start(may_have_lost=True)
    assert "--join" in refused.value.hint
    assert life.journal.pending == []


@pytest.mark.parametrize("note", [None, Used(IDENTITY.cluster_token, IDENTITY.incarnation, 9, b"nine", 99)])
def test_one_of_several_of_whose_use_nothing_is_known_does_not_start(note: Used | None) -> None:
    """P10.3: no note, or one of an older build, gives a doubt no bounds."""
    life = Life()
    life.journal, life.notes.used = MemoryJournal(life.journal.crash()), note
    with pytest.raises(StorageError, match="how much it acknowledged cannot be told") as refused:
        life.start()
    assert "--join" in refused.value.hint
    assert life.journal.pending == []


def test_a_log_of_another_copy_is_a_doubt_of_both() -> None:
    """P10.3: what stands under the note's start is of another process."""
    life, copy = Life(), Life()
    life.step(Persist(0, 4, None, 1, (Entry(2, 4, None),)))
    copy.step(Persist(0, 3, None, 1, tuple(Entry(index, 3, None) for index in range(2, 9))))
    copy.notes.used = life.notes.used
    assert copy.restart() == Doubt(4, 8)
