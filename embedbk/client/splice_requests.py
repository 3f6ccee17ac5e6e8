"""How a log's owner receives requests to splice into it, and answers them (P8.5).

Decides where it is asked: beside the key by which its client shows that it lives (`living`); while that is absent a
client that splices takes its logs over. A client that would splice puts its request there; one watch shows all requests
for all logs of a client. The transaction that splices deletes the request, so that a client that withdrew it knows that
it is not carried out; or the owner answers why not.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from embedbk.client.living import living_name, watch_on
from embedbk.client.runtime import Runtime
from embedbk.codec.log_identity import is_log_id
from embedbk.codec.log_splices import (
    decode_splice_request,
    encode_splice_request,
    splice_requests_prefix,
)
from embedbk.codec.metadata_messages import Compare, Delete, Put, Record
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX, Splice
from embedbk.errors import (
    EmbedbkError,
    LedgerFenced,
    LogAtBound,
    StorageError,
    UsageError,
)

__all__ = ["living"]

logger = logging.getLogger("embedbk.client.log")


async def living(runtime: Runtime) -> bytes:
    """The value of the owner key of a log, by which others find out whether its owner lives; empty where they
    cannot."""
    name = await living_name(runtime)
    if not name:
        return b""  # A client that splices into its logs takes them over.
    if not runtime.hears_splices:
        runtime.hears_splices = True
        runtime.call_if_open(lambda: _listen(runtime, name))
    return b" living=" + name.encode()


def _listen(runtime: Runtime, name: str) -> None:
    """On the host's thread."""

    def changed(records: list[Record], revision: int, is_first: bool) -> None:
        for record in records:
            if record.value is not None:
                runtime.behind(_answer(runtime, name, record.key, record.revision))

    watch_on(runtime, splice_requests_prefix(name), changed)


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
