"""What carries effects out: nodes, requests that wait, adds to bookies of the same loop."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_APPENDING = "embedbk/appending.py"
_OPERATIONS = "embedbk/host/operations.py"

_BUSY = "tests/rules/test_p7_busy.py::test_"
_LOCAL = "tests/host/test_local_adds.py::test_"

MUTANTS = (
    # Deferred sync.
    Mutant(
        "force-waits-for-what-is-received",
        "P3.2",
        "force returns when the bookies have it in memory",
        (
            (
                _OPERATIONS,
                "        return self.lac >= entry_id or self.error is not None",
                "        return self.received >= entry_id or self.error is not None",
            ),
            (
                _APPENDING,
                "        if (writing.lac if is_synced else writing.received) < entry_id:",
                "        if writing.received < entry_id:",
            ),
        ),
        ("tests/scenarios/test_deferred_sync.py::test_force_waits_for_the_disks",),
    ),
    Mutant(
        "fences-wait-behind-adds",
        "P7.8 P5.2f",
        "a bookie that is busy lets fences and reads wait behind the adds that wait for room",
        (
            (
                "embedbk/host/waiting.py",
                "        return not self._urgent and not is_normal_add(event.body) and self.has_room(True)\n",
                "        return False\n",
            ),
            (
                "embedbk/host/waiting.py",
                "        is_urgent = not is_normal_add(event.body)\n",
                "        is_urgent = False\n",
            ),
        ),
        (_BUSY + "fences_reads_and_recovery_pass_the_adds_that_wait",),
    ),
    Mutant(
        "one-journal-is-enough-nearby",
        "P3.2 I40",
        "an add to bookies of the same loop is acknowledged when one of three journals has it",
        (("native/local_adds.c", "return count >= adds->settings.ack_quorum;", "return count >= 1;"),),
        (_LOCAL + "an_append_is_acknowledged_when_an_ack_quorum_is_durable",),
    ),
    Mutant(
        "fenced-ledgers-are-added-to-nearby",
        "P5.2f I13",
        "a writer on the bookies' loop stores into a ledger that was fenced there",
        (
            (
                "native/local_adds.c",
                "if (!ebk_add_path_is_common(ebk_near_path(settings->nears[seat]), &add)) return false;",
                ";",
            ),
        ),
        (_LOCAL + "a_fence_ends_it",),
    ),
    Mutant(
        "held-frame-is-lost-nearby",
        "P3.1 P3.6",
        "the frame that no bookie takes as common is not given back to the writer's core",
        (("native/local_adds.c", "    *frame = adds->held;\n", "    return 0;\n"),),
        (_LOCAL + "a_fence_ends_it",),
    ),
    Mutant(
        "core-hears-late-nearby",
        "P4.2",
        "a core hears that a seat failed before it is told of what is on its way past it",
        (("embedbk/host/local_adds.py", "        self.end(event.now_ns, writing)\n", "        pass\n"),),
        (_LOCAL + "another_event_finds_the_core_as_if_it_had_waited",),
    ),
    Mutant(
        "append-beside-the-end-nearby",
        "P3.1",
        "what is appended while the adds past all messages end is sealed by nobody",
        (
            (
                "embedbk/host/local_adds.py",
                "        self._look_again(writing)  # Who appended meanwhile has woken the course, and nobody else.\n",
                "",
            ),
        ),
        (_LOCAL + "a_bookie_that_is_read_only_stores_nothing",),
    ),
    Mutant(
        "answers-among-others-are-forgotten",
        "P3.3",
        "an answer in a message that was passed does not count for its frame, which then waits for one more",
        (
            (
                "embedbk/host/client_node.py",
                "                    self._answers.answered(request_id)\n",
                "                    pass\n",
            ),
        ),
        ("tests/host/test_counted_answers.py::test_the_same_acknowledgements_with_and_without",),
    ),
    Mutant(
        "answers-wait-beside-a-change",
        "P4.2",
        "while a change is under way, answers beyond the old quorum are still held back",
        (
            (
                "embedbk/host/client_node.py",
                "                self._answers.is_eager = True\n",
                "",
            ),
        ),
        ("tests/host/test_counted_answers.py::test_while_a_change_is_under_way_every_answer_is_news",),
    ),
)
