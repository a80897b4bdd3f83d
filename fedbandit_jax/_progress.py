"""tqdm's bar, without its warning in a notebook that has no ipywidgets: it gets a plain bar."""

import warnings

from tqdm import TqdmWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm

__all__ = ["tqdm"]
