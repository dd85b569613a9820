"""The command line, or a module of its user, where a package is not installed: that one is the first word.

The warm process runs it. All of ours is loaded anew, so whatever needs the package finds it missing.
"""

import sys
from importlib import import_module

missing, *words = sys.argv[1:]
for name in [*sys.modules]:
    if name.partition(".")[0] in ("journeyman", missing):
        del sys.modules[name]
sys.modules[missing] = None  # pyright: ignore[reportArgumentType] - as Python marks what is not there
if words[0] == "import":
    sys.path.insert(0, ".")
    import_module(words[1])
else:
    sys.argv = ["journeyman", *words]
    import_module("journeyman.cli").main()
