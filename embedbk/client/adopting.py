"""Taking ledgers of a lost future back into the metadata (P7.7, P10.5): which bookies are asked, and what must hold
before.

Metadata that was brought back knows neither the ledger of such an id nor which bookies had its entries. Every bookie
that the cluster knows is asked (`core/adopting`). A bookie that is away is not waited for: an operator brings it back,
or calls it gone by its name. Nothing is fenced before that is clear.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.client.client import Client
from embedbk.client.ledger_ids import check_ledger_id
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Tell, Told
from embedbk.codec.registration import COOKIES_PREFIX, decode_cookie
from embedbk.core.adopting import AdoptionOptions, LedgerAdoption
from embedbk.core.adoption_plan import AdoptionPlan, StaleKey
from embedbk.errors import MetadataConflict, PeerError, RecoveryInconclusive, StorageError, UsageError
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.levels import LEVEL_OF_ADOPTION

__all__ = ["adopt", "adopt_ledger", "cluster_token"]


def cluster_token(client: Client) -> bytes:
    told = run_blocking(_tell(client._runtime, "asking which cluster this is"), "quorum.Quorum")
    return told.cluster_token


def adopt(
    client: Client, ledger_id: int, password: Password, gone: Sequence[str], options: AdoptionOptions
) -> AdoptionPlan:
    """As `adopt_ledger`, blocking this thread."""
    steps = adopt_ledger(client._runtime, ledger_id, password, gone, options)
    return run_blocking(steps, "embedbk ledger adopt")


async def adopt_ledger(
    runtime: Runtime, ledger_id: int, password: Password, gone: Sequence[str], options: AdoptionOptions
) -> AdoptionPlan:
    """gone: bookies that are not waited for; entries that only they have count as not there.

    Raises:
        MetadataConflict: metadata knows the ledger, and its key is not stale; nothing is to be done.
        UsageError: no lost future made the ledger; no bookie has a name given in `gone`; the level is too low.
        RecoveryInconclusive: a bookie that may have entries is away, or cannot tell. It may be tried again.
        NoSuchLedger: no bookie has an entry of it.
        EntryUnreadable: no bookie has some acknowledged entries, and they are not given up.
        StorageError: what bookies hold is not one ledger.
    """
    check_ledger_id(ledger_id)
    what = f"adopting ledger {ledger_id}"
    told = await _tell(runtime, what)
    value, revision = await runtime.get(ledger_key_path(ledger_id), what)
    stale = StaleKey(decode_ledger_metadata(value, ledger_id), revision) if value is not None else None
    if stale is not None and not told.is_stale(ledger_id):
        raise MetadataConflict(f"ledger {ledger_id} is in the metadata already", hint="embedbk ledger show")
    if stale is not None and stale.metadata.last_entry == NO_ENTRY:
        raise MetadataConflict(f"ledger {ledger_id} was closed empty before the copy: nothing is to be done")
    if stale is not None and stale.metadata.freed is not None:
        raise MetadataConflict(
            f"the copies of ledger {ledger_id} are files of the archive in {stale.metadata.freed.path!r}: no bookie is "
            "asked for it, and nothing is to be done"
        )
    if stale is not None:
        password.check(stale.metadata)
    if stale is None and not told.is_spared(ledger_id):
        raise UsageError(
            f"ledger {ledger_id} is of no lost future: it was deleted, forgotten, or never made",
            hint="embedbk ledger lost names those that can be adopted; nothing was changed",
        )
    if not options.is_dry and not runtime.has_level(LEVEL_OF_ADOPTION):
        raise UsageError(
            f"ledgers are adopted at level {LEVEL_OF_ADOPTION}, and the cluster's level is lower",
            hint="embedbk quorum raise, when all nodes know it; nothing was changed",
        )
    asked = await _asked(runtime, gone, what)
    bookies = runtime.bookies
    listed = {info.member for info in bookies}
    away = [member.bookie_id for member, is_needed in asked if is_needed and member not in listed]
    if away:
        raise RecoveryInconclusive(
            f"{', '.join(away)} may have entries of ledger {ledger_id}, and {'is' if len(away) == 1 else 'are'} away",
            hint="bring back who is away, or call it gone for good with --gone NAME; nothing was changed",
        )
    core = LedgerAdoption(
        ledger_id,
        password.key,
        password.mac_key,
        password.verifier,
        asked,
        runtime.chance.getrandbits(63),
        bookies,
        runtime.new_chance(),
        options,
        stale,
    )
    plan: AdoptionPlan = await runtime.run_to_its_end(core, what)
    return plan


async def _tell(runtime: Runtime, what: str) -> Told:
    told = await runtime.ask(Tell(0), what)
    if not isinstance(told, Told):
        raise PeerError(f"{what}: the metadata member answered with a {type(told).__name__}")
    return told


async def _asked(runtime: Runtime, gone: Sequence[str], what: str) -> list[tuple[Member, bool]]:
    """Every bookie that the cluster knows, and whether it is waited for. Its cookie says in which incarnation."""
    known = {info.member.bookie_id: info.member for info in runtime.bookies}
    for record in await runtime.list_keys(COOKIES_PREFIX, what):
        name = record.key.removeprefix(COOKIES_PREFIX)
        try:
            known[name] = Member(name, decode_cookie(record.value or b"").incarnation)
        except StorageError as unread:
            raise StorageError(f"{what}: the cookie of bookie {name} cannot be read: {unread}") from unread
    strange = [name for name in gone if name not in known]
    if strange:
        raise UsageError(
            f"--gone {strange[0]}: no bookie of this cluster has that name; there are {', '.join(sorted(known))}",
            hint="nothing was changed",
        )
    return [(member, name not in gone) for name, member in sorted(known.items())]
