"""`python -m epicrisis` is the command `epicrisis`."""

from epicrisis.cli.program import main

main()
