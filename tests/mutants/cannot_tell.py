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
                ("        if answer.status == Status.NO_SUCH_LEDGER:\n            self.absent"),
                (
                    "        if answer.status in (Status.NO_SUCH_LEDGER, "
                    "Status.WRONG_INCARNATION):\n"
                    "            self.absent"
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
                "embedbk/core/bookie.py",
                (
                    "        if not self.is_settled:\n"
                    "            absent = []  # In an older copy they may be missing (P7.9).\n"
                ),
                "",
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
                    "            self._wait(now_ns, str(unread))  # Cannot be told: neither "
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
)
