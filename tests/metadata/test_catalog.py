"""The catalog as a state machine: comparisons, revisions, ids, sessions, repeats, bounds, bytes."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import (
    ABSENT,
    ANY,
    Acknowledged,
    Allocated,
    AllocIds,
    CloseSession,
    Compare,
    Delete,
    Put,
    Refusal,
    Reign,
    Result,
    Tell,
    Told,
    Txn,
    TxnDone,
)
from embedbk.codec.tombstone import tombstone_path
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX
from embedbk.metadata.catalog import GENERATION_BITS, GENERATIONS_MAX, Catalog, Limits
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import (
    RULES,
    BeginGeneration,
    Command,
    ExpireSession,
    Run,
    StartMember,
    StartSession,
    decode_command,
    encode_command,
)
from embedbk.metadata.limits import KEPT_BYTES, record_bytes
from embedbk.metadata.weights import KINDS


def apply(catalog: Catalog, command: Command) -> Result:
    """Where it does not matter at which place of the log."""
    return catalog.apply(command, 1, FIRST_TERM)


class Client:
    """One session that counts its sequences."""

    def __init__(self, catalog: Catalog, session: int = 1) -> None:
        self.catalog, self.session, self.sequence = catalog, session, 0
        assert apply(catalog, StartSession(session, 10_000, "test")) == Acknowledged(catalog.revision)

    def run(self, operation: Txn | AllocIds | CloseSession, done_below: int | None = None) -> Result:
        self.sequence += 1
        below = self.sequence if done_below is None else done_below
        return apply(self.catalog, Run(self.session, self.sequence, below, operation))

    def put(self, key: str, value: bytes = b"", *, ephemeral: bool = False) -> Result:
        return self.run(Txn([], [Put(key, value, ephemeral)]))


def refused(result: Result, code: str) -> str:
    assert isinstance(result, Refusal)
    assert result.code == code
    return result.text


@pytest.mark.parametrize("seed", range(20))
def test_a_put_alone_is_as_one_among_others(seed: int) -> None:
    """I72, P10.7: the way of one record by itself has the outcome, the sums and the bounds of the way of many. A delete
    of a key that is not there changes nothing, and takes the way of many."""
    chance = random.Random(seed)
    limits = Limits(catalog_bytes_max=1200, catalog_reserve_bytes=300, session_share_bytes=100)
    alone, beside = Catalog(limits), Catalog(limits)
    clients = [(Client(alone, session), Client(beside, session)) for session in (1, 2)]
    nothing, done, owned = Delete("/nothing"), set[bool](), 0
    for _ in range(300):
        pair = chance.choice(clients)
        key, size = f"/k/{chance.randrange(12)}", chance.choice((0, 1, 90, 300))
        when = [Compare(key, chance.choice((ABSENT, ANY)))] if chance.random() < 0.3 else []
        change = Put(key, bytes(size), chance.random() < 0.1) if chance.random() < 0.9 else Delete(key)
        told = []
        for client, then in zip(pair, ([change], [change, nothing]), strict=True):
            client.sequence += 1
            below = max(1, client.sequence - 3)
            run = Run(client.session, client.sequence, below, Txn(when, then), RULES)
            told.append(apply(client.catalog, run))
        assert told[0] == told[1]
        done.add(isinstance(told[0], TxnDone))
        owned += alone.session_table.shared_bytes > 0
        assert alone.fast_digest == beside.fast_digest
    assert alone.digest() == beside.digest()
    assert (alone.record_table.bytes, alone.session_table.shared_bytes) == (
        beside.record_table.bytes,
        beside.session_table.shared_bytes,
    )
    assert alone.record_table.weights.told() == beside.record_table.weights.told()
    assert {True, False} <= done
    assert owned


@pytest.mark.parametrize("jump", [1, 3, 40, 1 << 31])
def test_answers_that_a_client_has_are_kept_no_longer(jump: int) -> None:
    """I74: however far its word goes on, answers below it go, and no other; their room is free again."""
    catalog = Catalog()
    client = Client(catalog)
    for number in range(20):
        client.put(f"/{number}")
        client.run(AllocIds(1), done_below=1)
    session, first = catalog.sessions[1], catalog.sessions[1].done_below
    held = catalog.session_table.bytes - KEPT_BYTES * len(session.kept)
    known, below = set(session.kept), first + jump
    client.sequence = max(client.sequence, below)
    client.run(AllocIds(1), done_below=below)
    assert set(session.kept) == {each for each in known if each >= below} | {client.sequence}
    assert catalog.session_table.bytes == held + KEPT_BYTES * len(session.kept)
    assert session.done_below == below


def test_a_change_is_done_only_if_every_comparison_holds() -> None:
    """P2.2: every change is one compare-and-set; a refused one changes nothing."""
    catalog = Catalog()
    client = Client(catalog)
    assert client.run(Txn([Compare("/a", ABSENT)], [Put("/a", b"1")])) == TxnDone(True, 1)
    before = catalog.page("/", "").records
    assert client.run(Txn([Compare("/a", ABSENT)], [Put("/a", b"2")])) == TxnDone(False, 1)
    both = Txn([Compare("/a", 1), Compare("/b", ANY)], [Put("/a", b"2"), Put("/c", b"2")])
    assert client.run(both) == TxnDone(False, 1)
    assert catalog.page("/", "").records == before
    assert client.run(Txn([Compare("/a", ANY), Compare("/b", ABSENT)], [Put("/a", b"2")])) == TxnDone(True, 2)


def test_a_transaction_happens_at_one_revision() -> None:
    """P10.1: atomic multi-key transactions; METADATA.md: all of one operation share one revision."""
    catalog = Catalog()
    client = Client(catalog)
    client.put("/gone")
    assert client.run(Txn([], [Put("/a", b""), Put("/b", b""), Delete("/gone")])) == TxnDone(True, 2)
    assert [record.revision for record in catalog.page("/", "").records] == [2, 2]
    assert sorted(record.key for record in catalog.history.at(2)) == ["/a", "/b", "/gone"]


def test_a_key_made_anew_has_another_revision() -> None:
    """P2.2: a comparison with a revision has no ABA, because revisions never reset."""
    catalog = Catalog()
    client = Client(catalog)
    client.put("/a", b"same")
    client.run(Txn([], [Delete("/a")]))
    client.put("/a", b"same")
    record = catalog.get("/a").record
    assert record is not None
    assert (record.created, record.revision) == (3, 3)
    assert client.run(Txn([Compare("/a", 1)], [Put("/a", b"stale")])) == TxnDone(False, 3)


def test_created_stays_when_a_value_changes() -> None:
    catalog = Catalog()
    client = Client(catalog)
    client.put("/a", b"1")
    client.put("/a", b"2")
    record = catalog.get("/a").record
    assert record is not None
    assert (record.value, record.created, record.revision) == (b"2", 1, 2)


def test_what_changes_nothing_takes_no_revision() -> None:
    """METADATA.md: +1 per committed operation that changed something."""
    catalog = Catalog()
    client = Client(catalog)
    client.put("/a")
    assert client.run(Txn([Compare("/a", ANY)], [])) == TxnDone(True, 1)
    assert client.run(Txn([], [Delete("/never")])) == TxnDone(True, 1)
    assert client.run(AllocIds(5)) == Allocated(1, 5)
    assert catalog.revision == 1


def test_ids_are_never_handed_out_twice() -> None:
    """P2.1: unique in the cluster, never reused; blocks begin at 1."""
    catalog = Catalog()
    client = Client(catalog)
    assert client.run(AllocIds(3)) == Allocated(1, 3)
    assert client.run(AllocIds(1)) == Allocated(4, 1)
    catalog = Catalog.restore(catalog.snapshot())
    assert apply(catalog, Run(1, 3, 3, AllocIds(2))) == Allocated(5, 2)
    catalog.next_id = LEDGER_ID_MAX
    assert apply(catalog, Run(1, 4, 4, AllocIds(1))) == Allocated(LEDGER_ID_MAX, 1)
    refused(apply(catalog, Run(1, 5, 5, AllocIds(1))), "UNAVAILABLE")


def test_a_repeat_gets_the_first_answer() -> None:
    """I74: a retried command changes state at most once, also across a snapshot and a restart."""
    catalog = Catalog()
    Client(catalog)
    first = Run(1, 1, 1, Txn([Compare("/a", ABSENT)], [Put("/a", b"")]))
    assert apply(catalog, first) == TxnDone(True, 1)
    assert apply(catalog, Run(1, 2, 1, AllocIds(10))) == Allocated(1, 10)
    for twin in (catalog, catalog.copy(), Catalog.restore(catalog.snapshot())):
        assert apply(twin, first) == TxnDone(True, 1)
        assert apply(twin, Run(1, 2, 1, AllocIds(10))) == Allocated(1, 10)
        assert (twin.revision, twin.next_id) == (1, 11)


def test_sequences_are_counted_by_session() -> None:
    """I74: the same sequence of two sessions is two requests."""
    catalog = Catalog()
    one, other = Client(catalog, 1), Client(catalog, 2)
    assert (one.run(AllocIds(10), 1), other.run(AllocIds(10), 1)) == (Allocated(1, 10), Allocated(11, 10))


def test_answers_are_kept_until_the_client_has_them() -> None:
    """METADATA.md: the reply is kept until the client's done_below passes it; the window is bounded."""
    catalog = Catalog(Limits(kept_replies_max=3))
    client = Client(catalog)
    for _ in range(3):
        assert isinstance(client.run(AllocIds(1), done_below=1), Allocated)
    refused(client.run(AllocIds(1), done_below=1), "UNAVAILABLE")
    assert catalog.next_id == 4
    assert apply(catalog, Run(1, 4, 3, AllocIds(1))) == Allocated(
        4, 1
    )  # Not run above, so it may be run now.
    refused(apply(catalog, Run(1, 2, 2, AllocIds(1))), "BAD_REQUEST")  # Below what the client has.
    assert sorted(catalog.sessions[1].kept) == [3, 4]


def test_an_ended_session_runs_nothing_more() -> None:
    """I74: an expired session's retry is refused, not re-run."""
    catalog = Catalog()
    client = Client(catalog)
    client.put("/a")
    apply(catalog, ExpireSession(1))
    refused(apply(catalog, Run(1, 1, 1, Txn([], [Put("/a", b"")]))), "SESSION_GONE")
    refused(client.put("/b"), "SESSION_GONE")
    refused(apply(catalog, ExpireSession(1)), "SESSION_GONE")
    assert catalog.revision == 1


@pytest.mark.parametrize("end", ["close", "expire"])
def test_ephemeral_keys_go_with_their_session_in_one_revision(end: str) -> None:
    """P10.1: sessions with ephemeral keys."""
    catalog = Catalog()
    one, two = Client(catalog, 1), Client(catalog, 2)
    one.put("/b", ephemeral=True)
    one.put("/a", ephemeral=True)
    one.put("/stays")
    two.put("/other", ephemeral=True)
    result = one.run(CloseSession()) if end == "close" else apply(catalog, ExpireSession(1))
    assert result == Acknowledged(5)
    assert [record.key for record in catalog.page("/", "").records] == ["/other", "/stays"]
    assert [(record.key, record.value) for record in catalog.history.at(5)] == [("/a", None), ("/b", None)]


def test_an_ephemeral_key_belongs_to_who_put_it_last() -> None:
    """A bookie that restarts takes its registration over at once; the old session's end must not delete it."""
    catalog = Catalog()
    one, two = Client(catalog, 1), Client(catalog, 2)
    one.put("/bookies/b1", b"old", ephemeral=True)
    two.put("/bookies/b1", b"new", ephemeral=True)
    one.put("/plain", ephemeral=True)
    two.put("/plain")
    apply(catalog, ExpireSession(1))
    assert [record.key for record in catalog.page("/", "").records] == ["/bookies/b1", "/plain"]
    apply(catalog, ExpireSession(2))
    assert [record.key for record in catalog.page("/", "").records] == ["/plain"]


def test_pages_give_every_key_once_and_in_order() -> None:
    catalog = Catalog(Limits(list_bytes_max=400))
    client = Client(catalog)
    keys = [*sorted(f"/k/{n:02}é" for n in range(25)), "/l", "/k"]
    for key in keys:
        client.put(key, b"x" * 50)
    found: list[str] = []
    after = ""
    while True:
        page = catalog.page("/k/", after, 4)
        found += [record.key for record in page.records]
        assert 1 <= len(page.records) <= 4
        if not page.has_more:
            break
        after = page.records[-1].key
    assert found == keys[:25]
    assert catalog.page("/k/", "", 2).has_more
    assert not catalog.page("/nothing/", "").records


def test_a_page_ends_where_its_bytes_are_full_and_one_record_always_fits() -> None:
    """list_bytes_max: who lists goes on behind it and misses nothing, however large the values are."""
    catalog = Catalog(Limits(list_bytes_max=400))
    client = Client(catalog)
    sizes = {"/k/1": 100, "/k/2": 100, "/k/3": 100, "/k/4": 1000, "/k/5": 0, "/k/6": 331}
    for key, size in sizes.items():
        client.put(key, bytes(size))
    pages: list[list[str]] = []
    after, has_more = "", True
    while has_more:
        page = catalog.page("/k/", after)
        weights = [record_bytes(record) for record in page.records]
        assert sum(weights) <= 400 or len(weights) == 1
        pages.append([record.key for record in page.records])
        after, has_more = pages[-1][-1], page.has_more
    assert pages == [["/k/1", "/k/2"], ["/k/3"], ["/k/4"], ["/k/5"], ["/k/6"]]


def test_generations_have_an_end_and_the_one_that_is_refused_changes_nothing() -> None:
    """GENERATIONS_MAX: a revision stays a whole number of 63 bits."""
    catalog = Catalog()
    client = Client(catalog)
    catalog.revision = (GENERATIONS_MAX - 2 << GENERATION_BITS) + 7
    assert isinstance(apply(catalog, BeginGeneration()), Acknowledged)
    assert catalog.revision == GENERATIONS_MAX - 1 << GENERATION_BITS
    before = catalog.digest()
    assert "the last there is is 32767" in refused(apply(catalog, BeginGeneration()), "UNAVAILABLE")
    assert catalog.digest() == before
    assert client.put("/still/served") == TxnDone(True, catalog.revision)
    catalog.revision = (GENERATIONS_MAX << GENERATION_BITS) - 1
    assert catalog.revision < 1 << 63


def test_an_epoch_is_a_revision_and_rises_through_generations() -> None:
    """P9.2: epochs strictly increase over the life of the cluster; METADATA.md: a restored copy raises both."""
    catalog = Catalog()
    client = Client(catalog)
    client.put("/logs/orders/owner")
    epoch = catalog.revision
    client.put("/logs/orders/owner")
    assert catalog.revision > epoch
    next_id = catalog.next_id
    apply(catalog, BeginGeneration())
    assert catalog.revision == 1 << GENERATION_BITS
    assert catalog.next_id == next_id + (1 << 32)
    client.put("/logs/orders/owner")
    assert catalog.revision == (1 << GENERATION_BITS) + 1
    assert catalog.history.at(catalog.revision)


def test_asking_how_far_metadata_is_changes_nothing() -> None:
    """P7.7: a question that changes what it asks about made every collector raise the end of the ids."""
    catalog = Catalog()
    client = Client(catalog)
    apply(catalog, StartMember(b"1" * 16))
    client.run(AllocIds(5))
    before = catalog.digest()
    for count in (0, 1, 2, 1 << 62):
        told = catalog.tell(Tell(count), b"t" * 16)
        assert (told.cluster_token, told.ids_end) == (b"t" * 16, 6)
    assert catalog.digest() == before


def test_a_start_is_known_again_by_its_bytes_and_by_how_far_it_came() -> None:
    """P10.5: through snapshots too; of a start that is over it is said how far metadata was when the next began."""
    catalog = Catalog()
    client = Client(catalog)
    for number in (1, 2, 3):
        apply(catalog, StartMember(b"%d" % number * 16))
        client.put(f"/{number}")
        client.run(AllocIds(10))
    twin = Catalog.restore(catalog.snapshot())
    for known in (catalog, twin):
        assert known.tell(Tell(0), b"").asked is None
        assert known.tell(Tell(1), b"").asked == Reign(b"1" * 16, 1, 11)
        assert known.tell(Tell(2), b"").asked == Reign(b"2" * 16, 2, 21)
        assert known.tell(Tell(3), b"") == Told(
            b"", 3, b"3" * 16, 3, 31, [], Reign(b"3" * 16, 3, 31), descends=True
        )
        assert known.tell(Tell(4), b"").asked is None


def test_only_the_newest_starts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """METADATA.md, 4: nothing grows with history; of an older one nobody can tell."""
    monkeypatch.setattr("embedbk.metadata.descent.STARTS_KEPT_MAX", 2)
    catalog = Catalog()
    for number in (1, 2, 3):
        apply(catalog, StartMember(b"%d" % number * 16))
    assert [catalog.tell(Tell(number), b"").asked is None for number in range(5)] == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_a_generation_spares_what_a_lost_future_may_have_given_out() -> None:
    """P10.5: the ids that it skips, and those that were given out and of which it has nothing."""
    catalog = Catalog()
    client = Client(catalog)
    client.run(AllocIds(5))
    client.put(ledger_key_path(1))
    client.put(tombstone_path(3))
    client.put(ledger_key_path(4))
    gap = 1 << 32
    apply(catalog, BeginGeneration())
    assert catalog.descent.spared == [(2, 3), (5, 6 + gap)]
    apply(catalog, BeginGeneration())
    assert catalog.descent.spared == [(2, 3), (5, 6 + 2 * gap)], "one range, however often it is said"
    client.run(AllocIds(2))
    client.put(ledger_key_path(6 + 2 * gap))
    apply(catalog, BeginGeneration())
    assert catalog.descent.spared == [(2, 3), (5, 6 + 2 * gap), (7 + 2 * gap, 8 + 3 * gap)]
    assert Catalog.restore(catalog.snapshot()).tell(Tell(0), b"").spared == catalog.descent.spared


@pytest.mark.parametrize(
    "operation",
    [
        Txn([], [Put("no-slash", b"")]),
        Txn([], [Put("/", b"")]),
        Txn([], [Put("/" + "k" * 512, b"")]),
        Txn([], [Put("/nul\0", b"")]),
        Txn([], [Put("/half\ud800", b"")]),
        Txn([], [Put("/a", bytes((256 << 10) + 1))]),
        Txn([], [Put(f"/{n}", bytes(250 << 10)) for n in range(5)]),
        Txn([], [Put(f"/{n}", b"") for n in range(129)]),
        Txn([Compare(f"/{n}", 0) for n in range(129)], []),
        Txn([], [Put("/a", b""), Delete("/a")]),
        Txn([Compare("/a", -2)], []),
        AllocIds(0),
        AllocIds((1 << 20) + 1),
    ],
)
def test_a_bad_request_is_refused_and_changes_nothing(operation: Txn | AllocIds) -> None:
    catalog = Catalog()
    client = Client(catalog)
    before = catalog.digest()
    assert refused(client.run(operation), "BAD_REQUEST")
    assert catalog.digest() == before


def test_a_full_catalog_still_deletes() -> None:
    """Everything has a bound; at it, only what grows the catalog is refused."""
    catalog = Catalog(Limits(catalog_bytes_max=1000))
    client = Client(catalog)
    assert client.put("/a", bytes(800)) == TxnDone(True, 1)
    refused(client.put("/b", bytes(100)), "UNAVAILABLE")
    assert client.put("/a", bytes(700)) == TxnDone(True, 2)
    assert client.put("/b", bytes(100)) == TxnDone(True, 3)
    assert client.run(Txn([], [Delete("/a"), Delete("/b")])) == TxnDone(True, 4)
    assert catalog.record_table.bytes == 0


def test_bytes_are_kept_by_kind_as_records_come_and_go() -> None:
    """P10.7: bytes by kind; what is of no kind that is known makes no kind of its own."""
    catalog = Catalog()
    client = Client(catalog)
    for key in ("/ledgers/1", "/logs/a/list", "/logs/a/owner", "/deleted/1", "/cookies/b1", "/mine/a", "/x"):
        client.put(key, bytes(100))
    one = catalog.record_table.bytes / 7
    kinds = dict(catalog.record_table.weights.told())
    assert set(kinds) == set(KINDS)
    assert kinds["repair marks"] == 0
    assert kinds["logs"] > 1.9 * one
    assert kinds["other"] > 1.5 * one
    assert sum(kinds.values()) == catalog.record_table.bytes
    client.run(Txn([], [Delete("/logs/a/list"), Delete("/logs/a/owner")]))
    assert dict(catalog.record_table.weights.told())["logs"] == 0
    client.put("/mine/a", bytes(10))
    assert dict(catalog.record_table.weights.told())["other"] == kinds["other"] - 90


def test_a_full_catalog_takes_a_tombstone_in_the_place_of_a_ledger() -> None:
    """P10.7: a reserve in which deletion, closing and fencing still pass: whoever deletes as many keys as it makes may
    use it, and nobody fills it with keys."""
    catalog = Catalog(Limits(catalog_bytes_max=2000, catalog_reserve_bytes=500))
    client = Client(catalog)
    number = 0
    while isinstance(client.put(f"/ledgers/{number}", bytes(100)), TxnDone):
        number += 1
    stone = bytes(130)
    moved = [Delete("/ledgers/0"), Put("/deleted/0", stone)]
    assert isinstance(client.run(Txn([], moved)), TxnDone)
    refused(client.run(Txn([], [Delete("/ledgers/nobody"), Put("/deleted/1", stone)])), "UNAVAILABLE")
    refused(client.run(Txn([], [Delete("/ledgers/1"), Put("/a", stone), Put("/b", stone)])), "UNAVAILABLE")
    for each in range(1, number):
        answer = client.run(Txn([], [Delete(f"/ledgers/{each}"), Put(f"/deleted/{each}", bytes(1000))]))
    refused(answer, "UNAVAILABLE")  # The reserve has an end, too.
    assert catalog.record_table.bytes <= 2500


def test_sessions_and_their_ephemeral_keys_are_bounded() -> None:
    catalog = Catalog(Limits(sessions_max=1, ephemeral_keys_max=2))
    client = Client(catalog)
    refused(apply(catalog, StartSession(2, 1000, "")), "UNAVAILABLE")
    client.run(Txn([], [Put("/a", b"", True), Put("/b", b"", True)]))
    assert client.put("/a", b"again", ephemeral=True) == TxnDone(True, 2)
    refused(client.put("/c", ephemeral=True), "BAD_REQUEST")


def test_history_keeps_the_newest_changes_within_its_bound() -> None:
    catalog = Catalog(Limits(history_bytes_max=1000))
    client = Client(catalog)
    for n in range(20):
        client.put(f"/{n:02}", bytes(100))
    assert 0 < catalog.history.floor < 20
    kept = list(catalog.history.after(catalog.history.floor, catalog.revision))
    assert [revision for revision, _ in kept] == list(range(catalog.history.floor + 1, 21))
    client.put("/large", bytes(5000))
    assert catalog.history.floor == 20  # The newest change is kept, however large.


def random_command(chance: random.Random, catalog: Catalog, sequences: dict[int, int]) -> Command:
    kind = chance.randrange(10)
    session = chance.randrange(1, 5)
    if kind == 0:
        return StartSession(chance.randrange(1, 5), 1000, "x")
    if kind == 1 and chance.random() < 0.3:
        return ExpireSession(session)
    sequence = sequences[session] = sequences.get(session, 0) + chance.choice([0, 1, 1, 1])
    below = max(1, sequence - chance.randrange(4))
    if kind == 2:
        return Run(
            session, max(1, sequence), below, AllocIds(chance.randrange(1, 4)), chance.choice([1, 2, RULES])
        )
    keys = [f"/k{n}" for n in range(6)]
    when = [
        Compare(key, chance.choice([ABSENT, ANY, catalog.revision, max(0, catalog.revision - 1)]))
        for key in chance.sample(keys, chance.randrange(2))
    ]
    then = [
        Put(key, bytes([chance.randrange(256)]), chance.random() < 0.3)
        if chance.random() < 0.7
        else Delete(key)
        for key in chance.sample(keys, chance.randrange(1, 4))
    ]
    return Run(session, max(1, sequence), below, Txn(when, then), chance.choice([1, 2, RULES]))


@pytest.mark.parametrize("seed", range(20))
def test_same_commands_same_catalog(seed: int) -> None:
    """METADATA.md: all operations are deterministic; replay, and replay from any snapshot, give the same bytes."""
    chance = random.Random(seed)
    small = Limits(
        catalog_bytes_max=chance.choice([300, 1 << 30]),
        catalog_reserve_bytes=50,
        session_share_bytes=chance.choice([0, 70, 4096]),
        sessions_bytes_max=chance.choice([20_000, 1 << 30]),
        ephemeral_keys_max=chance.choice([2, 100]),
    )
    catalog, twin = Catalog(small), Catalog(small)
    sequences: dict[int, int] = {}
    for _ in range(300):
        command = decode_command(encode_command(random_command(chance, catalog, sequences)))  # type: ignore[arg-type]
        assert apply(twin, command) == apply(catalog, command)
        if chance.random() < 0.05:
            twin = Catalog.restore(twin.snapshot(), small)
        assert sum(len(session.keys) for session in catalog.sessions.values()) == sum(
            1 for record in catalog.page("/", "").records if record.session
        )
    assert twin.digest() == catalog.digest()
    sums = (catalog.record_table.bytes, catalog.session_table.shared_bytes, catalog.session_table.bytes)
    assert (twin.record_table.bytes, twin.session_table.shared_bytes, twin.session_table.bytes) == sums
    again = Catalog.restore(catalog.snapshot(), small)
    assert (again.record_table.bytes, again.session_table.shared_bytes, again.session_table.bytes) == sums
    assert (
        again.record_table.weights.told()
        == twin.record_table.weights.told()
        == catalog.record_table.weights.told()
    )
    assert sum(size for _, size in catalog.record_table.weights.told()) == catalog.record_table.bytes


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01", b"\x02\x91\x01", b"\x01\x93\x09\x00\x00"])
def test_bytes_that_are_no_command_are_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        decode_command(data)


@pytest.mark.parametrize("rules", [0, RULES + 1])
def test_a_command_under_rules_that_are_not_known_is_refused_by_their_number(rules: int) -> None:
    """METADATA.md, 2: this build would decide it otherwise than the others."""
    data = encode_command(Run(1, 1, 1, Txn([], []), rules))
    with pytest.raises(StorageError, match=f"rules {rules}; this embedbk knows 1 to {RULES}"):
        decode_command(data)


def test_a_snapshot_of_an_unknown_version_is_refused_with_its_number() -> None:
    data = bytearray(Catalog().snapshot())
    assert data[1] == 1
    data[1] = 9
    with pytest.raises(StorageError, match="version 9"):
        Catalog.restore(bytes(data))
    with pytest.raises(StorageError):
        Catalog.restore(b"\xc1 not a snapshot")


def test_a_refusal_is_the_answer_for_ever() -> None:
    """I74: who was told that its operation was refused has gone on; a repeat, when there is room again, must not run
    it. By the rules of older logs it did, and their replay still does."""
    for rules, repeated in ((RULES, "UNAVAILABLE"), (1, "done")):
        catalog = Catalog(Limits(catalog_bytes_max=300, session_share_bytes=0))
        client = Client(catalog)
        client.put("/a", bytes(200))
        late = Run(1, 2, 1, Txn([], [Put("/b", bytes(100))]), rules)
        refused(apply(catalog, late), "UNAVAILABLE")
        assert apply(catalog, Run(1, 3, 1, Txn([], [Delete("/a")]), rules)) == TxnDone(True, 2)
        for twin in (Catalog.restore(catalog.snapshot(), catalog.limits), catalog):
            result = apply(twin, late)
            assert repeated == (result.code if isinstance(result, Refusal) else "done")
    assert decode_command(encode_command(late)) == late
    older = encode_command(late)[:-1]
    assert (
        decode_command(older[:1] + bytes([older[1] - 1]) + older[2:]) == late
    )  # Without the field: rules 1.


def test_busy_is_no_answer() -> None:
    """METADATA.md, 5: what could not be kept was not run, and may be."""
    catalog = Catalog(Limits(kept_replies_max=2))
    Client(catalog)
    for sequence in (1, 2):
        assert isinstance(apply(catalog, Run(1, sequence, 1, AllocIds(1), RULES)), Allocated)
    refused(apply(catalog, Run(1, 3, 1, AllocIds(1), RULES)), "BUSY")
    assert apply(catalog, Run(1, 3, 2, AllocIds(1), RULES)) == Allocated(3, 1)


def test_sessions_and_the_answers_kept_for_them_are_within_a_bound_of_bytes() -> None:
    """kept answers and labels were outside every bound: 10,000 sessions could hold 2.5 million answers."""
    limits = Limits(sessions_bytes_max=17_000)
    catalog = Catalog(limits)
    sessions = 0
    while apply(catalog, StartSession(sessions + 1, 1000, "x" * 500, b"secret")) == Acknowledged(0):
        sessions += 1
    text = refused(apply(catalog, StartSession(99, 1000, "", b"secret")), "UNAVAILABLE")
    assert (
        f"{sessions} sessions and the answers kept for them hold {catalog.session_table.bytes} bytes" in text
    )
    answers = 0
    while isinstance(apply(catalog, Run(1, answers + 1, 1, AllocIds(1), RULES)), Allocated):
        answers += 1
    assert 0 < answers < 10
    refused(apply(catalog, Run(2, 1, 1, AllocIds(1), RULES)), "BUSY")
    assert catalog.session_table.bytes <= limits.sessions_bytes_max
    assert Catalog.restore(catalog.snapshot(), limits).session_table.bytes == catalog.session_table.bytes
    # What a client has, it needs no more.
    assert isinstance(apply(catalog, Run(1, answers + 1, answers + 1, AllocIds(1), RULES)), Allocated)
    for session in range(1, sessions + 1):
        apply(catalog, ExpireSession(session))
    assert catalog.session_table.bytes == 0


def test_at_a_full_catalog_bookies_register_and_ledgers_close() -> None:
    """A session's first ephemeral records need no room, and keys that are there may grow into a reserve."""
    catalog = Catalog(Limits(catalog_bytes_max=20_000, catalog_reserve_bytes=1000, session_share_bytes=400))
    ruled = Ruled(catalog)
    assert ruled.put("/ledgers/1", bytes(100)) == TxnDone(True, 1)
    count = 0
    while isinstance(ruled.put(f"/hog/{count}"), TxnDone):
        count += 1
    bookie = Ruled(catalog, 2)
    for _ in range(2):  # Again, as after a lost session.
        assert isinstance(bookie.put("/bookies/b1", bytes(200), ephemeral=True), TxnDone)
        apply(catalog, ExpireSession(2))
        refused(ruled.put("/hog/more"), "UNAVAILABLE")
        bookie = Ruled(catalog, 2)
    assert isinstance(ruled.put("/ledgers/1", bytes(900)), TxnDone)
    text = refused(ruled.put("/ledgers/1", bytes(2000)), "UNAVAILABLE")
    assert "allowed are 21000: delete ledgers or logs" in text
    assert isinstance(bookie.put("/bookies/b1", bytes(200), ephemeral=True), TxnDone)
    refused(bookie.put("/bookies/large", bytes(2000), ephemeral=True), "UNAVAILABLE")
    twin = Catalog.restore(catalog.snapshot(), catalog.limits)
    assert (twin.record_table.bytes, twin.session_table.shared_bytes) == (
        catalog.record_table.bytes,
        catalog.session_table.shared_bytes,
    )
    apply(catalog, ExpireSession(2))
    assert catalog.session_table.shared_bytes == 0


def test_one_ephemeral_key_is_swapped_for_another_at_the_bound() -> None:
    catalog = Catalog(Limits(ephemeral_keys_max=2))
    ruled, other = Ruled(catalog), Ruled(catalog, 2)
    ruled.run(Txn([], [Put("/a", b"", True), Put("/b", b"", True)]))
    assert ruled.run(Txn([], [Delete("/a"), Put("/c", b"", True)])) == TxnDone(True, 2)
    assert ruled.run(Txn([], [Put("/b", b""), Put("/d", b"", True)])) == TxnDone(True, 3)
    refused(ruled.put("/e", ephemeral=True), "BAD_REQUEST")
    other.put("/f", ephemeral=True)
    refused(ruled.put("/f", ephemeral=True), "BAD_REQUEST")  # Another's is one more.
    assert sorted(catalog.sessions[1].keys) == ["/c", "/d"]


def test_one_wild_sequence_does_not_use_a_session_up() -> None:
    """Sequence 2^63 - 1 with as high a done_below left a session nothing that it could ask."""
    catalog = Catalog()
    Client(catalog)
    refused(apply(catalog, Run(1, 2**63 - 1, 2**63 - 1, Txn([], []), RULES)), "BAD_REQUEST")
    refused(apply(catalog, Run(1, 2**63 - 1, 1, Txn([], []), RULES)), "BAD_REQUEST")
    assert apply(catalog, Run(1, 1, 1, AllocIds(1), RULES)) == Allocated(1, 1)
    assert apply(catalog, Run(1, 1 << 32, 1 << 32, AllocIds(1), RULES)) == Allocated(2, 1)


class Ruled(Client):
    """A client whose operations are decided by the rules of today."""

    def run(self, operation: Txn | AllocIds | CloseSession, done_below: int | None = None) -> Result:
        self.sequence += 1
        below = self.sequence if done_below is None else done_below
        return apply(self.catalog, Run(self.session, self.sequence, below, operation, RULES))
