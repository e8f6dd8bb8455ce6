"""A command that the process of `warm.py` runs: `python -IS warm_command.py -m everstep runs`.

It imports next to nothing, hands its own files over, passes signals on, and ends as the program ends.
"""

import json
import os
import signal
import socket
import sys


def main() -> int:
    line = socket.socket(fileno=int(os.environ["WARM_LINE"]))
    ends, given = os.pipe()
    told = {"words": sys.argv[1:], "cwd": os.path.realpath("."), "env": dict(os.environ), "session": False}
    socket.send_fds(line, [json.dumps(told).encode()], [0, 1, 2, given])
    os.close(given)
    with os.fdopen(ends, "rb") as told_back:
        pid = int(told_back.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(told_back.readline())
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


os._exit(main())
