"""A second reader of journal files, driven by the tables of JOURNAL.md and by nothing of the C code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import crcmod.predefined

PAGE = Path(__file__).parents[2] / "embedbk" / "storage" / "JOURNAL.md"
BLOCK_BYTES = 4096
crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")

_ROW = re.compile(r"^\| (\d+) \| (\d+) \| (\w+(?: B)?) \| (\w+) \|", re.MULTILINE)


def table(name: str) -> dict[str, tuple[int, int, bool]]:
    """Field to (offset, size, is a number) as the page says."""
    text = PAGE.read_text().split(f"<!-- table: {name} -->")[1].split("\n\n")[0]
    return {
        field: (int(offset), int(size), kind.startswith("u"))
        for offset, size, kind, field in _ROW.findall(text)
    }


def size_of(name: str) -> int:
    return max(offset + size for offset, size, _ in table(name).values())


def fields(name: str, content: bytes, at: int) -> dict[str, int | bytes]:
    def value(offset: int, size: int, is_number: bool) -> int | bytes:
        raw = content[at + offset : at + offset + size]
        return int.from_bytes(raw, "little") if is_number else raw

    return {field: value(*place) for field, place in table(name).items()}


@dataclass
class Group:
    position: int
    header: dict
    records: list[tuple[int, int, int, bytes]]  # token, kind, ledger_id, body

    @property
    def end(self) -> int:
        return -(-(self.position + self.header["group_bytes"]) // BLOCK_BYTES) * BLOCK_BYTES


def read_file(content: bytes) -> tuple[dict, list[Group]]:
    """Header and groups up to the first that is not valid."""
    header = fields("file", content, 0)
    assert header["crc"] == crc32c(content[4 : size_of("file")])
    seed = crc32c(header["identity"] + header["generation"].to_bytes(8, "little"))
    groups, at = [], BLOCK_BYTES
    while at < len(content) and (group := read_group(content, at, seed)) is not None:
        groups.append(group)
        at = group.end
    return header, groups


def read_group(content: bytes, at: int, seed: int) -> Group | None:
    header = fields("group", content, at)
    if header["magic"] != b"EBKG" or header["crc"] != crc32c(content[at + 4 : at + size_of("group")], seed):
        return None
    if header["position"] != at:
        return None
    records, crcs, place = [], b"", at + size_of("group")
    for index in range(header["record_count"]):
        record = fields("record", content, place)
        end = place + size_of("record") + record["size"]
        if record["crc"] != crc32c(content[place + 4 : end], crc32c(place.to_bytes(8, "little"), seed)):
            return None
        body = content[place + size_of("record") : end]
        assert record["index"] == index
        records.append((header["first_token"] + index, record["kind"], record["ledger_id"], body))
        crcs += record["crc"].to_bytes(4, "little")
        place = -(-end // 8) * 8
    if header["records_crc"] != crc32c(crcs):
        return None
    assert place == at + header["group_bytes"]
    return Group(at, header, records)
