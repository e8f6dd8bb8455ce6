"""A flow whose node says much, in every way that there is, and fails."""

from __future__ import annotations

import logging
import sys
import threading
import warnings

from everstep import Context, Flow, Retry, node


def look() -> int:
    logging.getLogger("shop.look").warning("in the durable call")
    return 1


def dies() -> None:
    raise KeyError("lost")


@node(output="said", retry=Retry(1, first=0.01))
def speak(token: str, ctx: Context) -> int:
    if ctx.attempt == 2:
        logging.getLogger("shop.again").warning("again")
        raise ValueError("no\nway")
    logging.getLogger("shop").warning("in the node: password=%s", "hunter2")
    print("printed")
    print("to stderr", file=sys.stderr)
    warnings.warn(f"careful with {token}", stacklevel=1)
    thread = threading.Thread(target=dies)
    thread.start()
    thread.join()
    ctx.step("look", look)
    raise ValueError("not yet")


talks = Flow("talks", [speak])
