"""Keys of ledgers that a lost future may have changed: what the catalog lets happen to them (P10.5)."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import (
    Acknowledged,
    AdoptLedger,
    Compare,
    Delete,
    Lineage,
    MetadataRequest,
    Put,
    Refusal,
    Tell,
    Txn,
    TxnDone,
)
from embedbk.codec.quorum_messages import ForgetIds
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import (
    RULES,
    BeginLineage,
    RaiseTo,
    Run,
    StartSession,
    StopSparing,
    decode_command,
    encode_command,
)
from embedbk.metadata.governing import Governing
from embedbk.metadata.levels import LEVEL_OF_STALE_KEYS
from embedbk.metadata.loading import load
from embedbk.metadata.vocabulary import ForgetRequested
from tests.metadata.test_levels import pieces
from tests.metadata.test_member import Desk
from tests.metadata.world import TOKEN

OPEN, RECOVERED, CLOSED = LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED
LINEAGE = b"lineage."


def value_of(ledger_id: int, state: LedgerState, *others: str) -> bytes:
    """others: the bookies of a second fragment."""
    seats = tuple((name, b"i" * 16) for name in ("b1", "b2", "b3"))
    fragments = [Fragment(0, 0, seats)]
    if others:
        fragments.append(Fragment(5, 50, tuple((name, b"i" * 16) for name in others)))
    end = (9, 90) if state is CLOSED else (None, None)
    return encode_ledger_metadata(
        LedgerMetadata(METADATA_VERSION, ledger_id, 3, 3, 2, state, *end, bytes(32), 0, {}, tuple(fragments))
    )


class World:
    """A catalog in which every ledger from 1 on is in one state, and which goes on as a lineage."""

    def __init__(
        self, *states: LedgerState, level: int = LEVEL_OF_STALE_KEYS, is_whole: bool = False
    ) -> None:
        self.catalog = Catalog()
        self.index = 0
        self.apply(RaiseTo(level))
        self.apply(StartSession(0, 1000, "somebody", b"s", level))
        (self.session,) = self.catalog.sessions
        self.sequence = 0
        self.catalog.next_id = len(states) + 1
        for number, state in enumerate(states, 1):
            assert isinstance(self.put(number, state), TxnDone)
        self.apply(BeginLineage(LINEAGE, (), is_whole))

    def apply(self, command: object) -> object:
        self.index += 1
        return self.catalog.apply(decode_command(encode_command(command)), self.index, 1)  # type: ignore[arg-type]

    def run(self, operation: Txn) -> object:
        self.sequence += 1
        return self.apply(Run(self.session, self.sequence, self.sequence, operation, RULES))

    def put(self, ledger_id: int, state: LedgerState, *others: str) -> object:
        return self.run(Txn([], [Put(ledger_key_path(ledger_id), value_of(ledger_id, state, *others))]))

    def adopt(self, ledger_id: int) -> object:
        key = ledger_key_path(ledger_id)
        record = self.catalog.get(key).record
        assert record is not None
        return self.run(
            AdoptLedger([Compare(key, record.revision)], [Put(key, value_of(ledger_id, CLOSED))], ledger_id)
        )


@pytest.mark.parametrize(("before", "after"), [(OPEN, RECOVERED), (OPEN, CLOSED), (RECOVERED, CLOSED)])
def test_who_asks_only_whom_the_copy_names_ends_no_ledger(before: LedgerState, after: LedgerState) -> None:
    """P10.5: "an adoption alone closes it": also whoever read the key before metadata was brought back."""
    world = World(before, before)
    digest = world.catalog.fast_digest
    refused = world.put(2, after)
    assert isinstance(refused, Refusal)
    assert f"ledger 2 was {before.name} in the copy" in refused.text
    assert "embedbk ledger adopt 2" in refused.text
    assert world.catalog.fast_digest == digest, "nothing was changed"
    both = Txn([], [Put("/anything", b""), Put(ledger_key_path(1), value_of(1, after))])
    assert isinstance(world.run(both), Refusal)
    assert world.catalog.get("/anything").record is None
    assert world.adopt(2) == TxnDone(True, world.catalog.revision)
    assert isinstance(world.put(1, after), Refusal), "the other one is as stale as before"


def test_what_ends_no_ledger_is_done_as_ever() -> None:
    """Its writer, which knows its ensemble, changes it; repair changes seats; an owner deletes it."""
    world = World(OPEN, RECOVERED, CLOSED, OPEN)
    assert isinstance(world.put(1, OPEN, "b4", "b5", "b6"), TxnDone)
    assert isinstance(world.put(1, RECOVERED), Refusal), (
        "that its writer changed it proves nothing of its end"
    )
    assert isinstance(world.put(2, RECOVERED, "b4", "b5", "b6"), TxnDone)
    assert isinstance(world.put(3, CLOSED, "b4", "b5", "b6"), TxnDone)
    assert isinstance(world.run(Txn([], [Delete(ledger_key_path(4))])), TxnDone)


def test_ledgers_that_are_made_later_are_not_stale() -> None:
    world = World(OPEN)
    ledger_id = world.catalog.next_id
    assert world.catalog.descent.stale == [(1, 2)]
    assert isinstance(world.put(ledger_id, OPEN), TxnDone)
    assert isinstance(world.put(ledger_id, RECOVERED), TxnDone)
    assert isinstance(world.put(ledger_id, CLOSED), TxnDone)


def test_what_nobody_can_read_is_put_back_by_its_operator() -> None:
    """P2.5: it has no state that it could leave."""
    world = World()
    key = ledger_key_path(1)
    world.catalog.next_id = 2
    assert isinstance(world.run(Txn([], [Put(key, b"newer")])), TxnDone)
    world.apply(BeginLineage(b"lineage2"))
    assert world.catalog.descent.stale == [(1, 2)]
    assert isinstance(world.put(1, CLOSED), TxnDone)


def test_an_adopted_key_stays_stale_until_an_operator_believes_it() -> None:
    """P7.7: copies that a lost future made on bookies that no fragment names are kept until then."""
    world = World(OPEN, OPEN)
    world.adopt(1)
    assert world.catalog.descent.stale == [(1, 3)]
    assert isinstance(world.adopt(1), TxnDone), "again, with whoever came back"
    world.apply(StopSparing(((2, 3),)))
    assert world.catalog.descent.stale == [(1, 2)]
    assert isinstance(world.put(2, RECOVERED), TxnDone), "the copy is believed"
    refused = world.run(AdoptLedger([], [Put(ledger_key_path(2), value_of(2, CLOSED))], 2))
    assert isinstance(refused, Refusal)


def test_an_operator_believes_a_key_whose_id_is_not_spared() -> None:
    """METADATA.md, 10: `embedbk ledger forget IDS` "says that the copy is believed": what a copy knows is stale, and
    seldom spared as well. Said once more it is answered alike, and nothing is proposed."""
    world = World(OPEN, OPEN)
    desk = Desk(world.catalog)
    desk.sync()
    governing = Governing(TOKEN, (), lambda: world.catalog)
    request = MetadataRequest(0, 7, 1, ForgetIds(((1, 2),)))
    event, reply = governing.ask(0, 9, request, desk.log.raft, desk.log.not_leader)
    assert isinstance(event, ForgetRequested) and reply is None
    desk.step(event)
    desk.sync()
    assert world.catalog.descent.stale == [(2, 3)]
    event, reply = governing.ask(0, 9, request, desk.log.raft, desk.log.not_leader)
    assert event is None and reply is not None and isinstance(reply.reply.result, Acknowledged)


def test_a_state_that_lacks_nothing_makes_no_key_stale() -> None:
    """P10.5: `recover` from so many whole logs that one of them has everything that was committed."""
    assert World(OPEN, is_whole=True).catalog.descent.stale == []
    world = World(OPEN)
    world.apply(BeginLineage(b"lineage2", (), True))
    assert world.catalog.descent.stale == [(1, 2)], "what was stale before is so still"
    world.apply(BeginLineage(b"lineage3", (Lineage(b"another.", 4),), True))
    assert world.catalog.descent.stale[0][1] > 2, "somebody met what is given up: something is lost"


def test_below_its_level_nothing_is_stale() -> None:
    """P10.8: a build that does not know of it would end the ledger all the same."""
    assert World(OPEN, level=LEVEL_OF_STALE_KEYS - 1).catalog.descent.stale == []


def test_it_is_part_of_the_state() -> None:
    """I72; in snapshots, digests and what bookies are told."""
    world = World(OPEN)
    before = world.catalog.fast_digest
    twin = load(pieces(world.catalog))
    assert (twin.descent.stale, twin.fast_digest, twin.digest()) == ([(1, 2)], before, world.catalog.digest())
    assert world.catalog.tell(Tell(0), b"token").stale == [(1, 2)]
    told = world.catalog.tell(Tell(0), b"token")
    assert [told.is_stale(each) for each in (0, 1, 2)] == [False, True, False]
    world.catalog.descent.stale = []
    assert world.catalog.fast_digest != before
