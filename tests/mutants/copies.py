"""On how many disks a ticket says that its entry is (P3.6)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CORE = "embedbk/core/entry_copies.py"
_TICKETS = "embedbk/client/tickets.py"

_COPIES = "tests/scenarios/test_copies.py::test_"

MUTANTS = (
    Mutant(
        "copy-of-a-bookie-that-lacks-it",
        "P3.6 P11.4",
        "a bookie that answers counts as one that holds the entry",
        (
            (
                _CORE,
                "        return answer.status == Status.OK and answer.count == 1 and not answer.lacking\n",
                "        return answer.status in (Status.OK, Status.NO_SUCH_LEDGER)\n",
            ),
        ),
        (_COPIES + "a_bookie_with_an_empty_disk_is_no_copy",),
    ),
    Mutant(
        "copy-of-a-bookie-that-is-silent",
        "P3.6 P7.1",
        "a bookie that does not answer counts as one that holds the entry",
        ((_CORE, "self.others[member.bookie_id] = event.reason\n", "self.count += 1\n"),),
        (_COPIES + "more_copies_than_the_ack_quorum_are_waited_for",),
    ),
    Mutant(
        "copies-before-the-quorum-has-it",
        "P3.6 P3.3",
        "a ticket counts copies of an entry that is on its way",
        ((_TICKETS, "        if handle.writing.lac < entry_id:\n            return 0\n", ""),),
        (_COPIES + "more_copies_than_the_ack_quorum_are_waited_for",),
    ),
    Mutant(
        "copies-asked-for-once",
        "P3.6",
        "who lacks the entry at first is not asked again",
        (
            (
                "embedbk/client/disk_copies.py",
                "        if left_s <= 0:\n",
                "        if left_s <= math.inf:\n            timeout_s = timeout_s or 0.0\n",
            ),
        ),
        (_COPIES + "more_copies_than_the_ack_quorum_are_waited_for",),
    ),
    Mutant(
        "copies-where-the-entry-no-longer-stands",
        "P3.6 P8.2",
        "the ledger that failed is asked for an entry that went to the next one",
        (
            (
                "embedbk/client/disk_copies.py",
                "    handle, moved = queued_in.now(entry_id)  # It is there for good.\n",
                "    handle, moved = queued_in, entry_id\n",
            ),
        ),
        (_COPIES + "the_entry_is_asked_for_where_it_stands_by_now",),
    ),
)
