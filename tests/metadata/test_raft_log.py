"""The log of one member in memory: what stays of it behind a snapshot (RAFT.md, 3)."""

from __future__ import annotations

import random

import pytest

from embedbk.metadata.governing import told
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RETAINED_BYTES_MAX, RaftLog, entry_bytes, memory_bytes
from embedbk.metadata.raft_vocabulary import Boot, Entry

ONE = Configuration((MemberId("m1", b"1" * 16),))


def entry(index: int, size: int = 100, term: int = 1) -> Entry:
    return Entry(index, term, bytes(size))


def log_of(count: int, retained_bytes_max: int) -> RaftLog:
    return RaftLog(
        ONE, entries=[entry(each) for each in range(1, count + 1)], retained_bytes_max=retained_bytes_max
    )


def test_behind_a_snapshot_no_more_stays_than_the_bound() -> None:
    """RAFT.md, 3: of the entries that the newest one stands for, so many bytes of memory at most stay."""
    one = memory_bytes(entry(1))
    log = log_of(100, 10 * one + one // 2)
    log.let_go(60, 20)
    assert (log.first_index, log.previous_term, log.last_index) == (51, 1, 100)
    assert log.memory_bytes == 50 * one
    log.let_go(90, 20)
    assert log.first_index == 81
    log.let_go(100, 20)
    assert log.first_index == 91
    assert [each.index for each in log.between(91, 100)] == list(range(91, 101))


def test_what_the_store_lets_go_goes_also_below_the_bound() -> None:
    """RAFT.md, 3: the front that the durable log lost goes from memory, whatever the bound."""
    log = log_of(100, RETAINED_BYTES_MAX)
    log.let_go(60, 20)
    assert log.first_index == 20


def test_without_any_room_the_log_begins_behind_its_snapshot() -> None:
    """RAFT.md, 3: whoever needs an older one is given the snapshot: the log follows it without a gap."""
    log = log_of(10, 0)
    log.let_go(10, 1)
    assert (log.first_index, log.last_index, log.previous_term, log.memory_bytes) == (11, 10, 1, 0)
    log.append([entry(11)])
    assert log.term_at(11) == 1


@pytest.mark.parametrize("seed", range(20))
def test_the_bytes_are_those_of_the_entries_after_any_course(seed: int) -> None:
    """RAFT.md, 3: appended, cut, let go, restarted from another's snapshot: the bound counts what is there."""
    chance = random.Random(seed)
    bound = chance.choice((0, 1000, 100_000))
    log = RaftLog(ONE, retained_bytes_max=bound)
    term = 1
    for _ in range(300):
        match chance.randrange(5):
            case 0 | 1:
                term += chance.random() < 0.1
                first = log.last_index + 1
                log.append(
                    [entry(first + at, chance.randrange(500), term) for at in range(chance.randrange(9))]
                )
                if chance.random() < 0.2:
                    log.append([Entry(log.last_index + 1, term, chance.choice((None, ONE)))])
            case 2:
                log.cut(chance.randint(log.snapshot_index, log.last_index))
            case 3:
                index = chance.randint(log.snapshot_index, log.last_index)
                log.let_go(index, chance.randint(log.first_index, max(index + 1, log.first_index)))
                held = log.between(log.first_index, index) if index >= log.first_index else ()
                assert sum(map(memory_bytes, held)) <= bound
            case 4:
                index = chance.randint(log.snapshot_index + 1, log.last_index + 20)
                if chance.random() < 0.2:
                    log.restart_from(index, term, ONE)
        assert log.first_index <= log.snapshot_index + 1
        held = log.between(log.first_index, log.last_index)
        assert [each.index for each in held] == list(range(log.first_index, log.last_index + 1))
        assert log.memory_bytes == sum(map(memory_bytes, held))
        if held:
            check_weights(chance, log, held)


def check_weights(chance: random.Random, log: RaftLog, held: tuple[Entry, ...]) -> None:
    """RAFT.md, 5: what an append weighs, and which entries go into one, is as if each were looked at."""
    begin, end = sorted(chance.choices(range(len(held) + 1), k=2))
    if begin < end:
        weight = log.bytes_between(held[begin].index, held[end - 1].index)
        assert weight == sum(map(entry_bytes, held[begin:end]))
    assert log.bytes_between(log.last_index + 1, log.last_index) == 0
    first, bytes_max = chance.choice(held).index, chance.choice((1, 300, 2000, 1 << 20))
    taken = log.taken(first, bytes_max)
    assert list(taken) == [each for each in held if each.index >= first][: len(taken)]
    sizes = [entry_bytes(each) for each in taken]
    assert sum(sizes[:-1]) < bytes_max, "the last one is that with which it is full"
    assert sum(sizes) >= bytes_max or taken[-1].index == log.last_index


def test_a_member_says_how_much_of_the_log_it_keeps() -> None:
    """RAFT.md, 3: its status shows the bytes of memory of its entries, fewer once a snapshot stands for them."""
    log = log_of(10, 0)
    boot = Boot(ONE.voters[0], b"nonce")
    raft = Raft(boot, log, term=1, vote=None, now_ns=0, chance=random.Random(1))
    assert told(raft, bytes(16), ()).log_bytes == 10 * memory_bytes(entry(1))
    log.let_go(7, 1)
    assert told(raft, bytes(16), ()).log_bytes == 3 * memory_bytes(entry(1))


def test_what_is_worth_keeping_stays_and_never_more_than_is_allowed() -> None:
    """RAFT.md, 8: by rate and time, as soon as the next snapshot counts; whatever is worth, the bound holds."""
    each = memory_bytes(entry(1))
    log = log_of(100, 50 * each)
    log.retain(10 * each)
    log.let_go(60, 1)
    assert log.first_index == 51
    log.retain(90 * each)
    log.append([entry(index) for index in range(101, 201)])
    log.let_go(200, 1)
    assert log.first_index == 151
