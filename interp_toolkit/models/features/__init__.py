"""Features of a model: SAE latents, token sets, directions, and the positions where they are on.

- `sae`: encoders and latent directions of sparse autoencoders
- `direction_files`: matrices of directions in `.npy`, `.npz` or `.safetensors`
- `sae_files`: SAEs from files of SAELens
- `sae_layouts`: and from those of other libraries, compared with the library that is installed
- `samples`: activations sampled with features on and off; duplicates, positions
- `feature_sets`: sets of feature directions, from an SAE, a file or arrays; options for them
"""
