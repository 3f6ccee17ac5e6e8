"""Keys, timestamps and headers of Arrow columns: C and its plain twin by one set of tests, then what packers make."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedbk import _native
from embedbk.codec.arrow_columns import rows_of
from embedbk.codec.arrow_columns_twin import ArrowArrayStruct, ArrowSchemaStruct
from embedbk.codec.arrow_rows import FAULTS_OF_A_COLUMN, ArrowFault, ArrowNames
from embedbk.codec.arrow_twin import twin_column
from embedbk.codec.attributes import encode_attributes
from embedbk.codec.entry_records import RECORDS_BYTES_MAX, EntryRecord, encode_records
from embedbk.codec.packer import Packer, Packing
from embedbk.codec.packer_twin import TwinPacker
from embedbk.config import ENTRY_BYTES_MAX
from embedbk.errors import UsageError

pa = pytest.importorskip("pyarrow")

NAMES = ArrowNames("value", "key", "timestamp", "headers")
KEY, TIMESTAMP, HEADERS = (FAULTS_OF_A_COLUMN * number for number in (1, 2, 3))
MAPS = {
    "map": pa.map_(pa.string(), pa.binary()),
    "list": pa.list_(pa.struct([("k", pa.binary()), ("v", pa.string_view())])),
    "large": pa.large_list(pa.struct([("k", pa.large_string()), ("v", pa.large_binary())])),
}

Make = Callable[..., Any]


def in_c(batch: Any, names: ArrowNames = NAMES) -> Any:
    return _native.arrow_column(*batch.__arrow_c_array__(), *names)


def in_python(batch: Any, names: ArrowNames = NAMES) -> Any:
    return twin_column(*batch.__arrow_c_array__(), *names)


@pytest.fixture(params=[in_c, in_python], ids=["c", "python"])
def column_of(request: pytest.FixtureRequest) -> Make:
    make: Make = request.param
    return make


def batch_of(records: list[EntryRecord], form: str = "map") -> Any:
    """As columns; a record without headers is a null, every other time an empty map."""
    headers: list[Any] = []
    for number, record in enumerate(records):
        pairs: Any = [
            (name.encode() if form == "list" else name, value) for name, value in record.headers.items()
        ]
        if form == "list":
            pairs = [{"k": name, "v": value.decode()} for name, value in pairs]
        elif form == "large":
            pairs = [{"k": name, "v": value} for name, value in pairs]
        headers.append(pairs if pairs or number % 2 else None)
    return pa.record_batch(
        {
            "value": pa.array([record.value for record in records], pa.binary()),
            "key": pa.array([record.key for record in records], pa.large_binary()),
            "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
            "headers": pa.array(headers, MAPS[form]),
        }
    )


def expected(records: list[EntryRecord]) -> list[bytes]:
    return [encode_attributes(records=encode_records([record])) for record in records]


def told(column: Any) -> list[bytes]:
    assert not isinstance(column, tuple), column
    return [column.attribute(row) for row in range(len(column))]


SOME = [
    EntryRecord(b"bare"),
    EntryRecord(b"", b"key"),
    EntryRecord(b"v", None, 0),
    EntryRecord(b"v", b"", 2**63 - 1, {"b": b"2", "a": b"", "ab": b"x" * 40}),
    EntryRecord(b"last", headers={"only": b"one"}),
]
TEXT = st.text("abcXYZ~!", min_size=1, max_size=3)
RECORD = st.builds(
    EntryRecord,
    st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.none() | st.integers(0, 2**63 - 1),
    st.dictionaries(TEXT, st.text("xyz", max_size=4).map(str.encode), max_size=4),
)


class TestBeside:
    @pytest.mark.parametrize("form", MAPS)
    def test_what_stands_beside_a_value_is_the_attribute_of_its_record(
        self, column_of: Make, form: str
    ) -> None:
        """An entry by `append_arrow` has the bytes of the same entry by `append(EntryRecord(...))`."""
        column = column_of(batch_of(SOME, form))
        assert told(column) == expected(SOME)
        assert column.has_records
        assert [column[row] for row in range(len(SOME))] == [record.value for record in SOME]
        assert column.byte_count == sum(len(r.value) for r in SOME) + sum(map(len, expected(SOME)))
        assert column.largest == max(len(r.value) + len(e) for r, e in zip(SOME, expected(SOME), strict=True))

    @given(st.lists(RECORD, max_size=9), st.sampled_from(list(MAPS)), st.integers(0, 9), st.integers(0, 9))
    def test_any_slice_of_any_records(
        self, records: list[EntryRecord], form: str, begin: int, count: int
    ) -> None:
        """A slice has the buffers of the whole: of maps, and of the pairs in them, too."""
        batch = batch_of(records, form).slice(min(begin, len(records)), count)
        wanted = expected(records[begin : begin + count])
        assert told(in_c(batch)) == told(in_python(batch)) == wanted

    def test_columns_that_nobody_names_are_left_alone(self, column_of: Make) -> None:
        """Rows of which none has anything are values alone: no attribute is made for them."""
        assert not column_of(batch_of(SOME), ArrowNames("value")).has_records
        bare = [EntryRecord(b"a"), EntryRecord(b"b")]
        assert not column_of(batch_of(bare)).has_records
        keys_only = column_of(batch_of(SOME), ArrowNames("value", key="key"))
        assert told(keys_only) == expected([EntryRecord(r.value, r.key) for r in SOME])

    @pytest.mark.parametrize(
        ("kind", "given_", "ms"),
        [("s", 3, 3000), ("ms", 1234, 1234), ("us", 1999, 1), ("ns", 2_999_999, 2)],
    )
    def test_a_time_of_arrow_is_told_in_ms(self, column_of: Make, kind: str, given_: int, ms: int) -> None:
        """Fractions of a ms are left off, whatever the time zone is called."""
        for zone in (None, "Europe/Berlin"):
            batch = pa.record_batch(
                {"value": [b"v", b"v"], "t": pa.array([given_, None], pa.timestamp(kind, zone))}
            )
            column = column_of(batch, ArrowNames("value", timestamp="t"))
            assert told(column) == expected([EntryRecord(b"v", None, ms), EntryRecord(b"v")])

    def test_a_column_of_nulls_alone_is_no_column(self, column_of: Make) -> None:
        """Data frames have such where nobody has a key: its type says nothing."""
        batch = pa.record_batch({"value": [b"v"], "a": pa.nulls(1), "b": pa.nulls(1), "c": pa.nulls(1)})
        assert not column_of(batch, ArrowNames("value", "a", "b", "c")).has_records
        assert column_of(batch, ArrowNames("a"))[0] == ArrowFault.FORMAT

    def test_what_no_record_can_have_is_refused_with_its_column_and_row(self, column_of: Make) -> None:
        """Refused before anything is appended: which column, which row, why."""

        def of(**columns: Any) -> Any:
            given_ = {name: values for name, values in columns.items() if values is not None}
            first = next(iter(given_.values()))
            batch = pa.record_batch({"value": [b"v"] * len(first), **given_})
            return column_of(
                batch, ArrowNames("value", *(name if name in given_ else None for name in NAMES[1:]))
            )

        def maps(*rows: Any) -> Any:
            return pa.array([[], *rows], MAPS["map"])

        long, largest = b"k" * RECORDS_BYTES_MAX, pa.array([2**61], pa.timestamp("s"))
        structs = pa.array([[{"k": b"n", "v": "x"}, None]], MAPS["list"])
        cases = [
            (of(key=pa.array([b"", long])), (KEY + ArrowFault.BESIDE, 1)),
            (of(key=pa.array([long[:-4], b""])), None),
            (of(key=pa.array([long[:-5]]), timestamp=pa.array([1])), (TIMESTAMP + ArrowFault.BESIDE, 0)),
            (of(key=pa.array([1])), (KEY + ArrowFault.FORMAT, 0)),
            (of(timestamp=pa.array([None, -1])), (TIMESTAMP + ArrowFault.TIME, 1)),
            (of(timestamp=largest), (TIMESTAMP + ArrowFault.TIME, 0)),
            (of(timestamp=pa.array([1], pa.int32())), (TIMESTAMP + ArrowFault.FORMAT, 0)),
            (of(timestamp=pa.array([1], pa.date64())), (TIMESTAMP + ArrowFault.FORMAT, 0)),
            (of(headers=pa.array([b"x"])), (HEADERS + ArrowFault.FORMAT, 0)),
            (of(headers=pa.array([[1]])), (HEADERS + ArrowFault.FORMAT, 0)),
            (of(headers=pa.array([[]], pa.map_(pa.string(), pa.int8()))), (HEADERS + ArrowFault.FORMAT, 0)),
            (of(headers=maps([("a b", b"")])), (HEADERS + ArrowFault.NAME, 1)),
            (of(headers=maps([("", b"")])), (HEADERS + ArrowFault.NAME, 1)),
            (of(headers=maps([("n" * 256, b"")])), (HEADERS + ArrowFault.NAME, 1)),
            (of(headers=maps(None, [("a", b"1"), ("b", b""), ("a", b"")])), (HEADERS + ArrowFault.TWICE, 2)),
            (of(headers=maps([("a", b"1"), ("b", None)])), (HEADERS + ArrowFault.NULL, 1)),
            (of(headers=structs), (HEADERS + ArrowFault.NULL, 0)),
            (of(headers=maps([(f"n{n}", b"") for n in range(256)])), (HEADERS + ArrowFault.MANY, 1)),
            (of(headers=maps([(f"n{n}", b"") for n in range(255)])), None),
            (of(headers=maps([("n", long)])), (HEADERS + ArrowFault.BESIDE, 1)),
            (of(headers=maps([("n", long[:-5])])), (HEADERS + ArrowFault.BESIDE, 1)),
            (of(headers=maps([("n", long[:-6])])), None),
            (of(headers=maps([("n", long[:-7]), ("m", b"")])), (HEADERS + ArrowFault.BESIDE, 1)),
        ]
        for number, (found, wanted) in enumerate(cases):
            if wanted is None:
                assert not isinstance(found, tuple), (number, found)
            else:
                assert isinstance(found, tuple), number
                assert found[:2] == wanted, (number, found)

    def test_value_and_key_share_the_room_of_an_entry(self, column_of: Make) -> None:
        most = ENTRY_BYTES_MAX - 4 - 2 - 2 - 1
        for size, is_sound in ((most, True), (most + 1, False)):
            batch = pa.record_batch({"value": [b"", bytes(size)], "key": [None, b"k"]})
            found = column_of(batch, ArrowNames("value", "key"))
            assert (not isinstance(found, tuple)) == is_sound
            assert is_sound or found[:2] == (ArrowFault.TOGETHER, 1)

    @given(st.data())
    def test_both_judge_spoilt_numbers_alike(self, data: st.DataObject) -> None:
        """Numbers that no array has, in a column, its pairs or their columns: nothing is read that is not there."""
        batch = batch_of(SOME, data.draw(st.sampled_from(list(MAPS))))
        path = data.draw(st.sampled_from([(1,), (2,), (3,), (3, 0), (3, 0, 0), (3, 0, 1)]))
        field = data.draw(st.sampled_from(["length", "offset", "n_buffers", "n_children", "buffers"]))
        number = data.draw(st.integers(-2, 6))
        found = []
        for make in (_native.arrow_column, twin_column):
            schema, array = batch.__arrow_c_array__()
            copy = Copy(array)
            copy.spoil(path, field, number)
            column = make(schema, copy.capsule, *NAMES)
            found.append(column if isinstance(column, tuple) else told(column))
            del column
        assert found[0] == found[1]


_calls: Any = ctypes.pythonapi
_calls.PyCapsule_GetPointer.restype = ctypes.c_void_p
_calls.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_calls.PyCapsule_New.restype = ctypes.py_object
_calls.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_RELEASE: Any = {field[0]: field[1] for field in ArrowArrayStruct._fields_}["release"]


def _let_go(array: Any) -> None:
    array.contents.release = _RELEASE()


class Copy:
    """The structs of an array once more, over the same buffers: ours to spoil, as the producer keeps its own."""

    _release = _RELEASE(_let_go)

    def __init__(self, capsule: Any) -> None:
        self._kept: list[Any] = [capsule]
        self._whole = self._copy(
            ArrowArrayStruct.from_address(_calls.PyCapsule_GetPointer(capsule, b"arrow_array"))
        )
        self.capsule = _calls.PyCapsule_New(ctypes.addressof(self._whole), b"arrow_array", None)

    def _copy(self, array: Any) -> Any:
        count = array.n_children
        children = (ctypes.POINTER(ArrowArrayStruct) * max(1, count))(
            *(ctypes.pointer(self._copy(array.children[at].contents)) for at in range(count))
        )
        buffers = (ctypes.c_void_p * array.n_buffers)(*(array.buffers[at] for at in range(array.n_buffers)))
        made = ArrowArrayStruct(
            array.length, array.null_count, array.offset, array.n_buffers, count,
            ctypes.cast(buffers, ctypes.POINTER(ctypes.c_void_p)),
            ctypes.cast(children, ctypes.POINTER(ctypes.POINTER(ArrowArrayStruct))), release=self._release,
        )  # fmt: skip
        self._kept += [children, buffers, made]
        return made

    def spoil(self, path: tuple[int, ...], field: str, number: int) -> None:
        """Tell a number otherwise than it is, but none by which a reader would be led out of its buffers: how long
        those are, no reader can know."""
        array = self._whole
        for child in path:
            array = array.children[child].contents
        if field == "buffers":
            if 0 < number < array.n_buffers:
                array.buffers[number] = None
        elif field == "offset":
            array.offset = min(number, 0)
        else:
            setattr(array, field, min(number, getattr(array, field)))


@pytest.mark.parametrize("make", [Packer, TwinPacker])
def test_rows_with_keys_become_the_entries_that_records_become(make: Callable[..., Packing]) -> None:
    """P3.1: also where they find no room half-way."""
    records = [EntryRecord(b"%d" % n * (n % 9), b"k%d" % n if n % 3 else None, n or None) for n in range(300)]
    batch = batch_of(records)
    bodies = []
    for way in ("rows", "records"):
        packer = make(7, bytes_max=4000)
        body, done = b"", 0
        while done < len(records):
            if way == "rows":
                rows = rows_of(batch, NAMES)[done:]
                _, taken, _ = packer.append_rows(rows.columns, rows.begin, 1)
            else:
                left = records[done:]
                _, taken, _ = packer.append_many([r.value for r in left], 1, expected(left))
            done += taken
            while (frame := packer.seal()) is not None:
                body += bytes(frame.body)
                packer.release(frame)
        bodies.append(body)
    assert bodies[0] == bodies[1]


def test_a_refusal_names_column_and_row() -> None:
    batch = pa.record_batch({"value": [b"v"], "key": [b"k"], "t": [-5]})
    mine: Mapping[str, str] = {"timestamp": "t"}
    with pytest.raises(UsageError, match="row 0 of column 't' is no time: ms since 1970"):
        rows_of(batch, ArrowNames("value", **mine))
    with pytest.raises(UsageError, match="no single column 'kee' is there, but: value, key, t; nothing"):
        rows_of(batch, ArrowNames("value", key="kee"))
    with pytest.raises(
        UsageError, match="column 'key' has the Arrow format 'z': a timestamp is allowed, or int64"
    ):
        rows_of(batch, ArrowNames("value", timestamp="key"))
    for key in (3, "a\0b", "\ud800"):
        with pytest.raises(UsageError, match=r"key=.*: the name of a column is allowed"):
            rows_of(batch, ArrowNames("value", key=key))  # type: ignore[arg-type]


def test_a_schema_of_another_shape_is_refused(column_of: Make) -> None:
    """A map whose pairs have three columns, by hand: no library makes one."""
    batch = batch_of(SOME)
    schema, array = batch.__arrow_c_array__()
    own = ArrowSchemaStruct.from_address(_calls.PyCapsule_GetPointer(schema, b"arrow_schema"))
    pairs = own.children[3].contents.children[0].contents
    pairs.n_children = 3
    found = (twin_column if column_of is in_python else _native.arrow_column)(schema, array, *NAMES)
    pairs.n_children = 2
    assert found[:2] == (HEADERS + ArrowFault.FORMAT, 0)
