"""The commands of the studies, registered through entry points.

- `reproduce`: `interp reproduce ARTEFACT`, or `all`
- `sweep`: `interp sweep FILE.yaml`
- `litmus`: `interp litmus TASK`
- `challenge`: `interp challenge`
- `study`: options that the first three share: folder, engine, jobs
"""
