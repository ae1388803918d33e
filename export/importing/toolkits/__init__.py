"""Checkpoints of other toolkits: CTranslate2, OpenNMT-py and fairseq."""
