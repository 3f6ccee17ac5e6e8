"""A scrub of whole clusters in virtual time: each kind of fault is found, in its place, and nothing else (SCRUB.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, ledger_key_path
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.codec.repair_mark import decode_repair_mark, repair_mark_path
from embedbk.errors import UsageError
from embedbk.repair.copy_check import CopiesCheck, CopyBlock, CopyTask
from embedbk.scrub import CopyFinding, ScrubOptions, ScrubResult, scrub
from embedbk.scrub.options import EXIT_CLEAN, EXIT_FINDINGS, EXIT_INCOMPLETE
from embedbk.scrub.scrubbing import scrub_cluster
from embedbk.testing import Cluster
from tests.repair.healed import Healed
from tests.scrub.planted import Planted


@pytest.fixture
def planted() -> Iterator[Planted]:
    with Cluster(seed=3, bookies=4) as cluster:
        yield Planted(cluster)


def places(result: ScrubResult) -> list[tuple[str, int | None, int | None, int | None, str]]:
    return sorted((each.kind, each.ledger_id, each.first, each.last, each.bookie) for each in result.findings)


def only(finding: CopyFinding) -> tuple[str, int | None, int | None, int | None, str]:
    return (finding.kind, finding.ledger_id, finding.first, finding.last, finding.bookie)


def test_a_sound_cluster_is_clean(planted: Planted) -> None:
    """Every copy of every entry is read once: striped, not striped, open up to its LAC, empty."""
    planted.closed(30)
    planted.closed(20, ensemble_size=4, write_quorum=2, ack_quorum=2)
    planted.closed(0)
    writer = planted.client.create_ledger()
    writer.add_many([b"open"] * 5)
    planted.cluster.run_for(2)
    for level, copies in (("meta", 0), ("crc", 90 + 40 + 15), ("compare", 145), ("mac", 145)):
        result = scrub(planted.client, ScrubOptions(level=level))
        assert (result.findings, result.untold, result.exit_code) == ([], {}, EXIT_CLEAN)
        assert (result.ledgers, result.copies) == (4, copies)
    writer.close()


@pytest.mark.parametrize("sizes", [(3, 3, 2), (4, 2, 2)])
@pytest.mark.parametrize("how", ["flip", "torn", "swap", "damage", "lose", "replace"])
def test_each_bad_copy_is_found_in_its_place(planted: Planted, how: str, sizes: tuple[int, int, int]) -> None:
    """Issue 16: 100 % of planted faults (bit flip, missing, swapped, stale, torn) with kind and place."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    planted.closed(10)
    ledger_id = planted.closed(40, **named)
    name = planted.members(ledger_id)[0]
    held = sorted(planted.store(name).entries[ledger_id])
    one, other = held[5], held[9]
    kind = "under-Qa" if sizes == (4, 2, 2) else "under-Qw"
    expected = [("crc", ledger_id, one, one, name), (kind, ledger_id, one, one, "")]
    if how == "flip":
        planted.flip(name, ledger_id, one)
    elif how == "torn":
        entries = planted.store(name).entries[ledger_id]
        entries[one] = entries[one][:-7]
    elif how == "damage":
        planted.cluster.damage(name, ledger_id, one)
    elif how == "swap":
        planted.swap(name, ledger_id, one, other)
        expected += [("crc", ledger_id, other, other, name), (kind, ledger_id, other, other, "")]
    elif how == "lose":
        planted.lose(name, ledger_id, one)
        expected[0] = ("missing", ledger_id, one, one, name)
    else:
        planted.replace(name, ledger_id, one)
        expected = [("replicas-differ", ledger_id, one, one, "")]
    result = scrub(planted.client)
    assert places(result) == sorted(expected)
    assert result.exit_code == EXIT_FINDINGS
    assert result.is_complete


def test_what_the_index_knows_is_found_at_level_meta(planted: Planted) -> None:
    ledger_id = planted.closed(30)
    name = planted.members(ledger_id)[0]
    planted.lose(name, ledger_id, 7)
    other = planted.closed(30)
    planted.replace(planted.members(other)[0], other, 3)
    result = scrub(planted.client, ScrubOptions(level="meta"))
    assert places(result) == sorted(
        [
            ("missing", ledger_id, 7, 7, name),
            ("under-Qw", ledger_id, 7, 7, ""),
            ("replicas-differ", other, 3, 3, ""),
        ]
    )


def test_all_copies_below_the_ack_quorum_are_data_at_risk(planted: Planted) -> None:
    """under-Qa: fewer good copies than Qa; another entry lacks one copy alone."""
    ledger_id = planted.closed(30)
    one, two, _ = planted.members(ledger_id)
    planted.lose(one, ledger_id, 7)
    planted.flip(two, ledger_id, 7)
    planted.lose(two, ledger_id, 20)
    found = places(scrub(planted.client))
    assert ("under-Qa", ledger_id, 7, 7, "") in found
    assert ("under-Qw", ledger_id, 20, 20, "") in found


def test_a_wrong_ensemble_is_found_with_where_the_copies_are(planted: Planted) -> None:
    """beyond-ensemble: a bookie without a seat has what a bookie with one lacks."""
    ledger_id = planted.closed(30)
    there = {info.member.bookie_id: info.member for info in planted.client._runtime.bookies}
    wrong, metadata = planted.outsider(ledger_id), planted.metadata(ledger_id)
    held = metadata.fragments[0]
    seats = ((wrong, there[wrong].incarnation), *held.ensemble[1:])
    changed = (replace(held, ensemble=seats),)
    planted.put(metadata.with_changes(fragments=changed))
    found = places(scrub(planted.client))
    assert ("missing", ledger_id, 0, 29, wrong) in found
    assert ("beyond-ensemble", ledger_id, 0, 29, held.members[0].bookie_id) in found


def test_an_end_below_a_known_lac_is_found(planted: Planted) -> None:
    """lac-regress, I3: a bookie knows that entries beyond the end were acknowledged."""
    with planted.client.create_ledger() as writer:
        for number in range(30):
            writer.add(b"entry %04d" % number)
    ledger_id = writer.ledger_id
    planted.put(planted.metadata(ledger_id).with_changes(last_entry=9, length=100))
    found = scrub(planted.client).findings
    assert {each.kind for each in found} == {"lac-regress"}
    assert {each.bookie for each in found} <= set(planted.members(ledger_id))


def test_lists_and_ledgers_that_do_not_fit_are_found(planted: Planted) -> None:
    """dangling-segment: a list names a ledger that is not there. orphan-ledger: a ledger names a log that is not."""
    with planted.client.log("orders").writer() as orders:
        orders.append(b"one")
    (segment,) = planted.client.log("orders").segments()
    planted.transact(Delete(ledger_key_path(segment.ledger_id)))
    with planted.client.create_ledger(custom={"log": b"nowhere"}) as orphan:
        orphan.add(b"lost")
    found = scrub(planted.client).findings
    assert sorted((each.kind, each.ledger_id, each.log) for each in found) == [
        ("dangling-segment", segment.ledger_id, "orders"),
        ("orphan-ledger", orphan.ledger_id, "nowhere"),
    ]


@pytest.mark.parametrize("since_ms", [None, 1])
def test_a_name_of_a_log_that_cannot_be_read_makes_the_scrub_incomplete(
    planted: Planted, since_ms: int | None
) -> None:
    """ "Cannot tell is never no", and ends nothing. Seen: the scrub ended in an error behind all that it had read."""
    with planted.client.log("orders").writer() as orders:
        orders.append(b"one")
    with planted.client.create_ledger(custom={"log": b"nowhere"}) as orphan:
        orphan.add(b"lost")
    planted.transact(Put("/log-names/strange", b"\xc1"))
    result = scrub(planted.client, ScrubOptions(since_ms=since_ms))
    assert [(each.kind, each.ledger_id) for each in result.findings] == [("orphan-ledger", orphan.ledger_id)]
    assert list(result.untold) == [(None, "")] and "'strange'" in result.untold[None, ""]


def test_ledgers_are_listed_as_often_for_many_logs_as_for_one(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lists of L logs cost L times the listing of all ledgers."""
    listed: list[str] = []
    runtime = planted.client._runtime
    list_keys = runtime.list_keys
    monkeypatch.setattr(
        runtime, "list_keys", lambda prefix, what: listed.append(prefix) or list_keys(prefix, what)
    )
    counts = []
    for name in ("one", "two", "three"):
        with planted.client.log(name).writer() as writer:
            writer.append(b"entry")
        planted.cluster.run_for(1)
        listed.clear()
        assert scrub(planted.client).exit_code == EXIT_CLEAN
        counts.append(listed.count(LEDGERS_PREFIX))
    assert counts == [2, 2, 2]


def test_a_bookie_that_is_away_makes_it_incomplete_and_nothing_missing(planted: Planted) -> None:
    """Incomplete, never clean, and never a finding of missing: who does not answer has not said no."""
    ledger_id = planted.closed(30)
    name = planted.members(ledger_id)[0]
    planted.cluster.crash(name)
    result = scrub(planted.client)
    assert (result.findings, result.exit_code) == ([], EXIT_INCOMPLETE)
    assert set(result.untold) == {(ledger_id, name)}
    planted.cluster.run_for(60)  # Its registration is over, too.
    result = scrub(planted.client)
    assert (result.findings, result.exit_code) == ([], EXIT_INCOMPLETE)
    planted.cluster.restart(name)
    planted.cluster.run_for(10)
    assert scrub(planted.client).exit_code == EXIT_CLEAN


def test_who_is_in_limbo_proves_nothing(planted: Planted) -> None:
    """P7.1, P7.4: what is missing in limbo is unknown, and no bad copy either."""
    ledger_id = planted.closed(30)
    name = planted.members(ledger_id)[0]
    row = planted.cluster.world.nodes[name].core.table.get(ledger_id)
    row.in_limbo = True
    planted.lose(name, ledger_id, 7)
    result = scrub(planted.client)
    assert (result.findings, result.exit_code) == ([], EXIT_INCOMPLETE)
    assert result.untold == {(ledger_id, name): "IN_LIMBO"}


def test_an_open_ledger_is_read_up_to_its_lac_and_owes_its_ack_quorum(planted: Planted) -> None:
    """A copy beyond Qa may be on its way; fewer than Qa of what is acknowledged is a finding (I4)."""
    writer = planted.client.create_ledger()
    writer.add_many([b"open"] * 9)
    planted.cluster.run_for(2)
    one, two, _ = planted.members(writer.ledger_id)
    planted.lose(one, writer.ledger_id, 4)
    assert scrub(planted.client).findings == []
    planted.lose(two, writer.ledger_id, 4)
    (found,) = scrub(planted.client).findings
    assert only(found) == ("under-Qa", writer.ledger_id, 4, 4, "")


def test_what_is_repaired_or_deleted_meanwhile_is_no_finding(planted: Planted) -> None:
    """Judged again, not reported: between the two judgements one copy comes back and another ledger goes."""
    healed, gone = planted.closed(30), planted.closed(30)
    name = planted.members(healed)[0]
    held = dict(planted.store(name).entries[healed])
    planted.lose(name, healed, 7)
    planted.lose(planted.members(gone)[0], gone, 9)
    runtime, times = planted.client._runtime, []

    async def check(tasks: list[CopyTask]) -> list[CopyBlock]:
        blocks: list[CopyBlock] = await runtime.run(CopiesCheck(tasks), "reading")
        times.append(len(tasks))
        if len(times) == 1:
            planted.store(name).put_entry(healed, 7, held[7])
            planted.client._runtime.node  # noqa: B018
            await runtime.transact([], [Delete(ledger_key_path(gone))], "deleting")
        return blocks

    result = run_blocking(scrub_cluster(runtime, ScrubOptions(), check), "scrub")
    assert (result.findings, result.exit_code) == ([], EXIT_CLEAN)
    assert len(times) > 1


def test_what_is_found_is_handed_to_repair(planted: Planted) -> None:
    """`--repair queue`: marks name the bookies that lack copies; two sound copies that differ are marked for nobody."""
    lost, rotten, conflict = planted.closed(30), planted.closed(30), planted.closed(30)
    one, two = planted.members(lost)[1], planted.members(rotten)[2]
    planted.lose(one, lost, 7)
    planted.cluster.damage(two, rotten, 9)
    planted.replace(planted.members(conflict)[0], conflict, 3)
    result = scrub(planted.client, ScrubOptions(queues_repair=True))
    marks = {
        key: decode_repair_mark(value).missing
        for key, value in planted.cluster.world.committed("/ur/").items()
    }
    assert marks == {repair_mark_path(lost): (one,), repair_mark_path(rotten): (two,)}
    assert result.queued == 2


def test_a_scrub_goes_on_where_it_was_and_only_there(planted: Planted, tmp_path: Path) -> None:
    """Ranges that are done are not read again, while seats are as they were; behind a whole scrub all begins anew."""
    state = tmp_path / "state"
    ledgers = [planted.closed(30) for _ in range(3)]
    name = planted.members(ledgers[1])[0]
    options = ScrubOptions(state=state)
    planted.cluster.crash(name)
    affected = [each for each in ledgers if name in planted.members(each)]
    assert scrub(planted.client, options).exit_code == EXIT_INCOMPLETE
    planted.cluster.restart(name)
    planted.cluster.run_for(10)
    again = scrub(planted.client, options)
    assert (again.exit_code, again.skipped) == (EXIT_CLEAN, 3 - len(affected))
    assert again.copies == 90 * len(affected)
    assert scrub(planted.client, options).copies == 270
    state.write_text(state.read_text().replace("compare", "crc"))
    with pytest.raises(UsageError, match="no state of a scrub of this cluster at level compare"):
        scrub(planted.client, options)


def test_a_cluster_at_work_has_no_findings(planted: Planted) -> None:
    """Zero findings beside a writer that rolls, truncation, a bookie that is lost and repaired, and a deletion."""
    cluster, runtime = planted.cluster, planted.client._runtime
    service = Healed(cluster).repairer()
    log = planted.client.log("orders")
    writer = log.writer()
    ledgers = [planted.closed(30) for _ in range(3)]
    done: list[str] = []

    async def check(tasks: list[CopyTask]) -> list[CopyBlock]:
        """As CopiesCheck, with something happening while it runs."""
        reads = CopiesCheck(tasks)
        for step in range(6):
            writer.append_many([b"%d" % step] * 20)
            if step % 2:
                writer.roll()
        log.truncate(log.end() - 30)
        if not done:
            cluster.crash(planted.members(ledgers[0])[0])
            planted.client.delete_ledger(ledgers[1])
        done.append("once")
        blocks: list[CopyBlock] = await runtime.run(reads, "reading", 60)
        return blocks

    result = run_blocking(scrub_cluster(runtime, ScrubOptions(settle_s=5.0), check), "scrub")
    assert result.findings == []
    assert service.outcomes["repaired"] > 0
    assert len(done) >= 2
    writer.close()


def test_the_order_of_answers_is_no_change(planted: Planted) -> None:
    """Bookies answer in any order: what stays as it was found is a finding, and the scrub is complete."""
    ledger_id = planted.closed(30)
    for name in planted.members(ledger_id):
        planted.lose(name, ledger_id, 7)
    runtime, is_turned = planted.client._runtime, False

    async def check(tasks: list[CopyTask]) -> list[CopyBlock]:
        nonlocal is_turned
        blocks: list[CopyBlock] = await runtime.run(CopiesCheck(tasks), "reading")
        blocks.sort(key=lambda block: block.task, reverse=is_turned)
        is_turned = not is_turned
        return blocks

    result = run_blocking(scrub_cluster(runtime, ScrubOptions(), check), "scrub")
    assert (len(result.findings), result.untold) == (4, {})


def test_what_was_not_read_is_not_sound(planted: Planted) -> None:
    """Reads run elsewhere, too: one that gives less than it was asked for is incomplete."""
    planted.closed(30)
    runtime = planted.client._runtime

    async def check(tasks: list[CopyTask]) -> list[CopyBlock]:
        blocks: list[CopyBlock] = await runtime.run(CopiesCheck(tasks[1:]), "reading")
        return blocks

    result = run_blocking(scrub_cluster(runtime, ScrubOptions(), check), "scrub")
    assert (result.findings, result.exit_code) == ([], EXIT_INCOMPLETE)
    assert list(result.untold.values()) == ["it was not read"]
