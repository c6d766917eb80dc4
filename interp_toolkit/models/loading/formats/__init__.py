"""File formats: our checkpoints, pickles read as data, GGUF, Hugging Face folders."""
