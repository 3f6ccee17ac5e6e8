"""Entries that are stored compressed (WIRE.md 1, ZSTD): how they are written, checked, read and archived."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_FRAME = "native/wire/frame.c"
_ZSTD = "embedbk/client/compression.py"
_FOLLOWING = "embedbk/client/log_following.py"
_KEEPING = "embedbk/client/keeping.py"
_COLUMNS = "embedbk/archive/columns.py"
_RESTORING = "embedbk/archive/restoring.py"
_STORED_FORM = "embedbk/client/stored_form.py"
_FACE = "tests/faces/test_compression.py::test_"
_HOSTILE = _FACE + "a_frame_that_is_not_what_it_claims"
_ARCHIVE = "tests/archive/test_compressed.py::test_"

MUTANTS = (
    Mutant(
        "a-claim-has-no-bound",
        "WIRE-1",
        "bookies store entries that claim to be unpacked to gigabytes",
        (
            (
                _FRAME,
                "    return bytes <= EBK_ENTRY_APPEND_BYTES_MAX && ebk_load_u16(at + 4) <= bytes;\n",
                "    return ebk_load_u16(at + 4) <= bytes;\n",
            ),
        ),
        (_FACE + "a_claim_beyond_the_bound_of_an_entry_is_stored_nowhere[claim0]",),
    ),
    Mutant(
        "what-a-frame-says-is-not-compared",
        "WIRE-1",
        "a frame is unpacked that says another size than its attribute, as far as the attribute goes",
        (
            (
                _ZSTD,
                "        if told.decompressed_size != claim.byte_count:\n",
                "        if claim.byte_count < 0:\n",
            ),
        ),
        (_HOSTILE + "[a-bomb]", _HOSTILE + "[no-size]"),
    ),
    Mutant(
        "attributes-of-both-places-have-no-bound",
        "WIRE-1",
        "an entry whose attributes have no room together ends its reader with an error of Python",
        ((_ZSTD, "if len(attributes) > _ATTRIBUTES_BYTES_MAX:", "if claim.byte_count < 0:"),),
        (_FACE + "attributes_that_have_no_room_together_are_an_error_that_names_the_entry",),
    ),
    Mutant(
        "what-stands-behind-a-frame-is-passed-over",
        "WIRE-1",
        "bytes behind the frame are passed over",
        ((_ZSTD, "    if decompressor.unused_data:\n", "    if claim.byte_count < 0:\n"),),
        (_HOSTILE + "[a-byte-behind]", _HOSTILE + "[two-frames]"),
    ),
    Mutant(
        "compressed-attributes-are-believed",
        "WIRE-1",
        "attributes that stand outside of a frame may stand in it as well",
        (
            (
                _ZSTD,
                "    if any(kind not in _INSIDE for kind in kinds_in(attributes)):\n",
                "    if 0 in kinds_in(attributes):\n",
            ),
        ),
        (_HOSTILE + "[compressed-twice]",),
    ),
    Mutant(
        "unpacked-attributes-are-not-checked",
        "WIRE-1",
        "parts that do not fit their payload are taken, as they were compressed when the entry was checked",
        ((_ZSTD, "        kernels.offsets(whole)\n", "        kernels.crc32c(whole)\n"),),
        (_HOSTILE + "[parts-that-do-not-fit]",),
    ),
    Mutant(
        "a-small-frame-fills-the-memory",
        "WIRE-1",
        "a frame of entries is unpacked in one piece, however large that is",
        ((_ZSTD, "        if entries and size + len(whole) > FRAME_BYTES_MAX:\n", "        if size < 0:\n"),),
        (_FACE + "a_small_frame_comes_in_pieces_no_larger_than_a_frame",),
    ),
    Mutant(
        "a-bad-entry-takes-those-before-it",
        "WIRE-1",
        "an entry that cannot be unpacked takes with it those before it in its frame",
        ((_ZSTD, "            if entries:\n", "            if size < 0:\n"),),
        (_HOSTILE + "[cut-short]",),
    ),
    Mutant(
        "compressed-and-larger",
        "WIRE-1",
        "an entry is stored compressed although that is larger",
        (
            (
                _ZSTD,
                " if len(beside) + len(packed) < len(attributes) + size else None\n",
                " if packed else None\n",
            ),
        ),
        (_FACE + "what_the_attribute_is",),
    ),
    Mutant(
        "small-enough-when-compressed",
        "WIRE-1",
        "an entry over the bound is appended if it is small when it is compressed",
        ((_ZSTD, "len(attributes) + size <= ENTRY_BYTES_MAX and view.c_contiguous", "view.c_contiguous"),),
        (_FACE + "an_entry_over_the_limit_is_refused_however_small_it_would_be",),
    ),
    Mutant(
        "a-tail-gives-what-is-stored",
        "WIRE-1",
        "who follows a log is given frames of zstd",
        (
            (
                _FOLLOWING,
                "                        for each in plain(located):\n",
                "                        for each in (located,):\n",
            ),
        ),
        (_FACE + "each_way_to_append_is_compressed_and_each_way_to_read_gives_what_was_appended",),
    ),
    Mutant(
        "runs-are-not-compressed",
        "P8.7",
        "what is appended by append_many is stored as it is",
        (
            (
                _STORED_FORM,
                "        run = squeezed_run(run)\n",
                "        run = squeezed_run(run) and run\n",
            ),
        ),
        (_FACE + "each_way_to_append_is_compressed_and_each_way_to_read_gives_what_was_appended",),
    ),
    Mutant(
        "an-owner-compresses-on",
        "P8.7",
        "an owner does not look whether its log is still to be compressed",
        (
            (
                _KEEPING,
                "    owning.write_by(durability, digest, compression)\n",
                "    owning.write_by(durability, digest, owning.traits.compression)\n",
            ),
        ),
        ("tests/scenarios/test_log_settings.py::test_an_owner_compresses_as_long_as_it_is_the_setting",),
    ),
    Mutant(
        "an-archive-has-frames-as-values",
        "P8.14",
        "the column of values has what is stored, which nobody can read",
        (
            (
                _COLUMNS,
                "kernels.values(body if plain is None else plain)",
                "kernels.values(body)",
            ),
        ),
        (_ARCHIVE + "files_have_what_was_appended_and_give_back_what_is_stored",),
    ),
    Mutant(
        "an-archive-gives-back-values",
        "P8.14",
        "the entries of an archive are made of what was appended, which is not what their writer stored",
        ((_COLUMNS, 'pc.coalesce(column["stored"], payloads)', "pc.coalesce(payloads)"),),
        (_ARCHIVE + "files_have_what_was_appended_and_give_back_what_is_stored",),
    ),
    Mutant(
        "restored-without-keys",
        "P8.14",
        "records of compressed entries come back without what stood beside their values",
        ((_RESTORING, '    if "stored" in rows.schema.names:\n', "    if not rows.num_rows:\n"),),
        (_ARCHIVE + "restored_to_another_log_records_are_what_they_were",),
    ),
)
