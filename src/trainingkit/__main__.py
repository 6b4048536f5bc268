"""`python -m trainingkit` is the command line."""

from trainingkit.cli import main

main()
