"""Passes stdin, stdout, stderr, environment and folder to a `journeyman`, or to another program, that the warm process
forks; ends as it does.

For those who want to start a server by a command, and not by a function.
"""

import json
import os
import socket
import struct
import sys

address, program, *words = sys.argv[1:]
order = {
    "words": words,
    "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes long to import
    "environment": dict(os.environ),
    "has_terminal": False,
    "program": program,
}
with socket.socket(socket.AF_UNIX) as link:
    link.connect(address)
    socket.send_fds(link, [json.dumps(order).encode() + b"\n"], [0, 1, 2])
    os.close(0)
    os.close(1)
    link.recv(4, socket.MSG_WAITALL)  # the process id
    (code,) = struct.unpack("i", link.recv(4, socket.MSG_WAITALL))
os._exit(code if code >= 0 else 128 - code)
