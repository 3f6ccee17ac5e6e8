"""METADATA.md and the code say the same: kinds, tags, fields, bounds."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import msgspec

from embedbk.host import snapshotting
from embedbk.metadata import catalog, commands, cutting, divergence
from embedbk.metadata.catalog import DEFAULT_LIMITS, Catalog
from embedbk.storage import metadata_log, metadata_store, older_snapshots, snapshot_format, snapshots

PAGE = (Path(commands.__file__).parent / "METADATA.md").read_text()


BOUNDS = "| bound | value | who hits it | what is told | the way out |"


def table(head: str, at: int = 0) -> list[list[str]]:
    """The rows of the table with this first line, or of a later one with the same."""
    lines = PAGE.split(head + "\n")[at + 1].splitlines()[1:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_commands_have_the_tags_and_fields_of_the_page() -> None:
    found = [
        [str(kind.__struct_config__.tag), kind.__name__, ", ".join(kind.__struct_fields__)]
        for kind in (
            commands.StartSession,
            commands.ExpireSession,
            commands.Run,
            commands.BeginGeneration,
            commands.StartMember,
            commands.BeginLineage,
            commands.StopSparing,
            commands.RaiseTo,
            commands.CheckDigest,
            commands.ResumeRepairs,
        )
    ]
    assert found == table("| tag | command | fields |")
    assert commands.encode_command(commands.ExpireSession(5, 7)) == b"\x02\x93\x02\x05\x07"


def test_records_have_the_kinds_of_the_page() -> None:
    kinds = [row[0] for row in table("| kind | ledger_id | body |")]
    assert kinds == [
        str(metadata_log.KIND_COMMAND),
        str(metadata_log.KIND_SNAPSHOT),
        str(metadata_log.KIND_IDENTITY),
        str(snapshots.KIND_NAMED),
        str(metadata_log.KIND_STEP),
        str(metadata_log.KIND_SALVAGED),
    ]
    rows = PAGE.split("<!-- table: salvaged -->\n")[1].split("\n\n")[0].splitlines()[2:]
    assert sum(int(row.split("|")[2]) for row in rows) == metadata_log.SALVAGED.size
    assert f"**Name of a snapshot**, {snapshots.NAMED.size} bytes" in PAGE
    assert f"**Identity**, {metadata_log.IDENTITY.size} bytes" in PAGE
    assert older_snapshots.CHUNK.size == 4 + 4 + 8
    assert f"version {metadata_log.OLDER_IDENTITY_VERSION}; {metadata_log.OLDER_IDENTITY.size} bytes" in PAGE


def test_a_snapshot_has_the_fields_of_the_page() -> None:
    rows = table("| field | what |")
    assert [row[0] for row in rows] == list(catalog._Snapshot.__struct_fields__)
    assert rows[4][1] == "arrays of " + ", ".join(cutting.SessionImage.__struct_fields__)
    assert msgspec.msgpack.decode(Catalog().snapshot()) == [1, 0, 1, 0, [], [], 0, [], []]


def test_the_pieces_and_the_file_of_a_snapshot_are_those_of_the_page() -> None:
    found = [
        [str(kind.__struct_config__.tag), kind.__name__, ", ".join(kind.__struct_fields__)]
        for kind in (
            cutting.Head,
            cutting.Level,
            cutting.Lineages,
            cutting.Sessions,
            cutting.Records,
            cutting.StartsPiece,
            cutting.Spared,
        )
    ]
    assert found == table("| tag | piece | fields |")
    assert f"`version` is {cutting.PIECE_VERSION};" in PAGE
    assert f"of at most {cutting.PIECE_BYTES_MAX} bytes" in PAGE
    assert f"({cutting.SLICE_RECORDS:,} records or {cutting.SLICE_BYTES >> 10} KiB)" in PAGE
    for magic in (snapshot_format.MAGIC, snapshot_format.END_MAGIC):
        assert f"| magic | `{magic.decode()}` |" in PAGE
    assert snapshot_format.snapshot_name(7, 1) == f"{7:020}-{1:010}.snap"
    assert snapshotting.RETRY_NS_MIN == 10 * 1_000_000_000
    assert snapshotting.RETRY_NS_MAX == 10 * 60 * 1_000_000_000
    assert metadata_store.SNAPSHOT_DUE_BYTES == 16 << 20
    assert metadata_store.SNAPSHOT_DUE_BYTES_MAX == 256 << 20
    assert (divergence.DIGEST_ENTRIES, divergence.DIGEST_NS) == (10_000, 60_000_000_000)


def test_bounds_are_those_of_the_page() -> None:
    of_catalog, of_others = (table(head, at) for at, head in enumerate([BOUNDS, BOUNDS]))
    assert [row[:2] for row in of_catalog] == [
        [field.name, str(getattr(DEFAULT_LIMITS, field.name))] for field in fields(DEFAULT_LIMITS)
    ]
    for name, value, who, told, _ in of_others:
        module, _, constant = name.partition(".")
        assert value == str(getattr(import_module(f"embedbk.metadata.{module}"), constant))
        assert who
        assert told or who.startswith("nobody")


def test_every_file_of_the_folder_is_on_the_page() -> None:
    """The files of the agreement among several members stand in RAFT.md (tests/quorum/test_page.py)."""
    named = {
        name for row in table("| file | decides | touches |") for name in row[0].replace("`", "").split(", ")
    }
    agreement = (Path(commands.__file__).parent / "RAFT.md").read_text().split("## 1.")[0]
    named |= set(re.findall(r"^\| `(\w+\.py)` \|", agreement, re.MULTILINE))
    here = {path.name for path in Path(commands.__file__).parent.glob("*.py")} - {"__init__.py"}
    assert here <= named
