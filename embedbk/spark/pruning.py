"""What the filters of a query leave of a log, by log, ledger, entry and offset: ranges that no row can come from are
not read. Filters on anything else say nothing here; Spark applies all of them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from embedbk.ids import LEDGER_ID_MAX
from embedbk.spark.reading import LedgerRange

__all__ = ["Bounds"]

_NUMBERS = ("ledgerId", "entryId", "offset")


@dataclass(slots=True)
class Bounds:
    """By column, the least and the greatest value that a row may have; the names of logs, None: any."""

    least: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    logs: frozenset[str] | None = None

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Bounds:
        bounds = cls()
        for each in filters:
            bounds._take(each)
        return bounds

    def has_log(self, name: str) -> bool:
        return self.logs is None or name in self.logs

    def clip(self, whole: LedgerRange) -> Iterator[LedgerRange]:
        """The part of a range that a row may come from, if there is one."""
        if not self._least("ledgerId") <= whole.ledger_id <= self._most("ledgerId"):
            return
        first = max(whole.first_entry, self._least("entryId"), self._least("offset") - whole.first_offset)
        last = min(whole.last_entry, self._most("entryId"), self._most("offset") - whole.first_offset)
        if first <= last:
            yield replace(whole, first_entry=first, last_entry=last)

    def _least(self, column: str) -> int:
        return self.least.get(column, -1)

    def _most(self, column: str) -> int:
        return self.most.get(column, 2 * LEDGER_ID_MAX)

    def _take(self, given: Any) -> None:
        column = ".".join(getattr(given, "attribute", ()))
        value: Any = getattr(given, "value", ())
        several: list[Any] = list(value) if isinstance(given, In) else [value]
        if column == "log" and isinstance(given, EqualTo | In):
            names = frozenset(several)
            self.logs = names if self.logs is None else self.logs & names
        if column not in _NUMBERS:
            return
        values = [each for each in several if isinstance(each, int)]
        if not values:
            return
        if isinstance(given, EqualTo | In | GreaterThan | GreaterThanOrEqual):
            least = min(values) + isinstance(given, GreaterThan)
            self.least[column] = max(least, self._least(column))
        if isinstance(given, EqualTo | In | LessThan | LessThanOrEqual):
            most = max(values) - isinstance(given, LessThan)
            self.most[column] = min(most, self._most(column))
