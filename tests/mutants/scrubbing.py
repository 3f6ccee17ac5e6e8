"""Scrubs: what an answer proves, what is judged again, what counts as done (scrub/SCRUB.md)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CHECK = "embedbk/repair/copy_check.py"
_JUDGE = "embedbk/scrub/judging.py"
_COURSE = "embedbk/scrub/scrubbing.py"
_STATE = "embedbk/scrub/state.py"
_ALONE = "tests/repair/test_copy_check.py::test_"
_SCENE = "tests/scrub/test_scrub.py::test_"
_NOTED = "tests/scrub/test_state.py::test_"
_ARCHIVED = "embedbk/scrub/archived.py"
_FILES = "embedbk/scrub/archive_files.py"
_BESIDE = "tests/scrub/test_archived.py::test_"
_SINCE = "tests/scrub/test_since.py::test_"

MUTANTS = (
    Mutant(
        "no-check-is-independent",
        "SCRUB.md",
        "what the kernels in C pass though it is wrong, --independent passes too",
        (("embedbk/repair/copy_check.py", "if twins.scan(body) != here:", "if False:"),),
        ("tests/repair/test_copy_check.py::test_what_the_kernels_in_c_pass_is_found_independently",),
    ),
    Mutant(
        "scrub-calls-limbo-damage",
        "P7.4",
        "what a bookie in limbo leaves out counts as unreadable",
        (
            (
                _CHECK,
                "unsaid is not None and not reading.is_sure:",
                "unsaid is not None and reading.is_sure is None:",
            ),
        ),
        (
            _ALONE + "who_is_in_limbo_has_nothing_bad_and_nothing_missing",
            _SCENE + "who_is_in_limbo_proves_nothing",
        ),
    ),
    Mutant(
        "scrub-silence-is-missing",
        "P7.1",
        "what a silent bookie was not asked any more has no reason, and counts as told",
        (
            (
                _CHECK,
                "self._end_task(queue.tasks.popleft(), queue.silent)",
                "self._end_task(queue.tasks.popleft())",
            ),
        ),
        (_ALONE + "who_is_silent_or_not_reached_gets_no_more_reads",),
    ),
    Mutant(
        "scrub-places-by-guess",
        "P11.4",
        "an answer with a frame that is none makes all that was asked for unreadable",
        (
            (
                _CHECK,
                "        if reading.asked_last > reading.next_entry:\n",
                "        if reading.asked_last < 0:\n",
            ),
        ),
        (_ALONE + "frames_that_are_none_are_narrowed_down_to_their_entries",),
    ),
    Mutant(
        "scrub-loses-its-rate-at-the-end",
        "AR12",
        "the last bytes of a check are not waited for",
        ((_CHECK, "not each.out and not each.ready_ns for each", "not each.out for each"),),
        (_ALONE + "the_rate_bounds_each_bookie_and_another_does_not_wait",),
    ),
    Mutant(
        "scrub-compares-whole-copies-alone",
        "P11.4",
        "blocks whose sums differ are not looked into",
        ((_JUDGE, "not (is_whole and len(", "not (is_whole or len("),),
        (_SCENE + "each_bad_copy_is_found_in_its_place",),
    ),
    Mutant(
        "scrub-reports-at-first-sight",
        "P11.4",
        "what is found is reported though it does not stay",
        (
            (
                _COURSE,
                "                if found.is_sound:\n                    continue\n",
                "                if found.is_sound:\n                    found = was\n",
            ),
        ),
        (_SCENE + "what_is_repaired_or_deleted_meanwhile_is_no_finding",),
    ),
    Mutant(
        "scrub-owes-all-copies-while-open",
        "P4.5",
        "a ledger that is written owes every copy",
        (
            (
                _JUDGE,
                '        if is_closed:\n            found += _named("missing"',
                '        if quorum:\n            found += _named("missing"',
            ),
        ),
        (_SCENE + "an_open_ledger_is_read_up_to_its_lac_and_owes_its_ack_quorum",),
    ),
    Mutant(
        "scrub-is-complete-without-a-bookie",
        "P7.1",
        "a bookie that is not registered is passed over",
        (
            (
                _COURSE,
                '                    mine.untold[task.member.bookie_id] = "it is away"\n',
                "                    pass\n",
            ),
        ),
        (_SCENE + "a_bookie_that_is_away_makes_it_incomplete_and_nothing_missing",),
    ),
    Mutant(
        "scrub-lost-tasks-are-sound",
        "P7.1",
        "a read that nobody did counts as done",
        (
            (
                _COURSE,
                "for task in tasks if task not in read]",
                "for task in tasks if task in read and False]",
            ),
        ),
        (_SCENE + "what_was_not_read_is_not_sound",),
    ),
    Mutant(
        "scrub-state-of-other-seats",
        "P11.4",
        "a range counts as done though the ledger's key has changed since",
        ((_STATE, "blake2b(metadata, digest_size", 'blake2b(b"", digest_size'),),
        (_NOTED + "a_range_counts_while_the_metadata_is_the_same",),
    ),
    Mutant(
        "scrub-takes-a-second-head-for-a-range",
        "P11.4",
        "a head that another scrub put behind the first one is read as a range",
        (
            (
                _STATE,
                '            if each is not None and "v" not in each:\n',
                "            if each is not None:\n",
            ),
        ),
        (_NOTED + "a_file_that_two_scrubs_began_at_once_is_a_state",),
    ),
    Mutant(
        "scrub-notes-what-is-bad",
        "P11.4",
        "a ledger with something bad counts as done",
        (
            (
                _COURSE,
                "            elif mine.sound_to == unit.first - 1 and",
                "            if mine.sound_to == unit.first - 1 and",
            ),
        ),
        (_SCENE + "a_scrub_goes_on_where_it_was_and_only_there",),
    ),
    Mutant(
        "scrub-takes-another-order-for-a-change",
        "P11.4",
        "findings that come in another order count as other findings, so the ledger never holds still",
        (
            (_COURSE, "(self.value, set(self.findings),", "(self.value, list(self.findings),"),
            (_COURSE, "(other.value, set(other.findings),", "(other.value, list(other.findings),"),
        ),
        (_SCENE + "the_order_of_answers_is_no_change",),
    ),
    Mutant(
        "scrub-is-clean-without-its-archive",
        "P8.14",
        "an archive that is not mounted counts as one that holds what the copies do",
        ((_ARCHIVED, "        return [], str(unread)\n", '        return [], ""\n'),),
        (_BESIDE + "an_archive_that_cannot_be_read_is_incomplete_and_no_finding",),
    ),
    Mutant(
        "scrub-compares-files-that-nobody-read",
        "P8.14",
        "an archive that only its writer has looked at counts, too",
        ((_ARCHIVED, "record.state == ArchiveState.VERIFIED:", "record.state != ArchiveState.COPYING:"),),
        (_BESIDE + "only_what_is_verified_and_not_freed_is_compared",),
    ),
    Mutant(
        "scrub-sums-some-copies",
        "P11.4",
        "the sum of a bookie that lacks copies counts as one of all",
        ((_ARCHIVED, "told = block.sums[residue] if is_sound else None", "told = block.sums[residue]"),),
        (_BESIDE + "copies_that_are_missing_are_no_others_than_those_of_a_file_that_is_away",),
    ),
    Mutant(
        "scrub-compares-no-missing-entry",
        "P7.1",
        "an entry of which no bookie gave a copy counts as compared with the archive",
        ((_ARCHIVED, "        if unseen is not None:\n", "        if unseen is None and due is None:\n"),),
        (_BESIDE + "a_copy_that_is_missing_is_no_other_one",),
    ),
    Mutant(
        "scrub-takes-any-manifest",
        "P8.14",
        "a manifest counts that is not the one of the record",
        ((_FILES, "if manifest_hash(data) != archived.manifest:", "if not data:"),),
        (_BESIDE + "an_archive_that_cannot_be_read_is_incomplete_and_no_finding",),
    ),
    Mutant(
        "scrub-notes-what-no-archive-was-read-for",
        "P8.14",
        "a ledger whose archive is away is noted as done in the state",
        ((_COURSE, "            mine.sound_to = NO_ENTRY\n", "            pass\n"),),
        (_BESIDE + "a_ledger_is_done_when_its_archive_was_compared",),
    ),
    Mutant(
        "scrub-judges-by-an-old-record",
        "P8.14",
        "what was found beside an archive is judged again by the record as it was",
        (
            (
                _COURSE,
                "            if self.options.compares:\n                self.archived = await",
                "            if not self.options:\n                self.archived = await",
            ),
        ),
        (_BESIDE + "what_changes_between_two_looks_is_no_finding",),
    ),
    Mutant(
        "scrub-takes-the-next-ledger-for-an-end",
        "P8.8",
        "a ledger counts as ended when the next one was begun, into which its writer had not gone over",
        (
            (
                "embedbk/core/truncation.py",
                "is_behind = place > index + 1 or later.begun in (Begun.TAKEOVER, Begun.SPLICE)",
                "is_behind = place > index",
            ),
        ),
        (_SINCE + "a_ledger_is_passed_over_when_the_one_after_the_next_was_begun_before",),
    ),
    Mutant(
        "scrub-passes-over-the-time-itself",
        "P8.8",
        "a ledger that may have ended at the time that was given is passed over",
        (("embedbk/scrub/since.py", "ended < since_ms:", "ended <= since_ms:"),),
        (
            _SINCE + "a_ledger_is_passed_over_when_the_one_after_the_next_was_begun_before",
            _SINCE + "a_takeover_says_when_the_ledger_before_it_had_ended",
        ),
    ),
    Mutant(
        "page-of-findings-as-markup",
        "P2.5",
        "what any client may write stands in the page as markup",
        (("embedbk/report/document.py", 'else f"<td>{escape(cell)}</td>"', 'else f"<td>{cell}</td>"'),),
        (
            "tests/scrub/test_page.py::test_a_page_has_each_finding_and_what_could_not_be_told",
            "tests/report/test_report.py::test_the_page_is_whole_and_what_others_wrote_is_escaped",
        ),
    ),
)
