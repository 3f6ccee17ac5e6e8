"""The sum of all records of a catalog, kept while they change (METADATA.md, 2; I72). Pure.

Decides which fields of a record count; the order of records does not. A record that is put is added, one that goes is
subtracted, so the same records give the same sum whatever their history.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import msgspec
from xxhash import xxh3_128_digest, xxh3_128_intdigest

from embedbk.codec.metadata_messages import Lineage, Record
from embedbk.metadata.levels import LEVEL_FIRST, LEVEL_OF_LINEAGES, LEVEL_OF_STALE_KEYS

__all__ = ["DIGEST_BYTES", "digest_of", "encode_lineages", "record_digest"]

DIGEST_BYTES = 16
_SUMS = 1 << 128  # Sums are modulo this.
_NUMBERS = Struct("<QQQI")
_COUNTERS = Struct("<QQQQQ")
_LEVEL = Struct("<Q")


def record_digest(record: Record) -> int:
    """The digest of a record, below 2**128. record: an existing one, so it has a value."""
    assert record.value is not None
    key = record.key.encode()
    numbers = _NUMBERS.pack(record.created, record.revision, record.session, len(key))
    return xxh3_128_intdigest(b"".join((numbers, key, record.value)))


_encode = msgspec.msgpack.Encoder().encode


def encode_lineages(lineages: Sequence[Lineage], stale: Sequence[tuple[int, int]]) -> bytes:
    """The bytes of the lineages; empty if there are none, as in builds that know none."""
    return (_encode(lineages) if lineages else b"") + (_encode(stale) if stale else b"")


def digest_of(
    records_sum: int,
    *counters: int,
    level: int,
    recovered: tuple[Sequence[Lineage], Sequence[tuple[int, int]], Sequence[tuple[int, int]]] = ((), (), ()),
) -> bytes:
    """The digest of a whole catalog: the sum of its records' digests, its five counters, its level, and from the level
    of lineages on its lineages and the ids that are spared, and from that of stale keys on those. Fields of a level are
    left out below it, as older builds do."""
    counted = _COUNTERS.pack(*counters) + (_LEVEL.pack(level) if level > LEVEL_FIRST else b"")
    records = (records_sum % _SUMS).to_bytes(DIGEST_BYTES, "little")
    met = recovered if level >= LEVEL_OF_STALE_KEYS else recovered[:2]
    return xxh3_128_digest(records + counted + (_encode(met) if level >= LEVEL_OF_LINEAGES else b""))
