"""Seals of logs (P8.9): who is refused, what is written over, who ends."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_LISTING = "embedbk/core/log_listing.py"
_SEALING = "embedbk/core/log_sealing.py"
_LIST = "embedbk/codec/log_list.py"
_FOLLOWING = "embedbk/client/log_following.py"

_RULE = "tests/rules/test_p8_sealing.py::test_"
_FACE = "tests/scenarios/test_sealing.py::test_"

MUTANTS = (
    Mutant(
        "a-sealed-log-is-taken-over",
        "P8.9 I103",
        "a takeover does not look for a seal",
        (
            (
                _LISTING,
                "            if log_list.seal is not None:\n",
                "            if log_list.epoch < 0 and log_list.seal is not None:\n",
            ),
        ),
        (
            _RULE + "the_seal_stands_behind_closed_ledgers_and_compares_list_and_epoch",
            _FACE + "nobody_takes_a_sealed_log_over_and_the_error_says_why[pages]",
        ),
    ),
    Mutant(
        "a-seal-over-a-newer-list",
        "P8.9 P8.3",
        "the transaction that seals does not compare the list: what was truncated is listed again",
        ((_SEALING, "            Compare(log_key_path(self.name), self.list_revision),\n", ""),),
        (_RULE + "a_list_that_changed_meanwhile_is_not_written_over",),
    ),
    Mutant(
        "a-seal-of-whoever-was-fenced",
        "P8.9 P9.1",
        "the transaction that seals does not compare the epoch",
        ((_SEALING, "            Compare(log_owner_path(self.name), self.epoch),\n", ""),),
        (_RULE + "of_a_takeover_and_a_seal_one_is_first",),
    ),
    Mutant(
        "a-seal-goes-with-the-front",
        "P8.9 I103",
        "a list that has pages is written without its seal",
        (
            (
                _LIST,
                "        return msgspec.msgpack.encode(whole if value.seal is None else (*whole, value.seal))\n",
                "        return msgspec.msgpack.encode(whole)\n",
            ),
        ),
        (_FACE + "nobody_takes_a_sealed_log_over_and_the_error_says_why[pages]",),
    ),
    Mutant(
        "a-reader-waits-behind-the-seal",
        "P8.9",
        "a tail waits at the end of a sealed log for what never comes",
        (
            (
                _FOLLOWING,
                " or (shown is not None and shown.seal is not None):",
                " or (shown is not None and shown.epoch < 0):",
            ),
        ),
        (_FACE + "readers_end_where_the_log_ends[pages]",),
    ),
)
