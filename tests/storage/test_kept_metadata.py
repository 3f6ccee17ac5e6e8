"""Metadata apart from its member: which copies and survivors are believed, what a new member begins with (P10.5)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from embedbk.codec.metadata_messages import GENERATION_BITS, Lineage
from embedbk.codec.quorum_messages import MetTold
from embedbk.errors import EmbedbkError, StorageError, UsageError
from embedbk.host.metadata_node import MetadataNode
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import BeginLineage, RaiseTo, StartMember, encode_command
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft_vocabulary import Entry, Persist
from embedbk.metadata.recovering import given_up, why_uncertain
from embedbk.ports.links import Identity
from embedbk.storage.kept_metadata import (
    KeptMetadata,
    begin_anew,
    freshest,
    read_snapshot,
    read_survivor,
    why_may_be_lost,
)
from embedbk.storage.layout import LOSS_FILE
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity
from embedbk.transports.local import LocalTransport

TOKEN = b"t" * 16
MEMBERS = tuple(MemberId(f"m{n}", bytes([n]) * 16) for n in (1, 2, 3))
LINEAGE = b"a" * 8


def survivor(home: Path, member: MemberId, count: int, term: int = 1) -> Path:
    """A stopped member's directory: a log of so many entries, of a quorum of three."""
    identity = MemberIdentity(TOKEN, member.incarnation, member.name, is_founder=False)
    store = open_metadata_store(home, threaded=False, new_identity=identity)
    commands = [RaiseTo(LEVEL), BeginLineage(LINEAGE), *(StartMember(bytes([n]) * 16) for n in range(count))]
    entries = [Entry(1, 1, Configuration(MEMBERS))]
    entries += [Entry(2 + n, term, encode_command(each)) for n, each in enumerate(commands)]
    store.persist(Persist(1, term, None, 0, tuple(entries)))
    while store._journal.step():  # type: ignore[attr-defined]
        pass
    assert store.durable() == 1
    store.close()
    return home


def started(home: Path) -> MetadataNode:
    store = open_metadata_store(home, threaded=False)
    own = Identity("metadata", "m1", store.identity.incarnation, TOKEN, store.boot.nonce)
    node = MetadataNode(store, LocalTransport(own), ["local://*"], now_ns=0)
    for _ in range(4):
        while store._journal.step():  # type: ignore[attr-defined]
            pass
        node.step(0)
    return node


def snapshot_or_none(file: Path) -> KeptMetadata | None:
    try:
        return read_snapshot(file)
    except StorageError:
        return None


def test_a_survivor_is_read_whole_and_not_changed(tmp_path: Path) -> None:
    """Everything that its log has, committed or not: whoever recovers cannot tell what others acknowledged."""
    home = survivor(tmp_path / "m1", MEMBERS[0], 3)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    kept = read_survivor(home)
    assert (kept.cluster_token, kept.member, kept.index, kept.term, kept.missing) == (
        TOKEN,
        MEMBERS[0],
        6,
        1,
        "",
    )
    assert kept.configuration == Configuration(MEMBERS)
    assert (kept.catalog.descent.start_count, kept.catalog.level) == (3, LEVEL)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_a_new_member_goes_on_with_the_state_and_its_first_start_begins_a_lineage(tmp_path: Path) -> None:
    """P10.5; METADATA.md, 10: "all of the state, nothing of who the old members were"."""
    kept = read_survivor(survivor(tmp_path / "m1", MEMBERS[0], 3))
    digest, lost = kept.catalog.digest(), Lineage(b"b" * 8, 6)
    identity = begin_anew(kept, tmp_path / "new", [lost])
    assert identity.incarnation not in [each.incarnation for each in MEMBERS]
    again = read_survivor(tmp_path / "new")
    assert (again.catalog.digest(), again.index, again.term) == (digest, kept.index, kept.term)
    assert again.configuration.voters == (identity.member,)
    assert again.configuration.retired == MEMBERS, "who comes back is told so, and votes for nobody"
    node = started(tmp_path / "new")
    assert node.failure is None
    catalog = node.core.catalog
    assert node.log.raft.term > kept.term, "an old member may have written behind it in that term"
    assert [each.name for each in catalog.descent.lineages[:2]] == [LINEAGE, lost.name]
    assert catalog.descent.lineages[2].parents == (LINEAGE, lost.name)
    assert catalog.revision >> GENERATION_BITS == 7
    node.close()
    assert not (tmp_path / "new" / LOSS_FILE).exists()
    node = started(tmp_path / "new")
    assert len(node.core.catalog.descent.lineages) == 3, "once"
    node.close()


def test_a_copy_is_whole_or_refused_whatever_byte_is_wrong(tmp_path: Path) -> None:
    kept = read_survivor(survivor(tmp_path / "m1", MEMBERS[0], 40))
    begin_anew(kept, tmp_path / "new", [])
    (file,) = (tmp_path / "new" / "snapshots").iterdir()
    found = read_snapshot(file)
    assert (found.catalog.digest(), found.index, found.member) == (kept.catalog.digest(), kept.index, None)
    content = file.read_bytes()
    copy = tmp_path / "copy"
    for at in [*range(200), *range(200, len(content), 97)]:
        copy.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        if (again := snapshot_or_none(copy)) is not None:
            # A byte that says nothing: of the filling of a block.
            assert again == replace(found, where=str(copy), catalog=again.catalog)
            assert again.catalog.digest() == found.catalog.digest()
    for cut in (0, 1, 4096, len(content) // 2, len(content) - 1):
        copy.write_bytes(content[:cut])
        with pytest.raises(StorageError):
            read_snapshot(copy)
    with pytest.raises(StorageError, match="cannot be read"):
        read_snapshot(tmp_path / "nobody")


def test_what_is_there_is_never_written_into(tmp_path: Path) -> None:
    kept = read_survivor(survivor(tmp_path / "m1", MEMBERS[0], 1))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for home, text in (
        (tmp_path / "full", "is there and not empty"),
        (tmp_path / "m1", "is there and not empty"),
        (tmp_path / "full" / "file", "is there and not empty"),
        (tmp_path / "nobody" / "new", "make it first"),
    ):
        with pytest.raises(UsageError, match=text):
            begin_anew(kept, home, [])
    (tmp_path / "new.part").mkdir()
    with pytest.raises(UsageError, match="of an attempt that did not end"):
        begin_anew(kept, tmp_path / "new", [])
    (tmp_path / "empty").mkdir()
    begin_anew(kept, tmp_path / "empty", [])
    assert read_survivor(tmp_path / "empty").index == kept.index


def test_a_member_that_runs_and_what_is_no_member_are_refused(tmp_path: Path) -> None:
    store = open_metadata_store(survivor(tmp_path / "m1", MEMBERS[0], 1), threaded=False)
    with pytest.raises(UsageError, match="is in use"):
        read_survivor(tmp_path / "m1")
    store.close()
    (tmp_path / "empty").mkdir()
    for home in (tmp_path / "empty", tmp_path / "nobody"):
        with pytest.raises(EmbedbkError):
            read_survivor(home)


def test_of_survivors_the_later_term_counts_and_then_the_longer_log(tmp_path: Path) -> None:
    """Story 4: as in an election, whatever was committed stands in a log of the latest term, in the longest of it."""
    kept = [
        read_survivor(survivor(tmp_path / "m1", MEMBERS[0], 5)),
        read_survivor(survivor(tmp_path / "m2", MEMBERS[1], 2, term=3)),
        read_survivor(survivor(tmp_path / "m3", MEMBERS[2], 3, term=3)),
    ]
    assert freshest(kept) is kept[2]
    assert why_may_be_lost(kept[:1]) == "1 of 3 voters are here whole, and it is certain with 2"
    assert why_may_be_lost(kept[:2]) == ""
    assert why_may_be_lost([kept[0], kept[0]]) != "", "one that is named twice is one"
    doubtful = [kept[0], replace(kept[1], missing="its newest file is gone")]
    assert why_may_be_lost(doubtful).endswith(f"certain with 2; {kept[1].where}: its newest file is gone")
    with pytest.raises(UsageError, match="belong to different clusters"):
        freshest([kept[0], replace(kept[1], cluster_token=b"o" * 16)])


def test_a_survivor_that_has_less_than_it_was_used_for_says_so(tmp_path: Path) -> None:
    """P10.3: judged as at a start, by what was noted beside the log."""
    home = survivor(tmp_path / "m1", MEMBERS[0], 3)
    note = (home / "MEMBER").read_bytes()
    assert not read_survivor(home).missing
    shorter = survivor(tmp_path / "other", MEMBERS[0], 0)
    (shorter / "MEMBER").write_bytes(note)
    assert read_survivor(shorter).missing
    other = read_survivor(survivor(tmp_path / "m2", MEMBERS[1], 3))
    assert why_may_be_lost([read_survivor(home), other]) == ""
    assert why_may_be_lost([read_survivor(shorter), other]), "it may have acknowledged what it lost"


@pytest.mark.parametrize(
    ("policy", "voters", "whole", "is_certain"),
    [
        (Policy.MAJORITY, 1, 1, True),
        (Policy.MAJORITY, 1, 0, False),
        (Policy.MAJORITY, 3, 1, False),
        (Policy.MAJORITY, 3, 2, True),
        (Policy.MAJORITY, 5, 2, False),
        (Policy.MAJORITY, 5, 3, True),
        (Policy.SUPERMAJORITY, 4, 1, False),
        (Policy.SUPERMAJORITY, 4, 2, True),
    ],
)
def test_a_survivor_of_every_commit_quorum_is_needed(
    policy: Policy, voters: int, whole: int, is_certain: bool
) -> None:
    """METADATA.md, 10: "any n - Qc + 1 voters of each set have one in common with every commit quorum"."""
    members = tuple(MemberId(f"m{n}", bytes([n]) * 16) for n in range(voters))
    configuration = Configuration(members, policy=policy)
    assert (why_uncertain(configuration, members[:whole]) == "") == is_certain
    joint = structs.replace(configuration, outgoing=(MemberId("old", b"o" * 16),))
    assert why_uncertain(joint, members[:whole]) != "", "of both sets, while the voters change"
    assert (why_uncertain(joint, (*members[:whole], *joint.outgoing)) == "") == is_certain


def test_everything_that_was_met_and_is_not_gone_on_from_is_given_up() -> None:
    """P10.5: "all lineages heard as parents", and "above every one heard of", where the level knew no lineages."""
    catalog = Catalog()
    catalog.apply(RaiseTo(LEVEL), 1, 1)
    catalog.apply(BeginLineage(LINEAGE), 2, 1)

    def met(name: bytes, generation: int, token: bytes = TOKEN) -> MetTold:
        return MetTold("bookie", "b", token, name, (generation << GENERATION_BITS) + 5)

    b, c = b"b" * 8, b"c" * 8
    assert given_up(catalog, TOKEN, [MetTold("bookie", "new"), met(b"", 0), met(LINEAGE, 1)]) == ()
    assert given_up(catalog, TOKEN, [met(b, 3), met(c, 2), met(b, 4), met(c, 9, b"o" * 16)]) == (
        Lineage(b, 4),
        Lineage(c, 2),
    )
    assert given_up(catalog, TOKEN, [met(b"", 3)]) == (Lineage(b"", 3),)
    assert given_up(catalog, TOKEN, [met(b"", 3), met(b, 4)]) == (Lineage(b, 4),)
    with pytest.raises(UsageError, match="65 lineages were met, allowed are 64"):
        given_up(catalog, TOKEN, [met(bytes([n]) * 8, 1) for n in range(65)])


def test_a_kept_state_says_where_it_is_from(tmp_path: Path) -> None:
    kept = KeptMetadata("copy", TOKEN, Catalog(), Configuration(MEMBERS), 5, 1)
    assert why_may_be_lost([kept]) == "what was changed behind the snapshot is in no file"
