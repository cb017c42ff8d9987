"""The version of this package. make wheel writes a file with the version of the source in place of this one."""

__version__ = "0+source"
