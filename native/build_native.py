"""Build `embedbk._native`: every C file of the folders here as one cffi extension (API mode, abi3).

Two ways in:

- setuptools, by `cffi_modules=["native/build_native.py:ffi"]` in setup.py;
- `python native/build_native.py`, which puts the module into the tree it stands in.

What Python may call stands in the headers, between the lines `/* cffi:begin */` and `/* cffi:end */`; the
error codes come from the one list in base/errors.h. So there is no second list to keep in step: a new C file or a new
function needs no edit here.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import cffi

# cffi runs this file by exec with __file__ set to the path it was given, relative to the project.
NATIVE = Path(__file__).resolve().parent
PROJECT = NATIVE.parent
MODULE = "embedbk._native"

# No -march: the module runs on any machine of the family; kernels choose at run time (target attributes).
COMPILE_ARGS = ["-std=gnu11", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"]
# For us a warning is an error; for a user who installs, a newer compiler must not stand in the way.
if __name__ == "__main__" or os.environ.get("CI"):
    COMPILE_ARGS.append("-Werror")
LINK_ARGS = ["-pthread"]
STABLE_ABI = "0x030B0000"  # CPython 3.11, the oldest that embedbk runs on.

_DECLARED = re.compile(r"/\* cffi:begin \*/\n(.*?)/\* cffi:end \*/", re.DOTALL)
_SHORT = re.compile(r"\bEBK_SHORT\s+[\w\s*]*?\b(ebk_\w+)\(")
_ERROR = re.compile(r"EBK_ERROR\((EBK_\w+),")


def declarations() -> str:
    """What Python sees of every header, and the error codes as constants."""
    codes = ["EBK_OK", *_ERROR.findall((NATIVE / "base" / "errors.h").read_text())]
    parts = [f"#define {code} ..." for code in codes]
    for header in sorted(NATIVE.glob("*/*.h")):
        parts += _DECLARED.findall(header.read_text())
    return re.sub(r"\bEBK_SHORT\b", "", "\n".join(parts))


def includes() -> str:
    """The C preamble: every header, so that cffi checks each declaration against the real one."""
    headers = sorted(NATIVE.glob("*/*.h"))
    return "\n".join([f'#include "{header.relative_to(NATIVE)}"' for header in headers] + [keep_gil(headers)])


def keep_gil(headers: list[Path]) -> str:
    """What makes cffi keep the GIL around functions that are marked EBK_SHORT (gil.h says why).

    cffi has no such option; but it writes one C function per call, named after it, around these two macros.
    The comparisons are constant: the compiler removes them.
    """
    names = [name for header in headers for name in _SHORT.findall(header.read_text())]
    tests = " || ".join(f'!strcmp(wrapper, "_cffi_f_{name}")' for name in names)
    return f"""
#include <string.h>
static inline int ebk_is_short(const char *wrapper) {{ return {tests}; }}
#undef Py_BEGIN_ALLOW_THREADS
#undef Py_END_ALLOW_THREADS
#define Py_BEGIN_ALLOW_THREADS {{ PyThreadState *_save = ebk_is_short(__func__) ? NULL : PyEval_SaveThread();
#define Py_END_ALLOW_THREADS if (_save != NULL) PyEval_RestoreThread(_save); }}
"""


def sources() -> list[str]:
    """Paths relative to the project: setuptools refuses others."""
    return [f"native/{source.relative_to(NATIVE)}" for source in sorted(NATIVE.glob("*/*.c"))]


def make_ffi() -> cffi.FFI:
    builder = cffi.FFI()
    builder.cdef(declarations())
    builder.set_source(
        MODULE,
        includes(),
        sources=sources(),
        include_dirs=["native"],
        depends=[f"native/{header.relative_to(NATIVE)}" for header in sorted(NATIVE.glob("*/*.h"))],
        define_macros=[("Py_LIMITED_API", STABLE_ABI)],
        extra_compile_args=COMPILE_ARGS,
        extra_link_args=LINK_ARGS,
        py_limited_api=True,
    )
    return builder


ffi = make_ffi()


def build_in_place() -> Path:
    """Compile into the tree (`embedbk/_native.abi3.so`), for development; skips what is up to date."""
    from setuptools import Distribution

    os.chdir(PROJECT)
    distribution = Distribution(
        {
            "name": "embedbk",
            "packages": ["embedbk"],
            "cffi_modules": ["native/build_native.py:ffi"],
            "script_args": ["--quiet", "build_ext", "--inplace", "--build-temp", "build/native"],
        }
    )
    distribution.parse_command_line()
    distribution.run_commands()
    return PROJECT / "embedbk" / "_native.abi3.so"


if __name__ == "__main__":
    sys.stdout.write(f"{build_in_place()}\n")
