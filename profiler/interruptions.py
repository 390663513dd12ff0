"""What interrupts the user's program while code of ours runs in it goes on to the program.

try:
    attach(pipeline)
except Exception as error:
    let_pass(error)     # of a signal's handler of the program's: raised again
    recorder.lose(…)    # ours: a drop
"""

from __future__ import annotations

import inspect
import opcode
from types import FrameType

__all__ = ["let_pass"]

_RAISES = {opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]}
_WORDLESS = (MemoryError, StopIteration, StopAsyncIteration)
"""What C code raises without arguments."""
_CAUSES = 8  # that are looked at: they may go in a circle


def let_pass(error: BaseException) -> None:
    """Raise what the user's program was interrupted by, where that is `error` or a cause of it (the
    `TimeoutError` of a handler is an `OSError` to whoever writes a file). Nothing happens where
    `error` is of what ran: ours, a library's, or of a property of the user's that only we asked.

    A function was called by an interruption where it was given the very frame that it interrupts,
    as signal handlers and trace functions are. An exception that another thread has set
    (`PyThreadState_SetAsyncExc`) has no such frame; it has no arguments either, and no `raise`
    stands where it came up. What a handler written in C raises with arguments is not told apart.
    """
    found: BaseException | None = error
    for _ in range(_CAUSES):
        if found is None:
            return
        if not isinstance(found, Exception) or _interrupted(found):
            raise found
        found = found.__cause__


def _interrupted(error: Exception) -> bool:
    below: FrameType | None = None
    entry = last = error.__traceback__
    while entry is not None:
        if below is not None and _was_given(entry.tb_frame, below):
            return True
        below, last, entry = entry.tb_frame, entry, entry.tb_next
    wordless = isinstance(error, _WORDLESS) or type(error).__module__ == "_queue"  # its Empty
    if last is None or error.args or wordless:
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] not in _RAISES


def _was_given(frame: FrameType, below: FrameType) -> bool:
    """Whether `below` is an argument of the function that runs in `frame`."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        count += 1
    given = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    return any(
        value is below or (type(value) is tuple and any(one is below for one in value))
        for value in given
    )
