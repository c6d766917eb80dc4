"""Runs the independent jobs of a study and keeps each result as soon as its job ends.

- `attempt`: a job, and one attempt at it
- `runner`: runs jobs and keeps their values
- `job_files`: the files of a study's folder
- `engines`: worker processes of this machine (loky) or of a Dask cluster
"""
