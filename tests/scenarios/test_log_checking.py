"""`log check`: what of a list does not fit its ledgers is found and nothing else is; nothing is changed (P8.6)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedbk.client.client import Client
from embedbk.client.log_checking import LogFinding, check_log, known_ledgers
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import (
    LogList,
    decode_ledger_metadata,
    decode_log_list,
    encode_ledger_metadata,
    encode_log_list,
    ledger_key_path,
    log_key_path,
)
from embedbk.codec.log_identity import (
    LogIdentity,
    LogIdentityState,
    encode_log_identity,
    log_identity_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.errors import MetadataConflict, NoSuchLedger
from embedbk.testing import Cluster
from tests.scenarios.carried import carry_over

NAME = "orders"


@pytest.fixture
def client() -> Iterator[Client]:
    """Of a log of four ledgers with two entries each; the last one was closed, too."""
    with Cluster(seed=1, bookies=3) as cluster:
        made = cluster.client()
        carry_over(made, NAME)
        for _ in range(2):
            with made.log(NAME).writer() as writer:
                writer.append_many([b"a", b"b"])
                writer.roll()
                writer.append_many([b"c", b"d"])
        cluster.run_for(5)
        yield made


def check(client: Client) -> list[LogFinding]:
    """The same whether ledgers are listed for this log or were before, also when none of them was there then."""
    runtime = client._runtime
    found = run_blocking(check_log(runtime, NAME), "log check")
    for known in (run_blocking(known_ledgers(runtime, "log check"), "log check"), {}):
        assert run_blocking(check_log(runtime, NAME, known), "log check") == found
    return found


def change(client: Client, *changes: Put | Delete) -> None:
    assert run_blocking(client._runtime.transact([], list(changes), "a test"), "a test")


def value(client: Client, key: str) -> bytes:
    found, _ = run_blocking(client._runtime.get(key, "a test"), "a test")
    assert found is not None
    return found


def listed(client: Client) -> LogList:
    return decode_log_list(value(client, log_key_path(NAME)), NAME)


def relist(client: Client, index: int, **changes: object) -> int:
    """Change one ledger of the list; its id."""
    log_list = listed(client)
    segments = list(log_list.segments)
    segments[index] = type(segments[index])(
        **{
            name: changes.get(name, getattr(segments[index], name))
            for name in segments[index].__struct_fields__
        }
    )
    data = encode_log_list(type(log_list)(log_list.version, log_list.epoch, tuple(segments)), is_whole=True)
    change(client, Put(log_key_path(NAME), data))
    return segments[index].ledger_id


def texts(client: Client, ledger_id: int) -> str:
    found = check(client)
    assert {each.ledger_id for each in found} == {ledger_id}, found
    return "; ".join(each.text for each in found)


def test_what_fits_is_sound(client: Client) -> None:
    """Also beside a writer, whose last two ledgers may be open."""
    assert check(client) == []
    with client.log(NAME).writer() as writer:
        writer.append(b"e")
        writer.roll()
        writer.append(b"f")
        assert check(client) == []
    assert client.log(NAME).end() == 10
    with pytest.raises(NoSuchLedger):
        run_blocking(check_log(client._runtime, "other"), "log check")


def test_a_name_that_points_to_a_log_which_does_not_say_so_is_found(client: Client) -> None:
    """P8.12: a name points to a log exactly where that log's identity says this name."""
    key = log_identity_path(NAME)
    identity = value(client, key)
    for wrong, text in (
        (Delete(key), "there is no identity of that id"),
        (Put(key, encode_log_identity(LogIdentity(1, "bills", LogIdentityState.NAMED))), "is called 'bills'"),
        (Put(key, encode_log_identity(LogIdentity(1, NAME, LogIdentityState.DELETED))), "was deleted"),
        (Put(key, b"newer"), "identity of log orders"),
    ):
        change(client, wrong)
        (found,) = check(client)
        assert found.ledger_id is None and text in found.text
    change(client, Put(key, identity))
    assert check(client) == []


def test_a_ledger_that_is_gone_or_another_one_is_found(client: Client) -> None:
    ledger_id = listed(client).segments[1].ledger_id
    key = ledger_key_path(ledger_id)
    data = value(client, key)
    change(client, Delete(key))
    assert texts(client, ledger_id) == f"the list names it, and there is no {key}"
    change(client, Put(key, b"newer"))
    assert "no ledger metadata" in texts(client, ledger_id) or "metadata" in texts(client, ledger_id)
    metadata = decode_ledger_metadata(data)
    change(client, Put(key, encode_ledger_metadata(metadata.with_changes(custom={"log": b"bills"}))))
    assert texts(client, ledger_id) == "it names log 'bills'"
    change(client, Put(key, data))
    assert check(client) == []


def test_ends_and_offsets_that_do_not_fit_are_found(client: Client) -> None:
    ledger_id = relist(client, 1, last_entry=0)
    found = check(client)
    assert [each.ledger_id for each in found] == [ledger_id, listed(client).segments[2].ledger_id]
    assert "it is listed with last entry 0" in found[0].text and "was closed at 1" in found[0].text
    assert "it is listed from offset 4, and the one before it ends behind 2" in found[1].text
    relist(client, 1, last_entry=1, length=77)
    assert "and 77 bytes" in texts(client, ledger_id)
    relist(client, 1, length=2)
    ledger_id = listed(client).segments[0].ledger_id
    metadata = decode_ledger_metadata(value(client, ledger_key_path(ledger_id)))
    opened = metadata.with_changes(state=1, last_entry=None, length=None)
    change(client, Put(ledger_key_path(ledger_id), encode_ledger_metadata(opened)))
    assert texts(client, ledger_id) == "it is listed as closed at entry 1, and it is not closed"


def test_a_ledger_that_no_list_names_is_found(client: Client) -> None:
    """It is the list that says what a log has: nothing is deleted for it."""
    log_list = listed(client)
    gone = log_list.segments[-1].ledger_id
    short = LogList(log_list.version, log_list.epoch, log_list.segments[:-1])
    change(client, Put(log_key_path(NAME), encode_log_list(short, is_whole=True)))
    assert texts(client, gone) == "it names this log, which does not list it"
    assert client.is_closed(gone)


def test_a_list_that_cannot_be_read_is_a_finding_of_its_own(client: Client) -> None:
    change(client, Put(log_key_path(NAME), b"strange"))
    (found,) = check(client)
    assert found.ledger_id is None and "log 'orders'" in found.text


def test_what_changes_again_and_again_is_not_judged(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    relist(client, 1, last_entry=0)
    runtime, plain = client._runtime, client._runtime.list_keys

    async def list_keys(prefix: str, what: str) -> object:
        data, _ = await runtime.get(log_key_path(NAME), what)
        assert data is not None
        await runtime.transact([], [Put(log_key_path(NAME), data)], what)
        return await plain(prefix, what)

    monkeypatch.setattr(runtime, "list_keys", list_keys)
    with pytest.raises(MetadataConflict, match="changed 5 times while it was checked"):
        check(client)
