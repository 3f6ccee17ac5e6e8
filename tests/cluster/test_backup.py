"""`embedbk quorum snapshot | verify | restore | recover | nuke`, as operators do it (METADATA.md, 10; P10.5)."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.cli.backup import take_snapshot
from embedbk.cli.lost_ledgers import _held
from embedbk.cluster import Cluster
from embedbk.codec.quorum_messages import AskHeld, HeldTold, SnapshotCut
from embedbk.errors import EmbedbkError, MetadataUnavailable, OperationTimeout, UsageError
from embedbk.host.loop import clock_ns
from embedbk.quorum import Quorum
from tests.cluster.test_members import PATIENT, embedbk_command, status

pytestmark = pytest.mark.xdist_group("processes")


def quorum(*arguments: object) -> dict[str, Any]:
    code, said, wrong = embedbk_command("quorum", *arguments, "--json")
    assert code == 0, wrong
    found: dict[str, Any] = json.loads(said)
    return found


def ledger(*arguments: object) -> dict[str, Any]:
    code, said, wrong = embedbk_command("ledger", *arguments, "--json")
    assert code == 0, wrong
    found: dict[str, Any] = json.loads(said)
    return found


def refused(*arguments: object) -> str:
    code, said, _ = embedbk_command("quorum", *arguments, "--json")
    assert code == 1, said
    message: str = json.loads(said)["message"]
    return message


def append(url: str, *entries: bytes) -> None:
    with embedbk.open(url, settings=PATIENT) as bk, bk.log("orders").writer() as orders:
        for entry in entries:
            orders.append(entry)


def read(url: str) -> list[bytes]:
    with embedbk.open(url, settings=PATIENT) as bk:
        return [bytes(entry) for entry in bk.log("orders").read()]


def adopted(url: str, ids: list[int], token: str, file: Path) -> list[list[bytes]]:
    """P10.5: what was appended behind the copy is readable again, as far as its writer was told so."""
    which = ",".join(map(str, [*ids, 1 << 50]))
    code, said, _ = embedbk_command("ledger", "adopt", which, "--at", url, "--json")
    told = json.loads(said)
    assert code == 1 and told["message"].startswith("this would be done:"), said
    assert f"ledger {ids[0]} would be adopted: CLOSED, last entry 0" in told["message"]
    assert told["hint"] == f"say that it is meant: --token {token}; nothing was changed"
    dry = ledger("adopt", str(ids[0]), "--at", url, "--dry-run")
    assert dry["adopted"] == {} and dry["would_be"][str(ids[0])]["entries_of"] == {"b1": 1, "b2": 1, "b3": 1}
    assert ledger("lost", "--at", url)["ledgers"].keys() == {str(each) for each in ids}, "nothing was changed"
    code, said, _ = embedbk_command("ledger", "adopt", which, "--at", url, "--token", "00", "--json")
    assert code == 1 and "this cluster's token is another one" in said
    code, said, _ = embedbk_command("ledger", "adopt", which, "--at", url, "--token", token, "--json")
    done = json.loads(said)
    assert done["adopted"].keys() == {str(each) for each in ids}, said
    assert list(done["refused"]) == [str(1 << 50)] and code == 1
    with embedbk.open(url, settings=PATIENT) as bk:
        found = []
        for ledger_id in ids:
            reader = bk.open_ledger(ledger_id)
            found.append([bytes(entry) for entry in reader.read(0, reader.last_entry)])
        assert "P10.5: adopted from what bookies hold, by " in str(bk.explain(ids[0]))
    code, said, _ = embedbk_command("ledger", "adopt", str(ids[0]), "--at", url, "--token", token, "--json")
    assert code == 1 and f"ledger {ids[0]} is in the metadata already" in said
    kept = ledger("dump", ids[0], file, "--at", url)
    assert json.loads(file.read_text())["value"] == kept["value"] and kept["state"] == "CLOSED"
    code, said, _ = embedbk_command("ledger", "restore", file, "--at", url, "--json")
    assert code == 1 and f"this would be put into the metadata: ledger {ids[0]}, CLOSED" in said
    assert ledger("restore", file, "--at", url, "--token", token)["restored"] == ids[0]
    return [each for each in found if each]


def left_by_another_restore(cluster: Cluster, copy: Path, home: Path) -> list[int]:
    """Put the copy back once more; the ledgers that bookies hold and metadata does not know."""
    cluster.kill("m1")
    shutil.rmtree(home)
    quorum("restore", copy, "--dir", home)
    cluster.restart("m1")
    return [int(each) for each in ledger("lost", "--at", cluster.url)["ledgers"]]


def test_metadata_is_brought_back_from_survivors_and_then_from_a_copy(tmp_path: Path) -> None:
    """Story 4, P10.5: "take a generation above the highest heard and all lineages heard as parents, so that a second
    restore of one backup works and whoever comes second learns of the first"."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    m1 = data / "metadata"  # As in a cluster that was begun with one member.
    with Cluster(data, bookies=3, members=3, settings=PATIENT) as cluster:
        url = cluster.url
        quorum("raise", "--at", url)
        append(url, b"before")
        token = status(url)["cluster_token"]
        taken = quorum("snapshot", copy, "--at", data)
        assert (taken["cluster_token"], taken["ledgers"], taken["lineage"]) == (token, 1, "first:0")
        assert quorum("verify", copy) == {
            "is_whole": True,
            **{key: taken[key] for key in taken if key != "bytes"},
        }
        assert "is there: nothing is written over it" in refused("snapshot", copy, "--at", url)
        append(url, b"behind the copy")
        assert "this cluster's metadata is served by m" in refused("restore", copy, "--dir", tmp_path / "new")

        for name in cluster.members:
            cluster.kill(name)
        homes = [m1, data / "m2", data / "m3"]
        old = [shutil.move(home, tmp_path / f"old-{home.name}") for home in homes]
        lost = refused("recover", old[0], "--dir", m1)
        assert "1 of 3 voters are here whole, and it is certain with 2" in lost
        recovered = quorum("recover", *old[:2], "--dir", m1)
        assert recovered["may_be_lost"] is None
        assert recovered["heard"] == ["bookie b1", "bookie b2", "bookie b3"]
        assert (recovered["gives_up"], recovered["lineage"]) == ([], "first:0")
        cluster.restart("m1")
        assert read(url) == [b"before", b"behind the copy"]
        append(url, b"in a lineage")
        second = quorum("snapshot", tmp_path / "second", "--at", url)
        assert second["generation"] == 1 and second["lineage"].endswith(":1")
        told = status(url)
        assert [each["name"] for each in told["members"]] == ["m1"]
        assert (told["lineage"], told["spared_ranges"]) == (second["lineage"], 1)
        said = embedbk_command("quorum", "status", "--at", url)[1]
        assert (
            f"lineage {second['lineage']}; a lost future may have left ledgers: embedbk ledger lost" in said
        )

        cluster.kill("m1")
        shutil.rmtree(m1)
        restored = quorum("restore", copy, "--dir", m1)
        assert restored["gives_up"] == [second["lineage"]]
        assert restored["may_be_lost"] == "what was changed behind the snapshot is in no file"
        cluster.restart("m1")
        assert read(url)[:1] == [b"before"]
        append(url, b"behind both")
        assert read(url)[-1] == b"behind both"
        found = ledger("lost", "--at", url)
        assert found["not_heard"] == {}
        assert sorted(found["ledgers"].values()) == [["b1", "b2", "b3"]] * len(found["ledgers"]), (
            "all three hold each"
        )
        left = [int(each) for each in found["ledgers"]]
        assert left and all(taken["next_id"] <= each < second["next_id"] for each in left)
        kept = adopted(url, left, token, tmp_path / "of one ledger")
        assert kept == [[b"behind the copy"], [b"in a lineage"]]
        assert ledger("lost", "--at", url)["ledgers"] == {}
        append(url, b"behind what was adopted")
        left = left_by_another_restore(cluster, copy, m1)
        ids = ",".join(map(str, left))
        code, said, _ = embedbk_command("ledger", "forget", ids, "--at", url, "--json")
        assert code == 1 and f"this would let go for ever: ledgers {', '.join(map(str, left))}" in said
        assert ledger("forget", ids, "--at", url, "--token", token)["ledgers"] == left
        assert ledger("lost", "--at", url)["ledgers"] == {}
        assert read(url) == [b"before"]
        third = quorum("snapshot", tmp_path / "third", "--at", url)
        assert third["generation"] == 3
        assert third["next_id"] > second["next_id"]

    assert f"this would remove for ever: {m1} of the cluster {token}" in refused("nuke", m1)
    assert f"{m1} is of the cluster {token}" in refused("nuke", m1, "--token", "00")
    assert "is no metadata member's directory" in refused("nuke", data / "b1", "--token", token)
    assert quorum("nuke", m1, "--token", token)["removed"]
    assert list((m1).iterdir()) == []


def test_a_ledger_that_was_open_in_the_copy_and_changed_since_loses_nothing(tmp_path: Path) -> None:
    """P10.5: its later entries are on bookies that the copy does not name; its writer lives on meanwhile."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with Cluster(data, bookies=5, settings=PATIENT) as cluster:
        url, home = cluster.url, data / "metadata"
        token = status(url)["cluster_token"]
        with embedbk.open(url, settings=PATIENT) as bk:
            orders = bk.log("orders").writer(ensemble_size=3, write_quorum=3, ack_quorum=2)
            orders.append(b"before")
            (segment,) = bk.log("orders").segments()
            quorum("snapshot", copy, "--at", url)
            seats = [name for name, _ in bk.ledger_metadata(segment.ledger_id).fragments[0].ensemble]
            for name in seats[:2]:
                cluster.kill(name)
            orders.append(b"behind the copy")
            orders.append(b"as well")
            for name in seats[:2]:
                cluster.restart(name)
            cluster.kill("m1")
            shutil.rmtree(home)
            quorum("restore", copy, "--dir", home)
            cluster.restart("m1")

            ledger_id = str(segment.ledger_id)
            found = ledger("lost", "--at", url)
            assert found["open_in_the_copy"] == {ledger_id: "OPEN"} and found["stale"][0][0] == 1
            refusal = pytest.raises(MetadataUnavailable, match=f"embedbk ledger adopt {ledger_id}")
            with embedbk.open(url, settings=PATIENT) as other, refusal:
                other.log("orders").writer()
            done = ledger("adopt", ledger_id, "--at", url, "--token", token)
            assert done["adopted"][ledger_id]["last_entry"] == 2
            assert not any("its log" in each for each in done["adopted"][ledger_id]["unknown"])
            append(url, b"behind all")
            assert read(url) == [b"before", b"behind the copy", b"as well", b"behind all"]
            assert ledger("lost", "--at", url)["open_in_the_copy"] == {}
            with pytest.raises(EmbedbkError):
                orders.append(b"of a writer that was fenced")
            with contextlib.suppress(EmbedbkError):
                orders.close()
        assert ledger("forget", "1-99", "--at", url, "--token", token)["believed"] == []
        assert [each for each in ledger("lost", "--at", url)["stale"] if each[0] < 100] == []
        assert read(url) == [b"before", b"behind the copy", b"as well", b"behind all"]


def test_an_embedded_cluster_is_brought_back_beside_its_bookies(tmp_path: Path) -> None:
    """METADATA.md, 10: nobody answers for a cluster that is closed, but the notes of its bookies do."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with embedbk.open(data, listen="tcp://127.0.0.1:0") as bk:
        with bk.log("orders").writer() as orders:
            orders.append(b"before")
        quorum("raise", "--at", data)
        taken = quorum("snapshot", copy, "--at", data)
    with embedbk.open(data) as bk, bk.log("orders").writer() as orders:
        orders.append(b"behind the copy")
    lone = tmp_path / "elsewhere"
    assert "nobody says which metadata was met" in refused("restore", copy, "--dir", lone)
    for number in (1, 2):
        shutil.rmtree(data / "metadata")
        restored = quorum("restore", copy, "--dir", data / "metadata")
        assert restored["heard"] and all(each.startswith("bookie ") for each in restored["heard"])
        assert len(restored["gives_up"]) == number - 1
        with embedbk.open(data) as bk:
            assert bytes(next(iter(bk.log("orders").read()))) == b"before"
            with bk.log("orders").writer() as orders:
                orders.append(b"%d" % number)
            assert [bytes(each) for each in bk.log("orders").read()][-1] == b"%d" % number
    assert taken["generation"] == 0


def test_a_copy_is_written_by_one_command_at_a_time(tmp_path: Path) -> None:
    """METADATA.md, 10: what one found whole is not what another writes."""
    file, words = tmp_path / "copy", list[str]()

    class Slow(Quorum):
        """While it waits for the next piece, the same command is said once more."""

        def take_snapshot(self, write: Callable[[bytes], object]) -> SnapshotCut:
            write(b"a piece")
            with pytest.raises(UsageError) as refused:
                take_snapshot(self, file)
            words.append(str(refused.value))
            assert [each.name for each in tmp_path.iterdir()] == ["copy.part"]
            raise OperationTimeout("no answer came in time")

    with pytest.raises(OperationTimeout, match=r"^no answer came in time"):
        take_snapshot(Slow(["tcp://127.0.0.1:1"], 1.0), file)
    assert f"{file}.part is there, of a command that writes it now" in words[0]
    assert not list(tmp_path.iterdir())


def test_a_bookie_whose_note_is_damaged_counts_as_one_that_does_not_answer(tmp_path: Path) -> None:
    """METADATA.md, 10: the others' notes speak, and it is named; where none speaks the token is asked for. One damaged
    note refused each restore, with the token too."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with embedbk.open(data, listen="tcp://127.0.0.1:0") as bk, bk.log("orders").writer() as orders:
        orders.append(b"before")
        token = quorum("snapshot", copy, "--at", data)["cluster_token"]
    shutil.rmtree(data / "metadata")
    notes = [data / each / "METADATA_MET" for each in ("b1", "b2", "b3")]
    notes[1].write_bytes(b"no note")
    restored = quorum("restore", copy, "--dir", data / "metadata")
    assert restored["heard"] == ["bookie b1", "bookie b3"]
    assert [
        each for each in restored["not_heard"] if "METADATA_MET is damaged" in restored["not_heard"][each]
    ] == [str(data / "b2")]
    shutil.rmtree(data / "metadata")
    for each in notes:
        each.write_bytes(b"")
    assert "nobody says which metadata was met" in refused("restore", copy, "--dir", data / "metadata")
    restored = quorum("restore", copy, "--dir", data / "metadata", "--accept-loss", token)
    assert not restored["heard"] and {str(each.parent) for each in notes} <= restored["not_heard"].keys()


def test_a_bookie_that_says_that_it_goes_on_where_it_was_asked_is_told_as_not_heard() -> None:
    """`ledger lost` and `forget` asked it without end, and took in the same ids each time."""
    asked: list[AskHeld] = []

    class Circling(Quorum):
        def ask(self, endpoints: Sequence[str], operation: Any, *, is_patient: bool = True) -> HeldTold:
            asked.append(operation)
            assert len(asked) < 9
            return HeldTold("b1", [operation.first], min(operation.first + 2, 5))

    with pytest.raises(UsageError, match="it says that it goes on at ledger 5, and was asked from there on"):
        _held(Circling(["ipc:///nowhere"], 8.0), ["ipc:///nowhere"], 1, 9)
    assert asked == [AskHeld(1, 9), AskHeld(3, 9), AskHeld(5, 9)]


def test_a_bookie_that_cannot_be_reached_from_here_leaves_time_for_the_others(tmp_path: Path) -> None:
    """`ledger lost`: it is told as not heard. Asked until the time was over, it made the whole command fail."""
    quorum = Quorum([f"ipc://{tmp_path}/m1.sock"], 8.0)
    with pytest.raises(UsageError, match="it did not say what it holds"):
        _held(quorum, [f"ipc://{tmp_path}/gone.sock"], 1, 9)
    assert clock_ns() < quorum._until_ns
