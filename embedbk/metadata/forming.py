"""The answers of a blank member: that it holds nothing, and whether it takes part in a formation (P10.3). Pure.

Several members that are all blank may begin a cluster together (RAFT.md, 11). The process that forms it asks every one
of them, and only when all have promised it requests one of them, the founder, to begin; the others find its cluster as
any blank member does. A promise is for one formation at a time, so that of two that overlap at most one has all. It is
kept in memory alone: a member that breaks it by a restart is still blank, and a founder begins at most one cluster. The
formation's nonce becomes the token of that cluster, by which the members that promised recognise it.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.codec.metadata_messages import Acknowledged, NotLeader, Operation, Refusal, Result
from embedbk.codec.quorum_messages import (
    BeginFormation,
    FormationPromised,
    MemberName,
    MemberTold,
    PrepareFormation,
    QuorumStatus,
    QuorumTold,
)
from embedbk.ids import INCARNATION_BYTES
from embedbk.metadata.governing import IS_FORMING, REFUSED

__all__ = ["PROMISED_MAX", "PROMISE_NS", "Forming"]

PROMISE_NS = 2_000_000_000  # A promise ends so long after it was last asked for.
PROMISED_MAX = 16  # The newest formations are remembered: one of them may have begun.


class Forming:
    """The answers of one blank member."""

    def __init__(self, name: str, endpoints: Sequence[str]) -> None:
        """endpoints: the addresses of this member."""
        self.is_founder = False  # It is to begin the cluster; nothing that it promises counts any more.
        self.met = b""  # The token of the cluster of one of its seeds, which it will join.
        self._name = name
        self._endpoints = tuple(endpoints)
        self.promised: tuple[
            bytes, ...
        ] = ()  # The nonces of all formations that it promised, the newest last.
        self._promised: PrepareFormation | None = None
        self._until_ns = 0

    @property
    def founded(self) -> bytes:
        """The token of the cluster that it is to begin; empty: none."""
        return self._promised.nonce if self.is_founder and self._promised is not None else b""

    @property
    def others(self) -> tuple[str, ...]:
        """The addresses of the members with which it promised to form a cluster."""
        return () if self._promised is None else (self._promised.founder, *self._promised.members)

    def answer(self, now_ns: int, operation: Operation) -> Result:
        match operation:
            case PrepareFormation():
                return self._promise(now_ns, operation)
            case BeginFormation(nonce):
                return self._begin(now_ns, nonce)
            case QuorumStatus():
                return self._told()
        return NotLeader("")  # A client that looks for a leader tries the next address.

    def _promise(self, now_ns: int, asked: PrepareFormation) -> Result:
        held = self._promised if now_ns < self._until_ns else None
        if self.is_founder or (held is not None and held != asked):
            where = held.founder if held is not None else "itself"
            return Refusal(
                IS_FORMING, f"{self._name} takes part in another formation, whose founder is {where}"
            )
        if len(asked.nonce) != INCARNATION_BYTES:
            return Refusal(
                REFUSED,
                f"a formation's nonce becomes the cluster's token: {len(asked.nonce)} bytes were given, "
                f"{INCARNATION_BYTES} are allowed",
            )
        if held is None and self.met:
            return Refusal(REFUSED, f"{self._name} is to join the cluster {self.met.hex()}, by its --join")
        self._promised, self._until_ns = asked, now_ns + PROMISE_NS
        if asked.nonce not in self.promised:
            self.promised = (*self.promised, asked.nonce)[-PROMISED_MAX:]
        return FormationPromised(asked.nonce, self._name)

    def _begin(self, now_ns: int, nonce: bytes) -> Result:
        held = self._promised
        if held is None or held.nonce != nonce or now_ns >= self._until_ns:
            return Refusal(REFUSED, f"{self._name} promised no such formation, or too long ago")
        self.is_founder = True
        return Acknowledged(0)

    def _told(self) -> QuorumTold:
        own = MemberName(self._name, b"")
        members = (MemberTold(own, "blank", self._endpoints, False, 0),)
        return QuorumTold(b"", own, "blank", 0, "", 0, 0, 0, 0, False, "", 0, members)
