"""More staged ledgers than one transaction takes: some neighbours are put together into one; needs no Spark.

Decides which: the smallest, and no more of them than needed, as what is put together passes through the driver. Order
is kept, and a ledger that was put together is given up with all others that nobody names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from embedbk import arrow
from embedbk.client.client import Client

__all__ = ["grouped", "staged_rows"]


def grouped(sizes: Sequence[int], most: int) -> list[range]:
    """Neighbours in at most `most` groups, with the largest group of more than one as small as it can be."""
    low, high = 0, sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if len(_packed(sizes, middle, most)) <= most:
            high = middle
        else:
            low = middle + 1
    return _packed(sizes, high, most)


def _packed(sizes: Sequence[int], bytes_max: int, most: int) -> list[range]:
    """Groups of one, or of at most so many bytes; no more are put together when there are few enough."""
    groups: list[range] = []
    size, surplus = 0, len(sizes) - most
    for number, each in enumerate(sizes):
        if groups and surplus > 0 and size + each <= bytes_max:
            groups[-1] = range(groups[-1].start, number + 1)
            size, surplus = size + each, surplus - 1
        else:
            groups.append(range(number, number + 1))
            size = each
    return groups


def staged_rows(client: Client, ledger_id: int, password: bytes) -> Iterator[pa.RecordBatch]:
    """All rows of a staged ledger, which is closed, as a sink takes them."""
    with client.open_ledger(ledger_id, password=password) as reader:
        for batch in reader.read_batches():
            yield arrow.record_batch(batch, with_records=batch.records() is not None)
