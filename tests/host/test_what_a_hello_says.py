"""What a Hello says on an accepted link decides nothing: role, node id, incarnation, start (P7.2, P7.9).

Who is a bookie says its registration, and the link that was dialled there confirms it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from embedbk.codec.add_messages import FenceRequest
from embedbk.codec.lac_messages import LacRequest
from embedbk.codec.messages import Control
from embedbk.codec.metadata_messages import (
    Delete,
    Get,
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Operation,
    Put,
    Result,
    SessionOpened,
    Txn,
)
from embedbk.codec.read_messages import ReadRequest
from embedbk.codec.registration import registration_path
from embedbk.metadata.levels import LEVEL
from embedbk.ports.links import Identity
from embedbk.transports.envelope import ROLES
from tests.host.place import KEY, TOKEN, Peer, Place, add, frame


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place(bookies=3)
    yield place
    place.close()


def those_who_call(place: Place) -> Iterator[Identity]:
    """A client; then every role, as the node that is asked, as another bookie, as the metadata, as nobody known."""
    own, other = (place.bookie(name).transport.identity for name in ("b1", "b2"))
    yield Identity("client", "someone", place.fresh(), TOKEN)
    names = ("b1", "b2", "metadata", "nobody")
    disks = (own.incarnation, other.incarnation, b"m" * 16, bytes(16))
    for role, name, disk in itertools.product(ROLES, names, disks):
        for start in (b"", own.start, b"another."):
            yield Identity(role, name, disk, TOKEN if len(start) else b"", start)


def said_of_one_ledger(place: Place, caller: Identity, ledger_id: int) -> Sequence[Control]:
    """What a bookie answers to everything that can be asked of it, as if it were of ledger 1."""
    peer, incarnation = Peer(place, place.bookie("b1").endpoints[0], caller), place.disks["b1"].incarnation
    said = [
        peer.ask(*add(incarnation, frame(ledger_id, 0, [b"zero"]))),
        peer.ask(LacRequest(incarnation, ledger_id)),
        peer.ask(ReadRequest(incarnation, ledger_id, 0, 5, 1 << 20)),
        peer.ask(FenceRequest(incarnation, ledger_id, KEY)),
        peer.ask(FenceRequest(incarnation, ledger_id, b"wrong key".ljust(16))),
        peer.ask(*add(incarnation, frame(ledger_id, 1, [b"one"], 4))),
        peer.ask(*add(incarnation, frame(ledger_id, 1, [b"one"], 4), recovery=True)),
        peer.ask(LacRequest(b"of another disk.", ledger_id)),
    ]
    assert peer.down is None
    peer.close()
    return [msgspec.structs.replace(answer, ledger_id=1) for answer in said]  # type: ignore[type-var]


def test_a_bookie_answers_everybody_alike(place: Place) -> None:
    """P7.2: with the id, incarnation and start of itself or of another bookie, in any role."""
    callers = list(those_who_call(place))
    first = said_of_one_ledger(place, callers[0], 1000)
    for number, caller in enumerate(callers):
        assert said_of_one_ledger(place, caller, 2000 + number) == first, caller


def said_of_a_session(place: Place, caller: Identity, key: str) -> list[str]:
    """What the metadata answers to a session of this caller's own, and to one that it only names."""
    peer, registered = Peer(place, place.metadata.endpoints[0], caller), registration_path("b1")

    def ask(sequence: int, operation: Operation) -> Result:
        peer.send(MetadataRequest(session, sequence, sequence, operation, secret))
        place.until(lambda: peer.look() or bool(peer.messages))
        reply = peer.messages.pop().control
        assert isinstance(reply, MetadataReply)
        return reply.result

    session, secret = 0, b""
    opened = ask(1, OpenSession(5000, "said", 0, LEVEL))
    assert isinstance(opened, SessionOpened)
    session, secret = opened.session, opened.secret
    said = [
        ask(1, Txn([], [Put(key, b"x", is_ephemeral=True)])),
        ask(2, Get(registered)),
    ]
    session, secret = place.bookie("b1").metadata.session, b""
    said += [ask(10**6, KeepAlive()), ask(10**6 + 1, Txn([], [Delete(registered)]))]
    assert peer.down is None
    peer.close()
    return [getattr(each, "code", type(each).__name__) for each in said]


def test_the_metadata_answers_everybody_alike(place: Place) -> None:
    """P7.2: a session is its link's and its secret's; who says that it is a bookie has not that bookie's session."""
    callers = [each for each in those_who_call(place) if not is_a_members(each)]
    before = place.start_client().bookies
    first = said_of_a_session(place, callers[0], "/said/first")
    for number, caller in enumerate(callers):
        assert said_of_a_session(place, caller, f"/said/{number}") == first, caller
    place.turns()
    assert first[:2] == ["TxnDone", "Value"]
    assert place.start_client("c2").bookies == before
    assert place.bookie("b1").is_registered


def is_a_members(caller: Identity) -> bool:
    """Whether its link is one between members, over which no client speaks."""
    return caller.role == "metadata" and bool(caller.cluster_token) and bool(caller.start)


def test_who_says_that_it_is_a_member_asks_nothing_as_a_client(place: Place) -> None:
    """P10.3: on a link of a member only members' messages count; anything else ends it, and opens no session."""
    sessions = dict(place.metadata.core.catalog.sessions)
    callers = [each for each in those_who_call(place) if is_a_members(each)]
    assert callers
    for caller in callers:
        peer = Peer(place, place.metadata.endpoints[0], caller)
        if peer.down is None:
            peer.send(MetadataRequest(0, 1, 1, OpenSession(5000, "said", 0, LEVEL)))
            place.until(lambda peer=peer: peer.look() or peer.down is not None)
        assert (peer.down is None, peer.messages) == (False, [])
    assert place.metadata.core.catalog.sessions == sessions


def test_who_says_that_it_is_a_bookie_is_seated_nowhere(place: Place) -> None:
    """P7.2: links that name all three bookies stand at each of them; writers dial where these are registered."""
    identities = [place.bookie(name).transport.identity for name in ("b1", "b2", "b3")]
    for name in ("metadata", "b1", "b2", "b3"):
        for identity in identities:
            assert Peer(place, place.nodes[name].endpoints[0], identity).down is None
    client = place.start_client()
    writing = place.write(client)
    assert writing.try_append(b"kept") >= 0
    place.until(lambda: writing.core.lac == 0)
    assert {each.bookie_id for each in writing.core.metadata.fragments[0].ensemble} == {"b1", "b2", "b3"}
