"""`python -m phasewise`, the same as the `phasewise` command."""

from phasewise.cli import main

main()
