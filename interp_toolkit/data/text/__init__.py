"""Text as data: prompts, corpora, tokenizers and token ids on disk.

- `prompts`: prompts of plain text without answers, several or one long text in pieces
- `texts`: documents from a local folder or the hub, through the `datasets` library
- `tokenization`: byte-level BPE tokenizers, learned or given; text to token ids
- `token_store`: token ids of a corpus on disk, memory-mapped
"""
