"""Lists of logs in pages (P8.6), and what is truncated of them (P8.3, P8.8)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_LISTING = "embedbk/core/log_listing.py"
_PAGING = "embedbk/core/log_paging.py"
_LIST = "embedbk/codec/log_list.py"
_DELETING = "embedbk/client/deleting.py"
_DELETING_LOGS = "embedbk/client/log_deleting.py"
_WALK = "embedbk/client/log_pages.py"

_JUDGE = "embedbk/core/truncation.py"
_TRUNCATING = "embedbk/core/truncating.py"
_DROPPING = "embedbk/core/dropping.py"
_PINNING = "embedbk/client/truncating.py"
_OWNING = "embedbk/client/owning.py"

_P8 = "tests/rules/test_p8_pages.py::test_"
_FACES = "tests/scenarios/test_logs_in_pages.py::test_"
_MIXED = "tests/scenarios/test_mixed_lists.py::test_"
_CUT = "tests/rules/test_p8_truncating.py::test_"
_LETS_GO = "tests/scenarios/test_truncating.py::test_"

MUTANTS = (
    Mutant(
        "a-page-behind-the-list",
        "P8.6",
        "what leaves the list for a page is not written there in the same transaction",
        ((_LISTING, "        for number, page in after.moved:\n", "        for number, page in ():\n"),),
        (_P8 + "a_page_is_written_with_the_list_and_the_list_is_what_is_compared",),
    ),
    Mutant(
        "who-does-not-know-the-level-drops-the-pages",
        "P10.8 P8.6",
        "a client that has not heard of the level writes the list without its pages",
        ((_LIST, "    if value.pages is not None:\n", "    if value.pages is not None and is_whole:\n"),),
        (_P8 + "a_client_that_has_not_heard_of_the_level_keeps_the_pages",),
    ),
    Mutant(
        "an-open-ledger-goes-to-a-page",
        "P8.1 P8.6",
        "ledgers that are not recorded as closed leave the list, so that no takeover finds them",
        (
            (
                _PAGING,
                "if each.last_entry is None), len(segments))",
                "if each.last_entry == 7), len(segments))",
            ),
        ),
        (_P8 + "the_newest_closed_ledger_stays_and_what_is_open_too",),
    ),
    Mutant(
        "a-ledger-in-a-page-may-be-deleted",
        "P8.3",
        "delete_ledger looks into the list, and not into its pages",
        (
            (
                _DELETING,
                "    if await ListWalk(runtime, name).holding(log_list, metadata",
                "    if await ListWalk(runtime, name).holding(replace(log_list, pages=None), metadata",
            ),
        ),
        (_FACES + "a_ledger_that_a_page_names_is_not_deleted",),
    ),
    Mutant(
        "the-pages-of-a-deleted-log-stay",
        "P8.3",
        "a log is deleted without the ledgers that its pages name",
        ((_DELETING_LOGS, "            ids += listed\n", ""),),
        (_FACES + "a_log_goes_with_its_pages_wherever_its_deletion_is_cut_short",),
    ),
    Mutant(
        "a-reader-skips-a-page",
        "P8.6 I97",
        "whoever comes to the end of a page goes on behind the next one",
        (
            (
                _WALK,
                "await self._in_page(pages, place.number + 1)",
                "await self._in_page(pages, min(place.number + 2, pages.end - 1))",
            ),
        ),
        (_FACES + "a_log_in_pages_is_read_from_anywhere_to_anywhere",),
    ),
    Mutant(
        "the-last-page-behind-the-search",
        "P8.6",
        "a search takes the page before the one that it looks for",
        (
            (
                _PAGING,
                "            low, found = middle, page\n",
                "            low, found = middle - 1, None\n",
            ),
        ),
        (_P8 + "a_ledger_is_found_by_few_pages[7]",),
    ),
    Mutant(
        "pages-in-any-order-that-say-they-rise",
        "P8.6 P8.10",
        "a ledger of a page whose ids do not rise is looked for by halving",
        ((_PAGING, "            is_mixed=is_mixed,\n", "            is_mixed=False,\n"),),
        (_P8 + "pages_say_whether_the_ids_along_them_rise",),
    ),
    Mutant(
        "where-a-position-ends-by-its-id",
        "P8.10",
        "a reader ends at a ledger whose id is above that of the end",
        (
            (
                "embedbk/client/log_places.py",
                "        return None if is_before or is_empty else 0\n",
                "        return 0 if segment.ledger_id > end.ledger_id else None\n",
            ),
        ),
        (_MIXED + "a_log_is_read_from_anywhere_to_anywhere_in_any_order_of_ids",),
    ),
    Mutant(
        "behind-a-ledger-by-its-id",
        "P8.10 I97",
        "what follows a ledger that left the list is the one with the next id",
        (
            (
                "embedbk/client/log_places.py",
                "        before = await self.walk.last(log_list, lambda each: _begins_before(each, begins))\n",
                "        before = await self.walk.last(log_list, lambda each: each.ledger_id <= left.ledger_id)\n",
            ),
        ),
        (_MIXED + "what_is_truncated_and_deleted_is_found_by_the_list",),
    ),
    Mutant(
        "what-was-truncated-is-forgotten",
        "P8.3 L13",
        "ledgers leave the list and are named nowhere: a crash leaves them for ever",
        (
            (
                _TRUNCATING,
                "        left = (*self.staying, *(segment.ledger_id for segment in gone))\n",
                "        left = tuple(self.staying)\n",
            ),
        ),
        (_CUT + "the_list_goes_first_and_says_what_is_to_be_deleted",),
    ),
    Mutant(
        "the-next-owner-deletes-nothing",
        "P8.3 L13",
        "what a truncation left behind a crash stays",
        (
            (
                _OWNING,
                "            self._start_telling(OneResult(Dropping(self.name, self.runtime.wall_ms(), grace_ms)))\n",
                "",
            ),
        ),
        (_LETS_GO + "what_a_crash_leaves_between_is_deleted_by_the_next_takeover[pages-1]",),
    ),
    Mutant(
        "the-last-ledger-is-truncated",
        "P8.3",
        "of a log the last ledger goes too when it is closed",
        (
            (
                _JUDGE,
                "        if index + 1 == len(window) and not has_more:\n",
                "        if index + 1 == len(window) and has_more:\n",
            ),
        ),
        (_LETS_GO + "the_last_ledger_and_an_open_one_stay[pages]",),
    ),
    Mutant(
        "a-clock-that-begins-in-1970-lets-young-ledgers-go",
        "P8.8",
        "a time below that of the ledger itself says that the ledger ended then",
        ((_JUDGE, "floor_ms <= later.created_ms <= now_ms", "later.created_ms <= now_ms"),),
        (_CUT + "a_time_of_a_wrong_clock_says_nothing_of_when_a_ledger_ended",),
    ),
    Mutant(
        "a-clock-that-ran-ahead-once-holds-a-log-for-ever",
        "P8.8",
        "a time that has not come yet is taken for the end of the ledger before",
        ((_JUDGE, "floor_ms <= later.created_ms <= now_ms", "floor_ms <= later.created_ms"),),
        (_CUT + "a_time_of_a_wrong_clock_says_nothing_of_when_a_ledger_ended",),
    ),
    Mutant(
        "pins-are-not-looked-at",
        "P8.8 I96",
        "what a pin holds is truncated",
        (
            (
                _JUDGE,
                "        if lowest is not None and end > lowest.offset:\n",
                "        if lowest is not None and end > lowest.offset + 99:\n",
            ),
        ),
        (_LETS_GO + "a_pin_holds_everybody_and_goes_by_its_name_or_time[pages]",),
    ),
    Mutant(
        "a-pin-that-comes-between-is-not-seen",
        "P8.8 I96",
        "truncation looks at the pins, and does not compare them",
        ((_TRUNCATING, "            Compare(log_pins_path(self.name), self.pins_revision),\n", ""),),
        (_CUT + "a_pin_that_comes_between_holds",),
    ),
    Mutant(
        "a-pin-that-comes-too-late-is-made",
        "P8.8 I96",
        "a pin does not compare the list: it holds what is gone",
        ((_PINNING, "[Compare(log_key_path(reading.name), list_revision)]", "[]"),),
        (_LETS_GO + "a_pin_that_is_made_beside_a_truncation_holds_it_or_comes_too_late[pages]",),
    ),
    Mutant(
        "offsets-move-with-the-front",
        "P8.3 I93",
        "what a truncation leaves of a page is said to begin where the page began",
        ((_JUDGE, "        first_offset=end_of(gone[-1]),\n", ""),),
        (_CUT + "pages_go_when_all_of_them_is_truncated",),
    ),
    Mutant(
        "truncated-without-a-tombstone",
        "CL31 P8.3",
        "truncated ledgers may lose their bytes at once",
        (
            (
                _DROPPING,
                "                Put(tombstone_path(ledger_id), encode_tombstone(stone)),\n",
                "",
            ),
        ),
        (_LETS_GO + "whole_ledgers_before_a_place_go_and_offsets_stay[pages]",),
    ),
    Mutant(
        "an-unheard-truncation-did-nothing",
        "P2.2 P8.8",
        "a change of the list that was not heard of, and landed, is told as nothing done",
        (
            (
                _TRUNCATING,
                "        if self.pending is not None and self.log_list",
                "        if self.pending is None and self.log_list",
            ),
        ),
        (_CUT + "a_change_of_unknown_outcome_is_counted_once_if_it_lands[True]",),
    ),
    Mutant(
        "a-ledger-listed-ahead-tells-the-time",
        "P8.8 P8.2",
        "entries that were appended behind the begin of the next ledger go by that time",
        (
            (
                _JUDGE,
                "place > index + 1 or later.begun in (Begun.TAKEOVER, Begun.SPLICE)",
                "place > index",
            ),
        ),
        (_CUT + "a_ledger_that_was_listed_ahead_does_not_say_when_the_one_before_it_ended",),
    ),
    Mutant(
        "truncation-of-a-wrong-password",
        "P3.5",
        "whoever has not the password of a log truncates it",
        ((_TRUNCATING, "metadata.password_verifier != self.verifier", "not metadata.password_verifier"),),
        (_LETS_GO + "bad_input_changes_nothing[pages]",),
    ),
    Mutant(
        "what-another-log-has-is-deleted",
        "P2.5 P8.3",
        "a ledger is deleted because a key names it, whosever it is",
        (
            (
                _DROPPING,
                "metadata.is_closed and metadata.custom.get",
                "metadata.is_closed or metadata.custom.get",
            ),
        ),
        (_CUT + "only_what_metadata_itself_calls_closed_and_this_logs_is_deleted",),
    ),
)
