"""Bounds of an operation that do not depend on the state, and the weights of records (METADATA.md, 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from embedbk.codec.metadata_messages import (
    ANY,
    Acquire,
    AllocIds,
    Get,
    List,
    OpenSession,
    Operation,
    Put,
    Record,
    Refusal,
    Release,
    Result,
    Txn,
    Watch,
)
from embedbk.codec.repair_mark import MISSING_BYTES_MAX, MISSING_MAX, is_missing_set
from embedbk.codec.repair_messages import (
    REPAIRS_MAX,
    EndRepairs,
    FailRepairs,
    MarkRepairs,
    Repairing,
    RepairsEnded,
    RepairsMarked,
    RepairsTaken,
    TakeRepairs,
)
from embedbk.config import METADATA_VALUE_BYTES_MAX
from embedbk.ids import LEDGER_ID_MAX, is_text
from embedbk.metadata.claims import is_of_locks, waiting_path
from embedbk.metadata.levels import LEVEL

__all__ = [
    "DEFAULT_LIMITS",
    "KEPT_BYTES",
    "Limits",
    "check_operation",
    "event_bytes",
    "kept_bytes",
    "put_bytes",
    "record_bytes",
    "text_bytes",
]

KEPT_BYTES = 256  # Memory of an answer that is kept; measured, the longest text of a refusal included.
KEPT_ITEM_BYTES = 160  # Memory for each ledger that such an answer names; measured.
RECORD_OVERHEAD_BYTES = 64  # Bytes of a key beside its own and its value's, for the bounds below.


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the catalog. They decide outcomes, so all members of a quorum must run with the same."""

    key_bytes_max: int = 512
    value_bytes_max: int = METADATA_VALUE_BYTES_MAX
    txn_operations_max: int = 128  # Comparisons, and likewise changes, of one transaction.
    txn_bytes_max: int = (
        1 << 20
    )  # Keys and values of one transaction together; bounds a log record and an event.
    alloc_ids_max: int = 1 << 20
    list_records_max: int = 1000
    list_bytes_max: int = 1 << 20  # A page ends when it is full; one record always fits.
    kept_replies_max: int = (
        256  # Per session: how far a client may run ahead of its oldest unanswered operation.
    )
    ephemeral_keys_max: int = 1024  # Per session; they go in one revision when it ends.
    sessions_max: int = 10_000
    sessions_bytes_max: int = (
        256 << 20
    )  # Bytes of all sessions, with their shares and the answers that are kept for them.
    session_share_bytes: int = 4096  # Ephemeral records of each session that need no room in the catalog.
    catalog_bytes_max: int = 1 << 30  # Bytes of all records beyond those shares.
    catalog_reserve_bytes: int = (
        64 << 20
    )  # A reserve beyond it, for changes that let existing keys grow: ledgers must close.
    lock_waiters_max: int = 1024  # Sessions that wait for one lock.
    history_bytes_max: int = 16 << 20  # Changes kept for watchers that resume; not part of the state.
    history_changes_max: int = 20_000
    level_known: int = LEVEL  # The newest level of a cluster that this build knows (P10.8).


DEFAULT_LIMITS = Limits()


def check_operation(operation: Operation, limits: Limits = DEFAULT_LIMITS) -> Refusal | None:
    """Why an operation is refused in any state, before it is logged; None: it is not."""
    if isinstance(operation, Txn):  # Most operations are transactions.
        if _is_plain(operation, limits):
            return None
        reason = _check_txn(operation, limits)
        return Refusal("BAD_REQUEST", reason) if reason else None
    reason = ""
    broken = [text for text in _texts(operation) if not is_text(text)]
    if broken:
        reason = f"{broken[0][:40]!r} has half of a surrogate pair: allowed is what UTF-8 can say"
    elif isinstance(operation, Acquire | Release):
        reason = _check_lock(operation, limits)
    elif isinstance(operation, Repairing):
        reason = _check_repairs(operation)
    elif isinstance(operation, AllocIds) and not 1 <= operation.count <= limits.alloc_ids_max:
        reason = f"{operation.count} ids asked for, allowed are 1 to {limits.alloc_ids_max}"
    elif isinstance(operation, OpenSession) and text_bytes(operation.label) > limits.key_bytes_max:
        reason = f"label {operation.label[:40]!r}... is too long, allowed are {limits.key_bytes_max} bytes"
    elif isinstance(operation, List) and operation.limit < 1:
        reason = f"a page of {operation.limit} keys asked for, allowed are 1 or more"
    elif isinstance(operation, Watch) and operation.from_revision < 0:
        reason = f"watch from revision {operation.from_revision}, allowed are 0 or more"
    elif isinstance(operation, Get) and text_bytes(operation.key) > limits.key_bytes_max:
        reason = f"key {operation.key[:40]!r}... is too long, allowed are {limits.key_bytes_max} bytes"
    elif isinstance(operation, List) and text_bytes(operation.after) > limits.key_bytes_max:
        reason = f"key {operation.after[:40]!r}... is too long, allowed are {limits.key_bytes_max} bytes"
    elif isinstance(operation, Watch | List) and text_bytes(operation.prefix) > limits.key_bytes_max:
        reason = f"prefix {operation.prefix[:40]!r}... is too long, allowed are {limits.key_bytes_max} bytes"
    return Refusal("BAD_REQUEST", reason) if reason else None


def _texts(operation: Operation) -> list[str]:
    """The texts of an operation, except the keys of a transaction (`_is_path`)."""
    match operation:
        case OpenSession(_, label):
            return [label]
        case Get(key):
            return [key]
        case List(prefix, after):
            return [prefix, after]
        case Watch(_, prefix):
            return [prefix]
        case Acquire(name) | Release(name):
            return [name]
        case MarkRepairs(marks):
            return [bookie_id for _, missing in marks for bookie_id in missing]
        case TakeRepairs(_, not_with):
            return list(not_with)
    return []


def _check_lock(operation: Acquire | Release, limits: Limits) -> str:
    name = operation.name
    if not name or "/" in name or not _is_path(waiting_path(name, 0), limits):
        most = limits.key_bytes_max - len(waiting_path("", 0))
        return f"lock {name[:40]!r}: allowed are names of 1 to {most} bytes without '/'"
    if isinstance(operation, Acquire) and len(operation.value) > limits.value_bytes_max:
        return f"lock {name!r}: {len(operation.value)} bytes of value, allowed are {limits.value_bytes_max}"
    return ""


def _check_repairs(operation: Repairing) -> str:
    """Bounds of a request about repairs. It names a ledger once, since all of it happens at one revision."""
    if isinstance(operation, TakeRepairs):
        if not 0 <= operation.count <= REPAIRS_MAX or operation.asked < 0:
            return f"{operation.count} ledgers to repair asked for, allowed are up to {REPAIRS_MAX}"
        not_with = tuple(sorted(set(operation.not_with)))
        if not_with and not is_missing_set(not_with):
            return _too_many_bookies(not_with)
        return ""
    match operation:
        case MarkRepairs(marks):
            ids = [ledger_id for ledger_id, _ in marks]
        case EndRepairs(ended):
            ids = [ledger_id for ledger_id, _, _ in ended]
        case FailRepairs(failed):
            ids = [ledger_id for ledger_id, _ in failed]
    if not 1 <= len(ids) <= REPAIRS_MAX:
        return f"{len(ids)} ledgers in one request about repairs, allowed are 1 to {REPAIRS_MAX}"
    if not all(0 <= ledger_id <= LEDGER_ID_MAX for ledger_id in ids):
        return f"a request about repairs names ledger {min(ids)} or {max(ids)}, which is none"
    if len(set(ids)) != len(ids):
        return "a request about repairs names a ledger twice"
    for _, missing in operation.marks if isinstance(operation, MarkRepairs) else ():
        if not is_missing_set(tuple(sorted(set(missing)))):
            return _too_many_bookies(missing)
    return ""


def _too_many_bookies(named: tuple[str, ...]) -> str:
    size = sum(map(text_bytes, named))
    return (
        f"{len(named)} bookies with ids of {size} bytes are named, allowed are 1 to {MISSING_MAX}, with ids of 1 to "
        f"{MISSING_BYTES_MAX} bytes together"
    )


def kept_bytes(result: Result) -> int:
    """The bytes of an answer that is kept for its client."""
    match result:
        case RepairsTaken(_, _, _, marks, missing):
            named = sum(text_bytes(each) + KEPT_ITEM_BYTES for group in missing for each in group)
            return KEPT_BYTES + KEPT_ITEM_BYTES * len(marks) + named
        case RepairsMarked(_, left):
            return KEPT_BYTES + KEPT_ITEM_BYTES * len(left)
        case RepairsEnded(_, outcomes):
            return KEPT_BYTES + 8 * len(outcomes)
    return KEPT_BYTES


def _is_plain(txn: Txn, limits: Limits) -> bool:
    """Whether it is the most common transaction, which is allowed: it puts one key, all its keys are ASCII, and it
    compares at most one. This looks at everything once; `_check_txn` judges all others, and says what is wrong."""
    when, then = txn.when, txn.then
    if len(then) != 1 or len(when) > 1 or not isinstance(put := then[0], Put):
        return False
    for compare in when:
        if compare.revision < ANY or not (compare.key.isascii() and _is_path(compare.key, limits)):
            return False
    key, value_bytes = put.key, len(put.value)
    return (
        key.isascii()
        and key[0:1] == "/"
        and "\0" not in key
        and 2 <= len(key) <= limits.key_bytes_max
        and value_bytes <= limits.value_bytes_max
        and RECORD_OVERHEAD_BYTES + len(key) + value_bytes <= limits.txn_bytes_max
        and not is_of_locks(key)
    )


def _check_txn(txn: Txn, limits: Limits) -> str:
    when, then = txn.when, txn.then
    if len(when) > limits.txn_operations_max or len(then) > limits.txn_operations_max:
        return (
            f"a transaction of {len(when)} comparisons and {len(then)} changes, "
            f"allowed are {limits.txn_operations_max} of each"
        )
    for item in (*when, *then):
        if not _is_path(item.key, limits):
            return (
                f"key {item.key[:40]!r}: allowed are paths like '/a/b' of up to {limits.key_bytes_max} bytes"
            )
    for compare in when:
        if compare.revision < ANY:
            return f"key {compare.key!r} compared with revision {compare.revision}: there is none below 0"
    if len(then) > 1 and len({change.key for change in then}) != len(then):
        return "a transaction changes the same key twice"
    for change in then:
        if is_of_locks(change.key):
            return f"{change.key[:40]!r} is of a lock: ask with Acquire and Release; a transaction may compare with it"
    size = 0
    for change in then:
        if isinstance(change, Put):
            if len(change.value) > limits.value_bytes_max:
                return f"{change.key!r}: {len(change.value)} bytes of value, allowed are {limits.value_bytes_max}"
            size += put_bytes(change)
    if size > limits.txn_bytes_max:
        return f"a transaction of {size} bytes, allowed are {limits.txn_bytes_max}"
    return ""


def _is_path(key: str, limits: Limits) -> bool:
    if not key.startswith("/") or "\0" in key:
        return False
    size = len(key) if key.isascii() else text_bytes(key) if is_text(key) else 0
    return 2 <= size <= limits.key_bytes_max


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def put_bytes(put: Put) -> int:
    return RECORD_OVERHEAD_BYTES + text_bytes(put.key) + len(put.value)


def record_bytes(record: Record) -> int:
    return RECORD_OVERHEAD_BYTES + text_bytes(record.key) + len(record.value or b"")


def event_bytes(records: Iterable[Record]) -> int:
    """The bytes of changed records in the history and in messages to watchers."""
    return sum(record_bytes(record) for record in records)
