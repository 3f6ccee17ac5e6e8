"""The table of frames in flight, in C (native/road/in_flight.c)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_TABLE = "native/road/in_flight.c"

_FLIGHT = "tests/transports/test_in_flight.py::test_"
_LINKS = "tests/transports/test_link_adds.py::test_"

MUTANTS = (
    Mutant(
        "flight-grows-and-mixes-its-frames",
        "P3.1 P3.8",
        "a table that grows finds its frames by the size of before",
        ((_TABLE, "wider[place & (count - 1)] =", "wider[place & (count / 2 - 1)] ="),),
        (_FLIGHT + "both_tables_do_the_same",),
    ),
    Mutant(
        "flight-forgets-what-is-pending",
        "P7.8 RP33",
        "a frame that is given up counts among the bytes that are pending still",
        ((_TABLE, "        table->state.pending_bytes -= packed->size;\n    }\n", "    }\n"),),
        (_FLIGHT + "both_tables_do_the_same",),
    ),
    Mutant(
        "flight-retires-what-is-owed",
        "P4.5 P3.8",
        "a frame leaves the table though a seat owes an answer for it",
        (
            (
                _TABLE,
                "place_of(table, table->state.tail)->flying.owed == 0",
                "place_of(table, table->state.tail)->flying.packed.body == NULL",
            ),
        ),
        (_FLIGHT + "what_is_owed_outlives_what_is_kept",),
    ),
    Mutant(
        "flight-owes-twice",
        "P3.8 P4.1",
        "what is sent to a seat again is owed twice, and counts from the second time",
        ((_TABLE, "    if (it->flying.owed >> slot & 1) return;\n", ""),),
        (_FLIGHT + "who_owes_since_when",),
    ),
    Mutant(
        "flight-counts-an-answer-of-nobody",
        "P3.8",
        "an answer of a seat that was sent nothing counts",
        ((_TABLE, "    if (!(it->flying.owed >> slot & 1)) return 0;\n    *sent_ns", "    *sent_ns"),),
        (_FLIGHT + "an_answer_counts_once_and_only_where_one_is_owed",),
    ),
    Mutant(
        "flight-keeps-the-oldest-of-before",
        "P4.1 P4.7",
        "a seat that has answered the oldest frame counts as late since then",
        ((_TABLE, "    if (table->first_owed[slot] == place) note_first_owed(table, slot, place);\n", ""),),
        (_FLIGHT + "who_owes_since_when",),
    ),
    Mutant(
        "flight-took-what-is-done",
        "P3.2",
        "a seat's word that it holds a frame in memory counts also for frames that are done",
        (
            (
                _TABLE,
                "    if (place < table->state.head || place >= table->state.end) return 0;\n",
                "    if (place < table->state.tail || place >= table->state.end) return 0;\n",
            ),
        ),
        (_FLIGHT + "both_tables_do_the_same",),
    ),
    Mutant(
        "flight-excuses-and-still-counts",
        "P4.5",
        "a seat that is excused owes nothing, and counts as if it did",
        ((_TABLE, "    table->state.owed_sum -= table->state.owed_count[slot];\n", ""),),
        (_FLIGHT + "both_tables_do_the_same",),
    ),
    Mutant(
        "flight-empties-and-has-answered",
        "P4.4",
        "acknowledgements of a seat that was lost count for who comes to it",
        ((_TABLE, "        place_of(table, place)->flying.acked &= ~slots;\n", ""),),
        (_FLIGHT + "a_slot_that_is_excused_owes_nothing_and_one_that_is_emptied_has_answered_nothing",),
    ),
    Mutant(
        "flight-keeps-what-nobody-owes",
        "P3.3 RP33",
        "a frame that is done and that nobody owes keeps its bytes",
        ((_TABLE, "    if (flying->owed == 0) drop(table, place);\n    retire", "    retire"),),
        (_FLIGHT + "what_nobody_owes_is_let_go_of_when_it_is_done",),
    ),
    Mutant(
        "flight-is-pressed-by-its-own-only",
        "RP33",
        "what other handles keep for seats that are behind presses nobody",
        ((_TABLE, "ebk_backlog_kept(backlog) >= backlog->bytes_max", "behind_max == 0"),),
        (_LINKS + "the_bound_of_the_process_holds_whoever_keeps_something",),
    ),
)
