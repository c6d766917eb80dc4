"""Features of a model: SAE latents, token sets, directions, and the positions where they are on.

- `feature_sets`: named directions, and which of them are on at a position
- `sae`: encoders and latent directions of sparse autoencoders
- `sae_files`: SAEs as SAELens saves them
- `sae_layouts`: those of sparsify, dictionary_learning and Gemma Scope, under the same names
- `direction_files`: matrices of directions in `.npy`, `.npz` or `.safetensors`
- `row_positions`: positions in prompts, and the activations there
- `samples`: labelled positions: a prompt, a position and its features
- `duplicates`: groups of equal inputs, which count as one observation
- `options`: options of analyses that take features
"""
