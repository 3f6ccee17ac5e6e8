"""Taking bookies out of service: drains, removal, and whether nodes may stop (P11.3)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_VERBS = "embedbk/client/draining.py"
_REPORTS = "embedbk/client/bookie_reports.py"
_RETIRING = "embedbk/client/retiring.py"
_DELETING = "embedbk/client/deleting.py"
_REGISTERING = "embedbk/host/registering.py"
_ENSEMBLE = "embedbk/core/ensemble_keeping.py"
_REPAIR = "embedbk/repair/ledger_repair.py"
_AUDITOR = "embedbk/repair/auditor.py"
_STOPPING = "embedbk/repair/stopping.py"
_USE = "embedbk/repair/bookie_use.py"
_READ_ONLY = "embedbk/client/read_only.py"

_STORY = "tests/repair/test_draining.py::test_"
_WORDS = "tests/repair/test_read_only_words.py::test_"
_AUDITED = "tests/repair/test_auditor.py::test_"
_MOVES = _STORY + "what_a_drained_bookie_has_moves_to_others_though_it_is_there"
_MAY_STOP = "embedbk/client/stopping.py"

MUTANTS = (
    Mutant(
        "a-ledger-that-is-written-to-lacks-nothing",
        "P11.3",
        "the last whole copy of what a restarted bookie missed may be lost, by a plan that was allowed",
        (
            (
                _MAY_STOP,
                "        found.update(as_if_closed(part, lacs))\n",
                "        found = {each: found[each] for each in found.keys() - written.keys()}\n",
            ),
        ),
        (_STORY + "a_bookie_that_missed_entries_of_a_ledger_that_is_written_to_counts_as_without_a_copy",),
    ),
    Mutant(
        "what-is-on-its-way-is-missing",
        "P11.3",
        "no node of a busy cluster ever may stop",
        ((_MAY_STOP, "    if late:\n", "    if not late and late:\n"),),
        (_STORY + "what_is_on_its_way_to_a_third_copy_is_no_reason",),
    ),
    Mutant(
        "who-was-late-once-counts-as-whole",
        "P11.3",
        "a bookie that stands still is taken for one that has what it was sent",
        (
            (
                _MAY_STOP,
                "        lacking.update(seats_lacking(await ask_bookies(runtime, late, there, what), there))\n",
                "        await ask_bookies(runtime, late, there, what)\n",
            ),
        ),
        (_STORY + "what_is_on_its_way_to_a_third_copy_is_no_reason",),
    ),
    Mutant(
        "the-lowest-lac-counts",
        "P6.1 P11.3",
        "the bookie that missed most says how much the others owe",
        (
            (
                "embedbk/core/known_lacs.py",
                "self.lacs[ledger_id] = max(self.lacs[ledger_id], answer.lac)",
                "self.lacs[ledger_id] = min(self.lacs[ledger_id], answer.lac)",
            ),
        ),
        ("tests/repair/test_known_lacs.py::test_the_highest_lac_of_the_last_fragment_counts",),
    ),
    Mutant(
        "a-read-only-word-is-not-followed",
        "P11.3",
        "the bookie lists itself as writable, and gets new ledgers",
        (
            (
                _REGISTERING,
                "self._is_writable and not note.takes_nothing_new",
                "self._is_writable and not note.is_draining",
            ),
        ),
        (_WORDS + "it_takes_no_new_ledger_and_serves_on_what_it_has_and_nothing_moves",),
    ),
    Mutant(
        "a-read-only-bookie-leaves",
        "P11.3",
        "what it has moves to others, which nobody asked for",
        ((_REGISTERING, "                note.is_draining,\n", "                note.takes_nothing_new,\n"),),
        (_WORDS + "it_takes_no_new_ledger_and_serves_on_what_it_has_and_nothing_moves",),
    ),
    Mutant(
        "a-cancelled-drain-ends-the-read-only-word",
        "P11.3",
        "who cancels a drain lets ledgers go to a bookie that another operator does not trust",
        (
            (
                _VERBS,
                "            note,\n            is_draining=False,\n            why=why",
                "            note,\n            is_draining=False,\n            read_only=None,\n            why=why",
            ),
        ),
        (_WORDS + "a_drain_and_a_read_only_word_stand_for_themselves",),
    ),
    Mutant(
        "what-cannot-be-read-is-no-decision",
        "P2.5 P11.3",
        "who cancels a drain takes away which directories are retired, and a bookie starts on them again",
        (
            (
                _REPORTS,
                '        return decode_placement(value or b"")\n    except StorageError as unread:\n',
                (
                    '        return decode_placement(value or b"")\n    except StorageError:\n'
                    "        return PlacementNote(is_draining=True)\n    except ValueError as unread:\n"
                ),
            ),
        ),
        (_STORY + "a_placement_that_cannot_be_read_is_kept_whatever_is_asked",),
    ),
    Mutant(
        "a-read-only-word-below-its-level",
        "P10.8 P11.3",
        "a bookie of the build before does not see it, and drops it",
        ((_READ_ONLY, "if not runtime.has_level(LEVEL_OF_READ_ONLY_WORDS):", "if False:"),),
        (_WORDS + "what_cannot_be_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "new-disks-are-read-only",
        "P11.3 P7.2",
        "a bookie whose disks are new takes nothing, by a word about the old ones",
        ((_RETIRING, "read_only = note.read_only if incarnation else None", "read_only = note.read_only"),),
        (_WORDS + "new_disks_under_its_id_are_not_read_only",),
    ),
    Mutant(
        "a-drain-counts-on-who-is-drained-beside-it",
        "P11.3 P10.6",
        "two drains each count on the other's bookie, and neither can end",
        (
            (
                _VERBS,
                "        when += [Compare(placement_path(name), revision) for name, revision in _some(takers)]\n",
                "",
            ),
        ),
        (_STORY + "two_drains_beside_each_other_do_not_count_on_each_other",),
    ),
    Mutant(
        "a-drain-that-cannot-end-begins",
        "P11.3",
        "three bookies, ledgers of three: the drain stands for ever",
        ((_VERBS, "        _check_takers(bookie_id, ledgers, takers)\n", ""),),
        (_STORY + "a_drain_that_cannot_end_is_refused_with_the_count_and_nothing_changes",),
    ),
    Mutant(
        "a-drained-bookie-lists-itself-as-writable",
        "P11.3 P10.6",
        "it shows the raised placement as one under which it may be named",
        ((_REGISTERING, "self._is_writable and not note.takes_nothing_new", "self._is_writable"),),
        (_STORY + "a_drained_bookie_that_is_started_again_is_still_drained",),
    ),
    Mutant(
        "read-only-forgets-the-drain",
        "P11.3",
        "a drained bookie that goes read-only takes ledgers again when it has room",
        (
            (
                _REGISTERING,
                "then.append(Put(placement_path(self._bookie_id), noted))",
                'then.append(Put(placement_path(self._bookie_id), b""))',
            ),
            (
                _REGISTERING,
                "            if not is_writable and not was_raised and not note.takes_nothing_new:",
                "            if not self._is_writable:",
            ),
        ),
        (_STORY + "a_drained_bookie_that_is_started_again_is_still_drained",),
    ),
    Mutant(
        "a-bookie-does-not-follow-its-placement",
        "P11.3",
        "a drain is heard of when the bookie registers next, which may be never",
        ((_REGISTERING, "        self._follow_placement(now_ns)\n", ""),),
        (_STORY + "a_cancelled_drain_takes_ledgers_again_and_moves_nothing_more",),
    ),
    Mutant(
        "a-drained-bookie-is-not-read-from",
        "P11.3",
        "a ledger whose only copies are on it cannot be moved",
        (
            (
                _REPAIR,
                "metadata, there = self.held.metadata, self.bookies.there\n",
                "metadata, there = self.held.metadata, self.bookies.staying\n",
            ),
            (
                _REPAIR,
                "self.copying.begin_fill(now_ns, metadata, self.filling, self.bookies.there)",
                "self.copying.begin_fill(now_ns, metadata, self.filling, self.bookies.staying)",
            ),
        ),
        (_MOVES,),
    ),
    Mutant(
        "repair-compares-the-placement-of-the-end",
        "P10.6",
        "a target goes out of service while it gets copies, and is named behind that",
        (
            (
                "embedbk/repair/known_bookies.py",
                "noted = {member.bookie_id: self._chosen[member] for",
                "noted = {member.bookie_id: {i.member: i.placement for i in self.listed}.get(member) for",
            ),
        ),
        (_STORY + "a_target_that_is_drained_while_it_gets_copies_is_not_named",),
    ),
    Mutant(
        "an-auditor-looks-once-at-who-leaves",
        "P11.3",
        "what a writer moved off behind the first round stays where it was for an hour",
        ((_AUDITOR, "if self.unmoved else self.options.round_ns", "if False else self.options.round_ns"),),
        (_AUDITED + "who_is_drained_is_marked_at_once_and_looked_for_again_while_a_ledger_names_it",),
    ),
    Mutant(
        "a-writer-moves-off-when-it-fails",
        "P11.3",
        "an idle writer keeps its seat on a drained bookie for ever",
        (
            (
                "embedbk/host/client_node.py",
                "            self.tell(writing, SeatLeaving(now_ns, member))\n",
                "            pass\n",
            ),
        ),
        (_STORY + "an_open_ledgers_writer_moves_off_it",),
    ),
    Mutant(
        "a-drained-seat-counts-as-failed",
        "P11.3",
        "where nobody can take the seat the writer sends it nothing more",
        (
            (
                _ENSEMBLE,
                "        if not seatings or proposal is None:\n            return []\n",
                "        if proposal is None:\n            return self.seat_failed(seatings[0].number, '', 0)\n",
            ),
        ),
        (_STORY + "where_nobody_can_take_a_seat_the_writer_stays_and_adds_go_on",),
    ),
    Mutant(
        "a-writer-that-could-not-move-is-not-asked-again",
        "P11.3",
        "whoever found nobody for the seat when the drain began keeps it",
        (
            (
                "embedbk/host/departures.py",
                "            self._look_at, self._delay_ns = now_ns + self._delay_ns, min(",
                "            self._look_at, self._delay_ns = None, min(",
            ),
        ),
        (_STORY + "where_nobody_can_take_a_seat_the_writer_stays_and_adds_go_on",),
    ),
    Mutant(
        "removal-looks-at-no-tombstones",
        "P11.3",
        "a deleted ledger is brought back, and its bookie is gone",
        ((_REPORTS, "    deleted = await keys(DELETED_PREFIX)\n", "    deleted: dict[str, bytes] = {}\n"),),
        (_STORY + "it_is_refused_while_a_ledger_names_it_or_while_it_is_there_and_not_drained",),
    ),
    Mutant(
        "who-is-brought-back-raises-nothing",
        "P11.3 P10.6",
        "a ledger comes back between the two listings of a removal, which misses it",
        ((_DELETING, "metadata), *raised]", "metadata)]"),),
        (_STORY + "a_ledger_that_comes_back_between_two_listings_is_seen",),
    ),
    Mutant(
        "removal-does-not-compare-the-placement",
        "P11.3 P10.6",
        "what landed behind the listing is not seen",
        (
            (
                _RETIRING,
                "            Compare(key, revision),\n            Compare(reg",
                "            Compare(reg",
            ),
        ),
        (_STORY + "a_ledger_that_comes_back_between_two_listings_is_seen",),
    ),
    Mutant(
        "one-that-is-there-and-not-drained-is-removed",
        "P11.3",
        "an empty bookie that takes ledgers is removed under them",
        ((_RETIRING, "    if not note.is_draining:\n        raise", "    if False:\n        raise"),),
        (_STORY + "it_is_refused_while_a_ledger_names_it_or_while_it_is_there_and_not_drained",),
    ),
    Mutant(
        "decommissioned-directories-join-again",
        "P11.3",
        "a bookie that was removed registers as if it were new, with what it has",
        ((_REGISTERING, "retired.incarnation == self._storage.incarnation", "retired.incarnation is None"),),
        (_STORY + "a_drained_bookie_is_forgotten_and_its_directories_are_refused",),
    ),
    Mutant(
        "who-is-registered-is-gone",
        "P11.5",
        "directories that are in use are refused at their next start",
        ((_RETIRING, ".incarnation == gone:\n            raise", ".incarnation == b'':\n            raise"),),
        (_STORY + "directories_that_are_gone_for_good_are_refused_if_they_come_back",),
    ),
    Mutant(
        "the-last-copy-is-given-up-unasked",
        "P11.5",
        "a bookie is replaced that alone has copies, and may come back",
        ((_RETIRING, "        if last and not accepts_loss:", "        if False and not accepts_loss:"),),
        (_STORY + "the_last_copy_is_not_given_up_by_mistake",),
    ),
    Mutant(
        "a-replaced-bookie-is-drained-on",
        "P11.3",
        "the new disks take nothing, for the drain of the old ones",
        ((_RETIRING, "note.is_draining and bool(incarnation)", "note.is_draining"),),
        (_STORY + "a_bookie_whose_drain_was_under_way_is_replaced_by_one_that_takes_ledgers",),
    ),
    Mutant(
        "an-unreadable-ledger-names-nobody",
        "P11.3 P2.5",
        "a bookie goes whose copies a later build's ledger names",
        (
            (
                _USE,
                "            continue  # A stranger's key, which is no ledger's.\n        try:\n",
                "            continue\n        if value == b'x':\n            continue\n        try:\n",
            ),
        ),
        (_STORY + "what_cannot_be_read_may_name_anybody",),
    ),
    Mutant(
        "who-is-away-counts-as-there",
        "P11.3",
        "a second bookie may stop while one is away",
        ((_STOPPING, "member in there and member.bookie_id not in", "member.bookie_id not in"),),
        (_STORY + "who_is_away_counts_as_stopped_and_an_entry_may_be_on_any_qa",),
    ),
    Mutant(
        "an-entry-is-on-all-of-its-write-set",
        "P11.3",
        "two of five copies may stop though two suffice to acknowledge",
        ((_STOPPING, "- fewest >= metadata.quorum.ack_quorum", "- fewest >= metadata.quorum.write_quorum"),),
        (_STORY + "who_is_away_counts_as_stopped_and_an_entry_may_be_on_any_qa",),
    ),
    Mutant(
        "the-last-bookies-may-take-nothing",
        "P11.3",
        "a bookie is put to read-only though then too few take entries",
        ((_READ_ONLY, "    if len(others) < seats:\n", "    if False:\n"),),
        (_WORDS + "the_last_bookies_that_take_entries_are_kept_for_what_is_written",),
    ),
    Mutant(
        "two-words-count-on-each-other",
        "P10.6",
        "the word does not compare the placements of those who take entries beside its bookie",
        (
            (
                _READ_ONLY,
                "            when += await _check_others(runtime, bookie_id, what)\n",
                "            await _check_others(runtime, bookie_id, what)\n",
            ),
        ),
        (_WORDS + "two_words_at_once_do_not_count_on_each_others_bookie",),
    ),
    Mutant(
        "who-was-restarted-counts-at-once",
        "P11.3",
        "a bookie that lacks entries counts as one with a copy",
        ((_STOPPING, "{*stopping, *without_copy}, stopping)", "stopping, stopping)"),),
        (_STORY + "a_bookie_that_was_restarted_counts_once_it_has_what_it_missed",),
    ),
    Mutant(
        "who-does-not-say-has-all",
        "P11.3",
        "a bookie that does not say what it holds counts as one with a copy",
        ((_STOPPING, "for told in (checked.short, checked.untold):", "for told in (checked.short,):"),),
        (_STORY + "a_bookie_that_does_not_say_what_it_holds_counts_as_without_a_copy",),
    ),
    Mutant(
        "who-answers-is-given-up",
        "P11.5",
        "directories are retired while their bookie serves, because metadata does not hear it",
        (
            (
                _RETIRING,
                "    if await answers(runtime, Member(bookie_id, incarnation), known.endpoints):\n",
                "    if False:\n",
            ),
        ),
        (_STORY + "a_bookie_that_answers_is_not_given_up_though_its_session_has_ended",),
    ),
    Mutant(
        "who-does-not-answer-is-there",
        "P11.5",
        "a bookie whose process stands still can never be given up",
        (
            (
                "embedbk/core/presence_query.py",
                "        return self._end(False) if is_over else []\n",
                "        return self._end(True) if is_over else []\n",
            ),
        ),
        ("tests/rules/test_presence_query.py::test_silence_is_no_answer_after_two_seconds",),
    ),
    Mutant(
        "addresses-are-heard-of-for-ever",
        "L13",
        "a bookie that was asked for once is dialled where it was, though it is not registered",
        (
            (
                "embedbk/client/presence.py",
                "        runtime.call_if_open(partial(links.forget, member))\n",
                "        pass\n",
            ),
        ),
        (_STORY + "a_bookie_that_answers_is_not_given_up_though_its_session_has_ended",),
    ),
)
