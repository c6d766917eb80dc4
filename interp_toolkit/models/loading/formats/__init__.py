"""File formats of models, read as data and never as code.

- `files`: detects the format from a file's first bytes; a safe reader for each
- `from_file`: loads a checkpoint file as a `Transformer`: read, mapped, configured, filled
- `checkpoint`: the toolkit's own checkpoints
- `pickled_files`: files of pickles that PyTorch's weights-only reader refuses
- `unpickler`: reads a pickle as data: tensors and containers only
- `records`: inert records of objects of unknown classes
- `huggingface`: a Hugging Face folder or hub name as a `TransformerBridge`
- `adapters`: LoRA and other PEFT adapters, merged into their base model
- `headless`: models without an unembedding (`BertModel`, `GPT2Model`) as a bridge
- `gguf_file`: loads a GGUF file as a bridge
"""
