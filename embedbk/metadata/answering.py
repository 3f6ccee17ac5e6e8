"""What a metadata member does for a request once nothing has to be waited for: it answers by its catalog as it is, or
proposes a command (METADATA.md)."""

from __future__ import annotations

from typing import Any

from embedbk.codec.metadata_messages import (
    Acknowledged,
    Acquire,
    AllocIds,
    CloseSession,
    Get,
    KeepAlive,
    List,
    MetadataReply,
    MetadataRequest,
    OpenSession,
    Refusal,
    Release,
    Result,
    SessionOpened,
    Tell,
    Txn,
    Unwatch,
    Watch,
)
from embedbk.codec.repair_messages import EndRepairs, FailRepairs, MarkRepairs, TakeRepairs
from embedbk.metadata.catalog import Catalog, check_operation
from embedbk.metadata.command_log import CommandLog
from embedbk.metadata.openings import Openings
from embedbk.metadata.pending_requests import PendingRequest
from embedbk.metadata.proposals import Proposals
from embedbk.metadata.session_table import Session
from embedbk.metadata.streams import Streams
from embedbk.metadata.timed_commands import TimedCommands
from embedbk.metadata.vocabulary import Reply, RequestReceived

__all__ = ["Answering", "answer"]


class Answering:
    """The catalog is the member's, which may get another one."""

    def __init__(
        self,
        log: CommandLog,
        cluster_token: bytes,
        proposals: Proposals,
        openings: Openings,
        streams: Streams,
        timed: TimedCommands,
    ) -> None:
        self._log = log
        self._cluster_token = cluster_token
        self._proposals = proposals
        self._openings = openings
        self._streams = streams
        self._timed = timed

    def follow(
        self,
        catalog: Catalog,
        link: int,
        request: MetadataRequest,
        operation: Watch | Unwatch | KeepAlive,
        *,
        may_lag: bool,
    ) -> list[Any]:
        """A request for a stream that may lag. It shows what is applied, so this member need not be sure that it
        leads."""
        refusal = check_operation(operation, catalog.limits)
        if refusal is not None:
            return [Reply(link, MetadataReply(0, request.sequence, refusal))]
        events, result = self._streams.serve_following(link, operation, catalog, may_lag=may_lag)
        return [*events, Reply(link, MetadataReply(0, request.sequence, result))]

    def own_session(self, catalog: Catalog, link: int, request: MetadataRequest) -> Session | None:
        """The request's session, if the request comes from its client: the session was opened over this very link, or
        the request has its secret. Every client can read session numbers in records, so the number proves nothing."""
        session = catalog.sessions.get(request.session)
        if session is None:
            return None
        is_own = self._openings.is_opened_on(link, request.session) or request.secret == session.secret
        return session if is_own else None

    def renew(self, catalog: Catalog, event: RequestReceived) -> list[Any]:
        """A live session is renewed (METADATA.md: keep-alives are not logged). The answer has nothing that could be
        taken back, so it waits for no disk: a client whose keep-alives arrive does not lose its session to a slow
        sync."""
        request = event.request
        alive = Acknowledged(catalog.revision, self._log.members, catalog.level)
        reply = MetadataReply(request.session, request.sequence, alive)
        return [*self._streams.watches.marks(event.link), Reply(event.link, reply)]

    def serve(
        self, catalog: Catalog, asked: PendingRequest, now_ns: int, effects: list[Any], answers: list[Any]
    ) -> None:
        """Do what a request asks: it is answered, or a command is proposed for it."""
        request = asked.request
        if isinstance(request.operation, OpenSession):
            opened = self._openings.open(asked, request.operation, catalog, effects)
            if isinstance(opened, Session):
                self._timed.lifetimes.hear(opened.session, now_ns)
                answer(asked, self.opened(catalog, opened), answers)
            elif opened is not None:
                answer(asked, opened, answers)
            return
        session = self.own_session(catalog, asked.link, request)
        if session is None and not (
            request.session == 0 and isinstance(request.operation, Get | List | Tell)  # Needs none.
        ):
            text = f"session {request.session} has ended, was never opened, or is another client's"
            answer(asked, Refusal("SESSION_GONE", text), answers)
            return
        match request.operation:
            case (
                Txn() | AllocIds() | CloseSession() | Acquire() | Release()
                | MarkRepairs() | TakeRepairs() | EndRepairs() | FailRepairs()
            ):  # fmt: skip
                kept = catalog.kept_reply(*asked.key)
                if kept is not None:
                    answer(asked, kept, answers)
                else:  # Since it was asked its session was opened, or its first run was put off.
                    self._proposals.run(asked, request.operation, effects)
            case Get(key):
                answer(asked, catalog.get(key), answers)
            case List(prefix, after, limit):
                answer(asked, catalog.page(prefix, after, limit), answers)
            case Tell() as asking:
                answer(asked, catalog.tell(asking, self._cluster_token), answers)
            case KeepAlive():
                alive = Acknowledged(catalog.revision, self._log.members, catalog.level)
                answer(asked, alive, answers)
            case Watch():
                begun = self._streams.begin(asked.link, request.session, request.operation, catalog.revision)
                answer(asked, begun, answers)
            case Unwatch(watch_id):
                self._streams.watches.remove(asked.link, watch_id)
                answer(asked, Acknowledged(catalog.revision), answers)

    def opened(self, catalog: Catalog, session: Session) -> SessionOpened:
        return SessionOpened(
            session.session,
            session.ttl_ms,
            self._cluster_token,
            session.secret,
            self._log.members,
            catalog.level,
        )


def answer(asked: PendingRequest, result: Result, answers: list[Any]) -> None:
    request = asked.request
    answers.append(Reply(asked.link, MetadataReply(request.session, request.sequence, result)))
