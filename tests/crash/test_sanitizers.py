"""The C code under address, undefined-behaviour and thread sanitizers.

`./run check` runs this file; `--fuzz-inputs N` gives the fuzzer more to do.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
NATIVE = PROJECT / "native"
BY_NAME = {source.stem: source for source in sorted(NATIVE.glob("*/*.c"))}


def named(names: str) -> list[Path]:
    return [BY_NAME[name] for name in names.split()]


JOURNAL = sorted(NATIVE.glob("journal/journal*.c"))
SOURCES = [
    *sorted(NATIVE.glob("io/*.c")),
    *named("errors crc32c"),
    *(path for path in JOURNAL if path.stem != "journals"),
]
ADD_PATH_SOURCES = [
    *SOURCES,
    *sorted(NATIVE.glob("store/store*.c")),
    *named("add_path frame journals lac_path message_reader parked table table_states tail_path xxh3"),
]
ADDS_SOURCES = [
    *ADD_PATH_SOURCES,
    *named("ahead answers block_pool in_flight link_adds link_tray links near seat turns"),
    *named("packer packer_append packer_entry packer_sums"),
    *named("loop_wait wait_set zmq_accepted zmq_calls zmq_dialled zmq_send"),
]
STORE_SOURCES = [source for source in BY_NAME.values() if "Python.h" not in source.read_text()]
SEEDS = ("1", "2", "3")

compiler = shutil.which("gcc") or shutil.which("cc")


def build(sanitizer: str, target: Path, *sources: Path) -> subprocess.CompletedProcess[str]:
    flags = ["-std=gnu11", "-g", "-O1", "-pthread", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    command = [compiler, *flags, f"-I{NATIVE}", *sources, "-o", target]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


@pytest.fixture(params=["address,undefined", "thread"])
def sanitizer(request, tmp_path):
    """A sanitizer that works here: its library is there, and it can start under this kernel."""
    if compiler is None:
        pytest.skip("no C compiler here")
    nothing = tmp_path / "nothing.c"
    nothing.write_text("int main(void) { return 0; }\n")
    works = build(request.param, tmp_path / "nothing", nothing).returncode == 0
    if not works or subprocess.run([tmp_path / "nothing"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"the compiler's {request.param} sanitizer does not run here")
    return request.param


def test_lives_rotten_files_and_threads_leave_the_sanitizers_silent(sanitizer, tmp_path):
    """Torn writes, power cuts, files changed at will, two submitters beside the journal's own threads."""
    program = tmp_path / "journal_check"
    built = build(sanitizer, program, PROJECT / "tests" / "crash" / "journal_check.c", *SOURCES)
    assert built.returncode == 0, built.stderr
    for seed in SEEDS:
        run = subprocess.run([program, seed], capture_output=True, text=True, timeout=300, check=False)
        assert (run.returncode, run.stderr) == (0, ""), f"seed {seed}: {run.stderr[:4000]}"


def test_the_add_path_reads_no_byte_too_far(sanitizer, tmp_path):
    """P3.2, T10: adds that are cut short or turned over in blocks of their exact size, a failed disk."""
    program = tmp_path / "add_path_check"
    built = build(sanitizer, program, PROJECT / "tests" / "crash" / "add_path_check.c", *ADD_PATH_SOURCES)
    assert built.returncode == 0, built.stderr
    for seed in SEEDS:
        run = subprocess.run([program, seed], capture_output=True, text=True, timeout=300, check=False)
        assert (run.returncode, run.stderr) == (0, ""), f"seed {seed}: {run.stderr[:4000]}"


def test_adds_past_messages_and_threads_leave_the_sanitizers_silent(sanitizer, tmp_path):
    """P3.2, P3.3: three threads of users, a loop, three journals; the shortcut ends, and disks fail."""
    program = tmp_path / "near_adds_check"
    check = PROJECT / "tests" / "crash" / "near_adds_check.c"
    built = build(sanitizer, program, check, *ADDS_SOURCES)
    assert built.returncode == 0, built.stderr
    for seed in SEEDS:
        run = subprocess.run([program, seed], capture_output=True, text=True, timeout=300, check=False)
        assert (run.returncode, run.stderr) == (0, ""), f"seed {seed}: {run.stderr[:4000]}"


def test_adds_over_links_and_hostile_answers_leave_the_sanitizers_silent(sanitizer, tmp_path):
    """P3.2, P3.3, P3.8: threads of users, a loop, a thread that sends by reference; what was not asked never counts,
    and the core gets back what is not answered by all."""
    program = tmp_path / "link_adds_check"
    check = PROJECT / "tests" / "crash" / "link_adds_check.c"
    built = build(sanitizer, program, check, *ADDS_SOURCES)
    assert built.returncode == 0, built.stderr
    for seed in SEEDS:
        run = subprocess.run([program, seed], capture_output=True, text=True, timeout=300, check=False)
        assert (run.returncode, run.stderr) == (0, ""), f"seed {seed}: {run.stderr[:4000]}"


@pytest.mark.parametrize("sanitizer", ["address,undefined"], indirect=True)
def test_arrow_columns_of_chance_are_read_within_their_buffers(sanitizer, tmp_path):
    """P3.1: what a column's numbers say is looked at before a byte is read; sliced, with nulls, from any row on,
    with keys, times and headers beside it."""
    program = tmp_path / "arrow_check"
    sources = named(
        "arrow_beside arrow_column packer packer_append packer_entry packer_sums block_pool crc32c errors"
    )
    built = build(sanitizer, program, PROJECT / "tests" / "crash" / "arrow_check.c", *sources)
    assert built.returncode == 0, built.stderr
    for seed in SEEDS:
        run = subprocess.run([program, seed], capture_output=True, text=True, timeout=300, check=False)
        assert (run.returncode, run.stderr) == (0, ""), f"seed {seed}: {run.stderr[:4000]}"


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("sanitizer", ["address,undefined"], indirect=True)
def test_no_input_makes_a_reader_read_outside_or_answer_wrongly(sanitizer, tmp_path, request):
    """I31, I41, I42: frame decoder, journal reader, entry-log scanner, index and scrub, on bytes of chance."""
    program = tmp_path / "fuzz_check"
    built = build(sanitizer, program, PROJECT / "tests" / "crash" / "fuzz_check.c", *STORE_SOURCES)
    assert built.returncode == 0, built.stderr
    inputs = str(request.config.getoption("--fuzz-inputs"))
    for seed in SEEDS:
        run = subprocess.run(
            [program, inputs, seed], capture_output=True, text=True, timeout=3600, check=False
        )
        assert (run.returncode, run.stderr) == (0, ""), f"seed {seed}: {run.stderr[:4000]}"
