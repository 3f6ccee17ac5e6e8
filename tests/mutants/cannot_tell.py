"""Mutants where something cannot be told, and is no "no", and where it is looked at again behind another's change."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "another-disk-is-absent",
        "P5.2c P7.2",
        ("a recovery takes a bookie with another disk for one that says that it has no such entry"),
        (
            (
                "embedbk/core/recovery.py",
                ("        if answer.status == Status.NO_SUCH_LEDGER:\n            forward.note_absent"),
                (
                    "        if answer.status in (Status.NO_SUCH_LEDGER, "
                    "Status.WRONG_INCARNATION):\n"
                    "            forward.note_absent"
                ),
            ),
        ),
        ("tests/rules/test_any_order.py::test_a_ledger_keeps_its_promises_whatever_happens",),
    ),
    Mutant(
        "unsettled-says-absent",
        "P7.9 I32",
        (
            "a bookie that does not know yet whether it is an older copy says of what "
            "it lacks that it is absent"
        ),
        (
            (
                "embedbk/core/read_answering.py",
                "    return absent if knows_all(row) and may_deny else []\n",
                "    return absent if knows_all(row) else []\n",
            ),
        ),
        ("tests/host/test_starts.py::test_without_metadata_what_it_holds_is_served_and_nothing_is_denied",),
    ),
    Mutant(
        "an-unread-cookie-is-none",
        "P7.9 P7.2",
        (
            "a bookie that cannot read what the cluster knows of its directories puts "
            "its own word in that place"
        ),
        (
            (
                "embedbk/host/registering.py",
                (
                    "            self._wait(now_ns, str(unread))  # Not known: neither "
                    "its own, nor another's.\n"
                    "            return\n"
                    "        if cookie is not None and"
                ),
                ("            cookie = None if str(unread) else None\n        if cookie is not None and"),
            ),
        ),
        ("tests/host/test_starts.py::test_a_cookie_that_cannot_be_read_is_nobodys",),
    ),
    Mutant(
        "a-deleted-ledger-leaves-limbo",
        "P7.4 CL32",
        ("a ledger in limbo whose key is gone is in limbo no more, though it may be brought back"),
        (
            (
                "embedbk/host/limbo.py",
                (
                    "            return  # Asked again later; what becomes of a deleted "
                    "ledger's data is the collector's (P7.7).\n"
                ),
                (
                    "            if isinstance(result, Value):\n"
                    "                self._tell_bookie(ShareTold(now_ns, ledger_id, []))\n"
                    "            return\n"
                ),
            ),
        ),
        ("tests/host/test_limbo_asking.py::test_a_ledger_in_limbo_stays_there_when_it_is_deleted",),
    ),
    Mutant(
        "half-a-listing-is-one",
        "P7.4 I32",
        ("where a page of the ledgers cannot be had, those on the pages before are all"),
        (
            (
                "embedbk/host/limbo.py",
                ("                on_partial(now_ns)  # From the start again.\n                return\n"),
                ("                self._tell(now_ns, found)\n                return\n"),
            ),
        ),
        ("tests/host/test_limbo_asking.py::test_a_listing_that_ends_early_begins_anew",),
    ),
    Mutant(
        "silence-lifts-a-doubt",
        "P10.5 P7.7",
        "metadata that does not answer is no older one any more",
        (
            (
                "embedbk/core/witness.py",
                ("        self.due_ns = event.now_ns + self.options.again_ns\n        return []\n"),
                (
                    "        self.due_ns, self.doubt = event.now_ns + self.options.again_ns, "
                    "''\n"
                    "        return []\n"
                ),
            ),
        ),
        ("tests/rules/test_p10_witness.py::test_only_an_answer_lifts_a_doubt",),
    ),
    Mutant(
        "limbo-says-how-far",
        "P6.2 P7.4",
        ("a bookie in limbo counts among those that said how far a ledger may be read"),
        (
            (
                "embedbk/core/lac_reader.py",
                (
                    "        known = isinstance(answer, LacAnswer) and answer.status in "
                    "(Status.OK, Status.NO_SUCH_LEDGER)\n"
                ),
                (
                    "        known = isinstance(answer, LacAnswer) and answer.status in (\n"
                    "            Status.OK,\n"
                    "            Status.NO_SUCH_LEDGER,\n"
                    "            Status.IN_LIMBO,\n"
                    "        )\n"
                ),
            ),
        ),
        ("tests/rules/test_p6_reading.py::test_a_bookie_that_may_have_lost_data_gives_no_lac",),
    ),
    Mutant(
        "one-address-answers-for-all",
        "P7.9",
        "a process that listens in two places is dead when one of them refuses",
        (
            (
                "embedbk/host/rival.py",
                (
                    "        self._links.pop(link, None)\n"
                    "        if not self._links and self._done is not None:\n"
                ),
                ("        self._links.pop(link, None)\n        if self._done is not None:\n"),
            ),
        ),
        ("tests/host/test_starts.py::test_a_living_one_is_found_at_any_of_its_addresses",),
    ),
    Mutant(
        "another-copy-of-a-members-log",
        "P2.1 P9.2",
        ("a member starts on a log whose last noted start is another one's, when it is long enough"),
        (
            (
                "embedbk/storage/member_notes.py",
                "    if used.start_count and nonce is not None and nonce != used.nonce:\n",
                "    if used.start_count and nonce is None:\n",
            ),
        ),
        ("tests/storage/test_member_notes.py::test_a_log_of_another_copy_is_refused",),
    ),
    Mutant(
        "cancelled-is-not-run",
        "P2.2 P10.1",
        ("a transaction that was given up while it was under way counts as one that never runs"),
        (
            (
                "embedbk/metadata/outstanding_requests.py",
                (
                    '        code = "UNAVAILABLE" if pending.is_repeatable else UNKNOWN\n'
                    '        text = "cancelled'
                ),
                ('        code = "UNAVAILABLE"\n        text = "cancelled'),
            ),
        ),
        ("tests/metadata/test_client.py::test_a_cancelled_request_says_whether_it_may_be_run",),
    ),
    Mutant(
        "a-change-undoes-a-repair",
        "P4.3 P2.2",
        (
            "a change that was refused because of a repair is published again with the "
            "fragments from before it"
        ),
        (
            (
                "embedbk/core/change_publishing.py",
                "        self.metadata, self.revision = found, revision\n        self.publishing.drop()\n",
                "        self.revision = revision\n        self.publishing.drop()\n",
            ),
        ),
        ("tests/rules/test_p4_crossing_changes.py::test_a_change_refused_by_repair_is_decided_again",),
    ),
    Mutant(
        "closed-elsewhere-is-closed-here",
        "P5.1 I15",
        ("a close that finds the ledger closed by another succeeds, wherever that one closed it"),
        (
            (
                "embedbk/core/writer.py",
                ("            if self.state is WriterState.CLOSING and found.last_entry == self.lac:\n"),
                "            if self.state is WriterState.CLOSING:\n",
            ),
        ),
        ("tests/rules/test_p5_closing.py::test_a_refused_close_reads_again_and_decides",),
    ),
    Mutant(
        "who-fails-beside-a-change-stays",
        "P4.2 P4.5",
        ("who failed while another change was in flight is not looked at when that is settled"),
        (
            (
                "embedbk/core/writer.py",
                "        effects += self.ensemble.look_again(now_ns)\n",
                "        self.ensemble.note_stall(now_ns)\n",
            ),
        ),
        (
            "tests/rules/test_p4_crossing_changes.py::test_late_errors_without_metadata_acknowledge_nothing_on_an_ensemble_that_nobody_knows",
        ),
    ),
    Mutant(
        "whose-place-was-free-once",
        "P7.9",
        "that one process was dead tells of the one that has registered since",
        (
            (
                "embedbk/host/registering.py",
                "there.start == self._storage.starts.id or revision == self._dead:\n",
                "there.start == self._storage.starts.id or self._dead:\n",
            ),
        ),
        ("tests/host/test_starts.py::test_that_one_was_dead_says_nothing_of_who_came_after_it",),
    ),
    Mutant(
        "a-last-word-over-another-start",
        "P7.9",
        ("what a process that stops says of itself goes over the word of the one after it"),
        (("embedbk/host/registering.py", "Txn([Compare(key, self._written)], [Put(", "Txn([], [Put("),),
        ("tests/host/test_starts.py::test_a_last_word_that_comes_late_changes_nothing",),
    ),
    Mutant(
        "what-came-back-meanwhile-is-dropped",
        "P7.7 I35",
        (
            "between the reading of a ledger's key and the last look at it a change of "
            "its ensemble is not seen"
        ),
        (
            (
                "embedbk/core/collector.py",
                "                Compare(key, event.revision),\n",
                "",
            ),
        ),
        ("tests/rules/test_p7_dropping.py::test_a_ledger_that_is_seated_here_between_two_reads_is_kept",),
    ),
    Mutant(
        "a-newer-tombstone-is-forgotten",
        "CL31 CL32 P7.7",
        (
            "a ledger that was brought back and deleted again loses the tombstone that "
            "it has now, for the time that the one before had"
        ),
        (
            (
                "embedbk/client/deleting.py",
                (
                    "runtime.transact([Compare(record.key, record.revision)], "
                    "[Delete(record.key)], what):\n"
                    "            forgotten"
                ),
                ("runtime.transact([], [Delete(record.key)], what):\n            forgotten"),
            ),
        ),
        ("tests/scenarios/test_deleting.py::test_a_ledger_that_is_deleted_again_has_all_of_its_grace",),
    ),
    Mutant(
        "a-list-names-what-was-deleted-meanwhile",
        "P8.3 I90",
        (
            "an owner publishes a list with the ledger that it prepared before, also when "
            "somebody has deleted that since it was read"
        ),
        (
            (
                "embedbk/core/log_listing.py",
                "        when = [*listing.when, Compare(ledger_key_path(metadata.ledger_id), revision)]\n",
                "        when = [*listing.when, Compare(log_owner_path(self.name), self.epoch)][: max(revision, 1)]\n",
            ),
        ),
        ("tests/rules/test_p8_replacing.py::test_a_prepared_ledger_is_taken_as_it_was_read",),
    ),
    Mutant(
        "a-key-goes-with-who-had-it-before",
        "P10.1 I74",
        ("a key of a session that another session took over goes when the first one ends"),
        (
            (
                "embedbk/metadata/session_table.py",
                "        del owner.keys[record.key]\n",
                "",
            ),
        ),
        ("tests/metadata/test_catalog.py::test_an_ephemeral_key_belongs_to_who_put_it_last",),
    ),
    Mutant(
        "another-start-under-our-count",
        "P7.9",
        ("a copy of a bookie's directories that started as often as it is not told from it"),
        (
            (
                "embedbk/host/registering.py",
                "        if cookie.starts and not starts.has(cookie.starts, cookie.start):\n",
                "        if cookie.starts > starts.count:\n",
            ),
        ),
        ("tests/host/test_starts.py::test_an_older_copy_is_in_limbo_before_it_serves",),
    ),
)
