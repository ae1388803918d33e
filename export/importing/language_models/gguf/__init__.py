"""Files of GGUF: header, vocabulary and weights; nothing of folders of `transformers`."""
