"""P10.5: what a bookie that met newer metadata says of an older copy, at once and when that has caught up."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.metadata_messages import (
    GENERATION_BITS,
    AllocIds,
    Put,
    Reign,
    Tell,
    Told,
    Txn,
)
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import MetadataFailed
from embedbk.core.upkeep_words import AskMetadata, KeepMet, MetadataTold, MetKept
from embedbk.core.vocabulary import Started, Tick
from embedbk.core.witness import Met, Witness, WitnessOptions, doubt_of
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import BeginGeneration, Command, Run, StartMember, StartSession

TOKEN = b"t" * 16
OPTIONS = WitnessOptions(look_ns=100, again_ns=10)
MET = Met(TOKEN, 3, b"three", 20, 30)


def apply(catalog: Catalog, command: Command) -> None:
    catalog.apply(command, 1, FIRST_TERM)


class Metadata:
    """A catalog that lives through starts and copies."""

    def __init__(self, chance: random.Random, catalog: Catalog | None = None) -> None:
        self.chance = chance
        self.catalog = catalog or Catalog()
        self.start()

    def start(self, *, begins_generation: bool = False) -> None:
        apply(self.catalog, StartMember(self.chance.randbytes(16)))
        if begins_generation:
            apply(self.catalog, BeginGeneration())

    def work(self) -> None:
        """One change, or ids, which leave the revision as it is."""
        session = (self.catalog.session_table.started + 1) << 32
        apply(self.catalog, StartSession(session, 1000, ""))
        what = AllocIds(1) if self.chance.random() < 0.3 else Txn([], [Put("/a", b"")])
        apply(self.catalog, Run(session, 1, 1, what))

    def copy(self) -> Catalog:
        return Catalog.restore(self.catalog.snapshot())

    def extent(self) -> tuple[int, int, int]:
        return self.catalog.descent.start_count, self.catalog.revision, self.catalog.next_id

    def meet(self, met: Met | None) -> tuple[str, Met]:
        """What a witness says that met this, and what it has met then."""
        told = self.catalog.tell(Tell(met.count, met.lineage) if met else Tell(0), TOKEN)
        return doubt_of(met, told), Met(TOKEN, told.count, told.nonce, told.revision, told.ids_end)


@pytest.mark.parametrize("seed", range(60))
def test_an_older_copy_is_told_from_the_newest_for_ever(seed: int) -> None:
    """P10.5: a copy from before what was met is doubted, however far it has come since; what descends from it is not;
    and the newest itself never is."""
    chance = random.Random(seed)
    newest, met = Metadata(chance), None
    copies: list[tuple[tuple[int, int, int], Catalog]] = []
    for _ in range(chance.randrange(5, 30)):
        act = chance.random()
        if act < 0.2:
            newest.start()
        elif act < 0.6:
            newest.work()
        elif act < 0.8:
            copies.append((newest.extent(), newest.copy()))
        else:
            doubt, met = newest.meet(met)
            assert not doubt
    if met is None:
        return
    limits = (met.count, met.revision, met.ids_end)
    for extent, copy in copies:
        is_older = any(ours < theirs for ours, theirs in zip(extent, limits, strict=True))
        restored = Metadata(chance, copy)
        for _ in range(12):
            doubt, _ = restored.meet(met)
            assert bool(doubt) == is_older, (extent, limits, doubt)
            for _ in range(chance.randrange(12)):
                restored.work()
            if chance.random() < 0.5:
                restored.start()
        restored.start(begins_generation=True)
        assert not restored.meet(met)[0], "an operator's word"


@pytest.mark.parametrize(
    ("told", "doubt"),
    [
        (Told(b"other", 4, b"four", 40, 50, [], Reign(b"three", 30, 40)), "cluster"),
        (Told(TOKEN, 2, b"two", 40, 50, [], None), "newest start is number 2, met was 3"),
        (Told(TOKEN, 4, b"four", 40, 50, [], None), "does not remember its start number 3"),
        (Told(TOKEN, 4, b"four", 40, 50, [], Reign(b"other", 30, 40)), "start number 3 is"),
        (Told(TOKEN, 4, b"four", 40, 50, [], Reign(b"three", 19, 40)), "came to revision 19"),
        (Told(TOKEN, 4, b"four", 40, 50, [], Reign(b"three", 20, 29)), "id 29"),
        (Told(TOKEN, 3, b"three", 20, 30, [], Reign(b"three", 20, 30)), ""),
        (Told(TOKEN, 4, b"four", 40, 50, [], Reign(b"three", 20, 30)), ""),
        (Told(TOKEN, 1, b"other", 1 << GENERATION_BITS, 50, [], None), ""),
    ],
)
def test_each_way_to_be_older_has_its_words(told: Told, doubt: str) -> None:
    """P10.5: a lower count, other bytes under it, less under it than was met."""
    said = doubt_of(MET, told)
    assert doubt in said
    assert bool(said) == bool(doubt)
    assert doubt_of(None, told) == ""


def test_a_lower_generation_is_older() -> None:
    """P10.5: also one that an operator began, where a bookie met one that was begun later."""
    met = Met(TOKEN, 3, b"three", 2 << GENERATION_BITS, 30)
    told = Told(TOKEN, 9, b"nine", (1 << GENERATION_BITS) + 99, 50, [], Reign(b"three", 20, 30))
    assert "generation 1, met was 2" in doubt_of(met, told)


def told(count: int, nonce: bytes, revision: int, asked: Reign | None = None) -> Told:
    return Told(TOKEN, count, nonce, revision, revision, [], asked)


def hear(witness: Witness, event: MetadataTold, refused: str = "") -> list[Effect]:
    """The answer, and what came of keeping what was met."""
    effects = witness.step(event)
    for effect in effects:
        if isinstance(effect, KeepMet) and effect.is_synced:
            assert witness.step(MetKept(event.now_ns, effect.met, refused)) == []
    return effects


def test_a_witness_asks_when_a_session_is_opened_and_now_and_then() -> None:
    """P10.5: and soon again when nobody answers."""
    witness = Witness(None, OPTIONS)
    assert witness.deadline_ns is None
    assert witness.step(Started(0)) == [AskMetadata(None)]
    assert not witness.is_judged
    assert hear(witness, MetadataTold(1, None, told(1, b"one", 5))) == [
        KeepMet(Met(TOKEN, 1, b"one", 5, 5), True)
    ]
    assert witness.is_judged
    assert witness.step(Tick(99)) == []
    assert witness.step(Tick(100)) == [AskMetadata(witness.met)]
    witness.step(MetadataFailed(105, witness.met, "nobody"))
    assert witness.deadline_ns == 115
    assert witness.is_judged, "nothing was said against it"
    witness.step(Started(120))
    assert not witness.is_judged


def test_what_is_newer_of_the_same_start_is_kept_without_a_sync() -> None:
    """P10.5: a link is kept durably, how far it came costs no sync."""
    witness = Witness(None, OPTIONS)
    hear(witness, MetadataTold(0, None, told(1, b"one", 5)))
    first = witness.met
    (kept,) = witness.step(MetadataTold(0, first, told(1, b"one", 6, Reign(b"one", 6, 6))))
    assert kept == KeepMet(Met(TOKEN, 1, b"one", 6, 6), False)
    (kept,) = witness.step(MetadataTold(0, witness.met, told(2, b"two", 6, Reign(b"one", 6, 6))))
    assert kept == KeepMet(Met(TOKEN, 2, b"two", 6, 6), True)


def test_nothing_is_learnt_from_older_metadata() -> None:
    """P10.5: when the newer one is put back, all is well again."""
    witness = Witness(MET, OPTIONS)
    older = told(9, b"nine", 90, Reign(b"other", 80, 80))
    assert witness.step(MetadataTold(0, MET, older)) == []
    assert witness.doubt
    assert witness.met == MET
    hear(witness, MetadataTold(0, MET, told(4, b"four", 40, Reign(b"three", 20, 30))))
    assert not witness.doubt
    assert witness.met == Met(TOKEN, 4, b"four", 40, 40)


def test_an_answer_that_was_overtaken_is_judged_by_what_was_known_when_it_was_asked() -> None:
    """P10.5: two questions of one bookie are answered in any order; neither makes the other older."""
    witness = Witness(MET, OPTIONS)
    witness.step(MetadataTold(0, MET, told(3, b"three", 30, Reign(b"three", 30, 30))))
    assert witness.step(MetadataTold(0, MET, told(3, b"three", 25, Reign(b"three", 25, 30)))) == []
    assert not witness.doubt
    further = witness.met
    hear(witness, MetadataTold(0, further, told(4, b"four", 40, Reign(b"three", 30, 30))))
    assert witness.step(MetadataTold(0, MET, told(3, b"three", 25, Reign(b"three", 25, 31)))) == []
    assert not witness.doubt
    assert witness.met is not None
    assert witness.met.count == 4


def test_of_two_copies_that_answer_late_the_second_is_not_taken() -> None:
    """P10.5: both go on from the start that was met when they were asked, and not from each other: the one that answers
    second is asked again, about the first, and is older. Neither its answer nor a late one lifts that doubt."""
    witness = Witness(MET, OPTIONS)
    hear(witness, MetadataTold(0, MET, told(4, b"four", 40, Reign(b"three", 20, 30))))
    met = witness.met
    other = told(9, b"nine", 90, Reign(b"three", 20, 30))
    assert hear(witness, MetadataTold(7, MET, other)) == []
    assert witness.met == met
    assert not witness.is_met(other)
    assert witness.deadline_ns == 7
    assert witness.step(Tick(7)) == [AskMetadata(met)]
    hear(witness, MetadataTold(8, met, told(9, b"nine", 90, Reign(b"other", 80, 80))))
    assert witness.doubt
    for late in (other, told(4, b"else", 35, Reign(b"three", 20, 30))):
        assert hear(witness, MetadataTold(9, MET, late)) == []
        assert witness.doubt


def test_a_copy_of_the_same_start_that_answers_late_is_not_taken() -> None:
    """P10.5: the start that was met came further since it was asked about; the copy left it before."""
    witness = Witness(MET, OPTIONS)
    witness.step(MetadataTold(0, MET, told(3, b"three", 30, Reign(b"three", 30, 40))))
    met = witness.met
    assert hear(witness, MetadataTold(7, MET, told(9, b"nine", 90, Reign(b"three", 25, 35)))) == []
    assert witness.met == met
    hear(witness, MetadataTold(8, met, told(9, b"nine", 90, Reign(b"three", 25, 35))))
    assert "came to revision 25" in witness.doubt


def test_nothing_is_done_under_a_start_that_is_not_durable() -> None:
    """P10.5: what a bookie met is durable before anything else is done under it; what could not be kept is not met, is
    asked for again soon, and until then nothing follows from what it says."""
    witness = Witness(None, OPTIONS)
    witness.step(Started(0))
    newer = MetadataTold(1, None, told(1, b"one", 5))
    witness.step(newer)
    assert not witness.is_judged, "nobody said yet that it is durable"
    assert witness.met is None
    witness.step(MetKept(2, Met(TOKEN, 1, b"one", 5, 5), "no room"))
    assert (witness.is_judged, witness.is_doubted, witness.doubt) == (True, True, "")
    assert witness.met is None
    assert witness.deadline_ns == 12
    assert witness.step(Tick(12)) == [AskMetadata(None)]
    hear(witness, newer)
    assert not witness.is_doubted
    assert witness.met == Met(TOKEN, 1, b"one", 5, 5)


def test_a_doubt_is_lifted_when_what_goes_on_is_durable() -> None:
    """P10.5: until then a crash would leave the bookie where it was."""
    witness = Witness(MET, OPTIONS)
    hear(witness, MetadataTold(0, MET, told(9, b"nine", 90, Reign(b"other", 80, 80))))
    good = MetadataTold(1, MET, told(4, b"four", 40, Reign(b"three", 20, 30)))
    witness.step(good)
    assert witness.doubt
    hear(witness, good, "no room")
    assert witness.is_doubted
    hear(witness, good)
    assert not witness.is_doubted


def test_only_an_answer_lifts_a_doubt() -> None:
    """P10.5: metadata that says nothing, or a session that was opened anew, is no newer one: who doubts drops nothing
    and takes no normal adds until it is told otherwise."""
    witness = Witness(MET, OPTIONS)
    witness.step(MetadataTold(0, MET, told(9, b"nine", 90, Reign(b"other", 80, 80))))
    doubt = witness.doubt
    assert doubt
    for event in (MetadataFailed(1, MET, "nobody"), Tick(11), MetadataFailed(12, MET, "nobody"), Started(20)):
        witness.step(event)
        assert witness.doubt == doubt, event
    hear(witness, MetadataTold(21, MET, told(4, b"four", 40, Reign(b"three", 20, 30))))
    assert not witness.doubt
