"""The version of the installed package; read on first use, because importlib.metadata takes long to import."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("shardkit")
