"""Does the log hold exactly what was written? Compares it with the input, byte for byte, and counts what is wrong.

    acknowledged_lost   acknowledged lines that stand in the log less often than they were acknowledged
    duplicated          entries beyond what the input has: a line more often than it was written, or never written
    out_of_order        entries that stand behind one that the input has later

All three are 0 exactly if the log begins with what was acknowledged and is the beginning of the input.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embedbk.client.log import Log
from embedbk.demo.lines import Lines

__all__ = ["LogComparison", "compare", "diagnose"]


@dataclass(frozen=True, slots=True)
class LogComparison:
    entries: int
    byte_count: int
    acknowledged_lost: int
    duplicated: int
    out_of_order: int

    @property
    def is_good(self) -> bool:
        return self.acknowledged_lost == self.duplicated == self.out_of_order == 0


def compare(log: Log, lines: Lines, acknowledged: int, progress: Callable[[int], None]) -> LogComparison:
    """Read the whole log and hold it against the input. acknowledged: so many of its first lines must be there."""
    count = byte_count = 0
    is_same = True
    for batch in log.read_batches():
        first = batch.first_offset + batch.ids[0]
        begin = lines.begin(min(first, len(lines)))
        ends = [begin + end for end in batch.ends[1:]]
        is_same = (
            is_same
            and first == count
            and ends == lines.ends[first : first + len(batch.ids)].tolist()
            and batch.data == lines.run(first, len(batch.ids))
        )
        count += len(batch.ids)
        byte_count += len(batch.data)
        progress(count)
    if is_same and count >= acknowledged:
        return LogComparison(count, byte_count, 0, 0, 0)
    found = [bytes(entry) for entry in log.read()]
    expected = [lines[number] for number in range(len(lines))]
    lost, duplicated, out_of_order = diagnose(expected, found, acknowledged)
    return LogComparison(count, byte_count, lost, duplicated, out_of_order)


def diagnose(expected: Sequence[bytes], found: Sequence[bytes], acknowledged: int) -> tuple[int, int, int]:
    """(acknowledged_lost, duplicated, out_of_order). Equal lines stand for each other, in order."""
    held = Counter(found)
    lost = (Counter(expected[:acknowledged]) - held).total()
    duplicated = (held - Counter(expected)).total()
    numbers: defaultdict[bytes, deque[int]] = defaultdict(deque)
    for number, line in enumerate(expected):
        numbers[line].append(number)
    out_of_order = 0
    highest = -1
    for line in found:
        places = numbers.get(line)
        if not places:
            continue  # Counted above.
        number = places.popleft()
        out_of_order += number < highest
        highest = max(highest, number)
    return lost, duplicated, out_of_order
