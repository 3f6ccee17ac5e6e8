"""Lineages: by what everybody tells one recovery of a cluster's metadata from another (METADATA.md, 4; P10.5)."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from embedbk.codec.lineages import LINEAGES_NAMED_MAX, lineage_text, parse_lineages
from embedbk.codec.metadata_messages import (
    GENERATION_BITS,
    Acknowledged,
    AllocIds,
    Lineage,
    MetadataRequest,
    Refusal,
    Tell,
)
from embedbk.codec.quorum_messages import ForgetIds
from embedbk.core.witness import Met, doubt_of
from embedbk.errors import StorageError, UsageError
from embedbk.metadata import catalog as catalog_module
from embedbk.metadata import descent
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import (
    BeginGeneration,
    BeginLineage,
    RaiseTo,
    Run,
    StartMember,
    StartSession,
    StopSparing,
    decode_command,
    encode_command,
)
from embedbk.metadata.cutting import Lineages, decode_piece
from embedbk.metadata.governing import Governing
from embedbk.metadata.levels import LEVEL_OF_LINEAGES
from embedbk.metadata.loading import load
from embedbk.metadata.vocabulary import ForgetRequested, Halted, MemberStarted, Reply
from embedbk.storage.layout import LOSS_FILE
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity
from tests.metadata.test_levels import pieces
from tests.metadata.test_member import Desk

TOKEN = b"t" * 16
GAP = descent.RESTORED_IDS_GAP
A, B, C = (each * 8 for each in (b"a", b"b", b"c"))


def raised() -> Catalog:
    catalog = Catalog()
    catalog.apply(RaiseTo(LEVEL_OF_LINEAGES), 1, 1)
    return catalog


def begin(catalog: Catalog, name: bytes, *gives_up: Lineage) -> object:
    return catalog.apply(BeginLineage(name, gives_up), 2, 1)


def twin_of(catalog: Catalog) -> Catalog:
    return load(pieces(catalog))


# --- The catalog -------------------------------------------------------------------------------------------


def test_a_lineage_begins_above_its_own_generation_and_above_all_that_is_given_up() -> None:
    """P10.5: "Its generation is above every one heard of"; the ids of each generation in between are skipped and
    spared, as the lost future that is given up began behind as many gaps."""
    catalog = raised()
    assert begin(catalog, A) == Acknowledged(1 << GENERATION_BITS)
    assert (catalog.next_id, catalog.descent.lineages) == (1 + GAP, [Lineage(A, 1, ())])
    lost = Lineage(B, 4)
    assert begin(catalog, C, lost, lost) == Acknowledged(5 << GENERATION_BITS)
    assert catalog.next_id == 1 + 5 * GAP
    assert catalog.descent.spared == [(1, 1 + 5 * GAP)]
    assert catalog.descent.lineages[0] == Lineage(A, 1, ())
    assert catalog.descent.lineages[-1] == Lineage(C, 5, (A, B, B))


def test_what_it_descends_from_need_not_be_given_up_again() -> None:
    catalog = raised()
    begin(catalog, A, Lineage(B, 7))
    begin(catalog, C, Lineage(B, 7), Lineage(A, 8))
    assert [(each.name, each.generation) for each in catalog.descent.lineages] == [(B, 7), (A, 8), (C, 9)]
    assert catalog.descent.lineages[-1].parents == (A,)


def test_everybody_is_told_the_newest_lineage_and_whether_it_descends_from_theirs() -> None:
    """P10.5: the first lineage of a cluster has no name, and every other descends from it."""
    catalog = raised()
    assert (catalog.tell(Tell(0), TOKEN).lineage, catalog.tell(Tell(0), TOKEN).descends) == (b"", True)
    assert not catalog.tell(Tell(0, A), TOKEN).descends
    begin(catalog, A)
    begin(catalog, B)
    for known in (catalog, twin_of(catalog)):
        assert known.tell(Tell(0, A), TOKEN).lineage == B
        descends = [known.tell(Tell(0, each), TOKEN).descends for each in (b"", A, B, C)]
        assert descends == [True, True, True, False]


def test_one_lineage_too_many_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """LINEAGES_MAX counts those that are given up, too."""
    monkeypatch.setattr(descent, "LINEAGES_MAX", 3)
    catalog = raised()
    begin(catalog, A)
    before = catalog.digest()
    refused = begin(catalog, C, Lineage(B, 1), Lineage(b"d" * 8, 1))
    assert isinstance(refused, Refusal) and "1 lineages" in refused.text and "allowed are 3" in refused.text
    assert catalog.digest() == before
    assert isinstance(begin(catalog, C, Lineage(B, 1)), Acknowledged)
    late = begin(raised(), A, Lineage(B, catalog_module.GENERATIONS_MAX - 1))
    assert isinstance(late, Refusal) and "the last there is is" in late.text


def test_lineages_are_in_snapshots_and_digests() -> None:
    """I72: two states that differ in them alone are told apart, by whatever compares them."""
    one, other = raised(), raised()
    begin(one, A)
    begin(other, B)
    assert one.fast_digest != other.fast_digest and one.digest() != other.digest()
    again = twin_of(one)
    assert (again.descent.lineages, again.digest(), again.fast_digest) == (
        one.descent.lineages,
        one.digest(),
        one.fast_digest,
    )


def test_lineages_that_stand_elsewhere_or_below_their_level_are_no_snapshot() -> None:
    catalog = raised()
    begin(catalog, A)
    head, level, lineages, spared = pieces(catalog)
    assert isinstance(decode_piece.decode(lineages), Lineages)
    many = msgspec.msgpack.encode(Lineages([Lineage(A, 1)] * (descent.LINEAGES_MAX + 1)))
    lower = level.replace(bytes([LEVEL_OF_LINEAGES]), bytes([LEVEL_OF_LINEAGES - 1]))
    for wrong in (
        [head, lineages, level, spared],
        [head, level, spared, lineages],
        [head, level, lineages, lineages, spared],
        [head, lower, lineages, spared],
        [head, level, spared],
        [head, level, msgspec.msgpack.encode(Lineages([])), spared],
        [head, level, many, spared],
    ):
        with pytest.raises(StorageError):
            load(wrong)


def test_a_generation_of_an_older_build_is_no_lineage() -> None:
    catalog = raised()
    begin(catalog, A)
    catalog.apply(BeginGeneration(), 3, 1)
    assert [each.name for each in catalog.descent.lineages] == [A]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_forgotten_is_spared_no_more_and_nothing_else(seed: int) -> None:
    """P7.7: "until an operator has decided": ids that he names, and none beside them, in whatever order and overlap."""
    chance = random.Random(seed)
    catalog, spared = raised(), set[int]()
    at = 1
    for _ in range(chance.randrange(1, 6)):
        first = at + chance.randrange(1, 5)
        at = first + chance.randrange(1, 8)
        catalog.descent.spared.append((first, at))
        spared |= set(range(first, at))
    for _ in range(6):
        ranges = tuple(
            sorted((chance.randrange(50), chance.randrange(50))) for _ in range(chance.randrange(1, 4))
        )
        before = catalog.fast_digest
        catalog.apply(StopSparing(tuple((first, end) for first, end in ranges)), 5, 1)
        gone = {each for first, end in ranges for each in range(first, end)} & spared
        spared -= gone
        assert {each for first, end in catalog.descent.spared for each in range(first, end)} == spared
        assert all(first < end for first, end in catalog.descent.spared)
        assert (catalog.fast_digest != before) == bool(gone), "I72"
        assert twin_of(catalog).descent.spared == catalog.descent.spared


def test_ids_are_forgotten_by_the_leader_at_their_level_and_once() -> None:
    catalog = raised()
    begin(catalog, A)
    desk = Desk(catalog)
    desk.sync()
    request = MetadataRequest(0, 7, 1, ForgetIds(((1, 1 + GAP),)))
    governing = Governing(TOKEN, (), lambda: catalog)
    raft = desk.log.raft
    event, reply = governing.ask(0, 9, request, raft, desk.log.not_leader)
    assert isinstance(event, ForgetRequested) and reply is None
    assert desk.step(event)
    (answer,) = [each for each in desk.sync() if isinstance(each, Reply)]
    assert answer.reply.result == Acknowledged(catalog.revision)
    assert catalog.descent.spared == []
    event, reply = governing.ask(0, 9, request, raft, desk.log.not_leader)
    assert event is None and reply is not None and isinstance(reply.reply.result, Acknowledged), (
        "it is so already"
    )
    for level, ranges, text in (
        (LEVEL_OF_LINEAGES, ((5, 5),), "the first is the lower one"),
        (LEVEL_OF_LINEAGES - 1, ((5, 6),), "embedbk quorum raise"),
    ):
        catalog.level = level
        request = MetadataRequest(0, 8, 1, ForgetIds(ranges))
        event, reply = governing.ask(0, 9, request, raft, desk.log.not_leader)
        assert event is None and reply is not None and isinstance(reply.reply.result, Refusal)
        assert text in reply.reply.result.text


# --- Who begins one ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behind_log", "in_catalog"), [(3, 1), (1, 3), (1, 1)])
def test_a_generation_begins_as_a_lineage_where_the_level_knows_lineages(
    behind_log: int, in_catalog: int
) -> None:
    """P10.8: "no feature is used before"; what stands in the log behind the snapshot counts, too."""
    catalog = Catalog()
    catalog.level = in_catalog
    desk = Desk(catalog)
    desk.step(MemberStarted(0, True, level=behind_log))
    desk.sync()
    begun = desk.member.catalog
    assert begun.revision >> GENERATION_BITS == 1
    assert bool(begun.descent.lineages) == (max(behind_log, in_catalog) >= LEVEL_OF_LINEAGES)


def test_lineages_are_not_given_up_below_their_level() -> None:
    desk = Desk(Catalog())
    effects = desk.step(MemberStarted(0, True, (Lineage(A, 3),)))
    (halted,) = [each for each in effects if isinstance(each, Halted)]
    assert "embedbk quorum raise" in halted.reason and "level is 1" in halted.reason


def test_an_owners_word_names_lineages_in_its_file_or_beside_it(tmp_path: Path) -> None:
    """METADATA.md, 4: MAY_HAVE_LOST may hold them; without a word that something may be lost nothing is given up."""
    directory = tmp_path / "m"
    store = open_metadata_store(directory, threaded=False, new_identity=MemberIdentity(TOKEN, b"i" * 16))
    store.close()
    with pytest.raises(UsageError, match=r"1 lineages are given up in .*--may-have-lost"):
        open_metadata_store(directory, threaded=False, gives_up=(Lineage(A, 1),))
    (directory / LOSS_FILE).write_text("rubbish")
    with pytest.raises(UsageError, match="MAY_HAVE_LOST: 'rubbish' is no lineage"):
        open_metadata_store(directory, threaded=False)
    (directory / LOSS_FILE).write_text(f"{lineage_text(A, 1)}\n{lineage_text(B, 2)}\n")
    store = open_metadata_store(directory, threaded=False, gives_up=(Lineage(C, 3),))
    assert store.gives_up == () and not store.begins_generation, "an empty log has lost nothing"
    store.close()


@pytest.mark.parametrize(
    "wrong", ["", ":", "first:0", "aa:1", "61" * 8, "61" * 8 + ":0", "61" * 8 + ":99999"]
)
def test_a_lineage_is_read_as_it_is_written_and_nothing_else_is(wrong: str) -> None:
    """P10.5: as bookies name it, `9f2c4a1be07d5533:3`."""
    if wrong:
        with pytest.raises(UsageError, match=r"is no lineage \(write it as bookies name it"):
            parse_lineages(f"{lineage_text(A, 3)},{wrong}")
    text = f"{lineage_text(A, 3)}, {lineage_text(B, 1)} {lineage_text(A, 3)}"
    assert parse_lineages(text) == (Lineage(A, 3), Lineage(B, 1))
    assert parse_lineages(" \n") == ()
    many = " ".join(lineage_text(bytes([n] * 8), 1) for n in range(LINEAGES_NAMED_MAX + 1))
    with pytest.raises(UsageError, match=f"{LINEAGES_NAMED_MAX + 1} lineages are named, allowed are"):
        parse_lineages(many)


def test_a_command_that_begins_one_keeps_its_bytes() -> None:
    """Formats: fields are only ever appended, tags never re-used."""
    command = BeginLineage(A, (Lineage(B, 3),))
    assert encode_command(command).hex() == "029406c40861616161616161619193c40862626262626262620390c2"
    assert decode_command(encode_command(command)) == command
    before = bytes.fromhex("029306c40861616161616161619193c40862626262626262620390")
    assert decode_command(before) == command, "of builds that knew no whole ones"


# --- Who met one ---------------------------------------------------------------------------------------------


class Copy:
    """Metadata that goes on by itself."""

    def __init__(self, chance: random.Random, catalog: Catalog) -> None:
        self.chance, self.catalog = chance, catalog
        self.catalog.apply(StartMember(chance.randbytes(16)), 1, 1)

    def recover(self, *gives_up: Lineage) -> Lineage:
        self.catalog.apply(BeginLineage(self.chance.randbytes(8), gives_up), 1, 1)
        return self.catalog.descent.lineages[-1]

    def work(self) -> None:
        session = (self.catalog.session_table.started + 1) << 32
        self.catalog.apply(StartSession(session, 1000, ""), 1, 1)
        self.catalog.apply(Run(session, 1, 1, AllocIds(1)), 1, 1)

    def meet(self, met: Met | None) -> tuple[str, Met]:
        told = self.catalog.tell(Tell(met.count, met.lineage) if met else Tell(0), TOKEN)
        return doubt_of(met, told), Met(
            TOKEN, told.count, told.nonce, told.revision, told.ids_end, told.lineage
        )


@pytest.mark.parametrize("seed", range(40))
def test_whoever_met_one_of_two_recoveries_refuses_the_other_until_it_is_given_up(seed: int) -> None:
    """P10.5: "a bookie that met one lineage refuses another that does not descend from it, and names both", whichever
    has the higher generation, and however far it has come."""
    chance = random.Random(seed)
    before = raised()
    for _ in range(chance.randrange(3)):
        begin(before, chance.randbytes(8))
    one, other = Copy(chance, twin_of(before)), Copy(chance, twin_of(before))
    doubt, met_before = one.meet(None)
    assert not doubt
    for copy in (one, other):
        for _ in range(chance.randrange(1, 4)):
            copy.recover()
            for _ in range(chance.randrange(4)):
                copy.work()
        assert not copy.meet(met_before)[0], "both go on from what was met before"
    _, met = one.meet(None)
    told = other.catalog.descent.lineages[-1]
    doubt, _ = other.meet(met)
    assert doubt
    if told.generation >= met.revision >> GENERATION_BITS:
        assert told.name.hex() in doubt and met.lineage.hex() in doubt
        (named,) = parse_lineages(lineage_text(met.lineage, met.revision >> GENERATION_BITS))
        assert lineage_text(met.lineage, named.generation) in doubt, "as an operator may write it down"
    assert not one.meet(met)[0]
    generation = met.revision >> GENERATION_BITS
    other.recover(Lineage(met.lineage, generation))
    doubt, followed = other.meet(met)
    assert not doubt, "its future was given up by an operator's word"
    one.work()
    assert one.meet(followed)[0], "and whoever follows that refuses the other from then on"
