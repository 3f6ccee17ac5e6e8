"""How an error of embedbk reaches the driver: as its sentence, with next to no stack in front of it.

Spark sends what failed in one of its Python processes as text, the whole stack first, and cuts long ones: Spark Connect
behind 2,048 characters or so, where the sentence that says what to do would come.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from embedbk.errors import EmbedbkError

__all__ = ["briefly"]

P = ParamSpec("P")
R = TypeVar("R")


def briefly(method: Callable[P, R]) -> Callable[P, R]:
    """The same method, whose errors of embedbk have lost the stack below it, and what they came from."""
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def rows(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
            try:
                yield from method(*args, **kwargs)
            except EmbedbkError as error:
                raise error.with_traceback(None) from None

        return cast(Callable[P, R], rows)

    @wraps(method)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except EmbedbkError as error:
            raise error.with_traceback(None) from None

    return answer
