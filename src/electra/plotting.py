"""Matplotlib, imported without the MPLBACKEND of the environment.

A notebook sets it to a backend without which matplotlib cannot be imported, and which may not be installed. Plots that are
only saved need no backend.
"""

import os
from contextlib import suppress

backend = os.environ.pop("MPLBACKEND", None)
try:
    from matplotlib import rc_context, rcParams
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import LogLocator, NullFormatter
finally:
    if backend is not None:
        os.environ["MPLBACKEND"] = backend
        with suppress(ValueError):  # plots of the notebook itself use its backend
            rcParams["backend"] = backend

__all__ = ["Axes", "Figure", "LogLocator", "NullFormatter", "Patch", "rc_context"]
