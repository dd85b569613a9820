"""Lines of the command line, one after the other in one process: for those that end before anything goes on.

The warm process runs it with the lines as JSON, and it prints how each ended.
"""

import json
import os
import sys
import tempfile

from journeyman import cli

printed = os.fdopen(os.dup(1), "w", encoding="utf-8")
ended: list[list[object]] = []
for words in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        os.dup2(stdout.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
        sys.argv = ["journeyman", *words]
        code: object = None
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [os.pread(file.fileno(), 1_000_000, 0).decode() for file in (stdout, stderr)]
    ended.append([code, *texts])
with printed:
    json.dump(ended, printed)
os._exit(0)  # at once: forgetting all modules takes longer than a line
