"""Keys, timestamps and headers of records: how they are written, checked and read (WIRE.md 1)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_FRAME = "native/wire/frame.c"
_PACKER = "native/wire/packer_append.c"
_CALLS = "native/python/packing.c"
_RECORDS = "embedbk/codec/entry_records.py"
_APPENDING = "embedbk/client/appending.py"
_STORED_FORM = "embedbk/client/stored_form.py"
_JSON = "embedbk/cli/entries_json.py"
_SCANNED = "tests/codec/test_kernels.py::TestKernels::test_"
_PACKED = "tests/codec/test_packer.py::TestPacker::test_"
_GIVEN = "tests/faces/test_records.py::test_"
_REFUSED = _SCANNED + "attributes_that_are_not_known_or_not_sound_are_refused"

MUTANTS = (
    Mutant(
        "a-key-has-the-size-that-it-had",
        "P3.1",
        "a key that another thread changes while it is appended ends the handle for all its callers",
        ((_RECORDS, "_SIZE.pack(len(taken)) + taken", "_SIZE.pack(size) + taken"),),
        (_GIVEN + "what_another_thread_changes_meanwhile_ends_nobodys_handle",),
    ),
    Mutant(
        "records-stand-before-the-time",
        "P8.11",
        "the packer writes the time behind all attributes, so that readers and bookies refuse the entry",
        (
            (
                _PACKER,
                "kinds_up_to(attributes, 0, size, first - 1);",
                "kinds_up_to(attributes, 0, size, first + 9);",
            ),
        ),
        (_PACKED + "the_time_stands_between_the_attributes_in_the_order_of_kinds",),
    ),
    Mutant(
        "records-are-lost-by-a-move-to-the-next-ledger",
        "P8.2",
        "what moves behind a failed ledger loses what stands behind its time",
        (
            (
                _PACKER,
                "attributes + before + left_out, before, size - before - left_out};",
                "attributes + before + left_out, before, left_out != 0 ? 0 : size - before};",
            ),
        ),
        (_PACKED + "the_time_stands_between_the_attributes_in_the_order_of_kinds",),
    ),
    Mutant(
        "records-of-many-are-those-of-the-first",
        "P3.1",
        "each entry of one call gets the attributes of the first",
        (
            (
                _PACKER,
                "payloads->attributes[i], payloads->attribute_sizes[i]",
                "payloads->attributes[0], payloads->attribute_sizes[0]",
            ),
        ),
        (_PACKED + "many_entries_are_appended_each_with_its_attributes",),
    ),
    Mutant(
        "records-of-many-pass-the-limit",
        "P3.1",
        "attributes do not count for the limit where many are appended",
        (
            (
                _CALLS,
                "attributes->sizes[i] + payloads->sizes[i] <= EBK_ENTRY_APPEND_BYTES_MAX",
                "payloads->sizes[i] <= EBK_ENTRY_APPEND_BYTES_MAX",
            ),
        ),
        (_PACKED + "many_entries_are_appended_each_with_its_attributes",),
    ),
    Mutant(
        "records-may-have-a-header-twice",
        "WIRE.md 1",
        "a name that stands twice passes the scan, and one of its values is lost to readers",
        ((_FRAME, "before[0] >= name[0]", "before[0] > name[0]"),),
        (_REFUSED,),
    ),
    Mutant(
        "records-may-have-less-sets-than-records",
        "WIRE.md 1",
        "one set is enough for a batch, and a reader runs beyond it",
        ((_FRAME, "            records = value / 4;\n", ""),),
        (_REFUSED, _SCANNED + "what_records_have_beside_their_values_is_read_as_it_was_written"),
    ),
    Mutant(
        "records-may-end-before-their-attribute",
        "WIRE.md 1",
        "bytes that no record has pass the scan",
        ((_FRAME, "    return left == 0;\n", "    return 1;\n"),),
        (_REFUSED,),
    ),
    Mutant(
        "records-headers-are-written-as-given",
        "WIRE.md 1",
        "names do not ascend where a user's do not, and every bookie refuses the entry",
        ((_RECORDS, "sorted(names)", "list(names)"),),
        (_SCANNED + "what_records_have_beside_their_values_is_read_as_it_was_written",),
    ),
    Mutant(
        "records-an-empty-key-is-none",
        "WIRE.md 1",
        "a key without a byte is read as no key",
        ((_RECORDS, "    if record.key is not None:\n", "    if record.key:\n"),),
        (_GIVEN + "each_way_to_append_takes_records",),
    ),
    Mutant(
        "records-are-written-below-their-level",
        "P10.8",
        "bookies of the build before refuse the add, and the handle fails",
        ((_STORED_FORM, "if not handle.runtime.has_level(LEVEL_OF_RECORDS):", "if False:"),),
        (_GIVEN + "below_the_level_no_record_is_written_and_plain_ones_are",),
    ),
    Mutant(
        "records-are-lost-where-an-append-has-terms",
        "P3.1",
        "a producer's record is appended without its key",
        ((_APPENDING, "records or records_of(self, [record])", "records"),),
        (_GIVEN + "each_way_to_append_takes_records",),
    ),
    Mutant(
        "records-of-a-batch-are-lost-as-json",
        "issue 14, 11",
        "a batch is copied as one entry without its records",
        ((_JSON, "    if len(records) > 1:\n", "    if len(records) > 99:\n"),),
        ("tests/cli/test_log_commands.py::test_what_is_read_as_json_is_appended_from_json",),
    ),
)
