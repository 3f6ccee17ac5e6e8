"""An operator's word about copies that differ: what it may replace, and what is written of it (P11.5)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_BOOKIE = "embedbk/core/bookie.py"
_CHOOSING = "embedbk/client/copy_choosing.py"
_RULE = "tests/rules/test_p11_choosing.py::test_"
_SCENE = "tests/repair/test_choosing.py::test_"
_COMMAND = "tests/cli/test_choose_copy.py::test_"

MUTANTS = (
    Mutant(
        "a-word-replaces-whatever-is-there",
        "P11.5",
        "a bookie replaces a copy that the word is not about",
        (
            (
                "embedbk/core/copy_replacement.py",
                "(stored != frame.body and digest != request.replaces)",
                "(stored != frame.body and not digest)",
            ),
        ),
        (_RULE + "any_other_copy_stays", _SCENE + "nothing_is_chosen_of_what_was_not_shown"),
    ),
    Mutant(
        "a-word-makes-copies",
        "P11.5",
        "a bookie that has no copy takes the chosen one",
        (
            (
                "embedbk/core/copy_replacement.py",
                "        if stored is None or (stored != frame.body",
                "        if stored is not None and (stored != frame.body",
            ),
        ),
        (_RULE + "what_is_not_held_is_not_made",),
    ),
    Mutant(
        "a-word-is-done-before-it-is-durable",
        "I40",
        "the answer to a replacement does not wait for its record",
        (
            (
                "embedbk/core/copy_replacement.py",
                "entry_digest(frame.body)))\n        self._replies.reply_when(row.last_token, reply",
                "entry_digest(frame.body)))\n        self._replies.reply_when(0, reply",
            ),
        ),
        (_RULE + "the_copy_that_is_meant_is_replaced_and_answered_when_that_is_durable",),
    ),
    Mutant(
        "a-word-survives-a-failed-journal",
        "P7.6",
        "a replacement whose record will never be durable is acknowledged",
        (
            (
                "embedbk/core/pending_replies.py",
                "control = ReplaceAnswer(Status.UNKNOWN, control",
                "control = ReplaceAnswer(control.status, control",
            ),
        ),
        (_RULE + "behind_a_failed_journal_nothing_is_promised",),
    ),
    Mutant(
        "two-words-at-once",
        "P11.5",
        "two replacements of one entry are looked up together",
        (("embedbk/core/copy_replacement.py", "elif self._looks.is_replacing(request):", "elif False:"),),
        (_RULE + "of_two_words_at_once_one_is_answered_later",),
    ),
    Mutant(
        "a-word-about-another-ledger-key",
        "P2.2",
        "the transaction of a decision does not compare the ledger's key",
        (
            (
                _CHOOSING,
                "when = [Compare(ledger_key, shown.revision), Compare(key, shown.decided_revision)]",
                "when = [Compare(key, shown.decided_revision)]",
            ),
        ),
        (_SCENE + "what_changed_since_it_was_shown_is_refused",),
    ),
    Mutant(
        "a-word-over-another-word",
        "P2.2",
        "the transaction of a decision does not compare what was decided before",
        (
            (
                _CHOOSING,
                "when = [Compare(ledger_key, shown.revision), Compare(key, shown.decided_revision)]",
                "when = [Compare(ledger_key, shown.revision)]",
            ),
        ),
        (_SCENE + "nothing_is_chosen_of_what_was_not_shown",),
    ),
    Mutant(
        "a-word-without-a-digest",
        "P11.5",
        "whatever was typed, copies are replaced",
        (("embedbk/cli/choose_copy.py", "and given != wanted:", "and given is None:"),),
        (_COMMAND + "a_conflict_is_shown_and_ended_by_the_typed_digest",),
    ),
    Mutant(
        "a-word-is-done-though-copies-are-left",
        "P11.5",
        "a decision is noted as done where a bookie did not answer",
        ((_CHOOSING, "    if not left:\n        decision", "    if left or not left:\n        decision"),),
        (_SCENE + "nothing_is_chosen_of_what_was_not_shown",),
    ),
    Mutant(
        "choosing-asks-for-no-word",
        "P11.5",
        "a bookie replaces a copy for whoever asks and knows its digest",
        (
            (
                "embedbk/core/copy_replacement.py",
                "Status.OK if _is_decided(event.decisions, meant) else",
                "Status.OK if meant else",
            ),
        ),
        (_RULE + "nobody_replaces_a_copy_who_has_no_word_for_it",),
    ),
    Mutant(
        "choosing-goes-by-an-older-word",
        "P11.5",
        "a word that was taken back by a later one still replaces copies",
        (
            (
                "embedbk/core/copy_replacement.py",
                "for decision in decisions[-1:]",
                "for decision in decisions",
            ),
        ),
        (_RULE + "nobody_replaces_a_copy_who_has_no_word_for_it",),
    ),
    Mutant(
        "choosing-takes-silence-for-a-word",
        "P2.2 P11.5",
        "where the metadata does not answer the copy is replaced",
        (
            (
                "embedbk/core/copy_replacement.py",
                "        status = Status.UNKNOWN\n        if event.decisions is not None and",
                "        status = Status.OK\n        if event.decisions is not None and",
            ),
        ),
        (_RULE + "nobody_replaces_a_copy_who_has_no_word_for_it",),
    ),
    Mutant(
        "alike-copies-stand-for-it-while-one-is-away",
        "P11.4 P7.1",
        "an operator may let copies stand for what was published though a bookie that is away may have the right one",
        (
            (
                _CHOOSING,
                " or not there.issuperset(metadata.fragment_of(entry_id).members):",
                ":",
            ),
            (
                _CHOOSING,
                "    is_alike = len({each.digest for each in shown.copies}) == 1",
                "    is_alike = len({each.digest for each in shown.copies if each.entry}) == 1",
            ),
            (
                _CHOOSING,
                "for each in (found.short, found.untold, found.conflicts)",
                "for each in (found.conflicts,)",
            ),
        ),
        (_SCENE + "nothing_stands_for_what_was_published_while_another_copy_may_come",),
    ),
    Mutant(
        "alike-copies-stand-for-it-beside-a-conflict",
        "P11.4",
        "an operator may let copies stand for what was published though another entry's copies differ, or lack",
        (
            (
                _CHOOSING,
                (
                    "    if any(ledger_id in each for each in (found.short, found.untold, found.conflicts)):\n"
                    "        return None\n"
                ),
                "",
            ),
        ),
        (_SCENE + "nothing_stands_for_what_was_published_while_another_copy_may_come",),
    ),
)
