"""The command line, or a program, where a package is not installed: that one is the first word.

The warm process runs it. All of ours is loaded anew, so whatever needs the package finds it missing.
"""

import sys
from importlib import import_module

missing, *words = sys.argv[1:]
for name in [*sys.modules]:
    if f"{name}.".startswith(("journeyman.", f"{missing}.")):
        del sys.modules[name]
sys.modules[missing] = None  # pyright: ignore[reportArgumentType] - as Python marks what is not there
if words[:1] == ["-c"]:
    try:
        exec(words[1], {})
    except Exception as error:  # noqa: BLE001 - it is told
        sys.stdout.write(f"{error} {getattr(error, 'hint', '')}")
else:
    sys.argv = ["journeyman", *words]
    import_module("journeyman.cli").main()
