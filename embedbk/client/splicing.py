"""Staging ready-made ledgers for a log and splicing them into it (P8.5), for both faces.

Decides which way a splice goes: one that was done before is answered; a living owner is asked (`splice_requests`), and
carries it out in a roll of its own or answers why not; only where no owner lives does the client that splices take the
log over, and keeps it for the next splice. How it is done, `core.log_splicing` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from embedbk.client import creating
from embedbk.client.appending import Appending
from embedbk.client.bounding import bound_of, check_splice, make_room, spliced_bytes
from embedbk.client.entry_times import last_time
from embedbk.client.living import writer_name
from embedbk.client.log_identity import find
from embedbk.client.log_reading import LogReading
from embedbk.client.log_settings import WriterArguments, log_exists, record_of, writer_terms
from embedbk.client.password import Password
from embedbk.client.reading import LedgerReading
from embedbk.client.runtime import FollowedKey, Runtime
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.living import living_path
from embedbk.codec.log_identity import LogId
from embedbk.codec.log_list import Begun, log_owner_path
from embedbk.codec.log_splices import (
    APPLICATION_MAX,
    LogSplices,
    SplicedRecord,
    SpliceRequest,
    StagedRecord,
    decode_log_splices,
    decode_splice_request,
    encode_log_splices,
    encode_splice_request,
    encode_staged,
    log_splices_path,
    owner_of,
    splice_request_path,
    staged_path,
    staged_prefix,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.config import Quorum, check_seconds
from embedbk.core.creation import Creation
from embedbk.core.log import LogMoved
from embedbk.core.log_listing import NewLedger
from embedbk.core.log_paging import recorded_bytes
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX, LogHolding, LogSplicing, Splice, Spliced
from embedbk.core.metadata_words import Alongside
from embedbk.core.staging_sweeping import StagingSweeping
from embedbk.errors import (
    EmbedbkError,
    LedgerFenced,
    LogAtBound,
    MetadataConflict,
    OperationTimeout,
    UsageError,
)
from embedbk.ids import LEDGER_ID_MAX, is_text
from embedbk.metadata.levels import LEVEL_OF_LOG_IDS, LEVEL_OF_SPLICES

__all__ = [
    "STAGED_TTL_S",
    "STAGED_TTL_S_MAX",
    "SpliceOutcome",
    "Staging",
    "forget_application",
    "splice",
    "spliced",
    "stage",
    "staging",
    "sweep",
    "unstage",
]

logger = logging.getLogger("embedbk.client.log")

STAGED_TTL_S = 86_400.0
STAGED_TTL_S_MAX = 1e9  # Pins have the same bound.
_WHEN_FULL = "splice again when the log was truncated: what is staged is there still"
_NONE_IS_MADE = Quorum(1, 1, 1)
_TRIES_MAX = 20  # The log's owner changed so often.
_JOB_BYTES = 16


class Staging(NamedTuple):
    """One transaction of an application, for the processes that stage for it: plain data, that may be pickled and
    sent."""

    log: str
    application: str
    number: int  # Those of one application rise; the newest is known for ever.
    job: bytes  # One attempt at it.
    expires_ms: int  # By clocks on walls: what is staged may be given up then.
    is_once: bool = False


class SpliceOutcome(NamedTuple):
    """Where the entries of a transaction stand."""

    application: str
    number: int
    first_offset: int
    end: int  # The offset behind the last of them.
    is_replay: bool = False  # It, or a newer one of its application, was done before.
    job: bytes = b""  # Names the attempt that was done.


def staging(runtime: Runtime, name: str, application: str | None, number: int, ttl_s: float) -> Staging:
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not 0 <= ttl_s < STAGED_TTL_S_MAX:
        raise UsageError(f"ttl_s={ttl_s!r}: allowed are seconds from 0 on, below {STAGED_TTL_S_MAX:.0f}")
    if application is not None and (
        not isinstance(application, str)
        or not 1 <= len(application) <= APPLICATION_MAX
        or not is_text(application)
    ):
        raise UsageError(f"application={application!r:.80}: allowed are 1 to {APPLICATION_MAX} characters")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= LEDGER_ID_MAX:
        raise UsageError(
            f"number={number!r}: allowed are whole numbers from 0 on, rising with each transaction"
        )
    job = runtime.chance.getrandbits(8 * _JOB_BYTES).to_bytes(_JOB_BYTES, "little")
    expires_ms = runtime.wall_ms() + int(ttl_s * 1000)
    return Staging(name, application or job.hex(), number, job, expires_ms, application is None)


async def _check(reading: LogReading, terms: Staging) -> None:
    """Terms name the log as it was called; what was staged by them names its id. So a log that was renamed is spliced
    into by its new name (P8.12), unless the old one is another log's by now."""
    runtime = reading.runtime
    runtime.check()
    is_ours = isinstance(terms, Staging)
    if is_ours and terms.log != reading.given:
        other = await find(runtime, terms.log)
        is_there = isinstance(other, LogId) or (other is not None and await log_exists(runtime, terms.log))
        is_ours = runtime.has_level(LEVEL_OF_LOG_IDS) and not is_there
    # A caller may send any numbers as terms; one that no message can have would end this process's host thread.
    numbers = (terms.number, terms.expires_ms) if is_ours else ()
    if not is_ours or not all(isinstance(each, int) and 0 <= each <= LEDGER_ID_MAX for each in numbers):
        raise UsageError(f"{terms!r:.200} is no staging() of log {reading.name!r}")
    _check_level(reading)


def _check_level(reading: LogReading) -> None:
    if not reading.runtime.has_level(LEVEL_OF_SPLICES):
        raise UsageError(
            f"log {reading.name!r}: the cluster's level is below {LEVEL_OF_SPLICES}, and builds may come back that do "
            "not know spliced ledgers; nothing was changed",
            hint="embedbk quorum raise",
        )


async def stage(reading: LogReading, terms: Staging) -> Appending:
    """A ledger of the log's own settings, that is part of nothing before it is spliced. Its entries have no times of
    their own: they come to the log all at once."""
    await _check(reading, terms)
    await reading.claimed()
    runtime, name = reading.runtime, reading.name
    given = WriterArguments()
    made = await writer_terms(runtime, name, given, None, delays_change=False)

    def marked(ledger_id: int) -> Alongside:
        mark = StagedRecord(
            METADATA_VERSION, ledger_id, terms.application, terms.number, terms.job, terms.expires_ms
        )
        return Alongside([], [Put(staged_path(name, ledger_id), encode_staged(mark))])

    staged_for = b"%d of %s" % (terms.number, terms.application.encode())
    core = Creation(
        made.quorum,
        reading.password.verifier,
        runtime.wall_ms(),
        {"log": name.encode(), "staged": staged_for},
        runtime.bookies,
        runtime.new_chance(),
        made.traits.durability,
        made.traits.options.placement,
        made.traits.digest,
        await creating.patience_with(runtime, made.quorum),
        marked,
        await writer_name(runtime),
    )
    metadata, revision = await runtime.run(core, f"staging a ledger for log {name!r}")
    what = f"the ledger {metadata.ledger_id} that is staged for log {name!r}"
    return creating.begin_writing(
        runtime,
        metadata,
        revision,
        reading.password,
        what,
        made.traits.options,
        compression=made.traits.compression,
    )


# --- Splicing ----------------------------------------------------------------------------------------------


async def splice(
    reading: LogReading, terms: Staging, ledger_ids: Sequence[int], timeout_s: float | None
) -> SpliceOutcome:
    await _check(reading, terms)
    check_seconds(timeout_s, "timeout_s")
    await reading.found()
    runtime = reading.runtime
    ids = tuple(ledger_ids) if isinstance(ledger_ids, Iterable) else (ledger_ids,)
    are_ids = all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= LEDGER_ID_MAX for each in ids
    )
    if not are_ids or len(set(ids)) != len(ids):
        raise UsageError(f"ledger_ids={ledger_ids!r:.200}: allowed are ids of staged ledgers, each once")
    if not 1 <= len(ids) <= SPLICE_LEDGERS_MAX:
        raise UsageError(
            f"{len(ids)} ledgers are to be spliced: allowed are 1 to {SPLICE_LEDGERS_MAX} in one transaction",
            hint="stage fewer, larger ones",
        )
    limit_s = runtime.settings.operation_timeout_s if timeout_s is None else timeout_s
    wanted = Splice(terms.application, terms.number, terms.job, ids, terms.is_once)
    done = await _spliced(reading, wanted, runtime.clock_s() + limit_s)
    await _tidied(reading)
    if not done.is_replay:
        logger.info(
            "log %r: transaction %d of %r is spliced in at offset %d, %d entries in %d ledgers",
            reading.name,
            terms.number,
            terms.application,
            done.first_offset,
            done.end - done.first_offset,
            len(ids),
        )
    return done


class _Again(Exception):
    """The request is gone, and was not carried out: it went with a session of ours, say."""


async def _spliced(reading: LogReading, wanted: Splice, until_s: float) -> SpliceOutcome:
    runtime = reading.runtime
    for _ in range(_TRIES_MAX):
        guard = await reading.claimed()
        name = reading.name
        before = await _record_of(reading, wanted.application)
        if before is not None and before.number >= wanted.number:
            return _shown(before, is_replay=True)
        await _check_bytes(reading, wanted)
        kept = runtime.spliced_epochs.get(name, 0)
        owner, epoch = await runtime.get(log_owner_path(name), f"asking who owns log {name!r}")
        if kept != epoch:
            runtime.spliced_epochs.pop(name, None)
            kept = 0
        if not kept and owner is not None:
            try:
                answered = await _asked(reading, wanted, owner, until_s)
            except _Again:
                if runtime.clock_s() < until_s:
                    continue
                raise OperationTimeout(
                    f"the owner of log {name!r} did not splice in time; nothing was spliced",
                    definite=True,
                    hint="splice again: what is staged is there still; or end that writer",
                ) from None
            if answered is not None:
                return answered
            if (await runtime.get(log_owner_path(name), f"asking who owns log {name!r}"))[1] != epoch:
                continue
        try:
            return _told(runtime, name, await _take(reading, wanted, kept, guard))
        except LogMoved:
            continue
        except LedgerFenced:
            runtime.spliced_epochs.pop(name, None)
            if not kept:
                runtime.call_if_open(lambda: runtime.contending.note_lost(name, runtime.now_ns()))  # noqa: B023
    raise MetadataConflict(
        f"log {reading.name!r} changed its owner {_TRIES_MAX} times while it was to be spliced into; nothing was "
        "spliced",
        definite=True,
        hint="splice again: it comes to pass once",
    )


async def _check_bytes(reading: LogReading, wanted: Splice) -> None:
    """Raises LogAtBound where the log has no room for this by its list; its owner, if it has one, judges by all."""
    bound = bound_of(*await record_of(reading.runtime, reading.name))
    if bound is not None:
        coming = await spliced_bytes(reading.runtime, wanted.ledger_ids)
        found = await make_room(reading, bound, lambda _: 0, coming)
        check_splice(reading.name, bound, recorded_bytes(found.log_list), coming, found)


def _told(runtime: Runtime, name: str, done: Spliced) -> SpliceOutcome:
    if done.epoch:
        runtime.spliced_epochs[name] = done.epoch
    return _shown(done.record, is_replay=done.is_replay)


async def _take(reading: LogReading, wanted: Splice, kept: int, guard: tuple[Compare, ...]) -> Spliced:
    """Where no owner lives: by taking the log over, or under the epoch of the last time."""
    runtime, name = reading.runtime, reading.name
    new = NewLedger(
        _NONE_IS_MADE,
        reading.password.verifier,
        runtime.wall_ms(),
        Begun.TAKEOVER,
        placement=runtime.placement,
        page_ledgers=runtime.page_ledgers,
    )
    of = (name, runtime.owner().encode(), new, reading.password.key, runtime.bookies, runtime.new_chance())
    if not kept:
        losses = runtime.contending.losses(name, runtime.now_ns())
        holding = LogHolding(*of, mac_key=reading.password.mac_key, losses=losses, guard=guard)
        kept = await runtime.run(holding, f"taking over log {name!r} to splice into it")
    new = new._replace(created_ms=await _spliced_ms(reading))  # No other client appends any more.
    core = LogSplicing(
        name, b"", new, reading.password.key, runtime.bookies, runtime.new_chance(), wanted, kept_epoch=kept
    )
    done: Spliced = await runtime.run(core, f"splicing into log {name!r}")
    return done


async def _spliced_ms(reading: LogReading) -> int:
    """When its entries came to the log; not before the entries that stand there, as wall clocks differ (P8.11)."""
    now_ms = reading.runtime.wall_ms()
    try:
        log_list = await reading.listed()
        return max(now_ms, await last_time(reading, log_list, await reading.end()))
    except EmbedbkError:
        return now_ms  # The log is empty, or its time cannot be read now: by this clock alone.


async def _asked(reading: LogReading, wanted: Splice, owner: bytes, until_s: float) -> SpliceOutcome | None:
    """The owner's answer; None: no living process owns the log."""
    runtime, name = reading.runtime, reading.name
    client = owner_of(owner)
    if client is None or client == runtime.living_as:
        line = runtime.keeper.line_of(name) if client is not None and runtime.keeper is not None else None
        if line is None:
            return None
        done = await line.splice(wanted, await _spliced_ms(reading))
        return _shown(done.record, is_replay=done.is_replay)
    what = f"asking the owner of log {name!r} to splice"
    if (await runtime.get(living_path(client), what))[0] is None:
        return None
    key = splice_request_path(client, name)
    request = SpliceRequest(
        METADATA_VERSION,
        wanted.application,
        wanted.number,
        wanted.job,
        wanted.ledger_ids,
        wanted.is_once,
        await _spliced_ms(reading),
    )
    put = Put(key, encode_splice_request(request), is_ephemeral=True)
    followed = await runtime.follow(key)
    try:
        while not await runtime.transact([Compare(key, ABSENT)], [put], what):
            await _moved(followed, reading, until_s)  # Another one's is being carried out.
        value, revision = await runtime.get(key, what)
        while True:
            if value is None:
                return await _outcome(reading, wanted)
            answer = decode_splice_request(value, name)
            if answer.answer is not None:
                await runtime.transact([Compare(key, revision)], [Delete(key)], what)
                if answer.reached is not None:
                    full = LogAtBound(
                        f"the owner of log {name!r} did not splice: {answer.answer}", hint=_WHEN_FULL
                    )
                    full.byte_count, full.bytes_max = answer.reached
                    raise full
                if answer.answer:
                    raise UsageError(
                        f"the owner of log {name!r} did not splice: {answer.answer}",
                        definite=True,
                    )
                return None
            if answer.job != wanted.job:
                return await _outcome(reading, wanted)  # Somebody else's by now.
            left_s = until_s - runtime.clock_s()
            is_late = left_s <= 0 or not await followed.beyond(revision, left_s)
            if is_late and await runtime.transact([Compare(key, revision)], [Delete(key)], what):
                raise OperationTimeout(
                    f"the owner of log {name!r} did not splice in time; the request was withdrawn, and nothing was "
                    "spliced",
                    definite=True,
                    hint="splice again: what is staged is there still; or end that writer",
                )
            runtime.check()
            value, revision = await runtime.get(key, what)
    finally:
        followed.end()


async def _outcome(reading: LogReading, wanted: Splice) -> SpliceOutcome:
    """Wait until the request is gone: the transaction that splices deletes it."""
    done = await _record_of(reading, wanted.application)
    if done is None or done.number < wanted.number:
        raise _Again
    return _shown(done, is_replay=(done.number, done.job) != (wanted.number, wanted.job))


async def _moved(followed: FollowedKey, reading: LogReading, until_s: float) -> None:
    runtime = reading.runtime
    left_s = until_s - runtime.clock_s()
    revision = followed.revision
    if left_s <= 0 or not await followed.beyond(revision, left_s):
        raise OperationTimeout(
            f"the owner of log {reading.name!r} is busy with the splice of another; nothing was spliced",
            definite=True,
            hint="splice again",
        )
    runtime.check()


# --- What was spliced, and what is given up ----------------------------------------------------------------


async def _splices(reading: LogReading) -> tuple[LogSplices, int]:
    name = reading.name
    value, revision = await reading.runtime.get(
        log_splices_path(name), f"reading what was spliced into log {name!r}"
    )
    if value is None:
        return LogSplices(METADATA_VERSION, ()), ABSENT
    return decode_log_splices(value, name), revision


async def _record_of(reading: LogReading, application: str) -> SplicedRecord | None:
    return (await _splices(reading))[0].of(application)


def _shown(record: SplicedRecord, *, is_replay: bool = False) -> SpliceOutcome:
    return SpliceOutcome(
        record.application, record.number, record.first_offset, record.end, is_replay, record.job
    )


async def spliced(reading: LogReading, application: str) -> SpliceOutcome | None:
    await reading.found()
    record = await _record_of(reading, application)
    return None if record is None else _shown(record)


async def forget_application(reading: LogReading, application: str) -> bool:
    await reading.found()
    key = log_splices_path(reading.name)
    for _ in range(_TRIES_MAX):
        splices, revision = await _splices(reading)
        if splices.of(application) is None:
            return False
        left = replace(
            splices, spliced=tuple(each for each in splices.spliced if each.application != application)
        )
        what = f"forgetting application {application!r} of log {reading.name!r}"
        if await reading.runtime.transact(
            [Compare(key, revision)], [Put(key, encode_log_splices(left))], what
        ):
            return True
    raise MetadataConflict(
        f"what was spliced into log {reading.name!r} changed {_TRIES_MAX} times", definite=True
    )


async def unstage(reading: LogReading, terms: Staging) -> int:
    await _check(reading, terms)
    await reading.found()
    return await sweep(reading.runtime, reading.name, reading.password, terms.job)


async def sweep(
    runtime: Runtime, name: str, password: Password, job: bytes | None = None, *, takes_all: bool = False
) -> int:
    """Give up what no transaction splices any more; how many ledgers. job: that was called off."""
    prefix = staged_prefix(name)
    marks = await runtime.list_keys(prefix, f"looking for what is staged for log {name!r}")
    ids = [int(mark.key.removeprefix(prefix), 16) for mark in marks if _is_mark(mark.key, prefix)]
    if not ids:
        return 0
    what, given_up = f"giving up what was staged for log {name!r}", 0
    for is_last in (False, True):
        core = StagingSweeping(name, tuple(ids), runtime.wall_ms(), job, takes_all=takes_all)
        count, unclosed = await runtime.run(core, what)
        given_up += count
        if is_last or not unclosed:
            break
        ids = list(unclosed)
        for ledger_id in ids:
            try:
                (await LedgerReading.open(runtime, ledger_id, password, recover=True)).close()
            except EmbedbkError as failed:  # It is there the next time.
                logger.info("ledger %d, which was staged for log %r, stays: %s", ledger_id, name, failed)
    return given_up


def _is_mark(key: str, prefix: str) -> bool:
    """Every client may put other keys there."""
    digits = key.removeprefix(prefix)
    return len(digits) == 16 and set(digits) <= set("0123456789abcdef") and int(digits, 16) <= LEDGER_ID_MAX


async def _tidied(reading: LogReading) -> None:
    """The splice came to pass, whatever becomes of this: what is left is found the next time."""
    try:
        await sweep(reading.runtime, reading.name, reading.password)
    except EmbedbkError as failed:
        logger.info("log %r: what was staged is not looked through now: %s", reading.name, failed)
