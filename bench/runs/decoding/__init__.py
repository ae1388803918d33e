"""Speed of decoding beside rivals: whole calls, servers, processes and where the time goes, of
translation and language models. What an output is worth is for `evaluation`, but for agreement."""
