"""Speed of decoding beside rivals: whole calls, servers, processes and profiles, for translation
and language models. Quality belongs to `evaluation`; here outputs are only compared for
agreement."""
