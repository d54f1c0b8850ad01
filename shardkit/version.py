"""The version of the installed package; read on first use, because importlib.metadata takes long to import."""

from importlib.metadata import version

__version__ = version("shardkit")
"""The installed version."""
