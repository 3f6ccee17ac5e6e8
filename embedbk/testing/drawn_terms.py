"""With what an application of a world begins: a runtime that is ready, terms that the plan's features allow, passwords.

Decides what is drawn, by the application's own generator, or by one of its own where what it draws must not change what
others do. Leaves to each application what it does with them.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

from embedbk.client import creating
from embedbk.client.compression import is_installed
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, LedgerMetadata, decode_ledger_metadata
from embedbk.config import Placement, Settings
from embedbk.metadata.levels import LEVEL_OF_COMPRESSION
from embedbk.testing.actors import Sleep, Until
from embedbk.testing.bounders import settings_drawn
from embedbk.testing.plan import SECOND
from embedbk.testing.sim_runtime import SimRuntime
from embedbk.testing.world import World
from embedbk.testing.writing_handles import KEY

__all__ = [
    "Keys",
    "all_ledgers",
    "keys_of",
    "log_password",
    "password_drawn",
    "password_of",
    "ready",
    "records_of",
    "runtime_of",
    "traits_drawn",
    "variety_of",
]

PASSWORDS = (b"", b"sesame", b"open wide")
READY_NS = 20 * SECOND
# Bookies of such a world stand in up to three racks of one zone (run.py).
PLACEMENTS = (
    Placement("rack"),
    Placement("rack", is_strict=True),
    Placement("rack", is_strict=True, weighs_space=True),
    Placement("rack", domains_min=3, is_strict=True),
    Placement(weighs_space=True, local=("b1", "b2")),
)

Asking = Generator[Sleep | Until, Any, Any]


class Keys:
    """A function that opens a ledger of this world, by any maker."""

    def __init__(self, key: bytes, mac_key: bytes) -> None:
        self.key, self.mac_key = key, mac_key


_BY_VERIFIER = {Password(password).verifier: Password(password) for password in PASSWORDS}


def password_of(metadata: LedgerMetadata) -> Password | None:
    """None: the ledger is that of a writer below the faces."""
    return _BY_VERIFIER.get(metadata.password_verifier)


def keys_of(metadata: LedgerMetadata) -> Keys:
    found = password_of(metadata)
    return Keys(KEY, b"") if found is None else Keys(found.key, found.mac_key)


def log_password(world: World) -> Password:
    """The password of this world's log."""
    return Password(PASSWORDS[world.seed % len(PASSWORDS)] if "passwords" in world.features else b"")


def runtime_of(world: World, client: str, settings: Settings | None = None) -> SimRuntime:
    return SimRuntime(world, client, world.nodes[client], settings or settings_drawn(world, client))


def ready(world: World, client: str) -> Asking:
    node = world.nodes[client]
    return (yield Until(lambda: node.is_ready and len(node.bookies) > 0, READY_NS))


def traits_drawn(world: World, runtime: Runtime, chance: random.Random) -> creating.Traits:
    def maybe(feature: str, *values: Any) -> Any:
        return chance.choice(values) if feature in world.features else values[0]

    can_compress = runtime.has_level(LEVEL_OF_COMPRESSION) and is_installed()
    return creating.traits_of(
        runtime,
        maybe("deferred", "synced", "deferred"),
        maybe("placements", None, *PLACEMENTS),
        delays_change=maybe("delayed", False, True),
        digest=maybe("digests", "crc32c", "xxh3", "hmac"),
        compression=maybe("compressed", None, "zstd") if can_compress else None,
    )


def password_drawn(world: World, chance: random.Random) -> Password:
    return Password(chance.choice(PASSWORDS) if "passwords" in world.features else b"")


def all_ledgers(world: World) -> list[LedgerMetadata]:
    """As a client that lists them would learn."""
    return [decode_ledger_metadata(value) for value in world.committed(LEDGERS_PREFIX).values()]


def records_of(world: World, client: str) -> random.Random | None:
    """What decides which payloads of this client are records with keys and headers; None: none is."""
    return random.Random(f"records of {client} {world.seed}") if "records" in world.features else None


def variety_of(world: World, client: str) -> random.Random | None:
    """What decides how far payloads of this client can be compressed; None: nobody compresses any."""
    return random.Random(f"varied of {client} {world.seed}") if "compressed" in world.features else None
