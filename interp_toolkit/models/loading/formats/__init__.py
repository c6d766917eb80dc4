"""File formats of models, read as data and never as code.

- `files`: the format, from a file's first bytes; a safe reader for each
- `from_file`: a checkpoint file becomes a `Transformer`: read, mapped, configured, filled
- `checkpoint`: the toolkit's own checkpoints
- `pickled_files`: files of pickles that PyTorch's weights-only reader refuses
- `unpickler`: a pickle read as data: tensors and containers only
- `records`: objects of unknown classes as inert records
- `huggingface`: a Hugging Face folder or hub name as a `TransformerBridge`
- `adapters`: LoRA and other adapters of PEFT, merged into the model that they change
- `headless`: models without an unembedding (`BertModel`, `GPT2Model`) as a bridge
- `gguf_file`: a GGUF file becomes a bridge
"""
