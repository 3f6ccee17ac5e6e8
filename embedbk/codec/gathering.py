"""Several requests, or several answers, of the metadata quorum in as few messages as carry them (WIRE.md section 5).

Their order stays, and a message has bounded bytes and items. What may be large goes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from embedbk.codec.messages import encode_message
from embedbk.codec.metadata_messages import (
    GATHERED_MAX,
    Acknowledged,
    Allocated,
    Claimed,
    Get,
    MetadataReplies,
    MetadataReply,
    MetadataRequest,
    MetadataRequests,
    Put,
    Txn,
    TxnDone,
    Value,
)

__all__ = ["GATHERED_BYTES_MAX", "encode_replies", "encode_requests"]

GATHERED_BYTES_MAX = 256 << 10  # A gathered message has about so many; what is larger goes alone.
SMALL_BYTES = 128  # Exceeds a request or answer of a few numbers, and a change without its key and value.

_Item = TypeVar("_Item", MetadataRequest, MetadataReply)


def encode_requests(
    requests: Sequence[MetadataRequest], request_id: int
) -> Iterator[list[bytes | memoryview]]:
    """The pieces of as few messages as carry these, in their order; a request that is alone is no MetadataRequests."""
    for part in _parts(requests):
        control = part[0] if len(part) == 1 else MetadataRequests(part)
        yield encode_message(request_id, control)


def encode_replies(replies: Sequence[MetadataReply]) -> Iterator[list[bytes | memoryview]]:
    """As `encode_requests`, for answers, all of them as MetadataReplies."""
    return (encode_message(0, MetadataReplies(part)) for part in _parts(replies))


def _parts(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    part: list[_Item] = []
    size = 0
    for item in items:
        weight = _weight(item)
        if part and (size + weight > GATHERED_BYTES_MAX or len(part) == GATHERED_MAX):
            yield part
            part, size = [], 0
        part.append(item)
        size += weight
    if part:
        yield part


def _weight(item: MetadataRequest | MetadataReply) -> int:
    """An upper bound of its bytes in a message, close for what is small; the whole bound for what may be large."""
    if isinstance(item, MetadataReply):
        result = item.result
        if isinstance(result, TxnDone | Acknowledged | Allocated | Claimed):
            return SMALL_BYTES
        record = result.record if isinstance(result, Value) else None
        if isinstance(result, Value) and (record is None or record.value is None):
            return SMALL_BYTES
        if record is not None and record.value is not None:
            return SMALL_BYTES + 4 * len(record.key) + len(record.value)
        return GATHERED_BYTES_MAX
    operation = item.operation
    if isinstance(operation, Txn):
        weight = SMALL_BYTES
        for compare in operation.when:
            weight += SMALL_BYTES + 4 * len(compare.key)
        for change in operation.then:
            weight += SMALL_BYTES + 4 * len(change.key)
            if isinstance(change, Put):
                weight += len(change.value)
        return weight
    return SMALL_BYTES + 4 * len(operation.key) if isinstance(operation, Get) else GATHERED_BYTES_MAX
