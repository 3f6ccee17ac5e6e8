"""The sessions of a catalog: the answers that are kept for each, its ephemeral keys, and what both take in memory
(METADATA.md, 1 and 3; P10.1, P10.7, I74).

Decides whether a session may begin, whether an operation's number can be run, which answers are kept and for how long,
and how many bytes of ephemeral records are within the shares of their sessions. Leaves to the catalog when a session
ends and what becomes of its keys, and to `room` whether records have room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from embedbk.codec.metadata_messages import BUSY, CloseSession, Record, Refusal, Result
from embedbk.errors import StorageError
from embedbk.metadata.commands import RULES_KEEP_REFUSALS, Run, StartSession
from embedbk.metadata.cutting import CatalogCut, SessionImage
from embedbk.metadata.levels import left_out
from embedbk.metadata.limits import KEPT_BYTES, Limits, kept_bytes, record_bytes, text_bytes

__all__ = ["Session", "SessionTable", "session_gone", "why_out_of_turn"]

SEQUENCE_JUMP_MAX = (
    1 << 32
)  # Between two logged operations of a session: a wild sequence must not use them all up.
SESSION_BYTES = 512  # Memory that a session takes beside its label and its share; measured.


@dataclass(slots=True)
class Session:
    session: int
    ttl_ms: int
    label: str
    done_below: int = 1  # The client has every answer below this sequence; a repeat of one is a fault.
    kept: dict[int, Result] = field(default_factory=dict)  # Answers that the client may still ask for again.
    keys: dict[str, None] = field(default_factory=dict)  # Ephemeral keys.
    secret: bytes = (
        b""  # Sent to its client alone, which sends it with every request. Empty: an older log has none.
    )
    ephemeral_bytes: int = 0  # Bytes of the records under `keys`.


class SessionTable:
    """The open sessions by number, and what they hold together."""

    def __init__(self, limits: Limits) -> None:
        self.by_number: dict[int, Session] = {}  # To be read only.
        self.started = 0  # Sessions started over the life of the cluster.
        # Memory of all sessions, with their shares and the answers that are kept for them.
        self.bytes = 0
        self.shared_bytes = 0  # Bytes of ephemeral records within the shares of their sessions.
        self.cut: CatalogCut | None = None  # It is notified before a session changes.
        self._limits = limits

    # --- Beginning and end ---------------------------------------------------------------------------------

    def start(self, number: int, command: StartSession, level: int) -> Refusal | None:
        """Open a session under this number, or say why not. level: the cluster's."""
        if number in self.by_number or number <= 0:  # One that was drawn is met by chance: ask again.
            return Refusal("UNAVAILABLE", f"session {number} cannot be opened: the number is taken")
        if len(self.by_number) >= self._limits.sessions_max:
            return Refusal(
                "UNAVAILABLE",
                f"{len(self.by_number)} sessions are open, allowed are {self._limits.sessions_max}: "
                "close clients, or wait until those that are gone expire",
            )
        if command.level < level:
            return left_out(command.label, command.level, level)
        session = Session(number, command.ttl_ms, command.label, secret=command.secret)
        weight = self._bytes_of(session)
        # Those of an older log, without a secret, were never asked for room.
        if command.secret and self.bytes + weight > self._limits.sessions_bytes_max:
            return Refusal(
                "UNAVAILABLE",
                f"{len(self.by_number)} sessions and the answers kept for them hold {self.bytes} bytes, "
                f"allowed are {self._limits.sessions_bytes_max}: close clients, or try again when others went on",
            )
        self.started += 1
        self.by_number[number] = session
        self.bytes += weight
        return None

    def keep_for_cut(self, session: Session) -> None:
        """This session is about to change, or to end, with its keys."""
        if self.cut is not None:
            self.cut.keep_session(session)

    def end(self, session: Session) -> None:
        """It has no keys any more."""
        del self.by_number[session.session]
        self.bytes -= self._bytes_of(session)

    def load(self, images: Sequence[SessionImage]) -> None:
        """Add sessions of a snapshot; their keys come with the records."""
        for each in images:
            session = self.by_number[each.session] = Session(
                each.session, each.ttl_ms, each.label, each.done_below, dict(each.kept), secret=each.secret
            )
            self.bytes += self._bytes_of(session)

    def _bytes_of(self, session: Session) -> int:
        kept = sum(map(kept_bytes, session.kept.values()))
        return SESSION_BYTES + self._limits.session_share_bytes + text_bytes(session.label) + kept

    # --- Answers -------------------------------------------------------------------------------------------

    def make_room(self, session: Session, run: Run) -> Refusal | None:
        """Forget the answers that the client says it has; returns why the one to this operation could not be kept.
        The end of a session has none to keep."""
        if self.cut is not None:
            self.cut.keep_session(session)
        if run.done_below > session.done_below:
            self._forget_kept(session, run.done_below)
        keeps_refusals = run.rules >= RULES_KEEP_REFUSALS
        if len(session.kept) >= self._limits.kept_replies_max:
            return Refusal(
                BUSY if keeps_refusals else "UNAVAILABLE",
                f"session {run.session} has {len(session.kept)} answers waiting for its done_below, "
                f"allowed are {self._limits.kept_replies_max}",
            )
        is_full = keeps_refusals and self.bytes + KEPT_BYTES > self._limits.sessions_bytes_max
        if is_full and not isinstance(run.operation, CloseSession):
            return Refusal(
                BUSY,
                f"sessions and the answers kept for them hold {self.bytes} bytes, "
                f"allowed are {self._limits.sessions_bytes_max}",
            )
        return None

    def keep(self, session: Session, sequence: int, result: Result) -> None:
        """Keep the answer of an operation until its client says that it has it."""
        session.kept[sequence] = result
        self.bytes += kept_bytes(result)

    def _forget_kept(self, session: Session, done_below: int) -> None:
        """Forget kept answers: the client has every answer below this sequence, which is higher than the one before."""
        kept, below = session.kept, range(session.done_below, done_below)
        for sequence in below if len(below) <= len(kept) else [known for known in kept if known < done_below]:
            gone = kept.pop(sequence, None)
            if gone is not None:
                self.bytes -= kept_bytes(gone)
        session.done_below = done_below

    # --- Ephemeral keys ------------------------------------------------------------------------------------

    def own(self, record: Record) -> None:
        """A record came that belongs to a session. Raises StorageError: the session is not there."""
        owner = self.by_number.get(record.session)
        if owner is None:
            raise StorageError(f"{record.key!r} of a metadata snapshot is of no session")
        owner.keys[record.key] = None
        self._weigh(owner, record_bytes(record))

    def disown(self, record: Record) -> None:
        """A record that belonged to a session is gone."""
        owner = self.by_number[record.session]
        del owner.keys[record.key]
        self._weigh(owner, -record_bytes(record))

    def _weigh(self, session: Session, growth: int) -> None:
        """An ephemeral record came to a session or went."""
        share, before = self._limits.session_share_bytes, session.ephemeral_bytes
        session.ephemeral_bytes += growth
        self.shared_bytes += min(share, session.ephemeral_bytes) - min(share, before)


def why_out_of_turn(session: Session, run: Run) -> Refusal | None:
    """Why an operation with this sequence was not asked by the session's client as it should be; None: it was."""
    sequence = run.sequence
    if sequence < session.done_below or not 1 <= run.done_below <= sequence:
        return Refusal(
            "BAD_REQUEST",
            f"sequence {sequence} with done_below {run.done_below}: session {run.session} "
            f"has all answers below {session.done_below}",
        )
    if run.rules >= RULES_KEEP_REFUSALS and sequence - session.done_below > SEQUENCE_JUMP_MAX:
        return Refusal(
            "BAD_REQUEST",
            f"sequence {sequence} is more than {SEQUENCE_JUMP_MAX} ahead of {session.done_below}, below "
            f"which session {run.session} has all answers: nobody asks so much in between",
        )
    return None


def session_gone(session: int) -> Refusal:
    return Refusal("SESSION_GONE", f"session {session} has ended or was never opened; open another")
