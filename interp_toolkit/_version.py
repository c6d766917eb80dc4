"""The package version, defined only here."""

__version__ = "0.1.0"
