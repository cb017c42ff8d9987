"""elasticrun, a launcher for distributed training. This package contains its binary.

launch("train.py", nproc_per_node=2) runs a script, launch(function, args, nproc_per_node=2) a function.
"""

from ._errors import LaunchError as LaunchError
from ._errors import RemoteError as RemoteError
from ._launch import Result as Result
from ._launch import launch as launch
from ._version import __version__ as __version__

__all__ = ["LaunchError", "RemoteError", "Result", "__version__", "launch"]
