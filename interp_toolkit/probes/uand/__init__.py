"""Universal AND: which ANDs of two features a layer computes (`--probe uand`).

Arrays in, arrays out:

- `readout`: `UANDReadout`, linear readouts of the AND of every pair
- `errors`: their errors by class of input; which pairs are computed, readable before, or absent
- `intersections`: the readout of the source's construction, from shared neurons

Of a model:

- `gates`: boolean functions read off through ANDs; ANDs of ANDs, layer by layer
- `result`: what it returns, in tables and words
- `analysis`: `interp analyze --probe uand`: the analysis and its figures
- `site`: the readouts of one site, and of a layer beside its input and random layers
"""
