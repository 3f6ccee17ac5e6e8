"""Marks for repair against a plain model, and how much is looked at to take one (METADATA.md, 11)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from embedbk.codec.metadata_messages import Delete, Put, Record, Txn
from embedbk.codec.repair_mark import (
    MARK_VERSION,
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    repair_mark_path,
)
from embedbk.codec.repair_messages import REPAIRS_MAX, MarkRepairs, RepairsMarked, RepairsTaken
from embedbk.metadata import repair_index
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import ExpireSession, ResumeRepairs
from embedbk.metadata.loading import load
from embedbk.metadata.repairing import NOT_HELD, RETURNED, SETTLED
from tests.metadata.test_repairing import Session, ids, pieces, raised


@dataclass
class PlainMark:
    missing: set[str]
    created: int
    revision: int
    tries: int = 0
    is_postponed: bool = False


@dataclass
class Plain:
    """What the page says, in lists that are gone through."""

    revision: int = 0
    marks: dict[int, PlainMark] = field(default_factory=dict)
    holds: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # (session, epoch, asked)
    queue: list[tuple[int, int, int, set[str]]] = field(
        default_factory=list
    )  # (session, asked, count, not_with)

    def free(self) -> list[int]:
        there = [
            each for each, mark in self.marks.items() if each not in self.holds and not mark.is_postponed
        ]
        return sorted(there, key=lambda each: (self.marks[each].created, each))

    def hand(self, revision: int) -> None:
        given: dict[int, int] = {}
        for ledger_id in self.free():
            for session, asked, count, not_with in self.queue:
                if given.get(session, 0) < count and not not_with & self.marks[ledger_id].missing:
                    self.holds[ledger_id] = session, revision, asked
                    given[session] = given.get(session, 0) + 1
                    break
        self.queue = [each for each in self.queue if each[0] not in given]

    def mark(self, ledger_id: int, missing: set[str]) -> bool:
        known = self.marks.get(ledger_id)
        if known is not None and missing <= known.missing:
            return False
        if known is None:
            self.marks[ledger_id] = PlainMark(set(missing), self.revision + 1, self.revision + 1)
        else:
            known.missing |= missing
            known.revision = self.revision + 1
        return True

    def take(self, session: int, count: int, not_with: set[str]) -> list[int]:
        fits = [each for each in self.free() if not not_with & self.marks[each].missing][:count]
        for each in fits:
            self.holds[each] = session, self.revision + 1, self.revision + 1
        if not fits:
            self.queue.append((session, self.revision + 1, count, not_with))
        return fits

    def drop_session(self, session: int) -> None:
        self.holds = {each: hold for each, hold in self.holds.items() if hold[0] != session}
        self.queue = [each for each in self.queue if each[0] != session]

    def changed(self) -> None:
        self.revision += 1
        self.hand(self.revision)


BOOKIES = ("b1", "b2", "b3", "b4")


def look(catalog: Catalog, plain: Plain) -> None:
    """The catalog is as the model says, the index as the keys say, and a snapshot as both."""
    assert catalog.revision == plain.revision
    for record in (marks := catalog.page("/ur/").records):
        known = plain.marks[int(record.key[4:], 16)]
        value = decode_repair_mark(record.value or b"")
        assert (set(value.missing), value.tries, value.is_postponed) == (
            known.missing,
            known.tries,
            known.is_postponed,
        )
        assert (record.created, record.revision) == (known.created, known.revision)
    assert len(marks) == len(plain.marks)
    holds = {
        int(each.key[11:], 16): (each.session, each.revision, each.created)
        for each in catalog.page("/repairing/").records
    }
    assert holds == plain.holds
    assert [each.session for each in catalog.page("/repairers/").records] == [each[0] for each in plain.queue]


def step(catalog: Catalog, plain: Plain, sessions: list[Session], chance: random.Random) -> Catalog:
    """One thing that somebody does, to both."""
    one = chance.choice(sessions)
    own = [(each, hold) for each, hold in plain.holds.items() if hold[0] == one.number]
    drawn = chance.random()
    if drawn < 0.3:
        wanted = {
            chance.randrange(12): set(chance.sample(BOOKIES, chance.randint(1, 2)))
            for _ in range(chance.randint(1, 3))
        }
        told = one.run(MarkRepairs(tuple((each, tuple(missing)) for each, missing in wanted.items())))
        if sum(plain.mark(each, missing) for each, missing in wanted.items()):
            plain.changed()
        assert told == RepairsMarked(plain.revision)
    elif drawn < 0.55:
        count, not_with = chance.randint(1, 3), set(chance.sample(BOOKIES, chance.choice([0, 0, 1, 2])))
        waits = [each for each in plain.queue if each[0] == one.number]
        if waits:
            assert one.take(count, tuple(not_with)) == RepairsTaken(0, waits[0][1], plain.revision)
        else:
            fits = plain.take(one.number, count, not_with)
            plain.changed()
            taken = one.take(count, tuple(not_with))
            assert (ids(taken), taken.epoch, taken.asked) == (
                fits,
                plain.revision if fits else 0,
                plain.revision,
            )
            for ledger_id, revision, place in taken.marks:
                assert revision == plain.marks[ledger_id].revision
                assert set(taken.missing[place]) == plain.marks[ledger_id].missing
    elif drawn < 0.75 and own:
        picked = chance.sample(own, chance.randint(1, len(own)))
        asked, outcomes = [], []
        for ledger_id, (_, epoch, _) in picked:
            known = plain.marks.get(ledger_id)
            worked_off = (known.revision if known is not None else 1) - chance.choice([0, 0, 0, 1])
            epoch -= chance.choice([0] * 6 + [1])
            asked.append((ledger_id, epoch, worked_off))
            if epoch != plain.holds[ledger_id][1]:
                outcomes.append(NOT_HELD)
                continue
            del plain.holds[ledger_id]
            outcomes.append(SETTLED if known is None or known.revision == worked_off else RETURNED)
            if known is not None and known.revision == worked_off:
                del plain.marks[ledger_id]
        if any(outcomes):
            plain.changed()
        assert one.end(*asked) == tuple(outcomes)
    elif drawn < 0.85 and own:
        ledger_id, (_, epoch, _) = chance.choice(own)
        postpones = chance.random() < 0.7
        assert one.fail((ledger_id, epoch), postpones=postpones) == (SETTLED,)
        del plain.holds[ledger_id]
        known = plain.marks.get(ledger_id)
        if postpones and known is not None:
            known.tries, known.is_postponed, known.revision = known.tries + 1, True, plain.revision + 1
        plain.changed()
    elif drawn < 0.9:
        over = [(each, known.revision) for each, known in plain.marks.items() if known.is_postponed]
        picked_marks = chance.sample(over, chance.randint(0, len(over)))
        catalog.apply(ResumeRepairs((*picked_marks, (50, 1))), 1, 1)
        for ledger_id, _ in picked_marks:
            plain.marks[ledger_id].is_postponed = False
            plain.marks[ledger_id].revision = plain.revision + 1
        if picked_marks:
            plain.changed()
    elif drawn < 0.94:
        catalog.apply(ExpireSession(one.number), 1, 1)
        had = any(hold[0] == one.number for hold in plain.holds.values()) or any(
            each[0] == one.number for each in plain.queue
        )
        plain.drop_session(one.number)
        if had:
            plain.changed()
        sessions[sessions.index(one)] = Session(catalog)
    elif drawn < 0.97:
        ledger_id = chance.randrange(12)
        made = RepairMark(
            MARK_VERSION, (chance.choice(BOOKIES),), 0, chance.choice([0, 3]), chance.random() < 0.3
        )
        is_put = chance.random() < 0.6
        key = repair_mark_path(ledger_id)
        one.run(Txn([], [Put(key, encode_repair_mark(made)) if is_put else Delete(key)]))
        if is_put:
            created = plain.marks[ledger_id].created if ledger_id in plain.marks else plain.revision + 1
            plain.marks[ledger_id] = PlainMark(
                set(made.missing), created, plain.revision + 1, made.tries, made.is_postponed
            )
            plain.changed()
        elif plain.marks.pop(ledger_id, None) is not None:
            plain.changed()
    else:
        again = load(pieces(catalog), catalog.limits) if chance.random() < 0.5 else catalog.copy()
        assert again.fast_digest == catalog.fast_digest
        catalog = again
        for session in sessions:
            session.catalog = catalog
    return catalog


@pytest.mark.parametrize("seed", range(24))
def test_repairs_come_out_right_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """METADATA.md, 11: against lists that are gone through, over snapshots, ends of sessions and transactions that
    write marks themselves; and the index is always what it would be if it was made anew."""
    monkeypatch.setattr(repair_index, "PASSED_OVER_MAX", (0, 1, repair_index.PASSED_OVER_MAX)[seed % 3])
    chance = random.Random(seed)
    catalog, plain = raised(), Plain()
    sessions = [Session(catalog) for _ in range(4)]
    for number in range(300):
        catalog = step(catalog, plain, sessions, chance)
        look(catalog, plain)
        if number % 15 == 0:
            restored = Catalog.restore(catalog.snapshot(), catalog.limits)
            restored.level = catalog.level
            assert restored.record_table.repairs.image() == catalog.record_table.repairs.image()
            assert restored.digest() == catalog.digest()


def test_taking_one_of_very_many_looks_at_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """METADATA.md, 11: of 30,000 marks, of three sets of missing bookies and with some that are postponed, as many
    keys are looked at as of 1,000."""
    looks: dict[int, int] = {}
    for count in (1_000, 30_000):
        catalog = raised()
        worker = Session(catalog)
        for first in range(0, count, REPAIRS_MAX):
            worker.mark(*range(first, first + REPAIRS_MAX), missing=(f"b{first // REPAIRS_MAX % 3}",))
        taken = worker.take(REPAIRS_MAX)
        worker.fail(*((each, taken.epoch) for each in ids(taken)))
        assert catalog.record_table.repairs.counts() == (count - REPAIRS_MAX, REPAIRS_MAX, 0)
        assert dict(catalog.record_table.weights.told())["repair marks"] == catalog.record_table.bytes
        looked, get = [0], catalog._records.get

        def counted(
            key: str, looked: list[int] = looked, get: Callable[[str], Record | None] = get
        ) -> Record | None:
            looked[0] += 1
            return get(key)

        monkeypatch.setattr(catalog._records, "get", counted)
        for _ in range(20):
            taken = worker.take(2, not_with=("b0",))
            worker.end(*((each, taken.epoch, mark) for each, mark, _ in taken.marks))
        looks[count] = looked[0]
    assert looks[1_000] == looks[30_000] > 0
