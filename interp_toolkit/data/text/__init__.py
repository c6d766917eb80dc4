"""Text as data: prompts, corpora, tokenizers and token ids on disk.

- `texts`: documents from a local folder or the hub, through the `datasets` library
- `token_store`: token ids of a corpus on disk, memory-mapped
- `tokenization`: tokenizers, learned or read from files, and texts as prompts
"""
