"""Putting truncated ledgers back in front of their log (P8.15)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_UNDELETING = "embedbk/client/undeleting.py"
_FRONTING = "embedbk/core/fronting.py"
_TRUNCATION = "embedbk/core/truncation.py"
_DROPPING = "embedbk/core/dropping.py"
_KEEPING = "embedbk/repair/log_keeping.py"
_KEPT = "tests/repair/test_log_keeping.py::test_"
_RULES = "tests/rules/test_p8_undeleting.py::test_"
_SCENES = "tests/scenarios/test_undeleting.py::test_"
_HELD = _RULES + "a_bookie_that_does_not_say_so_holds_nothing"
_BESIDE = _SCENES + "one_transaction_decides_beside_others"

MUTANTS = (
    Mutant(
        "undeleting-silence-is-a-yes",
        "P8.15",
        "a bookie that does not say what it holds counts as holding all",
        ((_UNDELETING, " and bookie_id not in untold and", " and"),),
        (_HELD,),
    ),
    Mutant(
        "undeleting-one-copy-will-do",
        "P8.15",
        "a ledger comes back where one bookie holds it",
        ((_UNDELETING, ".bit_count() < metadata.ack_quorum:", ".bit_count() < 1:"),),
        (_HELD,),
    ),
    Mutant(
        "undeleting-does-not-compare-the-list",
        "P8.15",
        "the list is written over what others made of it meanwhile",
        ((_UNDELETING, "        Compare(log_key_path(name), revision),\n", ""),),
        (_BESIDE,),
    ),
    Mutant(
        "undeleting-does-not-compare-tombstones",
        "P8.15",
        "a ledger comes back whose tombstone was taken away meanwhile: bookies may have dropped it",
        ((_UNDELETING, "Compare(tombstone_path(each), found.revision), ", ""),),
        (_BESIDE,),
    ),
    Mutant(
        "undeleting-does-not-compare-placements",
        "P10.6",
        "a bookie that is drained meanwhile is named again, and its operator does not learn it",
        ((_UNDELETING, "when += [*more_when, *placements.values()]", "when += more_when"),),
        (_SCENES + "a_bookie_that_is_drained_meanwhile_is_told",),
    ),
    Mutant(
        "undeleting-takes-either-of-two",
        "P8.15",
        "of two ledgers that say that they stood there one is taken",
        ((_FRONTING, "while counts[first_offset] == 1 and", "while counts[first_offset] and"),),
        (_RULES + "a_run_ends_at_the_list_and_at_the_first_gap",),
    ),
    Mutant(
        "undeleting-names-what-stays-deleted",
        "I90",
        "the page names ledgers that did not come back",
        ((_FRONTING, "skipped=len(front.segments) - count,", "skipped=0,"),),
        (_RULES + "what_a_truncation_takes_off_the_list_itself_has_a_page_kept_for_it",),
    ),
    Mutant(
        "undeleting-has-no-word-for-mixed-ids",
        "P8.10",
        "ids that do not rise along the pages are searched as if they did",
        ((_FRONTING, "is_mixed=pages.is_mixed or not has_order", "is_mixed=pages.is_mixed"),),
        (_RULES + "ids_that_do_not_rise_are_known_as_such",),
    ),
    Mutant(
        "truncation-keeps-no-page",
        "P8.15",
        "what goes off a list without pages has no number of a page to come back to",
        ((_TRUNCATION, "number = pages.end + 1 if reserves else pages.end", "number = pages.end"),),
        (_RULES + "what_a_truncation_takes_off_the_list_itself_has_a_page_kept_for_it",),
    ),
    Mutant(
        "truncation-forgets-where-its-ledgers-stood",
        "P8.15",
        "what is left to be deleted behind a crash does not say where it stood",
        (
            (
                _DROPPING,
                "LedgersLeft(METADATA_VERSION, ids, (), places)",
                "LedgersLeft(METADATA_VERSION, ids)",
            ),
        ),
        (_SCENES + "what_truncation_has_not_deleted_yet_is_deleted_first",),
    ),
    Mutant(
        "undeleting-takes-another-end",
        "P8.15",
        "a ledger comes back with another end than the list had, and offsets move",
        (
            (
                _UNDELETING,
                "if not metadata.is_closed or metadata.last_entry != segment.last_entry:",
                "if not metadata.is_closed:",
            ),
        ),
        (_SCENES + "files_of_the_archive_another_end_and_another_password_stay",),
    ),
    Mutant(
        "an-elected-host-forgets-where-ledgers-stood",
        "P8.15",
        "what a host truncates for a log that nobody writes never comes back",
        ((_KEEPING, "notes_places=self.level >= LEVEL_OF_FRONTS,", ""),),
        (_KEPT + "what_an_elected_host_truncates_can_be_put_back",),
    ),
    Mutant(
        "an-elected-host-notes-below-the-level",
        "P10.8",
        "a build before meets a list without pages that keeps the number of one",
        ((_KEEPING, "notes_places=self.level >= LEVEL_OF_FRONTS,", "notes_places=True,"),),
        (_KEPT + "where_ledgers_stood_is_noted_from_its_level_on",),
    ),
)
