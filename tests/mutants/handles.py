"""What open handles wait for, and who is reported (L16)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_HANDLES = "embedbk/client/handles.py"
_WAITS = "embedbk/core/adding_waits.py"
_READING = "embedbk/client/reading.py"
_FOLLOWING = "embedbk/client/log_following.py"
_CONSUMING = "embedbk/client/consuming.py"

_TOLD = "tests/scenarios/test_handles.py::test_"

MUTANTS = (
    Mutant(
        "stuck-handle-reported-again-and-again",
        "L16",
        "a handle that could go on is reported at each look",
        ((_HANDLES, "if now.looks == LOOKS_MAX:", "if now.looks >= LOOKS_MAX:"),),
        (_TOLD + "one_that_could_go_on_is_reported_once",),
    ),
    Mutant(
        "stuck-handle-that-went-on-reported",
        "L16",
        "a handle that goes on and waits again counts as one that stands still",
        ((_HANDLES, "was if was is not None and was.mark == mark else", "was if was is not None else"),),
        (_TOLD + "one_that_could_go_on_is_reported_once",),
    ),
    Mutant(
        "handle-that-nobody-drives-reported",
        "L16",
        "a consumer whose caller asks for nothing counts as one that stands still",
        ((_HANDLES, "is_stuck = self.is_driven and wait is not None", "is_stuck = wait is not None"),),
        (_TOLD + "one_that_could_go_on_is_reported_once",),
    ),
    Mutant(
        "unsent-entries-wait-for-nothing",
        "L16 P3.1",
        "a writer whose last entries stand in no frame is said to wait for nothing",
        ((_WAITS, "    if not has_unsent:\n", "    if has_unsent or True:\n"),),
        (_TOLD + "a_lost_wake_up_is_found",),
    ),
    Mutant(
        "wait-for-a-change-told-as-answers",
        "P4.2",
        "a writer that waits for an ensemble change is said to wait for answers",
        (
            (
                _WAITS,
                "    if is_changing and (is_done or ",
                "    if is_changing and is_done and (True or ",
            ),
        ),
        (_TOLD + "an_add_waits_for_a_change_that_is_not_settled",),
    ),
    Mutant(
        "who-answered-is-waited-for",
        "P3.3",
        "seats that have answered are named among those that are waited for",
        (
            (
                _WAITS,
                "if mask >> each.seat & 1 and not oldest.acked >> each.slot & 1]",
                "if mask >> each.seat & 1]",
            ),
        ),
        (_TOLD + "an_add_waits_for_answers_then_for_bookies",),
    ),
    Mutant(
        "tail-stays-among-the-handles",
        "L16",
        "a tail that has ended is shown for as long as anybody holds it",
        (
            (
                _FOLLOWING,
                "            if pull.note is None:\n                self._log.runtime.handles.discard(note)\n",
                "            _KEPT.append(note)\n",
            ),
            (_FOLLOWING, "class LogFollowing:", "_KEPT: list[ReaderNote] = []\n\n\nclass LogFollowing:"),
        ),
        (_TOLD + "a_tail_says_what_it_waits_for_along_its_way",),
    ),
    Mutant(
        "tail-waits-though-it-went-on",
        "P6.2",
        "a reader that was told of a newer LAC is still said to wait for it",
        (
            (
                _READING,
                "            if note is not None and is_noted:\n                note.goes_on()\n",
                "            pass\n",
            ),
        ),
        (_TOLD + "a_log_reader_is_there_until_it_is_closed_or_gone",),
    ),
    Mutant(
        "refused-consumer-stays-among-the-handles",
        "L16 P9.3",
        "a consumer that got no lease in time is shown on",
        (
            (
                _CONSUMING,
                "                lease.let_go()\n                runtime.handles.discard(self._note)\n",
                "                lease.let_go()\n                _KEPT.append(self._note)\n",
            ),
            (
                _CONSUMING,
                "class _Lease(Locking):",
                "_KEPT: list[ReaderNote] = []\n\n\nclass _Lease(Locking):",
            ),
        ),
        (_TOLD + "a_consumer_says_that_another_has_its_lease",),
    ),
    Mutant(
        "handles-wait-for-themselves",
        "L16",
        "the collector ends a tail while the list of handles is held, and the thread waits for itself for ever",
        ((_HANDLES, "        self._lock = threading.RLock()\n", "        self._lock = threading.Lock()\n"),),
        (_TOLD + "a_tail_that_is_collected_meanwhile_leaves",),
    ),
)
