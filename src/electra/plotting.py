"""What pictures are drawn with: matplotlib, imported without the MPLBACKEND of the environment.

A notebook sets it to a backend that matplotlib refuses to be imported with where it is not installed. Pictures that are
only saved need none.
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
        with suppress(ValueError):  # what a notebook draws later has its backend
            rcParams["backend"] = backend

__all__ = ["Axes", "Figure", "LogLocator", "NullFormatter", "Patch", "rc_context"]
