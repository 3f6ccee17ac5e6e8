"""Lists of logs in pages (P8.6), and what is truncated of them (P8.3, P8.8)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_LISTING = "embedbk/core/log_listing.py"
_PAGING = "embedbk/core/log_paging.py"
_METADATA = "embedbk/codec/ledger_metadata.py"
_DELETING = "embedbk/client/deleting.py"
_WALK = "embedbk/client/log_pages.py"

_P8 = "tests/rules/test_p8_pages.py::test_"
_FACES = "tests/scenarios/test_logs_in_pages.py::test_"

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
        ((_METADATA, "    if value.pages is not None:\n", "    if value.pages is not None and is_whole:\n"),),
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
                "    place = await ListWalk(runtime, name).last(log_list,",
                "    place = await ListWalk(runtime, name).last(replace(log_list, pages=None),",
            ),
        ),
        (_FACES + "a_ledger_that_a_page_names_is_not_deleted",),
    ),
    Mutant(
        "the-pages-of-a-deleted-log-stay",
        "P8.3",
        "a log is deleted without the ledgers that its pages name",
        ((_DELETING, "            ids += listed\n", ""),),
        (_FACES + "a_log_goes_with_its_pages_wherever_its_deletion_is_cut_short",),
    ),
    Mutant(
        "a-reader-skips-a-page",
        "P8.6 I97",
        "whoever comes to the end of a page goes on behind the next one",
        (
            (
                _WALK,
                "            return await self._in_page(pages, place.number + 1)\n",
                "            return await self._in_page(pages, min(place.number + 2, pages.end - 1))\n",
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
        "pages-of-lists-that-do-not-rise",
        "P8.6",
        "a list whose ids do not rise goes to pages, in which nobody finds its ledgers",
        ((_PAGING, "    if not page_ledgers or not _rises(segments, pages):", "    if not page_ledgers:"),),
        (_P8 + "a_list_whose_ids_do_not_rise_stays_one_value",),
    ),
)
