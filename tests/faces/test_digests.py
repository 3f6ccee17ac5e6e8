"""Second digests through the faces: chosen at creation, found again in the metadata (P3.1)."""

from __future__ import annotations

import pytest

import embedbk
from embedbk.config import ENTRY_BYTES_MAX


@pytest.mark.parametrize("digest", ["crc32c", "xxh3", "hmac"])
def test_a_ledger_is_read_by_the_digest_that_it_was_made_with(bk: embedbk.Client, digest: str) -> None:
    """P3.1: nobody says it again on open; batches and producers stand beside the tag."""
    with bk.create_ledger(digest=digest, password=b"secret") as writer:
        writer.add(b"zero")
        writer.add_many([b"entry %d" % number for number in range(1, 500)])
        writer.add_batch([b"a", b"b"], producer=(1, 1))
    with bk.open_ledger(writer.ledger_id, password=b"secret") as reader:
        assert reader.metadata.digest == ["crc32c", "xxh3", "hmac"].index(digest)
        read = list(reader.read())
        assert [bytes(entry) for entry in read] == [b"zero", *(b"entry %d" % n for n in range(1, 500)), b"ab"]
        assert [bytes(part) for part in read[-1].parts] == [b"a", b"b"]
        assert read[-1].producer == (1, 1)
        assert sum(batch.entry_count for batch in reader.read_batches()) == 502


@pytest.mark.parametrize("digest", ["xxh3", "hmac"])
def test_logs_are_taken_over_and_recovered_with_their_tags(
    bk: embedbk.Client, log_name: str, digest: str
) -> None:
    """P3.1, P5.2: recovery checks tags too, whatever the next ledger is made with; striped ledgers as well."""
    log = bk.log(log_name, password=b"secret")
    writer = log.writer(digest=digest, ensemble_size=3, write_quorum=2, ack_quorum=2)
    writer.append_many([b"%d" % number for number in range(50)])
    writer.release()
    with log.writer() as writer:
        writer.append(b"next")
    assert [bytes(entry) for entry in log.read()] == [*(b"%d" % number for number in range(50)), b"next"]


def test_another_digest_is_refused_with_what_is_allowed(bk: embedbk.Client) -> None:
    with pytest.raises(embedbk.UsageError, match="'md5': allowed are 'crc32c', 'xxh3', 'hmac'"):
        bk.create_ledger(digest="md5")


def test_a_tag_counts_for_the_limit_of_an_entry(bk: embedbk.Client) -> None:
    with bk.create_ledger(digest="hmac") as writer:
        assert writer.add(bytes(ENTRY_BYTES_MAX - 36)) == 0
        for append in (
            lambda: writer.add(bytes(ENTRY_BYTES_MAX - 35)),
            lambda: writer.add_many([bytes(ENTRY_BYTES_MAX)]),
        ):
            with pytest.raises(embedbk.UsageError, match="at most"):
                append()
    (entry,) = bk.open_ledger(writer.ledger_id).read()
    assert len(entry) == ENTRY_BYTES_MAX - 36
