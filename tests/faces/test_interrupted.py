"""Callers that are interrupted, by what a signal handler raises, at any point of a call: what they hear is true, and
whoever calls next goes on."""

from __future__ import annotations

import pytest

import embedbk
from tests.faces.interrupting import interruptions

# A call that is stopped where it begins has made steps that nobody takes.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def test_an_append_of_a_producer_that_was_interrupted_is_not_doubled_by_its_next_try(
    bk: embedbk.Client, log_name: str
) -> None:
    """P3.1: what was appended under a sequence is answered with its position. A signal between the append and the note
    of it left an entry that the next try did not find."""
    with bk.log(log_name).writer() as writer:
        tried = 0
        for point, _ in interruptions(lambda at: writer.append(b"%d" % at, producer=(7, at))):
            writer.append(b"%d" % point, producer=(7, point), timeout_s=60)
            tried = point
    entries = [int(bytes(entry)) for entry in bk.log(log_name).read()]
    assert tried
    assert entries == list(range(1, tried + 2))


@pytest.mark.parametrize("digest", ["crc32c", "xxh3"])
def test_an_append_that_was_interrupted_says_whether_it_is_on_its_way(
    bk: embedbk.Client, log_name: str, digest: str
) -> None:
    """P3.6: the exception has a ticket of an entry that is queued. It said that nothing was appended where a signal
    came right behind the queueing; with a second digest the packer was left between two entries, and its ledger
    failed."""
    promised, none = set(), set()
    with bk.log(log_name).writer(digest=digest) as writer:
        for point, stopped in interruptions(lambda at: writer.append(b"%d" % at, timeout_s=60)):
            if not hasattr(stopped, "ticket"):
                continue  # Stopped before, or behind, the append.
            if stopped.ticket is None:
                none.add(point)
            else:
                stopped.ticket.result(60)
                promised.add(point)
    entries = [int(bytes(entry)) for entry in bk.log(log_name).read()]
    assert promised
    assert none
    assert len(entries) == len(set(entries))
    assert promised <= set(entries)
    assert not none & set(entries)


@pytest.mark.parametrize("digest", ["crc32c", "xxh3"])
def test_a_plain_append_that_was_interrupted_keeps_no_other_waiting(
    bk: embedbk.Client, log_name: str, digest: str
) -> None:
    """P3.1: entries have dense ids, each once, and what is queued is sent, also where the thread that was to tell the
    host of it never came to that."""
    with bk.log(log_name).writer(digest=digest) as writer:
        tried = [point for point, _ in interruptions(lambda at: writer.append(b"%d" % at))]
        writer.append(b"0", timeout_s=60)
    entries = [int(bytes(entry)) for entry in bk.log(log_name).read()]
    assert tried
    assert len(entries) == len(set(entries))
