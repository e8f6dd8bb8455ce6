"""A thread for each call that may have to be given up. Apart from stages, which know no threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def on_own_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a thread of its own and return what it returns, or raise what it raises.

    If nothing awaits it any more, the thread is left to end alone: it keeps no other from starting, nor the
    process from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(returned: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((returned, error))

    def work() -> None:
        returned, failed = None, None
        try:
            returned = context.run(function, *arguments)
        except BaseException as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing awaits it any more
            loop.call_soon_threadsafe(settle, returned, failed)

    threading.Thread(target=work, name="everstep-stage", daemon=True).start()
    returned, failed = await done
    if failed is not None:
        raise failed
    return returned
