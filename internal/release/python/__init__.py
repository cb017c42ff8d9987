"""elasticrun, a launcher for distributed training. This package contains its binary."""

from ._version import __version__ as __version__
