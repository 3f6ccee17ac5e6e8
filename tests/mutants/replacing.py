"""Ledgers of logs that failed: what moves to the next one, when, and how often (P8.2)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_OUTLIVING = "embedbk/client/outliving.py"
_REPLACING = "embedbk/client/replacing.py"
_APPENDING = "embedbk/client/appending.py"
_PAST = "embedbk/client/past.py"
_PLACED = "embedbk/client/placed.py"
_CORE = "embedbk/core/log_replacing.py"
_WRITING = "embedbk/host/writing.py"

_FACES = "tests/faces/test_replacing.py::test_"
_P8 = "tests/rules/test_p8_replacing.py::test_"

MUTANTS = (
    Mutant(
        "sent-again-before-the-close-is-settled",
        "P8.2 P2.2",
        "a close without an outcome is taken for one at the LAC",
        (
            (
                _REPLACING,
                "        except (LedgerFenced, LedgerClosed, NoSuchLedger):\n            return None\n",
                (
                    "        except (LedgerFenced, LedgerClosed, NoSuchLedger):\n            return None\n"
                    "        except OperationTimeout:\n            return before.lac\n"
                ),
            ),
        ),
        (_FACES + "nothing_moves_while_the_close_has_no_outcome",),
    ),
    Mutant(
        "outstanding-is-sent-twice",
        "P8.2 I99",
        "what its core had sent is appended again twice",
        (
            (
                _PLACED,
                "    packer, frames = writing.packer, deque(writing.outstanding)\n",
                (
                    "    for sent in writing.outstanding:\n"
                    "        to.append_again(sent, 0, sent.entry_count)\n"
                    "    packer, frames = writing.packer, deque(writing.outstanding)\n"
                ),
            ),
        ),
        (_FACES + "what_is_outstanding_goes_to_the_next_ledger_once_and_ahead_of_what_comes",),
    ),
    Mutant(
        "what-a-recovery-kept-is-sent-again",
        "P8.2 I99",
        "outstanding entries move from the LAC on, not from where the ledger ended",
        ((_PLACED, "    due = last_entry + 1\n", "    due = writing.lac + 1\n"),),
        (_FACES + "what_a_recovery_kept_counts_as_appended_there",),
    ),
    Mutant(
        "the-lac-of-the-failed-ledger-is-ignored",
        "P8.2 P5.3",
        "the next ledger is listed as if nothing had been acknowledged above the recorded end",
        (
            (
                _CORE,
                "        if metadata.last_entry < self.confirmed:  # Somebody's word",
                "        if metadata.last_entry < -1:  # Somebody's word",
            ),
        ),
        (_P8 + "an_end_below_what_was_acknowledged_is_nobody_s_word",),
    ),
    Mutant(
        "outstanding-entries-change-places",
        "P8.2 I92",
        "frames go to the next ledger the newest first",
        (
            (
                _PLACED,
                "frame = frames.popleft() if frames else sealed",
                "frame = frames.pop() if frames else sealed",
            ),
            (
                _PLACED,
                '            ensure(frame.first_entry <= due, "an outstanding entry was let go of")\n',
                "            due = frame.first_entry\n",
            ),
            (
                _PLACED,
                "        if due <= frame.last_entry:\n",
                "        if last_entry < frame.first_entry:\n",
            ),
            (
                _PLACED,
                '    ensure(due == max(last_entry, packer.last_entry) + 1, "an outstanding entry was let go of")\n',
                "",
            ),
        ),
        (_FACES + "what_is_outstanding_goes_to_the_next_ledger_once_and_ahead_of_what_comes",),
    ),
    Mutant(
        "a-run-is-split-by-others",
        "P3.1 P8.2",
        "whose rest is waited for is not known in the next ledger",
        (
            (
                _APPENDING,
                "        following_packer.hold_for(packer.held_by)\n",
                "",
            ),
        ),
        (_FACES + "a_run_of_one_call_stays_together",),
    ),
    Mutant(
        "a-rest-that-nobody-brings-is-waited-for",
        "P3.1 P8.2",
        "who gives up the rest of a run says so to the failed ledger only",
        (
            (
                "embedbk/client/many_append.py",
                (
                    "                handle = handle.heir.appending\n"
                    "                handle.writing.packer.give_up_rest(self._caller)\n"
                ),
                "                handle = handle.heir.appending\n",
            ),
        ),
        (_FACES + "who_gives_up_the_rest_in_the_next_ledger_lets_others_append",),
    ),
    Mutant(
        "a-run-is-made-again-where-the-next-ledger-fails-too",
        "P3.1 P8.2",
        "whose rest found no room in the next ledger, which failed as well, is appended again as a whole",
        (
            (
                "embedbk/client/many_append.py",
                "                except HandedOver:\n                    failed = following\n",
                "                except StopIteration:\n                    failed = following\n",
            ),
            (
                "embedbk/client/passage.py",
                "                if left.ticket is not None:\n",
                "                if left is None:\n",
            ),
        ),
        (_FACES + "a_run_whose_rest_waits_while_the_next_ledger_fails_too_is_there_once",),
    ),
    Mutant(
        "a-run-that-began-is-told-to-be-nowhere",
        "P8.2",
        "the error of the last entry of a run says of all of them that they are in no ledger",
        (
            (
                _APPENDING,
                "            failed.definite = failed.definite and began_on.lac < entry_id\n",
                "            assert began_on.lac >= NO_ENTRY and entry_id >= 0\n",
            ),
        ),
        (_FACES + "a_run_that_began_is_not_told_to_be_nowhere",),
    ),
    Mutant(
        "a-rest-is-refused-where-the-log-leaves-its-ledger",
        "P3.1 P8.2",
        "a call that stands in a failed ledger with its beginning is no call in its middle to the next one",
        (
            (
                "embedbk/client/many_append.py",
                "rest = await self._queue_all(following, left, has_begun=True)",
                "rest = await self._queue_all(following, left)",
            ),
        ),
        (_FACES + "the_rest_of_a_run_is_taken_by_a_ledger_that_the_log_is_about_to_leave",),
    ),
    Mutant(
        "moved-although-the-log-was-lost",
        "P8.4",
        "whose the log is, is not asked",
        (
            (
                _CORE,
                (
                    "        if event.value is None or event.revision != self.epoch:\n"
                    "            return self._lose()\n        if self.ended"
                ),
                "        if self.ended",
            ),
        ),
        (_P8 + "who_lost_the_epoch_recovers_nothing_and_lists_nothing",),
    ),
    Mutant(
        "ledgers-are-replaced-without-end",
        "L14 P8.2",
        "a ledger in which nothing was acknowledged does not count",
        ((_REPLACING, "        if self._fruitless >= FRUITLESS_MAX:\n            return None\n", ""),),
        (
            "tests/faces/test_replacing_often.py::test_ledgers_in_which_nothing_is_acknowledged_come_to_an_end",
        ),
    ),
    Mutant(
        "a-lost-log-is-not-told-behind-a-failure",
        "P8.4",
        "an owner that asked whose the log is keeps the answer to itself",
        (
            (
                "embedbk/client/owning.py",
                "        except (LedgerFenced, LogSealed):\n            self.lose()\n            raise\n",
                "        except LedgerFenced:\n            raise\n",
            ),
            (
                _OUTLIVING,
                "                self.owning.lose()  # Appends report it.\n",
                "                pass\n",
            ),
        ),
        ("tests/faces/test_losing.py::test_an_owner_whose_metadata_is_away_hears_it_from_a_bookie",),
    ),
    Mutant(
        "a-condition-on-an-id-is-forgotten",
        "P8.2",
        "an entry that was to have an id of the failed ledger is in the next one, under another",
        ((_PAST, "(names_id or refused[-1:] == [entry_id - 1])", "refused[-1:] == [entry_id - 1]"),),
        (_FACES + "conditions_hold_by_order_and_those_on_an_id_by_their_ledger",),
    ),
    Mutant(
        "ids-behind-a-refused-entry-slip",
        "P8.2 I93",
        "a ticket behind an entry that did not move names the place before its own",
        ((_PLACED, "entry_id - self.last_entry - 1 - before", "entry_id - self.last_entry - 1"),),
        (_FACES + "conditions_hold_by_order_and_those_on_an_id_by_their_ledger",),
    ),
    Mutant(
        "a-fate-before-it-is-decided",
        "P3.6 P8.2",
        "an entry behind the end of a failed ledger is told to be lost while it may still move",
        (
            (
                "embedbk/client/tickets.py",
                "return Fate.UNKNOWN if handle.writing.is_undecided else Fate.LOST",
                "return Fate.LOST",
            ),
        ),
        (_FACES + "too_few_bookies_for_a_while_fail_no_append",),
    ),
    Mutant(
        "producers-stay-behind",
        "P3.1 P8.2",
        "an append that moved is looked for in the failed ledger, where its sequence stands no more",
        (
            (
                _PAST,
                "            self.producers.move(self.current)\n",
                "            pass\n",
            ),
        ),
        (_FACES + "producers_and_batches_go_along",),
    ),
    Mutant(
        "each-failed-ledger-is-the-first",
        "L14 P8.2",
        "what replaces failed ledgers is made anew for each, and forgets how many failed in a row",
        (
            (
                _OUTLIVING,
                "self._replacing = self._replacing or Replacing(self.owning)",
                "self._replacing = Replacing(self.owning)",
            ),
        ),
        (
            "tests/faces/test_replacing_often.py::test_ledgers_in_which_nothing_is_acknowledged_come_to_an_end",
        ),
    ),
    Mutant(
        "each-idle-writer-has-what-few-need",
        "P8.2",
        "what replaces failed ledgers is made with each writer of a log, of which there may be very many",
        (
            (
                _OUTLIVING,
                "        self._replacing: Replacing | None = None  # Made when the first ledger fails.\n",
                "        self._replacing: Replacing | None = Replacing(owning)\n",
            ),
        ),
        ("tests/faces/test_idle_logs.py::test_an_idle_writer_of_a_log_is_few_objects",),
    ),
    Mutant(
        "a-flush-tells-what-was-refused",
        "P8.2",
        "whoever flushes is told the refusal of another caller's entry, and waits for nothing before it",
        (("embedbk/client/tickets.py", "            last -= 1\n", "            raise\n"),),
        (
            "tests/faces/test_replacing.py::test_a_flush_passes_what_was_refused_and_waits_for_the_rest[False]",
        ),
    ),
    Mutant(
        "what-was-queued-is-appended-again",
        "P3.6",
        "an append whose fate is not known is tried again in another ledger, or refused definitely",
        (("embedbk/client/passage.py", "        if refused.ticket is not None:\n", "        if False:\n"),),
        (
            "tests/faces/test_replacing.py::test_what_was_queued_is_not_appended_again_when_its_ledger_is_not_replaced",
        ),
    ),
)
