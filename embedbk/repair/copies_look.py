"""The look at CLOSED ledgers: whether registered bookies hold all that they owe, as one auditor asks them (P11.4).

Decides which ledgers wait for the rest of their block, which blocks are passed over since nothing of them changed
(`unchanged_blocks`), which rounds pass over nothing, and what is new of what was found: a bookie that lacks something
and is not named by the ledger's mark, or record, yet. Remembers entries whose copies differ, by ledger, as it was
looked at last; nobody is marked for these. Leaves to others: what a bookie is asked (`block_questions`, `holdings`),
when the next part is asked about, and what is marked (`auditor`).

    ledgers of a page ─▶ all of their block was met ─▶ numbers of their blocks ─▶ passed over, or
                                                        asked about, part by part ─▶ `LookedInto`
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.client_words import BELOW_LEVEL, Answered, SendFailed
from embedbk.core.machine import Effect
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member
from embedbk.repair.block_questions import BlockQuestions, Numbered
from embedbk.repair.copy_comparison import Conflict
from embedbk.repair.holdings import Checked, HoldingCheck
from embedbk.repair.published import Unlike
from embedbk.repair.unchanged_blocks import BlockOptions, UnchangedBlocks

__all__ = ["CopiesLook", "LookedInto"]

_NOBODY: frozenset[str] = frozenset()


class LookedInto(NamedTuple):
    """questions: that were asked. short: ledger -> bookies that lack something, and are not named yet. untold: ledgers
    of which a bookie did not tell, though it could."""

    questions: int
    short: dict[int, set[str]]
    untold: list[int]


class CopiesLook:
    """One kind of questions at a time: while `is_asking`, answers and ticks belong to it. Then `taken` tells what came
    of it."""

    def __init__(self, blocks: BlockOptions, conflicts_max: int) -> None:
        """conflicts_max: ledgers with copies that differ, and are remembered."""
        self.conflicts: dict[int, list[Conflict]] = {}  # By ledger, as it was looked at last.
        self.unlike: dict[int, list[Unlike]] = {}  # The same of copies that their writer did not publish so.
        # Ledgers that a bookie that is there lacks something of, and blocks that were passed over, as far as this
        # process has seen.
        self.lacking = self.passed_blocks = 0
        self._options = blocks
        self._conflicts_max = conflicts_max
        self._left: dict[int, LedgerMetadata] = {}  # To be asked about.
        self._later: dict[int, LedgerMetadata] = {}  # The same, once all of their block was met.
        self._named: dict[
            int, frozenset[str]
        ] = {}  # Ledger -> bookies of it that are marked, or beyond help.
        self._asking: HoldingCheck | BlockQuestions | None = None
        self._asked: tuple[int, ...] = ()  # The ledgers that are asked about now.
        self._found: LookedInto | None = None
        # Ledgers about which nobody is asked in this round, since nothing of them changed.
        self._blocks = UnchangedBlocks(blocks)
        self._judging: list[int] = []  # Blocks whose numbers are asked for now.
        self._is_full = True  # This round passes over nothing.
        self._brief_rounds = 0  # Since the last one that passed over nothing.

    @property
    def deadline_ns(self) -> int | None:
        return self._asking.deadline_ns if self._asking is not None else None

    @property
    def is_asking(self) -> bool:
        return self._asking is not None

    @property
    def has_more(self) -> bool:
        """There are ledgers to be asked about."""
        return bool(self._left)

    @property
    def has_later(self) -> bool:
        """There are ledgers of whose block the round has not met all yet."""
        return bool(self._later)

    # Rounds.

    def forget_blocks(self) -> None:
        """The auditor was elected: what it saw in another office tells nothing now."""
        self._blocks, self._brief_rounds = UnchangedBlocks(self._options), 0

    def begin_round(self, *, is_asked_for: bool) -> None:
        """is_asked_for: by an operator: then nothing is passed over."""
        self._blocks.begin_round()
        self._is_full = is_asked_for or self._brief_rounds + 1 >= self._options.full_rounds

    def give_up_rest(self) -> None:
        """The round is over, whether it came to its end or not."""
        self._left, self._later, self._named = {}, {}, {}

    def end_whole_round(self) -> None:
        """It has met all ledgers."""
        self._blocks.end_round()
        self._brief_rounds = 0 if self._is_full else self._brief_rounds + 1

    # Ledgers.

    def add(self, ledger_id: int, metadata: LedgerMetadata, named: frozenset[str] = _NOBODY) -> None:
        """Its bookies are to be asked; what those lack that are named already is nothing new."""
        self._left[ledger_id], self._named[ledger_id] = metadata, named

    def meet(self, ledger_id: int, value: bytes, metadata: LedgerMetadata | None) -> None:
        """The round met it, and has added it by then where it is to be asked about. metadata: None: its value cannot be
        read."""
        self._blocks.meet(ledger_id, value, metadata, is_to_check=ledger_id in self._left)

    # Numbers of blocks.

    def ask_numbers(self, now_ns: int, there: frozenset[Member], last_met: int | None) -> list[Effect]:
        """Ledgers wait until this round has met all of their block: its numbers are asked for behind the last value,
        and before the first question about a ledger. last_met: the ledger that the page ends with; None: there is no
        other page."""
        left = {**self._later, **self._left}
        self._judging = self._blocks.met_until(None if last_met is None else max([*left, last_met]))
        are_met = set(self._judging)
        self._left, self._later = {}, {}
        for ledger_id, metadata in left.items():
            is_met = last_met is None or self._blocks.block_of(ledger_id) in are_met
            (self._left if is_met else self._later)[ledger_id] = metadata
        asked = self._blocks.to_ask(self._judging)
        if not asked:
            self._pass_over({})
            return []
        self._asking = BlockQuestions(asked, there)
        return self._drive(self._asking.step(Started(now_ns)))

    def _pass_over(self, numbers: dict[int, dict[Member, int]]) -> None:
        passed = self._blocks.judge(self._judging, numbers, is_full=self._is_full)
        self.passed_blocks += len(passed)
        for ledger_id in [each for each in self._left if self._blocks.block_of(each) in passed]:
            del self._left[ledger_id]
            self._named.pop(ledger_id, None)

    # Questions about ledgers.

    def ask(self, now_ns: int, there: frozenset[Member], ledgers_max: int | None) -> list[Effect]:
        """About the next part of what is left: so many ledgers at most; None: about all."""
        self._asked = tuple(self._left)[:ledgers_max]
        ledgers = {ledger_id: self._left.pop(ledger_id) for ledger_id in self._asked}
        self._asking = HoldingCheck(ledgers, there)
        return self._drive(self._asking.step(Started(now_ns)))

    def step(self, event: Answered | SendFailed | Tick) -> list[Effect]:
        assert self._asking is not None
        return self._drive(self._asking.step(event))

    def taken(self) -> LookedInto | None:
        """What the bookies said of ledgers; None: they were asked for numbers of blocks alone."""
        found, self._found = self._found, None
        return found

    def _drive(self, effects: list[Effect]) -> list[Effect]:
        ended = next((each for each in effects if isinstance(each, Ended)), None)
        if ended is None:
            return effects
        asking, self._asking = self._asking, None
        if isinstance(asking, BlockQuestions):
            told: Numbered = ended.result
            self._blocks.is_below_level |= told.is_below_level
            self._pass_over(told.numbers)
            return []
        assert asking is not None
        self._blocks.take_look(self._asked, asking.sound)
        if not self._left:
            self._blocks.end_look()
        self._found = self._take(ended.result)
        return []

    def _take(self, found: Checked) -> LookedInto:
        self.lacking += len(found.short)
        for ledger_id in self._asked:
            if ledger_id not in found.untold:
                self.conflicts.pop(ledger_id, None)
                self.unlike.pop(ledger_id, None)
        for ledger_id, conflicts in found.conflicts.items():
            if len(self.conflicts) < self._conflicts_max:
                self.conflicts[ledger_id] = conflicts
        for ledger_id, unlike in found.unlike.items():
            if len(self.unlike) < self._conflicts_max:
                self.unlike[ledger_id] = unlike
        named = {ledger_id: self._named.pop(ledger_id, _NOBODY) for ledger_id in self._asked}
        short: dict[int, set[str]] = {}
        for ledger_id, bookies in found.short.items():
            if unnamed := bookies.keys() - named[ledger_id]:
                short[ledger_id] = unnamed
        untold = [
            ledger_id
            for ledger_id, why in found.untold.items()
            if ledger_id not in found.short and BELOW_LEVEL not in why.values()
        ]
        return LookedInto(found.asked, short, untold)
