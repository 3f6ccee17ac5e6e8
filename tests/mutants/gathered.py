"""Requests and answers of the metadata that go together in one message."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_LINK = "embedbk/host/metadata_link.py"
_NODE = "embedbk/host/metadata_node.py"
_LOG = "embedbk/metadata/raft_log.py"
_CODEC = "embedbk/codec/gathering.py"

_HERE = "tests/host/test_metadata_link.py::test_"

MUTANTS = (
    Mutant(
        "gathered-for-a-build-before",
        "P10.8",
        "a member that did not say that it takes several requests in one message is sent them so",
        ((_LINK, "        if self._gathers and not is_for_streams", "        if not is_for_streams"),),
        (_HERE + "a_member_that_gathers_nothing_is_asked_one_by_one",),
    ),
    Mutant(
        "answers-gathered-for-a-build-before",
        "P10.8",
        "a client that did not say that it takes several answers in one message is sent them so",
        ((_NODE, "        if link in self._gathering:\n", "        if True:\n"),),
        (_HERE + "a_client_that_does_not_say_so_is_answered_one_by_one",),
    ),
    Mutant(
        "gathered-over-another-link",
        "P10.8",
        "what one member said of itself is believed of the next one",
        ((_LINK, "        self.is_up, self._gathers = True, False\n", "        self.is_up = True\n"),),
        (_HERE + "what_one_member_takes_is_not_believed_of_the_next",),
    ),
    Mutant(
        "event-overtakes-an-answer",
        "I82",
        "what a watch is sent overtakes the answers that wait for the end of the turn",
        (
            (
                _NODE,
                "                    if link in self._gathered:\n                        self._send_gathered()  # Nothing overtakes an answer.\n",
                "",
            ),
        ),
        (_HERE + "no_event_overtakes_an_answer",),
    ),
    Mutant(
        "gathered-and-never-sent",
        "P10.1",
        "what is asked behind the last tick of a host waits for whatever wakes it next",
        ((_LINK, "        if self._unsent:\n            return 0  # At once: what was asked for behind the last `tick`.\n", ""),),
        (_HERE + "what_is_asked_behind_the_last_tick_is_not_forgotten",),
    ),
    Mutant(
        "log-thread-not-woken",
        "METADATA.md",
        "what a member has queued for its log waits for the next time that somebody wakes the thread which writes it",
        ((_NODE, "            self.store.kick()\n", "            pass\n"),),
        ("tests/metadata/test_node.py::test_a_threaded_journal_wakes_the_loop",),
    ),
    Mutant(
        "append-weighs-its-objects",
        "RAFT.md 5",
        "what is under way to a follower counts as more than it is",
        ((_LOG, " - _OBJECTS_BYTES * (end - begin)\n", "\n"),),
        ("tests/metadata/test_raft_log.py::test_the_bytes_are_those_of_the_entries_after_any_course",),
    ),
    Mutant(
        "gathered-without-end",
        "P10.7",
        "as many requests go in one message as wait, however large they are",
        ((_CODEC, "        if part and (size + weight > GATHERED_BYTES_MAX or len(part) == GATHERED_MAX):\n", "        if part and len(part) == GATHERED_MAX:\n"),),
        ("tests/codec/test_wire.py::test_what_is_gathered_goes_in_order_and_within_its_bounds",),
    ),
)  # fmt: skip
