"""How a log's owner receives requests to splice into it, and answers them (P8.5).

Decides under which key a client shows that it lives: a key of its session, made with the first log that it owns, valid
for all of them, and made again when its session was lost; until then a client that splices takes its logs over. A
client that would splice puts its request there; one watch shows all requests for all logs of a client. The transaction
that splices deletes the request, so that a client that withdrew it knows that it is not carried out; or the owner
answers why not.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from embedbk.client.runtime import Runtime
from embedbk.codec.log_identity import is_log_id
from embedbk.codec.log_splices import (
    LIVING_BYTES,
    decode_splice_request,
    encode_splice_request,
    living_path,
    splice_requests_prefix,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put, Record
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX, Splice
from embedbk.errors import (
    EmbedbkError,
    LedgerFenced,
    LogAtBound,
    MetadataUnavailable,
    StorageError,
    UsageError,
)

__all__ = ["living"]

logger = logging.getLogger("embedbk.client.log")


async def living(runtime: Runtime) -> bytes:
    """The value of the owner key of a log, by which others find out whether its owner lives; empty where they
    cannot."""
    if runtime.living_as is None:
        name = runtime.chance.getrandbits(8 * LIVING_BYTES).to_bytes(LIVING_BYTES, "little").hex()
        try:
            await _say(runtime, name)
        except MetadataUnavailable:
            return b""  # A client that splices into its logs takes them over.
        if runtime.living_as is None:
            runtime.living_as = name
            runtime.call_if_open(lambda: _listen(runtime, name))
    return b" living=" + runtime.living_as.encode()


async def _say(runtime: Runtime, name: str) -> None:
    put = Put(living_path(name), runtime.owner().encode(), is_ephemeral=True)
    await runtime.transact([Compare(put.key, ABSENT)], [put], "saying that this client lives")


async def _say_again(runtime: Runtime, name: str) -> None:
    """Its session was lost, and its logs may be its own still."""
    try:
        await _say(runtime, name)
    except EmbedbkError as failed:
        if not runtime.is_closed:
            logger.info("that this client lives is not said again: %s", failed)


def _listen(runtime: Runtime, name: str) -> None:
    """On the host's thread."""
    key = living_path(name)

    def lives(records: list[Record], revision: int, is_first: bool) -> None:
        own = [record.value for record in records if record.key == key]
        if (is_first or own) and not any(value is not None for value in own):
            runtime.behind(_say_again(runtime, name))

    def changed(records: list[Record], revision: int, is_first: bool) -> None:
        for record in records:
            if record.value is not None:
                runtime.behind(_answer(runtime, name, record.key, record.revision))

    runtime.node.metadata.watch(runtime.now_ns(), splice_requests_prefix(name), changed)
    runtime.node.metadata.watch(runtime.now_ns(), key, lives)


async def _answer(runtime: Runtime, living_as: str, key: str, revision: int) -> None:
    """Carry one request out, or answer why not; only the client that asked waits for this, by its key."""
    log = key.removeprefix(splice_requests_prefix(living_as))
    try:
        if not is_log_id(log):
            raise UsageError(f"{log!r} is no id of a log")
        value, now = await runtime.get(key, f"reading a request to splice into log {log!r}")
        if value is None or now != revision:
            return  # Withdrawn, or another by now, which the watch shows, too.
        request = decode_splice_request(value, log)
        if request.answer is not None:
            return
        why, reached = "", None
        line = runtime.keeper.line_of(log) if runtime.keeper is not None else None
        if len(request.ledger_ids) > SPLICE_LEDGERS_MAX:
            why = f"{len(request.ledger_ids)} ledgers are more than {SPLICE_LEDGERS_MAX}"
        elif line is not None:
            wanted = Splice(
                request.application,
                request.number,
                request.job,
                request.ledger_ids,
                request.is_once,
                (key, revision),
            )
            try:
                done = await line.splice(wanted, request.spliced_ms)
                if done.is_replay:
                    await runtime.transact([Compare(key, revision)], [Delete(key)], f"answering {key}")
                return
            except LedgerFenced:
                pass  # The log is another's.
            except LogAtBound as full:
                why, reached = full.args[0], (full.byte_count, full.bytes_max)
            except EmbedbkError as failed:
                why = failed.args[0]
        answered = Put(
            key, encode_splice_request(replace(request, answer=why, reached=reached)), is_ephemeral=True
        )
        await runtime.transact([Compare(key, revision)], [answered], f"answering {key}")
    except StorageError as strange:
        runtime.node.unread.name(key, str(strange))
    except EmbedbkError as failed:
        if not runtime.is_closed:
            logger.info("a request to splice into log %r is not answered: %s", log, failed)
