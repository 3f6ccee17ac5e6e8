"""The heap of deadlines keeps no operation that is over (L13)."""

from __future__ import annotations

from typing import Any

from embedbk.host.deadlines import DUE_SPARE, Deadlines


class _Due:
    """What a heap of deadlines knows of an operation."""

    due_ns: int | None = None
    is_over = False


def test_an_operation_that_is_over_is_kept_by_no_deadline() -> None:
    """L13: it stayed until its time had come, so that memory followed the rate of operations."""
    deadlines = Deadlines()
    for number in range(10 * DUE_SPARE):
        operation: Any = _Due()
        deadlines.keep(operation, 1_000 + number)
        deadlines.end(operation)
        assert len(deadlines) <= DUE_SPARE
    last: Any = _Due()
    deadlines.keep(last, 5)
    assert list(deadlines.take(10_000, 10_000)) == [last]
