"""`python -m electra`, and so `torchrun -m electra`."""

from electra.cli import main

main()
