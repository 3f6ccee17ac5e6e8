"""Other numbers of copies (P2.6), and wounds of places and holds that seeds found beside them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_RESHAPED = "tests/repair/test_reshaping.py::test_"
_SEARCHED = "tests/repair/test_misfits.py::test_"
_COPIED = _RESHAPED + "closed_ledgers_get_the_numbers_of_copies_that_the_settings_name"

MUTANTS = (
    Mutant(
        "a-ledger-gets-another-e-beside-its-losses",
        "P2.6 P11.5",
        "a ledger of which every third entry was given up gets four seats, and nobody can read its metadata",
        (
            (
                "embedbk/repair/reshaping.py",
                "    return all(step in (1, wanted.ensemble_size) for _, _, step in runs_of(metadata.lost))\n",
                "    return True\n",
            ),
        ),
        (
            "tests/repair/test_reshaping.py::test_a_ledger_whose_losses_other_numbers_cannot_name_keeps_its_own",
        ),
    ),
    Mutant(
        "reshaped-before-all-fragments-are-copied",
        "P2.6",
        "the numbers are published when the first fragment is copied",
        (
            (
                "embedbk/repair/reshaping.py",
                "            if number not in self.copied and owed",
                "            if not self.copied and owed",
            ),
        ),
        (_RESHAPED + "a_ledger_with_a_password_or_several_fragments_is_copied_too",),
    ),
    Mutant(
        "reshaped-copies-leave-a-seat-out",
        "P2.6",
        "the last seat of a striped shape gets no copies",
        (
            (
                "embedbk/repair/fragment_copy.py",
                "for seat, member in enumerate(self.ensemble))",
                "for seat, member in enumerate(self.ensemble[:-1]))",
            ),
        ),
        (_COPIED,),
    ),
    Mutant(
        "reshaped-under-other-settings",
        "P2.6",
        "the settings that name the numbers are not compared when these are published",
        (
            (
                "embedbk/repair/ledger_repair.py",
                "return self._put_ledger(reshape.published(metadata), settings)",
                "return self._put_ledger(reshape.published(metadata))",
            ),
        ),
        (_RESHAPED + "what_is_published_compares_all_that_it_was_decided_by",),
    ),
    Mutant(
        "reshaped-below-the-level",
        "P10.8",
        "a worker gives ledgers other numbers while builds are there that know none",
        (
            (
                "embedbk/repair/ledger_repair.py",
                "if self.may_reshape and log is not None and",
                "if log is not None and",
            ),
        ),
        (_RESHAPED + "what_is_published_compares_all_that_it_was_decided_by",),
    ),
    Mutant(
        "reader-keeps-the-shape-that-it-knew",
        "P2.6",
        "a reader that reads the metadata again asks the write sets of before",
        (("embedbk/core/reader.py", "        self.quorum = self.metadata.quorum\n        if", "        if"),),
        (_RESHAPED + "a_handle_reads_on_when_the_bookies_of_before_have_dropped_their_copies",),
    ),
    Mutant(
        "an-open-ledger-may-get-other-numbers",
        "P2.3",
        "a handle of an open ledger believes other numbers of copies",
        (
            (
                "embedbk/codec/ledger_metadata.py",
                "    if not metadata.is_closed:\n        before",
                "    if False:\n        before",
            ),
        ),
        (_RESHAPED + "only_a_closed_ledger_may_have_other_numbers",),
    ),
    Mutant(
        "misfits-without-bookies-are-forgotten",
        "P2.6",
        "a ledger for which too few bookies are there is never looked at again",
        (
            (
                "embedbk/repair/misfits.py",
                "            self._leave(ledger_id)\n            named",
                "            named",
            ),
        ),
        (_SEARCHED + "no_mark_is_made_where_too_few_bookies_take_copies_or_none_has_any",),
    ),
    Mutant(
        "misfits-are-looked-for-behind-the-newest-ledger",
        "P2.5",
        "a page that ends with a stranger's key is read again and again",
        (
            (
                "embedbk/repair/misfits.py",
                "self.page_end, ledger_id = key, ledger_of_key(key)\n",
                "ledger_id = ledger_of_key(key)\n            self.page_end = ledger_id and key or self.page_end\n",
            ),
        ),
        (_SEARCHED + "strangers_keys_and_what_cannot_be_read_end_no_search",),
    ),
    Mutant(
        "health-passes-over-fewer-copies",
        "P2.6",
        "the cluster is called good while a log keeps fewer copies than its settings name",
        (("embedbk/repair/health.py", "is_good=health.is_good and not fewer", "is_good=health.is_good"),),
        (_RESHAPED + "health_is_never_good_while_a_log_keeps_fewer_copies_than_its_settings_name",),
    ),
    Mutant(
        "worker-forgets-what-it-is-given-beside-its-own-repair",
        "P11.1",
        "a ledger that the next session is given while the repair of the one before goes on stays locked",
        (("embedbk/repair/worker.py", "        if ledger_id not in self.behind:\n", "        if True:\n"),),
        (
            "tests/repair/test_worker.py::test_what_it_is_given_beside_its_repair_of_a_lost_session_is_begun_behind_it",
        ),
    ),
    Mutant(
        "tail-goes-on-behind-a-gap",
        "I97",
        "what stands behind a page is taken for what follows it",
        (("embedbk/client/log_pages.py", "        if not _follows(", "        if False and not _follows("),),
        ("tests/scenarios/test_logs_in_pages.py::test_a_tail_never_goes_on_behind_a_gap",),
    ),
    Mutant(
        "who-begins-behind-what-is-truncated-is-told-so",
        "I97",
        "entries in front of the place where a reader begins count as missing",
        (
            (
                "embedbk/client/log_places.py",
                "if offset > max(wanted, begins + first):",
                "if offset > wanted:",
            ),
        ),
        ("tests/scenarios/test_truncating.py::test_who_begins_behind_what_is_truncated_misses_nothing",),
    ),
)
