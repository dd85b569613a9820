"""A program: the command line, with no more rights to files than their modes give, also where root runs the tests; and
without HOME, for a user who is in no list, as in a container with `--user 12345`."""

import ctypes
import os
import pwd
import struct
import sys

from journeyman.cli import main

_VERSION = 0x20080522
"""Of the layout of capabilities that Linux knows."""

if __name__ == "__main__":
    if sys.platform == "linux" and os.geteuid() == 0:
        failed = ctypes.CDLL(None).capset(struct.pack("=Ii", _VERSION, 0), struct.pack("=6I", *[0] * 6))
        assert not failed, "the rights of root cannot be given up"
    if "HOME" not in os.environ:
        nobody: dict[int, pwd.struct_passwd] = {}
        pwd.getpwuid = nobody.__getitem__
    main()
