"""LACs of idle writers that a lost link took along are told again (host/kept_lacs.py; P6.2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedbk.codec.lac_messages import ExplicitLacRequest
from embedbk.core.client_words import LacsInDoubt
from embedbk.core.lac_retelling import LACS_MAX, PAUSE_NS_MAX
from embedbk.core.machine import Event
from embedbk.host.client_node import ClientNode
from embedbk.host.kept_lacs import KEPT_NS, STARTS_NS, KeptLacs
from embedbk.host.operations import Operation
from embedbk.ids import NO_ENTRY, Member
from tests.host.place import KEY, MS, SECOND, SESSION_MS, Place
from tests.host.test_client_node import FakeBookie, register

NAMES = ("b1", "b2", "b3")
B1, B2 = Member("b1", b"1" * 16), Member("b2", b"2" * 16)


def lac(ledger_id: int, entry: int = 0) -> ExplicitLacRequest:
    return ExplicitLacRequest(B1.incarnation, ledger_id, KEY, entry, 4, wants_answer=False)


# --- In a cluster ---------------------------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.close()


def idle_ledger(place: Place, client: ClientNode) -> int:
    """A ledger with one acknowledged entry whose writer has not told its LAC for good yet."""
    writing = place.write(client)
    place.turns()
    writing.try_append(b"last")
    place.until(lambda: writing.lac == 0)
    return writing.metadata.ledger_id


def lacs_of(place: Place, ledger_id: int) -> list[int]:
    """What the bookies know of it."""
    rows = [place.bookie(name).storage.table.get(ledger_id) for name in NAMES]
    return [NO_ENTRY if row is None else row.lac for row in rows]


def restart_all(place: Place, away_ns: int = 0) -> None:
    """Power goes at all bookies, and they are back after a while."""
    survivors = {name: place.crash(name) for name in NAMES}
    place.held.clear()
    place.run_for(away_ns)
    nodes = [place.start_bookie(name, kept) for name, kept in survivors.items()]
    place.until(lambda: all(node.is_registered for node in nodes))


def test_what_no_bookie_had_made_durable_is_told_again(place: Place) -> None:
    """Rule P6.2: a LAC that was on its way when its link was lost is told again over the next one, unasked."""
    client = place.start_client()
    ledger_id = idle_ledger(place, client)
    place.held.update(NAMES)
    place.run_for(SECOND)
    restart_all(place)
    assert lacs_of(place, ledger_id) == [NO_ENTRY] * 3, "the hints went with the power"
    place.run_for(PAUSE_NS_MAX)
    assert lacs_of(place, ledger_id) == [0, 0, 0]
    restart_all(place)
    assert lacs_of(place, ledger_id) == [0, 0, 0], "for good"


def test_what_was_told_while_the_bookies_were_away_is_told_when_they_are_back(place: Place) -> None:
    """Rule P6.2: a LAC for which there is no link at the moment is not forgotten for that."""
    client = place.start_client()
    ledger_id = idle_ledger(place, client)
    restart_all(place, away_ns=40 * SECOND)
    place.run_for(2 * PAUSE_NS_MAX)
    assert lacs_of(place, ledger_id) == [0, 0, 0]


def test_a_lac_that_has_long_arrived_is_told_once(place: Place) -> None:
    """Rule P6.2: a link that goes long behind it took nothing along, and nobody dials again for it."""
    client = place.start_client()
    idle_ledger(place, client)
    place.run_for(KEPT_NS + 2 * SECOND, step_ns=100 * MS)
    restart_all(place)
    place.run_for(2 * PAUSE_NS_MAX)
    assert client.links.by_member == {} and client.operations == {}


def test_another_disk_under_the_name_is_told_nothing(place: Place) -> None:
    """Rules P2.3, P6.2: what was told to one incarnation is not for another."""
    client = place.start_client()
    idle_ledger(place, client)
    place.held.update(NAMES)
    place.run_for(SECOND)
    for name in NAMES:
        place.crash(name)
    place.run_for(SESSION_MS * 2 * MS)
    others = [FakeBookie(place, name, lambda _: []) for name in NAMES]
    for other in others:
        register(place, client, other.member, other.endpoint)
    place.run_for(2 * PAUSE_NS_MAX)
    assert [other.heard for other in others] == [[], [], []]
    assert client.links.by_member == {} and client.operations == {}


def test_what_finds_no_room_in_a_queue_is_told_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules P6.2, RP34: beyond the bound of what waits for a slow bookie a LAC does not wait, and comes later."""
    client = place.start_client()
    ledger_id = idle_ledger(place, client)
    monkeypatch.setattr(client.links, "slow_bookie_bytes_max", 0)
    sends = client.transport.send
    monkeypatch.setattr(client.transport, "send", lambda link, pieces: False)
    place.run_for(SECOND)
    assert NO_ENTRY in lacs_of(place, ledger_id)
    monkeypatch.setattr(client.transport, "send", sends)
    place.run_for(PAUSE_NS_MAX)
    assert lacs_of(place, ledger_id) == [0, 0, 0]


def test_a_bookie_that_starts_takes_it_when_it_serves(place: Place) -> None:
    """Rules P6.2, P7.9: a bookie refuses what it is told while it starts, and nobody is answered: it is told again."""
    client = place.start_client()
    ledger_id = idle_ledger(place, client)
    restart_all(place)
    for name in NAMES:
        place.bookie(name).core.is_waiting = True
    place.run_for(2 * SECOND)
    assert lacs_of(place, ledger_id) == [NO_ENTRY] * 3
    for name in NAMES:
        place.bookie(name).core.is_waiting = False
    place.run_for(PAUSE_NS_MAX)
    assert lacs_of(place, ledger_id) == [0, 0, 0]


# --- By itself ------------------------------------------------------------------------------------------


class Told:
    """The client of some kept LACs: which bookies are told again, and what."""

    def __init__(self) -> None:
        self.kept = KeptLacs(lambda now_ns, operation: self.begun.append(operation), self.tell)
        self.begun: list[Operation] = []
        self.doubted: list[list[tuple[int, int]]] = []

    def tell(self, operation: Operation, event: Event) -> None:
        assert operation is self.begun[-1] and isinstance(event, LacsInDoubt)
        self.doubted.append([(each.ledger_id, each.lac) for each in event.lacs])


def test_the_newest_of_each_ledger_is_in_doubt_once() -> None:
    """Rule P6.2: by one operation for each bookie, as long as that runs."""
    it = Told()
    for ledger_id, entry in ((1, 0), (2, 0), (1, 5)):
        it.kept.note(SECOND, B1, lac(ledger_id, entry))
    it.kept.note(SECOND, B2, lac(3))
    it.kept.lose(SECOND, B1)
    it.kept.lose(SECOND, B1)
    assert it.doubted == [[(2, 0), (1, 5)]] and len(it.begun) == 1
    it.kept.note(2 * SECOND, B1, lac(4))
    it.kept.doubt(2 * SECOND, B1)
    assert it.doubted[1:] == [[(4, 0)]] and len(it.begun) == 1
    it.begun[0].is_over = True
    it.kept.note(3 * SECOND, B1, lac(5))
    it.kept.doubt(3 * SECOND, B1)
    assert it.doubted[2:] == [[(5, 0)]] and len(it.begun) == 2


def test_a_lac_is_kept_for_a_while() -> None:
    """Rule P6.2: KEPT_NS behind the last that this bookie was told."""
    it = Told()
    it.kept.note(SECOND, B1, lac(1))
    it.kept.note(SECOND + KEPT_NS, B1, lac(2))
    it.kept.lose(SECOND + 2 * KEPT_NS, B1)
    assert it.doubted == [[(1, 0), (2, 0)]]
    it.kept.note(SECOND, B2, lac(1))
    it.kept.note(SECOND + KEPT_NS + 1, B2, lac(2))
    it.kept.doubt(SECOND + KEPT_NS + 1, B2)
    assert it.doubted[1:] == [[(2, 0)]]
    it.kept.note(SECOND, B2, lac(3))
    it.kept.doubt(SECOND + KEPT_NS + 1, B2)
    assert it.doubted[2:] == []


def test_a_bookie_may_start_for_a_while_behind_a_lost_link() -> None:
    """Rules P6.2, P7.9."""
    it = Told()
    assert not it.kept.may_start(SECOND, B1)
    it.kept.lose(SECOND, B1)
    assert it.kept.may_start(SECOND + STARTS_NS, B1) and not it.kept.may_start(SECOND, B2)
    assert not it.kept.may_start(SECOND + STARTS_NS + 1, B1)


def test_of_very_many_ledgers_the_newest_are_kept() -> None:
    """Rule P6.2: LACS_MAX of each bookie."""
    it = Told()
    for ledger_id in range(LACS_MAX + 3):
        it.kept.note(SECOND, B1, lac(ledger_id))
    it.kept.doubt(SECOND, B1)
    assert it.doubted == [[(ledger_id, 0) for ledger_id in range(3, LACS_MAX + 3)]]
