"""Which heads read what earlier heads write: scores, their null, `--probe composition`."""
