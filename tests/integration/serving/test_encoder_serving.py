"""Encoders over HTTP: OpenAI's embeddings by its own client, TEI's routes, the native one."""

from __future__ import annotations

import base64
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import uvicorn
from huggingface_hub import InferenceClient
from starlette.testclient import TestClient

from macaron import Client
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.folder import read_manifest, write_manifest
from serving.encoding.presets import load_reader
from serving.encoding.reader import Classifier, Embedder, TextReader, probabilities
from serving.encoding.scheduler import TextEngine, TextScheduler
from serving.errors import (
    DeadlineExceededError,
    DecodingError,
    InvalidOptionError,
    NotReadyError,
    RequestError,
)
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from serving.server.models.served import StoredTranslator
from tests.conftest import TinyEncoders
from tests.toy.encoders import LABELS, LINES, save_encoder, write_lines

ROOT = Path(__file__).resolve().parents[3]
PAIR = ("the cat", "a dog sat")


@pytest.fixture(scope="module")
def bundles(tiny_encoders: TinyEncoders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of the two tiny encoders, and one that ranks."""
    from export.bundles.subject import Form
    from export.importing.bundle import import_bundle
    from export.texts.texts import Texts

    folder = tmp_path_factory.mktemp("encoders")
    for bundle in tiny_encoders.bundles.iterdir():
        (folder / bundle.name).symlink_to(bundle)
    ranker = save_encoder(folder.parent / "ranker", ("relevant",))
    text = write_lines(folder.parent)
    import_bundle(ranker, folder / "tiny-ranker", Form("fp32"), Texts(text=text))
    return folder


@pytest.fixture(scope="module")
def client(bundles: Path) -> Iterator[TestClient]:
    settings = Settings(bundles=bundles, threads=1, max_texts=40)
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings), raise_server_exceptions=False) as client:
        yield client
    registry.close()


@pytest.fixture(scope="module")
def embedder(bundles: Path) -> Embedder:
    return Embedder(bundles / "tiny-embedder", threads=1)


@pytest.fixture(scope="module")
def classifier(bundles: Path) -> Classifier:
    return Classifier(bundles / "tiny-classifier", threads=1)


def ask(client: TestClient, path: str, body: Mapping[str, Any], status: int = 200) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_native_list_of_models_has_them_as_openais_has(client: TestClient) -> None:
    cards = {card["name"]: card for card in client.get("/models").json()["models"]}
    listed = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
    assert {name: card["task"] for name, card in cards.items()} == {
        "tiny-embedder": "encode",
        "tiny-classifier": "classify",
        "tiny-ranker": "classify",
    }
    assert cards.keys() == listed.keys()
    for name, card in cards.items():
        assert card["loaded"]
        assert (card["pairs"], card["defaults"]) == ([], {})
        assert card["max_source"] == listed[name]["max_model_len"]
        assert card["device"] == listed[name]["device"] == "cpu"


def test_one_text_alone_gets_one_vector_or_its_classes(
    embedder: Embedder, classifier: Classifier
) -> None:
    np.testing.assert_array_equal(embedder.embed("the cat"), embedder.embed(["the cat"])[0])
    assert classifier.classify("the cat") == classifier.classify(["the cat"])[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "texts must be a text or a list of texts, got NoneType"),
        (b"the", "texts must be a text or a list of texts, got bytes"),
        ([None], "a text or a list of token ids, got None"),
        ([b"the"], "a text or a list of token ids, got b'the'"),
        ([["the", "cat"]], r"a text or a list of token ids, got \['the', 'cat'\]"),
        ([[1.5]], r"a text or a list of token ids, got \[1.5\]"),
        ([("a", "b", "c")], "a pair must have two texts, got 3"),
    ],
)
def test_what_is_no_text_is_not_read(
    embedder: Embedder, classifier: Classifier, given: Any, message: str
) -> None:
    for read in (embedder.embed, classifier.classify):
        with pytest.raises(RequestError, match=message):
            read(given)


def test_numbers_of_numpy_are_token_ids(embedder: Embedder) -> None:
    ids = np.array([5, 6])
    np.testing.assert_array_equal(embedder.read([ids]), embedder.read([[5, 6]]))  # type: ignore[list-item]


@pytest.mark.parametrize("threads", [0, -1])
def test_an_encoder_needs_a_thread(bundles: Path, threads: int) -> None:
    with pytest.raises(InvalidOptionError, match="threads must be >= 1"):
        Embedder(bundles / "tiny-embedder", threads)


# OpenAI


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_openais_client_gets_the_vectors(
    client: TestClient, embedder: Embedder, encoding: Any
) -> None:
    own = openai.OpenAI(base_url="http://testserver/v1", api_key="none", http_client=client)
    given = {} if encoding is None else {"encoding_format": encoding}  # its default is base64
    answer = own.embeddings.create(model="tiny-embedder", input=LINES, **given)
    vectors = [each.embedding for each in answer.data]
    if encoding == "base64":
        vectors = [np.frombuffer(base64.b64decode(v), "<f4") for v in vectors]  # type: ignore[arg-type, misc]
    np.testing.assert_array_equal(np.array(vectors, np.float32), embedder.embed(LINES))
    assert [each.index for each in answer.data] == list(range(len(LINES)))
    tokens = sum(len(embedder.encode(line).ids) for line in LINES)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens
    assert answer.model == "tiny-embedder"


def test_openais_client_sends_a_text_ids_and_lists_of_ids(
    client: TestClient, embedder: Embedder
) -> None:
    own = openai.OpenAI(base_url="http://testserver/v1", api_key="none", http_client=client)
    wanted = embedder.embed(LINES[:2])
    ids = [list(embedder.encode(line).ids[1:-1]) for line in LINES[:2]]
    for given, count in ((LINES[0], 1), (ids[0], 1), (ids, 2)):
        found = own.embeddings.create(model="tiny-embedder", input=given)  # type: ignore[arg-type]
        vectors = np.array([each.embedding for each in found.data], np.float32)
        np.testing.assert_array_equal(vectors, wanted[:count])
    assert own.embeddings.create(model="tiny-embedder", input="a", dimensions=16).data


def test_openais_client_lists_encoders(client: TestClient) -> None:
    own = openai.OpenAI(base_url="http://testserver/v1", api_key="none", http_client=client)
    listed = {model.id for model in own.models.list()}
    assert listed == {"tiny-embedder", "tiny-classifier", "tiny-ranker"}
    card = own.models.retrieve("tiny-embedder")
    assert card.model_extra is not None
    assert card.model_extra["max_model_len"] == 24


LONG = "the cat " * 20


@pytest.mark.parametrize(
    ("body", "status", "message", "parameter"),
    [
        ({"input": ""}, 400, "a text must not be empty", "input"),
        ({"input": ["a", " "]}, 400, "input[1]: a text must not be empty", "input"),
        ({"input": LONG}, 413, "at most 24 tokens, special ones included, got 42", "input"),
        ({"input": ["a"] * 41}, 413, "at most 40 texts", "input"),
        ({"input": [999]}, 400, "token ids must be from 0 to", "input"),
        ({"input": "a", "dimensions": 8}, 400, "must be 16, got 8", "dimensions"),
        ({"input": "a", "model": "tiny-classifier"}, 400, "is for 'classify'", "model"),
        ({"input": "a", "model": "other"}, 404, "must be one of ['tiny-embedder']", "model"),
        ({"input": []}, 400, "input", "input"),
    ],
)
def test_openais_shape_of_errors(
    client: TestClient, body: dict[str, Any], status: int, message: str, parameter: str
) -> None:
    error = ask(client, "/v1/embeddings", {"model": "tiny-embedder", **body}, status)["error"]
    assert message in error["message"]
    assert error["param"] == parameter


def test_what_is_too_long_can_be_cut(client: TestClient, embedder: Embedder) -> None:
    body = {"model": "tiny-embedder", "input": LONG, "truncate": True}
    found = ask(client, "/v1/embeddings", body)["data"][0]["embedding"]
    wanted = embedder.embed([LONG], truncate=True)[0]
    np.testing.assert_array_equal(np.array(found, np.float32), wanted)
    cut = ask(client, "/embed", {"inputs": LONG, "truncate": True})
    np.testing.assert_array_equal(np.array(cut[0], np.float32).round(5), wanted.round(5))


# TEI


def test_teis_embed(client: TestClient, embedder: Embedder) -> None:
    single, several = (ask(client, "/embed", {"inputs": given}) for given in (LINES[0], LINES[:3]))
    wanted = embedder.embed(LINES[:3])
    np.testing.assert_allclose(several, wanted, atol=1e-6)
    assert single == several[:1]
    ids = list(embedder.encode(LINES[0]).ids[1:-1])
    assert ask(client, "/embed", {"inputs": ids}) == single
    refused = ask(client, "/embed", {"inputs": LONG}, 413)
    assert refused["error_type"] == "Validation"
    assert refused["error"].startswith("inputs: a text must have at most 24 tokens")
    refused = ask(client, "/embed", {"inputs": [LINES[0], LONG]}, 413)
    assert refused["error"].startswith("inputs[1]: a text must have at most 24 tokens")
    refused = ask(client, "/embed", {"inputs": "a", "normalize": False}, 400)
    assert "normalize of the model 'tiny-embedder' must be true" in refused["error"]


def test_a_prompt_stands_before_each_text(
    bundles: Path, embedder: Embedder, tmp_path: Path
) -> None:
    """The default one, or that of the request: as if the texts had come with it."""
    shutil.copytree(bundles / "tiny-embedder", tmp_path / "prompted")
    manifest = read_manifest(tmp_path / "prompted")
    assert manifest.reading is not None
    prompts = {"prompts": {"query": "big red ", "passage": ""}, "default_prompt": "query"}
    reading = manifest.reading.model_copy(update=prompts)
    write_manifest(tmp_path / "prompted", manifest.model_copy(update={"reading": reading}))
    texts = LINES[:3]
    wanted = {
        None: embedder.embed([f"big red {line}" for line in texts]),
        "passage": embedder.embed(texts),
    }
    own = Embedder(tmp_path / "prompted", threads=1)
    settings = Settings(bundles=tmp_path, threads=1)
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings), raise_server_exceptions=False) as client:
        for name, vectors in wanted.items():
            np.testing.assert_array_equal(own.embed(texts, prompt_name=name), vectors)
            found = ask(client, "/embed", {"inputs": texts, "prompt_name": name})
            np.testing.assert_allclose(found, vectors, atol=1e-6)
            body = {"model": "tiny-embedder", "input": texts, "prompt_name": name}
            answer = ask(client, "/v1/embeddings", body)["data"]
            np.testing.assert_array_equal(
                np.array([each["embedding"] for each in answer], np.float32), vectors
            )
        ids = list(embedder.encode(texts[0]).ids[1:-1])
        found = ask(client, "/embed", {"inputs": ids})  # as they are
        np.testing.assert_allclose(found, wanted["passage"][:1], atol=1e-6)
        for inputs, name, message in (
            (
                texts,
                "title",
                "one of the model's prompts, got 'title'; there are: 'query', ",
            ),
            (ids, "query", "prompt_name is for single texts, got a pair or token ids"),
        ):
            refused = ask(client, "/embed", {"inputs": inputs, "prompt_name": name}, 400)
            assert message in refused["error"]
    registry.close()
    with pytest.raises(InvalidOptionError, match="there are: none; leave it out"):
        embedder.embed(texts, prompt_name="query")


def test_teis_similarity(client: TestClient, embedder: Embedder) -> None:
    inputs = {"source_sentence": LINES[0], "sentences": LINES[:4]}
    vectors = embedder.embed(LINES[:4])
    found = ask(client, "/similarity", {"inputs": inputs})
    np.testing.assert_allclose(found, vectors @ vectors[0], atol=1e-6)
    assert found[0] == pytest.approx(1.0)
    refused = ask(client, "/similarity", {"inputs": {**inputs, "sentences": ["a", ""]}}, 400)
    assert refused["error"] == "inputs.sentences[1]: a text must not be empty"
    refused = ask(client, "/similarity", {"inputs": {**inputs, "source_sentence": LONG}}, 413)
    assert refused["error"].startswith("inputs.source_sentence: a text must have at most 24 tokens")
    cut = {"inputs": {**inputs, "source_sentence": LONG}, "parameters": {"truncate": True}}
    assert len(ask(client, "/similarity", cut)) == 4


@pytest.fixture(scope="module")
def url(client: TestClient) -> Iterator[str]:
    """The app behind a socket of its own, for clients that bring their own connections."""
    server = uvicorn.Server(uvicorn.Config(client.app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def test_hugging_faces_client_works_unmodified(
    url: str, embedder: Embedder, classifier: Classifier
) -> None:
    own = InferenceClient(token="none")
    wanted = embedder.embed(LINES[:3])
    found = own.feature_extraction(LINES[0], model=f"{url}/embed")
    np.testing.assert_allclose(found, wanted[:1], atol=1e-6)
    alike = own.sentence_similarity(LINES[0], other_sentences=LINES[1:3], model=f"{url}/similarity")
    np.testing.assert_allclose(alike, wanted[1:] @ wanted[0], atol=1e-6)
    # It takes the first of what TEI gives: the likeliest class.
    likeliest: Any = own.text_classification(PAIR[0], model=f"{url}/predict")
    label, probability = classifier.classify([PAIR[0]])[0][0]
    assert (likeliest.label, likeliest.score) == (label, pytest.approx(probability))


def test_the_projects_client_needs_no_name_of_a_model(url: str, embedder: Embedder) -> None:
    with Client(url) as own:
        found = own.embed(LINES[:3])
    assert found.model == "tiny-embedder"
    np.testing.assert_array_equal(np.array(found.vectors, np.float32), embedder.embed(LINES[:3]))


def test_no_cosine_passes_one(client: TestClient) -> None:
    texts = [f"{line} {other}"[:40] for line in LINES for other in LINES[:4]]
    for text in texts[:30]:
        body = {"inputs": {"source_sentence": text, "sentences": [text]}}
        [cosine] = ask(client, "/similarity", body)
        assert 0.999 < cosine <= 1


def test_teis_rerank(client: TestClient, bundles: Path) -> None:
    body = {"query": "the cat", "texts": LINES[:5], "model": "tiny-ranker", "return_text": True}
    logits = TextReader(bundles / "tiny-ranker").read([("the cat", line) for line in LINES[:5]])
    found = ask(client, "/rerank", body)
    wanted = probabilities(logits)[:, 0]
    assert [rank["index"] for rank in found] == np.argsort(-wanted, kind="stable").tolist()
    for rank in found:
        assert rank["score"] == pytest.approx(float(wanted[rank["index"]]))
        assert rank["text"] == LINES[rank["index"]]
    raw = ask(client, "/rerank", {**body, "raw_scores": True, "return_text": False})
    assert raw[0] == {"index": found[0]["index"], "score": pytest.approx(float(logits.max()))}
    refused = ask(client, "/rerank", {**body, "model": "tiny-classifier"}, 400)
    assert "has 3 classes, and reranking needs one" in refused["error"]
    refused = ask(client, "/rerank", {**body, "texts": ["a", ""]}, 400)
    assert refused["error"] == "texts[1]: a text must not be empty"
    refused = ask(client, "/rerank", {**body, "query": " "}, 400)
    assert refused["error"] == "query: a text must not be empty"
    refused = ask(client, "/rerank", {**body, "query": LONG, "texts": ["a", "b"]}, 413)
    assert refused["error"].startswith("query: ")
    refused = ask(client, "/rerank", {**body, "texts": ["a", LONG]}, 413)
    assert refused["error"].startswith("texts[1]: ")
    pairs = {"q": ["a", "b"], "pair": ["c", ""], "model": "tiny-classifier"}
    assert ask(client, "/classify", pairs, 400)["error"] == "pair[1]: a text must not be empty"
    pairs = {"q": ["a", ""], "pair": ["c", "d"], "model": "tiny-classifier"}
    assert ask(client, "/classify", pairs, 400)["error"] == "q[1]: a text must not be empty"


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
def test_documents_are_ranked_as_texts_are(client: TestClient, path: str) -> None:
    texts = [LINES[0], LINES[1], "a dog"]
    wanted = ask(client, "/rerank", {"query": "the cat", "texts": texts, "model": "tiny-ranker"})
    body = {"query": "the cat", "documents": [texts[0], {"text": texts[1]}, texts[2]]}
    found = ask(client, path, {**body, "model": "tiny-ranker"})
    assert (found["model"], set(found["results"][0])) == (
        "tiny-ranker",
        {"index", "relevance_score"},
    )
    told = [(rank["index"], rank["relevance_score"]) for rank in found["results"]]
    assert told == [(rank["index"], rank["score"]) for rank in wanted]
    assert found["usage"]["total_tokens"] > 3 * len(texts)
    few = ask(client, path, {**body, "model": "tiny-ranker", "top_n": 2, "return_documents": True})
    assert [(rank["index"], rank["document"]) for rank in few["results"]] == [
        (index, {"text": texts[index]}) for index, _ in told[:2]
    ]
    refused = ask(client, path, {**body, "documents": ["a", ""], "model": "tiny-ranker"}, 400)
    assert "documents[1]" in refused["error"]


def test_vectors_have_the_model_s_size_or_the_request_is_refused(client: TestClient) -> None:
    (vector,) = ask(client, "/embed", {"inputs": "the cat", "dimensions": None})
    assert ask(client, "/embed", {"inputs": "the cat", "dimensions": len(vector)}) == [vector]
    refused = ask(client, "/embed", {"inputs": "the cat", "dimensions": 2}, 400)
    assert refused["error"] == (
        f"dimensions of the model 'tiny-embedder' must be {len(vector)}, got 2; leave it out"
    )


def test_teis_predict(client: TestClient, classifier: Classifier) -> None:
    named = {"model": "tiny-classifier"}

    def plain(found: list[dict[str, Any]]) -> list[tuple[str, float]]:
        return [(each["label"], pytest.approx(each["score"])) for each in found]

    text, pair = classifier.classify([PAIR[0], PAIR])
    assert plain(ask(client, "/predict", {"inputs": PAIR[0], **named})) == text
    assert plain(ask(client, "/predict", {"inputs": [PAIR[0]], **named})) == text
    assert plain(ask(client, "/predict", {"inputs": list(PAIR), **named})) == pair
    both = ask(client, "/predict", {"inputs": [[PAIR[0]], list(PAIR)], **named})
    assert [plain(each) for each in both] == [text, pair]
    raw = ask(client, "/predict", {"inputs": PAIR[0], "raw_scores": True, **named})
    logits = classifier.read([PAIR[0]])[0]
    assert {e["label"]: e["score"] for e in raw} == pytest.approx(
        dict(zip(LABELS, logits.tolist(), strict=True))
    )
    refused = ask(client, "/predict", {"inputs": ["a", "b", "c"], **named}, 400)
    assert "must be one text or two, got 3" in refused["error"]
    refused = ask(client, "/predict", {"inputs": [["a"], [""]], **named}, 400)
    assert refused == {
        "error": "inputs[1][0]: a text must not be empty",
        "error_type": "Validation",
    }
    refused = ask(client, "/predict", {"inputs": [["a"], ["b", ""]], **named}, 400)
    assert refused["error"] == "inputs[1][1]: a text must not be empty"
    refused = ask(client, "/predict", {"inputs": ["b", ""], **named}, 400)
    assert refused["error"] == "inputs[1]: a text must not be empty"
    refused = ask(client, "/predict", {"inputs": "", **named}, 400)
    assert refused["error"] == "inputs: a text must not be empty"


# The native route


def test_the_native_route_classifies(client: TestClient, classifier: Classifier) -> None:
    wanted = classifier.classify(LINES[:3])
    found = ask(client, "/classify", {"q": LINES[:3]})
    assert found["model"] == "tiny-classifier"  # before tiny-ranker
    for each, scores in zip(found["classifications"], wanted, strict=True):
        assert [(s["label"], pytest.approx(s["probability"])) for s in each["labels"]] == scores
        assert each["label"] == scores[0][0]
    pair = ask(client, "/classify", {"q": PAIR[0], "pair": PAIR[1]})["classifications"][0]
    assert pair["label"] == classifier.classify([PAIR])[0][0][0]
    refused = ask(client, "/classify", {"q": ["a", "b"], "pair": "c"}, 400)
    assert refused["error"] == "pair must have as many texts as q, 2, got 1"
    refused = ask(client, "/classify", {"q": ["a", LONG]}, 413)
    assert refused["error"].startswith("q[1]: a text must have at most 24 tokens")
    refused = ask(client, "/classify", {"q": "a", "model": "tiny-embedder"}, 400)
    assert "is for 'encode', and 'classify' is asked of it" in refused["error"]


def test_texts_of_many_requests_get_their_own_vectors(
    client: TestClient, embedder: Embedder
) -> None:
    wanted, found = embedder.embed(LINES), {}

    def one(number: int) -> None:
        body = {"model": "tiny-embedder", "input": LINES[number]}
        found[number] = ask(client, "/v1/embeddings", body)["data"][0]["embedding"]

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(LINES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    vectors = [found[number] for number in range(len(LINES))]
    np.testing.assert_array_equal(np.array(vectors, np.float32), wanted)
    rows = client.get("/metrics").text
    assert 'model="tiny-embedder"' in rows


def test_without_an_encoder_it_is_said(bundles: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny-embedder").symlink_to(bundles / "tiny-embedder")
    settings = Settings(bundles=tmp_path, threads=1)
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings)) as client:
        refused = ask(client, "/predict", {"inputs": "a"}, 404)
        assert "no loaded model is for 'classify'" in refused["error"]
    registry.close()


def test_encoders_are_loaded_at_the_start_whatever_else_waits(
    bundles: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "macaron-en-de").symlink_to(ROOT / "models" / "macaron-en-de")
    for name in ("tiny-embedder", "tiny-classifier"):
        (tmp_path / name).symlink_to(bundles / name)
    registry = Registry(Settings(bundles=tmp_path, threads=1, load="use"))
    registry.load()
    assert {model.name for model in registry.encoders} == {"tiny-embedder", "tiny-classifier"}
    assert [type(model) for model in registry.translators] == [StoredTranslator]
    with pytest.raises(RequestError, match="'macaron-en-de' is for 'translate', and 'encode'"):
        registry.choose_encoder("encode", "macaron-en-de")
    reader = registry.choose_encoder("encode")
    (tmp_path / "tiny-classifier").unlink()
    with caplog.at_level("INFO"):
        registry.reload()
    assert "0 new, 2 kept, 1 gone" in caplog.text
    assert registry.encoders == [reader]
    registry.close()


# The scheduler


class Encoder:
    """Reads a text as its number of ids; NaN for the longest."""

    def run(self, texts: list[EncodedText]) -> np.ndarray[Any, np.dtype[np.float32]]:
        lengths = [float(len(text.ids)) for text in texts]
        return np.array([[n if n < 9 else np.nan] for n in lengths], np.float32)

    def engine(self) -> TextEngine:
        return TextEngine(self)  # type: ignore[arg-type]


def encoded(length: int) -> EncodedText:
    return EncodedText((5,) * length, (0,) * length)


def test_a_number_that_is_not_finite_fails_its_text_alone() -> None:
    scheduler = TextScheduler(Encoder())
    tickets = scheduler.submit_all([encoded(length) for length in (3, 9, 4)])
    assert [tickets[i].result(5)[0] for i in (0, 2)] == [3.0, 4.0]
    with pytest.raises(DecodingError, match="not finite"):
        tickets[1].result(5)
    late = scheduler.submit_all([encoded(2)], timeout_s=-1.0)[0]
    with pytest.raises(DeadlineExceededError):
        late.result(5)
    scheduler.close(5)
    with pytest.raises(NotReadyError):
        scheduler.submit_all([encoded(2)])


def test_a_preset_decides_on_threads_and_workers(bundles: Path) -> None:
    folder = bundles / "tiny-embedder"
    assert load_reader(folder, "throughput", 2).workers == 2
    assert load_reader(folder, "latency", 2).workers == 1
