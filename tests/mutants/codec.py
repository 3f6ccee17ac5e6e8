"""What becomes of bytes on their way to values: the packer, answers as they are counted in C."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_COLUMNS = "tests/codec/test_arrow_columns.py::TestColumns::test_"
_BESIDE = "tests/codec/test_arrow_beside.py::TestBeside::test_"
_COUNTED = "tests/codec/test_answers.py::test_"
_PACKER = "tests/codec/test_packer.py::TestPacker::"
_READER = "native/wire/message_reader.c"

MUTANTS = (
    Mutant(
        "a-time-follows-the-clock-back",
        "P8.11",
        "a packer in C takes the time that it is told, be it below the last",
        (
            (
                "native/wire/packer.c",
                "    if (now_ms > packer->time_ms) packer->time_ms = now_ms;\n    ebk_packer_unlock(packer);\n",
                "    packer->time_ms = now_ms;\n    ebk_packer_unlock(packer);\n",
            ),
        ),
        (
            "tests/codec/test_packer.py::TestPacker::test_an_entry_of_a_log_carries_its_time_where_it_is_another",
            "tests/scenarios/test_times.py::test_no_time_is_below_the_one_before_it_across_takeovers_and_rolls",
        ),
    ),
    Mutant(
        "times-go-over-as-they-were",
        "P8.2 P8.11",
        "an entry that goes over to a next ledger keeps the time it had, in front of its new one",
        (
            (
                "native/wire/packer_append.c",
                "part(attributes, attributes_size, EBK_ATTRIBUTE_XXH3);\n                answer",
                "(struct packer_attributes){attributes, attributes, attributes_size, 0};\n                answer",
            ),
        ),
        (_PACKER + "test_what_is_appended_again_has_a_time_of_its_new_place",),
    ),
    Mutant(
        "tags-go-over-as-they-were",
        "P8.2 P3.1",
        "an entry that goes over to a ledger without tags keeps the tag of its place before",
        (
            (
                "native/wire/packer_append.c",
                "part(attributes, attributes_size, EBK_ATTRIBUTE_XXH3);\n                answer",
                "part(attributes, attributes_size, EBK_ATTRIBUTE_TIME);\n                answer",
            ),
        ),
        (_PACKER + "test_a_tag_does_not_come_along_into_a_ledger_without_tags",),
    ),
    Mutant(
        "a-digest-is-the-last-attributes",
        "P10.5 P3.1",
        "whoever adopts a ledger of a log takes it for one without tags, since times stand behind them",
        (
            (
                "embedbk/codec/digest.py",
                "if _tag_at(entry, kind))",
                "if entry[ENTRY_HEADER.size + ENTRY_HEADER.unpack_from(entry)[2] - tag_bytes(digest)] == kind)",
            ),
        ),
        ("tests/codec/test_digest.py::test_the_digest_of_a_ledger_is_known_by_any_entry",),
    ),
    Mutant(
        "no-time-at-each-64th",
        "P8.11",
        "an entry carries its time only where that is another than that of the one before",
        (
            (
                "native/wire/packer_entry.c",
                " && packer->state.next_entry % EBK_TIME_EVERY != 0 &&",
                " &&",
            ),
        ),
        (_PACKER + "test_an_entry_of_a_log_carries_its_time_where_it_is_another",),
    ),
    Mutant(
        "a-null-is-an-empty-entry",
        "P3.1",
        "a row of Arrow data without a value is appended as one without bytes",
        (
            (
                "native/wire/arrow_column.c",
                "        if (ebk_arrow_is_null(bits, at)) return row;\n",
                "        (void)bits;\n",
            ),
        ),
        (_COLUMNS + "a_null_is_refused_with_its_row",),
    ),
    Mutant(
        "a-slice-begins-with-the-whole",
        "P3.1",
        "the offset of a struct does not count for its columns",
        (
            (
                "native/wire/arrow_column.c",
                "(uint64_t)its->offset + first, count",
                "(uint64_t)its->offset, count",
            ),
        ),
        (_COLUMNS + "a_slice_gives_its_own_rows",),
    ),
    Mutant(
        "a-view-beyond-its-part-is-read",
        "P3.1",
        "bytes behind the end of a part of a view array are appended",
        (
            (
                "native/wire/arrow_column.c",
                " || (uint64_t)begin + size > part_size",
                "",
            ),
        ),
        (_COLUMNS + "both_judge_any_view_alike",),
    ),
    Mutant(
        "names-of-what-was-taken-are-read",
        "P3.1",
        "the refusal of Arrow data that another one took reads memory that was given back",
        (
            (
                "native/python/arrow_calls.c",
                'fault == EBK_ARROW_UNSOUND ? PyUnicode_FromString("") : text_of',
                'fault == EBK_ARROW_NO_MEMORY ? PyUnicode_FromString("") : text_of',
            ),
        ),
        (_COLUMNS + "of_a_schema_that_was_taken_nothing_is_read",),
    ),
    Mutant(
        "a-frame-says-what-no-answer-can",
        "WIRE-2",
        "a bookie takes a length up to a LAC with which its answers end the links of readers",
        (
            (
                "embedbk/codec/frame.py",
                "NO_ENTRY <= lac < first and lac_length <= ENTRY_LENGTH_MAX",
                "NO_ENTRY <= lac < first",
            ),
        ),
        ("tests/codec/test_formats.py::TestFrame::test_what_no_answer_could_say_is_refused",),
    ),
    Mutant(
        "others-append-between-columns",
        "P3.1",
        "a call that appends many rows lets others append where a column and the room end together",
        (
            (
                "native/wire/packer_append.c",
                "if (answer < 0 || column == column_count) note_rest(packer, caller, answer, out->taken);",
                "if (column == column_count) note_rest(packer, caller, answer, out->taken);",
            ),
        ),
        (
            "tests/codec/test_arrow_columns.py::TestRows::test_nobody_appends_between_rows_that_found_no_room_for_all",
        ),
    ),
    Mutant(
        "a-null-is-an-empty-key",
        "P3.1",
        "a row of Arrow data without a key is appended with a key of no bytes",
        (
            (
                "native/wire/arrow_beside.c",
                "beside->has_key && !ebk_arrow_is_null(beside->key.valid, beside->key.first + row)",
                "beside->has_key",
            ),
        ),
        (_BESIDE + "what_stands_beside_a_value_is_the_attribute_of_its_record",),
    ),
    Mutant(
        "pairs-begin-with-the-whole",
        "P3.1",
        "a slice of a column of headers is given the headers of the rows in front of it",
        (
            ("native/wire/arrow_beside.c", "    out->base = pair_at(out, 0);\n", "    out->base = 0;\n"),
            (
                "native/wire/arrow_beside.c",
                "(uint64_t)pairs->offset + out->base, count = end - out->base",
                "(uint64_t)pairs->offset + pair_at(out, 0), count = end - pair_at(out, 0)",
            ),
        ),
        (_BESIDE + "any_slice_of_any_records",),
    ),
    Mutant(
        "headers-stand-as-they-came",
        "P3.1",
        "headers of Arrow data are not put into the order of their names, so no reader takes the entry",
        (("native/wire/arrow_beside.c", "            if (order > 0) break;\n", "            break;\n"),),
        (_BESIDE + "what_stands_beside_a_value_is_the_attribute_of_its_record",),
    ),
    Mutant(
        "a-key-has-room-beside-any-value",
        "P3.1",
        "a value and a key that no entry holds together are found when a part of the rows is appended",
        (
            (
                "native/wire/arrow_beside.c",
                "if (size + attribute_bytes > EBK_ENTRY_APPEND_BYTES_MAX)",
                "if (0)",
            ),
        ),
        (_BESIDE + "value_and_key_share_the_room_of_an_entry",),
    ),
    Mutant(
        "sent-bytes-are-not-held",
        "P3.1 P3.7",
        "a frame that was released is written over while a socket still sends it",
        (
            (
                "native/wire/packer.c",
                "    ebk_block_ref(note->block);\n    return note->block;",
                "    return note->block;",
            ),
            ("native/wire/packer.c", "    ebk_block_unref(held);", "    (void)held;"),
        ),
        ("tests/transports/test_zmq_send.py::test_a_frame_on_its_way_stays_as_it_is",),
    ),
    Mutant(
        "answers-count-for-any-seating",
        "P3.8 P4.4",
        "an answer to a request of a seat that was replaced is counted for the one that holds it now",
        (("native/road/answers.c", " && asked->seating == said->seating &&", " &&"),),
        (_COUNTED + "any_other_answer_is_passed",),
    ),
    Mutant(
        "sums-of-messages-are-not-looked-at-in-c",
        "T10 P3.7",
        "a message with a flipped bit is taken past the cores",
        ((_READER, "if (crc != ebk_load_u32(head + EBK_MESSAGE_AT_CRC)) return false;", "(void)crc;"),),
        ("tests/host/test_add_path.py::test_no_bit_is_overlooked", _COUNTED + "no_bit_is_overlooked"),
    ),
    Mutant(
        "a-number-beyond-its-bound-is-read-in-c",
        "P4.4 P6.2",
        "a seating, a LAC or an id that no core would take is taken past them",
        ((_READER, "    if (value > max) refuse(control);\n", ""),),
        ("tests/host/test_add_path.py::test_numbers_travel_in_any_width",),
    ),
    Mutant(
        "what-stands-behind-the-last-field-is-not-seen-in-c",
        "P3.7",
        "a control part that goes on behind its last field is taken past the cores",
        (
            (
                "native/wire/message_reader.h",
                "control->at != NULL && control->at == control->end",
                "control->at != NULL",
            ),
        ),
        ("tests/host/test_add_path.py::test_bytes_behind_the_last_field_are_the_cores",),
    ),
    Mutant(
        "records-that-are-cut-short-are-read-in-c",
        "P3.7 P6.2",
        "LACs whose last one is cut short are taken past the cores, with what lies behind the message",
        ((_READER, "length % size != 0 || ", ""),),
        ("tests/host/test_lac_path.py::test_one_that_is_cut_short_is_the_cores",),
    ),
    Mutant(
        "a-call-that-waits-for-room-holds-nobody-in-c",
        "P3.1",
        "the packer in C takes an entry of another call before the rest of one that found no room",
        (
            (
                "native/wire/packer_entry.c",
                "    if (packer->held_by != 0 && packer->held_by != caller) return EBK_FULL;\n",
                "",
            ),
        ),
        (_PACKER + "test_nobody_appends_between_the_entries_of_one_call_that_found_no_room_for_all[c]",),
    ),
    Mutant(
        "a-call-that-gives-up-its-rest-holds-all",
        "P3.1",
        "nobody appends any more behind a call that was given up while it waited for room",
        (
            (
                "native/wire/packer_append.c",
                "    if (packer->held_by == caller) packer->held_by = 0;\n",
                "    (void)packer;\n    (void)caller;\n",
            ),
        ),
        (_PACKER + "test_nobody_appends_between_the_entries_of_one_call_that_found_no_room_for_all[c]",),
    ),
)
