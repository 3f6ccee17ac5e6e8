"""The bytes of envelope and Hello: what TRANSPORTS.md says, there and back, and refused when wrong."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from embedbk.codec.kernels import crc32c
from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import PeerError, UsageError
from embedbk.ids import START_ID_BYTES
from embedbk.ports.links import Identity, LinkDown
from embedbk.transports import envelope as ours
from embedbk.transports import open_transport, schemes
from embedbk.transports.conformance import identity_of
from embedbk.transports.envelope import (
    ENVELOPE_BYTES,
    Hello,
    Kind,
    decode_envelope,
    decode_hello,
    decode_reason,
    encode_hello,
    encode_reason,
    envelope_prefix,
    objection,
    seal,
    stranger,
)
from embedbk.transports.local import LocalTransport

FOLDER = Path(__file__).resolve().parent.parent.parent / "transports"
PAGE = (FOLDER / "TRANSPORTS.md").read_text()

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}", fullmatch=True)
HELLOS = st.builds(
    Hello,
    st.builds(
        Identity,
        st.sampled_from(sorted(ours.ROLES)),
        NAMES,
        st.binary(min_size=16, max_size=16),
        st.binary(max_size=64),
    ),
    st.tuples(st.integers(1, 65535), st.integers(1, 65535)).map(lambda pair: (min(pair), max(pair))),
)


def rows(title: str) -> list[list[str]]:
    """The body of the table whose heading has these words."""
    table = PAGE.split(title, 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_page_and_the_constants_agree() -> None:
    fields = [(int(row[0]), int(row[1]), row[2]) for row in rows("\n| offset | bytes | field | meaning |")]
    assert fields[-1][0] + fields[-1][1] == ENVELOPE_BYTES
    assert all(
        offset + size == after[0] for (offset, size, _), after in zip(fields, fields[1:], strict=False)
    )
    assert {row[1]: int(row[0]) for row in rows("| kind | name | from | body |")} == {
        kind.name: kind for kind in Kind
    }
    assert f"version | {ours.ENVELOPE_VERSION}." in PAGE
    assert ours.ENVELOPE_MAGIC.decode() in PAGE
    assert f"at most {ours.REASON_BYTES_MAX} bytes" in PAGE
    assert f"0 to {ours.CLUSTER_TOKEN_BYTES_MAX}" in PAGE
    assert ours.CREDIT_BYTES == 1 << 20
    assert MESSAGE_BYTES_MAX == 4 << 20
    assert ours.WINDOW_BYTES_MIN == 5 << 20
    for name, number in ours.ROLES.items():
        assert f"{number} {name}" in PAGE


def test_the_example_on_the_page_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(example, "TRANSPORTS.md", "exec"), {})


def test_an_envelope_as_the_page_has_it() -> None:
    block = seal(envelope_prefix(Kind.DATA, b"dialler.", b"listener"), 3) + b"abc"
    assert block[:28] == b"EBKL\x01\x03\x00\x00dialler.listener\x03\x00\x00\x00"
    assert block[28:32] == crc32c(block[:28]).to_bytes(4, "little")
    envelope = decode_envelope(memoryview(block))
    assert (envelope.kind, envelope.dialler_nonce, envelope.listener_nonce) == (
        Kind.DATA,
        b"dialler.",
        b"listener",
    )
    assert envelope.body == b"abc"


@pytest.mark.parametrize("place", range(ENVELOPE_BYTES))
def test_any_byte_changed_is_noticed(place: int) -> None:
    block = bytearray(seal(envelope_prefix(Kind.DATA, b"dialler.", b"listener"), 3) + b"abc")
    block[place] ^= 0x10
    with pytest.raises(PeerError):
        decode_envelope(memoryview(block))


@given(st.binary(max_size=200))
def test_noise_is_refused_and_never_anything_worse(noise: bytes) -> None:
    for decode in (decode_envelope, decode_hello):
        try:
            decode(memoryview(noise))
        except PeerError:
            continue
        assert decode is decode_hello  # Noise may be a Hello, by chance; an envelope has a checksum.


@given(HELLOS, st.binary(max_size=20))
def test_hello_comes_back_whole_and_ignores_what_is_appended(hello: Hello, later: bytes) -> None:
    assume(
        hello.identity.start or len(later) < START_ID_BYTES
    )  # Else it is the field that older builds left out.
    assert decode_hello(memoryview(encode_hello(hello) + later)) == hello


def test_a_hello_says_which_level_its_build_knows() -> None:
    """P10.8: behind the start, so that older builds read over it; who says none is of the first."""
    hello = Hello(Identity("metadata", "m1", bytes(16), b"t", b"12345678", 258))
    block = encode_hello(hello)
    assert decode_hello(memoryview(block + b"later")) == hello
    assert decode_hello(memoryview(block[:-2])).identity.level == 0
    for wrong in (
        Identity("metadata", "m1", bytes(16), b"", b"", 2),
        Identity("bookie", "b", bytes(16), b"", bytes(8), -1),
    ):
        with pytest.raises(UsageError, match="level"):
            ours.check_settings(wrong, (1, 1), 1 << 30)


@given(HELLOS, st.data())
def test_a_hello_cut_short_is_refused(hello: Hello, data: st.DataObject) -> None:
    block = encode_hello(hello)
    size = data.draw(st.integers(0, len(block) - 1))
    with pytest.raises(PeerError):
        decode_hello(memoryview(block[:size]))


@given(HELLOS, HELLOS)
def test_objections_are_mutual(one: Hello, other: Hello) -> None:
    """P7.2: what one side refuses, the other refuses too, so that no link is up at one end only."""
    assert (objection(one, other) is None) == (objection(other, one) is None)


def test_whoever_is_expected_by_incarnation_only() -> None:
    b = identity_of("b")
    assert stranger(None, b) is None
    assert stranger(Identity("", "", b.incarnation, b""), b) is None
    assert (
        stranger(Identity("", "c", b"", b""), b)
        == f"wrong incarnation: expected c/any, found b/{b.incarnation.hex()}"
    )


def test_reasons_are_bounded_and_printable() -> None:
    assert decode_reason(memoryview(encode_reason("fünf ✓"))) == "fünf ✓"
    assert decode_reason(memoryview(b"\x1b]0;title\x07\xff\n")) == "\\x1b]0;title\\x07\ufffd\\n"
    assert len(encode_reason("ü" * 10_000)) == ours.REASON_BYTES_MAX


def test_schemes_are_opened_and_others_named() -> None:
    assert {"ipc", "local", "tcp"} <= set(schemes())
    transport = open_transport("local://anything", identity_of("a"))
    assert isinstance(transport, LocalTransport)
    transport.close()
    with pytest.raises(UsageError, match=r"no transport carries 'smoke'; there are ipc, local, tcp"):
        open_transport("smoke", identity_of("a"))


def test_others_register_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installed distribution would: its metadata on the path names the group and the callable."""
    info = tmp_path / "pigeon-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[embedbk.transports]\npigeon = pigeon_transport:make\n")
    (tmp_path / "pigeon_transport.py").write_text(
        "def make(identity, **settings):\n    return (identity, settings)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "pigeon" in schemes()
    assert open_transport("pigeon://roof", identity_of("a"), speed=3) == (identity_of("a"), {"speed": 3})


def test_the_folder_is_refused_under_its_own_name() -> None:
    """Under two names it would be two sets of classes."""
    spec = importlib.util.spec_from_file_location("transports", FOLDER / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"this folder is embedbk\.transports"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert "transports" not in sys.modules


def test_a_wrong_token_is_not_answered_with_the_right_one() -> None:
    """P7.2: the refusal goes to a stranger."""
    ours = Hello(Identity("bookie", "b", bytes(16), b"the secret token"))
    theirs = Hello(Identity("client", "c", bytes(16), b"a guess"))
    why = objection(ours, theirs)
    assert why == f"wrong cluster: c belongs to {b'a guess'.hex()}, and b to another one"


def test_a_client_is_no_bookie_whatever_else_it_says() -> None:
    """P7.2: the dialled link confirms what the registration says: role, id and incarnation."""
    b = identity_of("b")
    assert stranger(Identity("bookie", "b", b.incarnation, b""), b) is None
    posing = Identity("client", "b", b.incarnation, b"")
    assert stranger(Identity("bookie", "b", b.incarnation, b""), posing) == (
        "wrong role: expected a bookie, found b, a client"
    )


def test_only_the_same_node_with_another_incarnation_has_another_disk() -> None:
    """P4.6, RP47: that somebody else has its address says nothing of a bookie's disk."""
    another = f"wrong incarnation: expected c/{bytes(16).hex()}, found c/{b'x'.hex() * 16}"
    assert LinkDown(0, another).is_of_other_disk("c")
    somebody = f"wrong incarnation: expected c/any, found b/{bytes(16).hex()}"
    assert not LinkDown(0, somebody).is_of_other_disk("c")
    assert not LinkDown(0, "refused: found c/any").is_of_other_disk("c")
