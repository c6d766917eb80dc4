"""Universal AND: which ANDs of two features a layer computes (`--probe uand`).

On arrays:

- `readout`: `UANDReadout`, linear readouts of the AND of every pair
- `errors`: their errors by class of input; pairs classified as computed, before, or absent
- `blocks`: the separated pairs among millions, in blocks
- `absence`: whether any affine function of the input comes as near to an AND
- `intersections`: the readout of the source's construction, from shared neurons

On a model:

- `gates`: boolean functions read out through ANDs; ANDs of ANDs, layer by layer
- `result`: the finding: its tables and sentences
- `analysis`: the analysis `interp analyze --probe uand`, and its figures
- `site`: the readouts of one site, of its input and of random layers
"""
