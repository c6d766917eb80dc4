"""Text: prompts, documents of a corpus, tokenizers, token ids on the disk."""
