"""`python -m journeyman` is `journeyman`."""

from journeyman.cli import main

main()
