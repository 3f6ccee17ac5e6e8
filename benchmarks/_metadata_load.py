"""A closed loop of metadata operations from one process: sessions of the library's own client, and nothing above it."""

from __future__ import annotations

import os
import select
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.messages import decode_message
from embedbk.codec.metadata_messages import (
    Allocated,
    AllocIds,
    Compare,
    Get,
    Operation,
    Put,
    Refusal,
    Result,
    Txn,
    TxnDone,
)
from embedbk.host.loop import clock_ns
from embedbk.host.metadata_link import MetadataLink
from embedbk.metadata.client import IN_FLIGHT_MAX, Client
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received
from embedbk.transports.zmq import ZmqTransport

__all__ = ["MetadataLoad", "get", "put"]

KEYS = 1000  # Different ones, in turn.
BLOCK = 1024  # Ledger ids that are asked for at once.
PATIENCE_S = 30.0


def put(number: int, value: bytes) -> Operation:
    return Txn([], [Put(f"/bench/{number % KEYS:05}", value)])


def get(number: int, value: bytes) -> Operation:
    return Get(f"/bench/{number % KEYS:05}")


class _Session:
    def __init__(self, endpoints: Sequence[str], number: int, cluster_token: bytes) -> None:
        name = f"load-{os.getpid()}-{number}"
        self.transport = ZmqTransport(Identity("client", name, os.urandom(16), cluster_token))
        self.cluster_token = cluster_token
        self.link = MetadataLink(
            self.transport, endpoints, Client(ttl_ms=10_000, label=name), on_session=self._on_session
        )

    def _on_session(self, now_ns: int, cluster_token: bytes) -> None:
        self.cluster_token = cluster_token

    def step(self, now_ns: int) -> None:
        for event in self.transport.receive(now_ns):
            if isinstance(event, LinkUp):
                self.link.on_link_up(now_ns, event.link, event.peer)
            elif isinstance(event, LinkDown):
                self.link.on_link_down(now_ns, event.link, event.reason)
            else:
                assert isinstance(event, Received)
                self.link.on_message(now_ns, event.link, decode_message(event.body))
        self.link.tick(now_ns)

    def deadline_ns(self) -> int | None:
        times = [self.link.deadline_ns(), self.transport.deadline_ns()]
        return min((each for each in times if each is not None), default=None)


class MetadataLoad:
    """As many sessions as so many outstanding operations need."""

    def __init__(
        self,
        endpoints: Sequence[str],
        outstanding: int,
        patience_s: float = PATIENCE_S,
        cluster_token: bytes = b"",
    ) -> None:
        """patience_s: for a session, and for the answer to what is asked alone. cluster_token: of no other cluster."""
        self.outstanding, self._patience_s = outstanding, patience_s
        count = -(-outstanding // IN_FLIGHT_MAX)
        self._sessions = [_Session(endpoints, number, cluster_token) for number in range(count)]
        self._poll = select.poll()
        for session in self._sessions:
            for fileno in session.transport.filenos():
                self._poll.register(fileno, select.POLLIN)
        self.refused: list[str] = []

    def __enter__(self) -> Self:
        try:
            until_s = time.monotonic() + self._patience_s
            while not all(session.link.session for session in self._sessions):
                self.turn()
                if time.monotonic() > until_s:
                    raise TimeoutError(f"no metadata session: {self._sessions[0].link.trouble}")
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for session in self._sessions:
            session.link.end("the load is over")
            session.transport.close()

    def rate(self, make: Callable[[int, bytes], Operation], seconds: float, value: bytes) -> float:
        """Operations a second."""
        done = under_way = asked = 0
        until_ns = time.perf_counter_ns() + int(seconds * 1e9)

        def ask(session: _Session, now_ns: int) -> None:
            nonlocal asked, under_way
            asked, under_way = asked + 1, under_way + 1

            def answered(now_ns: int, result: Result) -> None:
                nonlocal done, under_way
                under_way -= 1
                if isinstance(result, Refusal) or (isinstance(result, TxnDone) and not result.is_done):
                    self.refused.append(str(result))
                    return
                if time.perf_counter_ns() < until_ns:
                    done += 1
                    ask(session, now_ns)

            session.link.request(now_ns, make(asked, value), answered)

        began = time.perf_counter()
        for number in range(self.outstanding):
            ask(self._sessions[number % len(self._sessions)], clock_ns())
        while time.perf_counter_ns() < until_ns:
            self.turn()
        took_s = time.perf_counter() - began
        while under_way:
            self.turn()
        if self.refused:
            raise RuntimeError(f"{len(self.refused)} operations were refused: {self.refused[0]}")
        return done / took_s

    def create_rate(self, seconds: float, value: bytes) -> float:
        """Ledger records a second, each under an id that nobody had; ids come in blocks, asked for ahead."""
        ids: deque[int] = deque()
        asked = 0

        def taken(now_ns: int, answer: Result) -> None:
            if isinstance(answer, Allocated):
                ids.extend(range(answer.first_id, answer.first_id + answer.count))

        def make(number: int, value: bytes) -> Operation:
            nonlocal asked
            if number + self.outstanding + BLOCK >= asked:
                asked += BLOCK
                self._sessions[0].link.request(clock_ns(), AllocIds(BLOCK), taken)
            key = ledger_key_path(ids.popleft())
            return Txn([Compare(key, 0)], [Put(key, value)])

        while len(ids) < self.outstanding + 2 * BLOCK:
            taken(0, self.ask(AllocIds(BLOCK)))
        asked = len(ids)
        return self.rate(make, seconds, value)

    def begin(self, session: int, operation: Operation, answered: Callable[[int, Result], None]) -> None:
        """One operation of one of the sessions; `turn` until it is answered."""
        self._sessions[session].link.request(clock_ns(), operation, answered)

    def ask(self, operation: Operation) -> Result:
        """One operation, waited for."""
        answers: list[Result] = []
        self._sessions[0].link.request(clock_ns(), operation, lambda _, result: answers.append(result))
        until_s = time.monotonic() + self._patience_s
        while not answers:
            self.turn()
            if time.monotonic() > until_s:
                raise TimeoutError(
                    f"no answer within {self._patience_s:g} s: {self._sessions[0].link.trouble}"
                )
        if isinstance(answers[0], Refusal) or (isinstance(answers[0], TxnDone) and not answers[0].is_done):
            raise RuntimeError(f"{operation} was refused: {answers[0]}")
        return answers[0]

    def after(self, fault: Callable[[], None], operation: Operation) -> float:
        """Milliseconds from a fault until this operation, asked for right behind it, is answered."""
        fault()
        began = time.perf_counter()
        self.ask(operation)
        return (time.perf_counter() - began) * 1e3

    def p50(self, make: Callable[[int, bytes], Operation], count: int, value: bytes) -> float:
        """Microseconds of one operation, nothing else outstanding."""
        times: list[float] = []
        for number in range(count):
            began = time.perf_counter()
            self.ask(make(number, value))
            times.append(time.perf_counter() - began)
        return statistics.median(times) * 1e6

    @property
    def cluster_token(self) -> bytes:
        """The token of the cluster that gave the first session."""
        return self._sessions[0].cluster_token

    def turn(self) -> None:
        if not any(session.transport.has_events() for session in self._sessions):
            due = [due_ns for session in self._sessions if (due_ns := session.deadline_ns()) is not None]
            wait_ms = max(0, min(due) - clock_ns()) / 1e6 if due else 1000
            self._poll.poll(min(wait_ms, 1000))
        for session in self._sessions:
            session.step(clock_ns())
