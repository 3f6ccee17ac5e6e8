"""Two processes that claim one identity: who is asked, and for how long (P7.9)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CLONES = "tests/sim/test_clones.py::test_"
_RIVAL = "embedbk/host/rival.py"

MUTANTS = (
    Mutant(
        "a-stopped-process-keeps-its-place-for-ever",
        "P7.9",
        "a process that accepts a connection and says nothing is taken for one that lives",
        (
            (
                _RIVAL,
                "            self._answer(now_ns, is_alive=False)\n\n    def is_asking_over",
                "            self._answer(now_ns, is_alive=True)\n\n    def is_asking_over",
            ),
        ),
        (_CLONES + "a_stopped_process_is_replaced_when_its_two_seconds_are_over",),
    ),
    Mutant(
        "a-slow-process-loses-its-place",
        "P7.9",
        "who needs longer than half a second for its Hello is taken for stopped",
        ((_RIVAL, "ANSWER_NS if self._links else now_ns", "ANSWER_NS // 4 if self._links else now_ns"),),
        (
            _CLONES + "a_stopped_process_that_goes_on_in_time_stays",
            _CLONES + "a_stopped_process_is_replaced_when_its_two_seconds_are_over",
        ),
    ),
    Mutant(
        "two-starts-of-one-copy-are-one-process",
        "P7.9",
        "whoever says Hello with this identity is taken for the one who asks",
        (
            (
                _RIVAL,
                "        ) and peer.start != self._start:\n",
                "        ) and peer.start == self._start:\n",
            ),
        ),
        (
            _CLONES + "a_copy_beside_the_living_one_is_refused_and_serves_nobody",
            _CLONES + "the_second_of_two_that_start_on_one_copy_is_refused",
        ),
    ),
)
