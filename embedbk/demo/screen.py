"""What a spectator sees: what happens, how far it is, and the table at the end.

Bars by `rich` where it is installed and stderr is a terminal, else plain lines. Everything goes to stderr but the
table; so standard output holds the result and nothing else.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

__all__ = ["PlainScreen", "RichScreen", "Screen", "open_screen", "print_table"]

Rows = Sequence[tuple[str, str]]


class Screen(ABC):
    """Shows one thing after another; a bar at a time."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Something happened."""

    @abstractmethod
    def begin(self, what: str, total: int) -> None:
        """Something begins that takes its time."""

    @abstractmethod
    def move(self, done: int) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """No bar any more; may be called twice."""


class PlainScreen(Screen):
    """A line for each tenth."""

    def __init__(self) -> None:
        self._what, self._total, self._tenth = "", 0, 0

    def say(self, text: str) -> None:
        print(f"demo: {text}", file=sys.stderr, flush=True)

    def begin(self, what: str, total: int) -> None:
        self._what, self._total, self._tenth = what, max(1, total), 0

    def move(self, done: int) -> None:
        tenth = 10 * done // self._total
        if tenth > self._tenth:
            self._tenth = tenth
            self.say(f"{self._what}: {done:,} of {self._total:,}")

    def close(self) -> None:
        self._what = ""


class RichScreen(Screen):
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task: Any = None
        self._progress.start()

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def begin(self, what: str, total: int) -> None:
        self._task = self._progress.add_task(what, total=total)

    def move(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def close(self) -> None:
        self._progress.stop()


def open_screen() -> Screen:
    if sys.stderr.isatty():
        try:
            return RichScreen()
        except ImportError:
            pass
    return PlainScreen()


def print_table(rows: Rows) -> None:
    """Names and values, on standard output."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            pass
        else:
            table = Table(show_header=False)
            table.add_column()
            table.add_column(justify="right")
            for name, value in rows:
                table.add_row(name, value)
            Console().print(table)
            return
    width = max(len(name) for name, _ in rows)
    values = max(len(value) for _, value in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value:>{values}}")
