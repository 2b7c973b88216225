"""Turns whatever a component raises into an error of ours: traceback to the log, nothing of the request kept alive."""

from __future__ import annotations

import logging
import traceback

from mstar_plan.errors import ComponentError, MStarError

_log = logging.getLogger(__name__)


def as_error(where: str, raised: BaseException) -> MStarError:
    """The error that the request ends with.

    Our own errors pass as they are; any other becomes a ComponentError that names `where` and is chained to it.
    Tracebacks go to the log, as text: in the error they would keep the call's tensors alive.
    """
    if isinstance(raised, MStarError):
        _log.debug("%s refused: %s", where, raised)
        _forget_frames(raised)
        return raised
    _log.error("%s failed\n%s", where, "".join(traceback.format_exception(raised)).rstrip())
    error = ComponentError(f"{where} failed: {type(raised).__name__}: {raised}")
    error.__cause__ = raised
    _forget_frames(error)
    return error


def _forget_frames(error: BaseException) -> None:
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        todo += [one.__cause__, one.__context__]
