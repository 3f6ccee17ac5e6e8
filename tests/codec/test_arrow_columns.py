"""Columns of the Arrow C data interface: C and its plain twin by one set of tests, then what packers make of them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedbk import _native
from embedbk.codec.arrow_columns import rows_of
from embedbk.codec.arrow_rows import ArrowFault, ArrowNames, Rows
from embedbk.codec.arrow_twin import twin_column, twin_column_of_stream
from embedbk.codec.frame import iter_entries
from embedbk.codec.packer import Packer, Packing
from embedbk.codec.packer_twin import TwinPacker
from embedbk.config import ENTRY_BYTES_MAX
from embedbk.errors import UsageError
from embedbk.testing import arrow_bytes
from embedbk.testing.arrow_bytes import FORMATS, ArrowBytes

OVERHEAD = 52
SHORT_AND_LONG = [b"", b"x", b"twelve bytes", b"thirteen byte", b"a longer one, " * 9, b"", b"last"]

Make = Callable[[ArrowBytes, str], Any]


def in_c(data: ArrowBytes, name: str) -> Any:
    return _native.arrow_column(*data._as_array(), name)


def in_python(data: ArrowBytes, name: str) -> Any:
    return twin_column(*data._as_array(), name)


@pytest.fixture(params=[in_c, in_python], ids=["c", "python"])
def column_of(request: pytest.FixtureRequest) -> Make:
    make: Make = request.param
    return make


def rows(column: Any) -> list[bytes]:
    assert not isinstance(column, tuple), column
    assert column.byte_count == sum(len(column[at]) for at in range(len(column)))
    assert column.largest == max((len(column[at]) for at in range(len(column))), default=0)
    return [column[at] for at in range(len(column))]


class TestColumns:
    @pytest.mark.parametrize("form", FORMATS)
    def test_every_layout_of_bytes_is_read(self, column_of: Make, form: str) -> None:
        """Plain, large and view; short ones of a view stand in it, long ones in parts."""
        assert rows(column_of(ArrowBytes(SHORT_AND_LONG, form), "value")) == SHORT_AND_LONG
        assert rows(column_of(ArrowBytes([], form), "value")) == []

    @pytest.mark.parametrize("form", FORMATS)
    @pytest.mark.parametrize("front", [1, 5, 8, 9])
    def test_a_slice_gives_its_own_rows(self, column_of: Make, form: str, front: int) -> None:
        """A slice has the buffers of the whole; a struct's offset counts beside that of its column."""
        for name in (None, "value"):
            data = ArrowBytes(SHORT_AND_LONG, form, front=front, name=name)
            assert rows(column_of(data, "value")) == SHORT_AND_LONG

    @pytest.mark.parametrize("form", FORMATS)
    @pytest.mark.parametrize("null", [0, 1, 7, 8, 20])
    def test_a_null_is_refused_with_its_row(self, column_of: Make, form: str, null: int) -> None:
        """An entry has a value: what has none is not appended as an empty one."""
        for front in (0, 3):
            data = ArrowBytes([b"x"] * 21, form, front=front, nulls=[null], name="value")
            assert column_of(data, "value") == (ArrowFault.NULL, null, "value")

    def test_nulls_that_a_slice_leaves_out_do_not_count(self, column_of: Make) -> None:
        data = ArrowBytes([b"x"] * 9, front=3, nulls=[-1, -2])
        assert rows(column_of(data, "value")) == [b"x"] * 9

    def test_a_struct_that_is_null_has_no_value(self, column_of: Make) -> None:
        def spoil_whole(data: ArrowBytes) -> Any:
            schema, array = data._as_array()
            bits = bytes([0b11111011])
            whole = data.held[1]
            whole.null_count = -1  # Not counted.
            data.bits = bits  # type: ignore[attr-defined]
            whole.buffers[0] = arrow_bytes.ctypes.cast(bits, arrow_bytes.ctypes.c_void_p).value
            return schema, array

        data = ArrowBytes([b"x"] * 4, name="value")
        make = twin_column if column_of is in_python else _native.arrow_column
        assert make(*spoil_whole(data), "value") == (ArrowFault.NULL, 2, "value")

    def test_a_column_that_is_not_there_is_named(self, column_of: Make) -> None:
        assert column_of(ArrowBytes([b"x"], name="values"), "value") == (ArrowFault.NO_COLUMN, 0, "values")

    @pytest.mark.parametrize("form", ["i", "w:4", "+l", "b", "", "zz"])
    def test_what_is_no_bytes_is_refused_with_its_format(self, column_of: Make, form: str) -> None:
        def call_it(data: ArrowBytes) -> ArrowBytes:
            data._form = form
            return data

        arrow_bytes._LAYOUTS.setdefault(form, arrow_bytes._LAYOUTS["z"])
        try:
            assert column_of(call_it(ArrowBytes([b"x"])), "value") == (ArrowFault.FORMAT, 0, form)
            assert column_of(call_it(ArrowBytes([b"x"], name="value")), "value") == (
                ArrowFault.FORMAT,
                0,
                form,
            )
        finally:
            if form not in FORMATS:
                del arrow_bytes._LAYOUTS[form]

    @pytest.mark.parametrize("form", FORMATS)
    def test_a_value_that_no_entry_holds_is_refused_with_its_row(self, column_of: Make, form: str) -> None:
        most = [b"x", b"y" * ENTRY_BYTES_MAX]
        assert rows(column_of(ArrowBytes(most, form), "value")) == most
        found = column_of(ArrowBytes([*most, b"z" * (ENTRY_BYTES_MAX + 1)], form), "value")
        assert found[:2] == (ArrowFault.TOO_LONG, 2)

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda array: setattr(array, "length", -1),
            lambda array: setattr(array, "offset", -1),
            lambda array: setattr(array, "length", 2**62),
            lambda array: setattr(array, "n_buffers", 2),
            lambda array: setattr(array, "n_buffers", -1),
            lambda array: array.buffers.__setitem__(1, None),
            lambda array: array.buffers.__setitem__(2, None),
            lambda array: setattr(array, "release", type(array.release)()),
        ],
    )
    def test_numbers_that_no_array_has_are_refused(
        self, column_of: Make, spoil: Callable[[Any], None]
    ) -> None:
        """Bytes no producer sends: nothing is read where there is nothing."""
        for form in ("z", "Z", "vz"):
            found = column_of(
                ArrowBytes([b"a row that is longer than a view"] * 2, form, spoil=spoil), "value"
            )
            assert found[0] == ArrowFault.UNSOUND

    def test_a_column_shorter_than_its_struct_is_refused(self, column_of: Make) -> None:
        data = ArrowBytes([b"x"] * 3, name="value", spoil=lambda array: setattr(array, "length", 2))
        assert column_of(data, "value")[0] == ArrowFault.UNSOUND

    @given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=4, max_size=4), st.sampled_from(["z", "Z"]))
    def test_both_judge_any_offsets_alike(self, ends: list[int], form: str) -> None:
        """Offsets below 0, or that fall, are refused before a byte is read; both forms say the same of which row."""

        def spoil(array: Any) -> None:
            kind = arrow_bytes.ctypes.c_int64 if form == "Z" else arrow_bytes.ctypes.c_int32
            for at, end in enumerate(ends):
                kind.from_address(array.buffers[1] + arrow_bytes.ctypes.sizeof(kind) * at).value = end

        if sorted(ends) == ends and ends[0] >= 0 and ends[-1] > 30:
            return  # Sound as far as it can be known: where the bytes end, an array does not say.
        given_ = [b"x" * 10] * 3
        one = in_c(ArrowBytes(given_, form, spoil=spoil), "value")
        two = in_python(ArrowBytes(given_, form, spoil=spoil), "value")
        if isinstance(one, tuple) or isinstance(two, tuple):
            assert one == two
        else:
            assert rows(one) == rows(two)

    @given(
        st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1)
    )
    def test_both_judge_any_view_alike(self, size: int, part: int, begin: int) -> None:
        """A view says where its part ends, so that nothing beside it is read."""

        def spoil(array: Any) -> None:
            numbers = (arrow_bytes.ctypes.c_int32 * 4).from_address(array.buffers[1] + 16)
            numbers[0], numbers[2], numbers[3] = size, part, begin

        given_ = [b"x" * 20, b"y" * 20, b"z" * 20]
        one = in_c(ArrowBytes(given_, "vz", spoil=spoil), "value")
        two = in_python(ArrowBytes(given_, "vz", spoil=spoil), "value")
        if isinstance(one, tuple) or isinstance(two, tuple):
            assert one == two
        else:
            assert rows(one) == rows(two)

    def test_a_stream_gives_its_arrays_one_by_one(self, column_of: Make) -> None:
        following = twin_column_of_stream if column_of is in_python else _native.arrow_column_of_stream
        capsule = (data := ArrowBytes(SHORT_AND_LONG, "vz", name="value", chunk=3))._as_stream()
        found = []
        while (column := following(capsule, "value")) is not None:
            found.append(rows(column))
        assert found == [SHORT_AND_LONG[:3], SHORT_AND_LONG[3:6], SHORT_AND_LONG[6:]]
        capsule = (data := ArrowBytes([b"x"], chunk=1, error="the disk is gone"))._as_stream()
        assert rows(following(capsule, "value")) == [b"x"]
        with pytest.raises(RuntimeError, match="the disk is gone"):
            following(capsule, "value")
        del data

    def test_the_array_is_released_once_and_not_before_the_column(self, column_of: Make) -> None:
        """The interface's rule: whoever takes it releases it; what was refused as well."""
        gc.collect()
        before = len(arrow_bytes._KEPT)
        column = column_of(ArrowBytes([b"x" * 100] * 10), "value")
        if column_of is in_c:
            assert len(arrow_bytes._KEPT) == before + 1
        assert rows(column) == [b"x" * 100] * 10
        del column
        assert len(arrow_bytes._KEPT) == before
        assert column_of(ArrowBytes([b"x"], nulls=[0]), "value")[0] == ArrowFault.NULL
        assert len(arrow_bytes._KEPT) == before

    def test_an_array_that_was_taken_is_not_taken_again(self, column_of: Make) -> None:
        data = ArrowBytes([b"x"])
        schema, array = data._as_array()
        make = twin_column if column_of is in_python else _native.arrow_column
        assert len(make(schema, array, "value")) == 1
        assert make(schema, array, "value")[0] == ArrowFault.UNSOUND

    def test_of_a_schema_that_was_taken_nothing_is_read(self, column_of: Make) -> None:
        """Whoever took it freed its names, so that not even a message may look at them; nor at children that it says to
        have, and has not."""

        def let_go(schema: Any) -> None:
            schema.n_children, schema.release = 2**40, type(schema.release)()

        make = twin_column if column_of is in_python else _native.arrow_column
        for spoil in (let_go, lambda schema: setattr(schema, "children", type(schema.children)())):
            data = ArrowBytes([b"x"], name="value")
            schema, array = data._as_array()
            spoil(data.held[0])
            assert make(schema, array, "value") == (ArrowFault.UNSOUND, 0, "")


def make_twin(ledger_id: int, **settings: Any) -> Packing:
    return TwinPacker(ledger_id, lock=threading.RLock(), **settings)


@pytest.mark.parametrize("make", [Packer, make_twin], ids=["c", "python"])
class TestRows:
    def test_rows_become_entries(self, make: Callable[..., Packing]) -> None:
        """P3.1: one entry for each row, ids densely, across columns and from any row on."""
        packer = make(7)
        given_ = rows_of(ArrowBytes(SHORT_AND_LONG, "vu", name="value", chunk=2), ArrowNames("value"))
        assert len(given_) == len(SHORT_AND_LONG)
        assert given_[-1] == b"last"
        assert packer.append_rows(given_.columns, 0, 1) == (0, 7, True)
        assert packer.append_rows(given_.columns, 3, 1) == (7, 4, False)
        assert packer.append_rows(given_.columns, 7, 1) == (11, 0, False)
        assert packer.append_rows((), 0, 1) == (11, 0, False)
        frame = packer.seal()
        assert frame is not None
        assert [bytes(entry.data) for entry in iter_entries(frame)] == SHORT_AND_LONG + SHORT_AND_LONG[3:]

    def test_nobody_appends_between_rows_that_found_no_room_for_all(
        self, make: Callable[..., Packing]
    ) -> None:
        """P3.1: as for many payloads; also where a column ends with the room."""
        packer = make(7, bytes_max=4 * (OVERHEAD + 100))
        given_ = rows_of(ArrowBytes([bytes(100)] * 10, "z", chunk=2), ArrowNames(""))
        assert packer.append_rows(given_.columns, 0, 5) == (0, 4, True)
        frame = packer.seal()
        assert frame is not None
        packer.release(frame)
        assert packer.append(b"another") == (-1, False)
        assert packer.append_rows(given_.columns, 4, 6)[1] == 0
        assert packer.append_rows(given_.columns, 4, 5) == (4, 4, True)
        frame = packer.seal()
        assert frame is not None
        packer.release(frame)
        assert packer.append_rows(given_.columns, 8, 5) == (8, 2, True)
        assert packer.append(b"another")[0] == 10

    def test_a_packer_that_stopped_takes_no_row(self, make: Callable[..., Packing]) -> None:
        packer = make(7)
        packer.stop()
        assert packer.append_rows(rows_of(ArrowBytes([b"x"]), ArrowNames("")).columns, 0, 1) == (0, 0, False)


def test_both_packers_make_the_same_bytes_of_rows() -> None:
    made = []
    for packer in (Packer(7, block_bytes=1500), make_twin(7, block_bytes=1500)):
        given_ = rows_of(
            ArrowBytes([b"%d" % n * (n % 40) for n in range(500)], "vz", chunk=77), ArrowNames("")
        )
        packer.append_rows(given_.columns, 9, 1)
        bodies = []
        while (frame := packer.seal()) is not None:
            bodies.append(bytes(frame.body))
        made.append(bodies)
    assert made[0] == made[1]


def test_a_tag_counts_for_the_limit_of_a_row() -> None:
    """P3.1: a ledger with tags holds less payload in an entry; rows over that are refused, and none is appended."""
    packer = TwinPacker(7, digest=1)
    with pytest.raises(UsageError, match="at most"):
        packer.append_rows(rows_of(ArrowBytes([b"x", bytes(ENTRY_BYTES_MAX)]), ArrowNames("")).columns, 0, 1)
    assert packer.next_entry == 0


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b"bytes", "value", "bytes is no Arrow data"),
        ([b"x"], "value", "list is no Arrow data"),
        (ArrowBytes([b"x"], name="payload"), "value", "no single column 'value' is there, but: payload"),
        (ArrowBytes([b"x"] * 3, nulls=[2]), "value", "row 2 of column 'value' is null"),
        (ArrowBytes([b"x"]), "a\0b", "the name of a column"),
        (ArrowBytes([b"x"]), None, "the name of a column"),
        (ArrowBytes([b"x"], chunk=1, error="torn"), "value", "the stream failed: torn"),
    ],
)
def test_what_is_no_column_of_values_says_so(data: Any, name: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        rows_of(data, ArrowNames(name))
    assert "nothing was appended" in str(refused.value)


def test_a_stream_that_was_taken_says_so() -> None:
    data = ArrowBytes([b"x"], chunk=1)
    capsule = data._as_stream()
    data.__arrow_c_stream__ = lambda requested_schema=None: capsule
    data.held[0].release = type(data.held[0].release)()
    with pytest.raises(UsageError, match="the stream was released; nothing was appended"):
        rows_of(data, ArrowNames("value"))


def test_a_packer_takes_columns_and_nothing_else() -> None:
    with pytest.raises(TypeError):
        Packer(7).append_rows(([b"x"],), 0, 1)  # type: ignore[arg-type]


def test_rows_are_sliced_at_their_beginning_without_a_copy() -> None:
    given_ = rows_of(ArrowBytes([b"%d" % n for n in range(6)], chunk=4), ArrowNames(""))
    assert [*given_[2:]] == [b"2", b"3", b"4", b"5"]
    assert [*given_[2:][3:]] == [b"5"]
    assert given_[2:].columns is given_.columns
    assert len(Rows(())) == 0
    with pytest.raises(IndexError):
        given_[6]
