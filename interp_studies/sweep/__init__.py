"""A grid of trainings: `interp sweep FILE.yaml`. Read `file`, `study`, `result`."""
