"""Tables and figures of the source documents made again, theirs beside ours.

`jobs` runs the independent parts of a study on one machine or on a cluster; `result` puts the
source's figures beside ours. On them stand `sorting`, `superposition` and `random_attention` (what
`interp reproduce` runs), `litmus` and `sweep`.
"""
