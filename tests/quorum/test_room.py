"""What the status says of the room that is left (P10.7)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from embedbk.cli.quorum import _room_of
from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import MetadataReply, Put, Txn
from embedbk.codec.quorum_messages import KINDS_MAX, MemberName, QuorumTold
from embedbk.errors import PeerError
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import Run, StartSession
from embedbk.metadata.governing import weighed

OLDER = QuorumTold(
    b"t" * 16, MemberName("a", bytes(16)), "leader", 1, "a", 1, 1, 1, 0, False, "majority", 500, ()
)


def status(size: int) -> QuorumTold:
    catalog = Catalog()
    catalog.limits = replace(catalog.limits, catalog_bytes_max=1000)
    catalog.apply(StartSession(0, 1000, "", b"secret"), 1, 1)
    (session,) = catalog.sessions
    catalog.apply(Run(session, 1, 1, Txn([], [Put("/ledgers/1", bytes(size))])), 2, 1)
    return weighed(OLDER, catalog)


def test_the_status_says_how_full_it_is_and_from_80_percent_on_what_makes_room() -> None:
    """P10.7: bytes by kind, warnings at 80 % of the bound."""
    (line,) = _room_of(status(100))
    assert "of 1000 bytes" in line and "delete" not in line
    (line,) = _room_of(status(790))
    assert "ledgers" in line and "delete ledgers and logs" in line


def test_of_a_member_of_the_build_before_nothing_is_said() -> None:
    """P10.8: it tells nothing of this."""
    assert _room_of(OLDER) == []


def test_a_member_tells_a_bounded_number_of_kinds() -> None:
    """T10: nobody is made to hold what a member says without end; more of them are no message."""

    def said(count: int) -> bytes:
        told = msgspec.structs.replace(OLDER, weights=tuple((f"kind {each}", 1) for each in range(count)))
        return b"".join(encode_message(1, MetadataReply(0, 0, told)))

    control = decode_message(said(KINDS_MAX)).control
    assert isinstance(control, MetadataReply) and isinstance(control.result, QuorumTold)
    assert len(control.result.weights) == KINDS_MAX
    with pytest.raises(PeerError):
        decode_message(said(KINDS_MAX + 1))
