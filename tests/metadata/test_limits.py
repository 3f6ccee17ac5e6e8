"""Bounds of an operation: a transaction that is judged at one look is judged as any other (METADATA.md, 3)."""

from __future__ import annotations

from itertools import product

from embedbk.codec.metadata_messages import ABSENT, ANY, Compare, Delete, Put, Txn
from embedbk.metadata.limits import Limits, check_operation

KEY_BYTES, VALUE_BYTES, TXN_BYTES = 16, 100, 170
LIMITS = Limits(
    key_bytes_max=KEY_BYTES, value_bytes_max=VALUE_BYTES, txn_bytes_max=TXN_BYTES, txn_operations_max=2
)
KEYS = (
    "", "/", "a", "a/b", "/a", "/a\0", "\0/a", "/" + "k" * (KEY_BYTES - 1), "/" + "k" * KEY_BYTES, "/é", "/\ud800",
    "/" + "é" * (KEY_BYTES // 2), "/locks/a", "/locks", "/waiting/a/1", "/repairing/1",
)  # fmt: skip


def among_others(txn: Txn) -> Txn:
    """The same with a change that is allowed anywhere and weighs nothing, so that it is none of the common ones."""
    return Txn(txn.when, [*txn.then, Delete("/other")])


def test_a_transaction_that_is_judged_at_one_look_is_judged_as_any_other() -> None:
    """METADATA.md, 3: each bound on either side of it, in every place of a small transaction."""
    values = [
        bytes(size) for size in (0, VALUE_BYTES, VALUE_BYTES + 1, TXN_BYTES - 64 - 2, TXN_BYTES - 64 - 1)
    ]
    changes: list[Put | Delete] = [Put(key, value) for key, value in product(KEYS, values)]
    changes += [Put(key, b"", True) for key in KEYS] + [Delete(key) for key in KEYS]
    compares = [Compare(key, revision) for key, revision in product(KEYS, (ANY - 1, ANY, ABSENT, 7))]
    plain, txns = Put("/a", b""), [Txn([], [change]) for change in changes]
    txns += [Txn([compare], [plain]) for compare in compares]
    txns += [Txn([compare, Compare("/b", 1)], [plain]) for compare in compares]
    txns += [Txn([Compare("/b", 1)] * count, [plain]) for count in (2, 3)]
    refused = 0
    for txn in txns:
        alone, among = check_operation(txn, LIMITS), check_operation(among_others(txn), LIMITS)
        assert (alone is None) == (among is None), txn
        refused += alone is not None
    assert 0 < refused < len(txns)
