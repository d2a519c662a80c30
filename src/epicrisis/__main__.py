"""`python -m epicrisis` is the command `epicrisis`."""

from epicrisis.cli.app import main

main()
