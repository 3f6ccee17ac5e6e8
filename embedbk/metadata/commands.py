"""The commands of the metadata log: one per record, in the order in which they are applied, and the level of the
cluster that each needs (METADATA.md, 2 and 8).

A command is a version byte and a tagged MessagePack array; fields are only ever appended, tags never re-used.
Everything that decides its outcome is inside it, chance included, or is its place in the log (index and term), so that
every member and every replay makes the same catalog of it.
"""

from __future__ import annotations

import msgspec

from embedbk.codec.metadata_messages import (
    Acquire,
    AdoptLedger,
    AllocIds,
    CloseSession,
    Lineage,
    Operation,
    Refusal,
    Release,
    Txn,
)
from embedbk.codec.repair_messages import EndRepairs, FailRepairs, MarkRepairs, Repairing, TakeRepairs
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.metadata.claims import is_of_repairs
from embedbk.metadata.levels import (
    LACKING,
    LEVEL_FIRST,
    LEVEL_OF_ADOPTION,
    LEVEL_OF_LINEAGES,
    LEVEL_OF_REPAIRS,
)

__all__ = [
    "COMMAND_VERSION",
    "RULES",
    "RULES_KEEP_REFUSALS",
    "RULES_MAKE_WAY",
    "BeginGeneration",
    "BeginLineage",
    "Changing",
    "CheckDigest",
    "Command",
    "ExpireSession",
    "LEVEL_OF",
    "RaiseTo",
    "ResumeRepairs",
    "Run",
    "StartMember",
    "StartSession",
    "StopSparing",
    "check_level",
    "decode_command",
    "encode_command",
]

COMMAND_VERSION = 2  # The version that is logged now; all versions from 1 on can be read.
RULES = (
    3  # The rules for commands logged now; a command of an older log keeps the rules by which it was decided.
)
RULES_KEEP_REFUSALS = (
    2  # Refusals are kept like every answer; ephemeral keys have shares; a swap of them counts once.
)
RULES_MAKE_WAY = (
    3  # A transaction that deletes as many keys as it makes may use the reserve: so tombstones have room.
)


class StartSession(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Open a session. Its number is made of its place in the log, where no other command ever stands."""

    session: int  # 0. In version 1: its number, drawn before it was logged.
    ttl_ms: int
    label: str
    secret: bytes = b""  # Random; sent to its client alone.
    level: int = 1  # The newest level that its client knows; 1 in older builds and their logs.


class ExpireSession(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """End a session that was silent for too long; its ephemeral keys go in one revision. Void in another term than its
    proposer's: by then another leader may have renewed the session."""

    session: int
    term: int = 0  # 0: of version 1, from before there were terms.


# Operations that are run as commands.
Changing = Txn | AdoptLedger | AllocIds | CloseSession | Acquire | Release | Repairing


class Run(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """An operation of a session, run at most once under its sequence."""

    session: int
    sequence: int
    done_below: int
    operation: Changing
    rules: int = 1


class BeginGeneration(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """An operator restored an old state: jump over every revision and id that the lost future may have given out. Used
    by clusters whose level knows no lineages."""


class BeginLineage(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """As BeginGeneration, above the generations of all lineages that are given up, and as a lineage: random bytes that
    distinguish it from every other recovery of this cluster (P10.5). gives_up: lineages that nodes met and that this
    state does not descend from. An operator declared their futures lost; nodes that met one of them follow this
    lineage. is_whole: it is certain that this state lacks nothing, so that it makes no key stale."""

    name: bytes
    gives_up: tuple[Lineage, ...] = ()
    is_whole: bool = False


class StartMember(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A member starts: one more link in the chain by which nodes recognise this metadata (P10.5)."""

    nonce: bytes


class StopSparing(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """These ids, ranges (first, end), are not spared any more: an absent key proves that the ledger is gone, as for
    every other id (P7.7). Ids that are not spared do not change."""

    ranges: tuple[tuple[int, int], ...]


class RaiseTo(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """From here on the cluster has this level: what it brings may be used (P10.8). Changes nothing where it has it."""

    level: int


class CheckDigest(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Compare: at entry `index`, another CheckDigest, the leader's catalog had this digest (I72). 0 and empty: the
    leader noted none. Changes nothing."""

    index: int
    digest: bytes


class ResumeRepairs(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """These marks, (ledger id, revision of the mark), were postponed for long enough, by the time of the leader that
    proposed this: workers may take them again. A mark that has changed since is left alone."""

    marks: tuple[tuple[int, int], ...]


Command = (
    StartSession
    | ExpireSession
    | Run
    | BeginGeneration
    | BeginLineage
    | StopSparing
    | StartMember
    | RaiseTo
    | CheckDigest
    | ResumeRepairs
)

# The cluster's level from which on each may be used (levels.py). Those from before there were levels have the first; a
# new tag is added here with the level that brings it.
LEVEL_OF: dict[type, int] = {
    StartSession: 1,
    ExpireSession: 1,
    Run: 1,
    BeginGeneration: 1,
    BeginLineage: LEVEL_OF_LINEAGES,
    StopSparing: LEVEL_OF_LINEAGES,
    StartMember: 1,
    CheckDigest: 1,
    RaiseTo: 1,
    Txn: 1,
    AdoptLedger: LEVEL_OF_ADOPTION,
    AllocIds: 1,
    CloseSession: 1,
    Acquire: 1,
    Release: 1,
    MarkRepairs: LEVEL_OF_REPAIRS,
    TakeRepairs: LEVEL_OF_REPAIRS,
    EndRepairs: LEVEL_OF_REPAIRS,
    FailRepairs: LEVEL_OF_REPAIRS,
    ResumeRepairs: LEVEL_OF_REPAIRS,
}


def check_level(operation: Operation, level: int) -> Refusal | None:
    """Whether the cluster's level brings it; None: it does."""
    needed = LEVEL_OF.get(type(operation), LEVEL_FIRST)
    if needed <= level:
        return _check_keys(operation, level)
    return Refusal(
        LACKING,
        f"{type(operation).__name__} needs level {needed}, and the cluster's level is {level}: embedbk quorum raise, "
        "when all nodes know it",
    )


def _check_keys(operation: Operation, level: int) -> Refusal | None:
    """Whether the key is about repairs, which only operations about repairs change. Below their level these keys are
    like others, as earlier builds treat them."""
    if not isinstance(operation, Txn) or level < LEVEL_OF_REPAIRS:
        return None
    for change in operation.then:
        if is_of_repairs(change.key):
            text = f"{change.key[:40]!r} says who repairs what: ask with TakeRepairs"
            return Refusal("BAD_REQUEST", f"{text}; a transaction may compare with it")
    return None


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def encode_command(command: Command) -> bytes:
    return bytes([COMMAND_VERSION]) + _encode(command)


def decode_command(body: bytes | memoryview) -> Command:
    """Raises StorageError for bytes that are not a command of a version, and under rules, that this code knows."""
    block = memoryview(body)
    if not block or not 1 <= block[0] <= COMMAND_VERSION:
        found = block[0] if block else "nothing"
        raise StorageError(f"metadata command has version {found}; this embedbk knows 1 to {COMMAND_VERSION}")
    command = unpack(_decoder, block[1:], StorageError, f"these {len(block)} bytes are no metadata command")
    if isinstance(command, Run) and not 1 <= command.rules <= RULES:
        raise StorageError(
            f"metadata command is decided by rules {command.rules}; this embedbk knows 1 to {RULES}"
        )
    return command
