"""Universal AND: which ANDs of two features a layer computes (`--probe uand`).

Arrays in, arrays out:

- `readout`: `UANDReadout`, linear readouts of the AND of every pair
- `errors`: their errors by class of input; which pairs are computed, readable before, or absent
- `intersections`: the readout of the source's construction, from shared neurons

Of a model:

- `layers`: a layer's input, and the same layer with random weights
- `site`: one layer beside its controls
- `gates`: ANDs of ANDs and other boolean functions, layer by layer
- `analysis`: the analysis from end to end
- `result` and `figures`: what it returns, in tables, words and pictures
"""
