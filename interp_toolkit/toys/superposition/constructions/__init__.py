"""The source's constructions, one a file; read `uand` first."""
