"""How a ledger is made, for both faces and for owners of logs: its sizes, its traits, the handle of its writer (P2).

Decides what is meant where a caller leaves sizes out, how long a creation waits for bookies, and which terms many
writers share as one object.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from embedbk.client.appending import Appending
from embedbk.client.compression import compression_of
from embedbk.client.living import writer_name
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import Durability, LedgerMetadata
from embedbk.codec.log_settings import Compression
from embedbk.codec.registration import COOKIES_PREFIX
from embedbk.config import BEHIND_BYTES_MAX, CUSTOM_BYTES_MAX, Placement, Quorum, check_flag, quorum_for
from embedbk.core.creation import Creation, Patience
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import UsageError
from embedbk.host.writing import LedgerOwner
from embedbk.ids import is_text

__all__ = [
    "Traits",
    "alike",
    "begin_writing",
    "create",
    "patience_with",
    "quorum_of",
    "traits_of",
]

T = TypeVar("T")

_DIGESTS = {digest.name.lower(): digest for digest in DigestType}
_DURABILITIES = {durability.name.lower(): durability for durability in Durability}

_DEFAULT_COPIES = 3  # With so many bookies or more, a ledger is 3/3/2 by default.

_NO_CUSTOM: dict[str, bytes] = {}  # One map for all ledgers without custom metadata.


async def quorum_of(
    runtime: Runtime, ensemble_size: int | None, write_quorum: int | None, ack_quorum: int | None
) -> Quorum:
    """The sizes that were asked for; those left out follow the number of bookies that the cluster ever had.

    They never follow the number that is there or takes adds at this moment: a bookie that is down or full would
    silently turn three copies into one. In that case creating raises NotEnoughBookies, unless the caller asks for
    fewer."""
    if ensemble_size is not None or write_quorum is not None:
        return quorum_for(0, ensemble_size, write_quorum, ack_quorum)
    known = await _bookies_known(runtime, _DEFAULT_COPIES)
    return quorum_for(len(known), None, None, ack_quorum)


async def patience_with(runtime: Runtime, quorum: Quorum) -> Patience:
    """How long a creation waits for the cluster's own bookies: until a sixteenth of the caller's time is left, so that
    the error can name the bookies that did not come."""
    known = await _bookies_known(runtime, quorum.ensemble_size)
    return Patience(runtime.now_ns() + int(runtime.settings.operation_timeout_s * 15e9 / 16), known)


async def _bookies_known(runtime: Runtime, enough: int) -> tuple[str, ...]:
    """The bookies that the cluster ever had, alive or not; asked again only while fewer than enough were known."""
    if len(runtime.bookies_known) < enough:
        cookies = await runtime.list_keys(COOKIES_PREFIX, "the bookies of the cluster")
        runtime.bookies_known = tuple(cookie.key.removeprefix(COOKIES_PREFIX) for cookie in cookies)
    return runtime.bookies_known


@lru_cache(maxsize=64)
def _options(
    delays_change: bool, placement: Placement, quorum_wait_s: float, append_bytes_max: int
) -> WriterOptions:
    """The options; ledgers that are written alike share one object."""
    return WriterOptions(
        delays_change=delays_change,
        placement=placement,
        quorum_wait_ns=int(quorum_wait_s * 1e9),
        behind_bytes_max=min(BEHIND_BYTES_MAX, append_bytes_max // 2),
    )


@lru_cache(maxsize=64, typed=True)
def _one_of(terms: Any) -> Any:
    return terms


def alike(terms: T) -> T:
    """The same terms, as one object for all writers that have the same: there may be very many of them."""
    one: T = _one_of(terms)
    return one


class Traits(NamedTuple):
    """How ledgers of one writer are written, beside their quorum."""

    durability: Durability
    options: WriterOptions
    digest: DigestType
    compression: Compression | None = None


def traits_of(
    runtime: Runtime,
    durability: str,
    placement: Placement | None,
    *,
    delays_change: bool,
    digest: str,
    compression: str | None = None,
) -> Traits:
    """placement None: that of the settings. Raises UsageError for an unknown durability, digest or compression, and for
    a compression that is not installed here or that the cluster's level does not allow yet."""
    if not isinstance(durability, str) or durability not in _DURABILITIES:
        raise UsageError(f"durability={durability!r}: allowed are {', '.join(map(repr, _DURABILITIES))}")
    check_flag(delays_change, "delays_change")
    # A core on the host's thread would meet anything else, and end the nodes of this process.
    if placement is not None and not isinstance(placement, Placement):
        raise UsageError(
            f"placement={placement!r}: allowed are embedbk.Placement(...), and None for that of the settings"
        )
    settings = runtime.settings
    options = _options(
        delays_change, placement or runtime.placement, settings.quorum_wait_s, settings.append_bytes_max
    )
    if not isinstance(digest, str) or digest not in _DIGESTS:
        raise UsageError(f"digest={digest!r}: allowed are {', '.join(map(repr, _DIGESTS))}")
    return alike(
        Traits(_DURABILITIES[durability], options, _DIGESTS[digest], compression_of(runtime, compression))
    )


async def create(
    runtime: Runtime, quorum: Quorum, password: Password, custom: Mapping[str, bytes], traits: Traits
) -> Appending:
    runtime.check()
    if not isinstance(custom, Mapping):
        raise UsageError(f"custom={custom!r}: allowed are names that map to bytes")
    for name, value in custom.items():
        if not isinstance(name, str) or not is_text(name) or not isinstance(value, bytes):
            raise UsageError(f"custom metadata {name!r}: {value!r}: allowed are names that map to bytes")
    size = sum(len(name.encode()) + len(value) for name, value in custom.items())
    if size > CUSTOM_BYTES_MAX:
        raise UsageError(
            f"custom metadata of {size} bytes: allowed are {CUSTOM_BYTES_MAX}; nothing was made",
            hint="put what is longer into the first entry",
        )
    core = Creation(
        quorum,
        password.verifier,
        runtime.wall_ms(),
        dict(custom) if custom else _NO_CUSTOM,
        runtime.bookies,
        runtime.new_chance(),
        traits.durability,
        traits.options.placement,
        traits.digest,
        await patience_with(runtime, quorum),
        writer=await writer_name(runtime),
    )
    metadata, revision = await runtime.run(core, "creating a ledger")
    appending = begin_writing(
        runtime, metadata, revision, password, "", traits.options, compression=traits.compression
    )
    appending.writing.on_missed = runtime.on_missed
    return appending


def begin_writing(
    runtime: Runtime,
    metadata: LedgerMetadata,
    revision: int,
    password: Password,
    what: str,
    options: WriterOptions,
    owner: LedgerOwner | None = None,
    compression: Compression | None = None,
) -> Appending:
    """The creator's handle of a ledger that was created just now."""
    nonce = runtime.chance.getrandbits(63)
    core = Writer(metadata, revision, password.key, nonce, runtime.bookies, runtime.core_chance, options)
    return Appending(runtime, core, what, owner, password.mac_key, compression)
