"""What the server promises under faults (docs/how-to/operations.md), each in a short run."""

from __future__ import annotations

import json
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import Translator
from tests.conftest import TinyLanguageModel
from tests.system import faults
from tests.system.faults import LONG, held, samples, seconds_until, total
from tests.system.server import PAIR, Server, is_ready, running

CLIENT_TIMEOUT_S = 2.0


@pytest.fixture(scope="module")
def bundles(
    tiny_bundle: Path,
    tiny_language_model: TinyLanguageModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copytree(tiny_bundle, folder / "tiny")
    shutil.copytree(tiny_language_model.fp32, folder / "lm")
    return folder


@pytest.fixture(scope="module")
def served_bundles(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of the shared server, which a test exchanges."""
    return shutil.copytree(bundles, tmp_path_factory.mktemp("served") / "bundles")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "log.txt"


@pytest.fixture(scope="module")
def server(served_bundles: Path, log: Path) -> Iterator[Server]:
    settings = {
        "MACARON_CLIENT_TIMEOUT_S": str(CLIENT_TIMEOUT_S),
        "MACARON_MAX_QUEUE": "128",
        "MACARON_ANSWER_CACHE_BYTES": str(2**20),
    }
    with running(served_bundles, log.parent, **settings) as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test no row is held by what has ended."""
    yield
    if "server" in request.fixturenames:
        server: Server = request.getfixturevalue("server")
        seconds_until(lambda: held(server) == 0, 20)


def cancelled(server: Server) -> float:
    return total(samples(server), "macaron_cancelled_requests_total")


def busy_models(server: Server) -> int:
    rows = [value for name, value in samples(server).items() if name.startswith("macaron_rows,")]
    return sum(value > 0 for value in rows)


def hypotheses(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [translation["hypotheses"] for translation in answer.json()["translations"]]


def test_1_company_and_order_change_nothing(server: Server, bundles: Path) -> None:
    rng = random.Random(0)
    texts = [faults.some_text(rng, rng.randint(1, 9)) for _ in range(24)]
    wanted = Translator(bundles / "tiny", threads=1).translate(texts)
    with ThreadPoolExecutor(8) as pool:
        busy = pool.submit(server.ask, faults.some_text(rng), options=LONG)
        groups = [rng.sample(range(24), 3) for _ in range(12)] + [[n] for n in range(24)]
        answers = list(pool.map(lambda group: server.ask([texts[n] for n in group]), groups))
        assert busy.result().status_code == 200
    for group, answer in zip(groups, answers, strict=True):
        for number, found in zip(group, hypotheses(answer), strict=True):
            for one, other in zip(found, wanted[number].hypotheses, strict=True):
                assert one["tokens"] == list(other.tokens)
                assert one["score"] == pytest.approx(other.score, abs=1e-4)


def test_2_a_poisoned_item_fails_alone(server: Server) -> None:
    rng = random.Random(1)
    good = [faults.some_text(rng) for _ in range(8)]
    poison = ["a\0b", "x" * 20_001, ["Hallo", "wort " * 4001]]
    alone = [hypotheses(server.ask(text, options={"beam_size": 3})) for text in good]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.ask, q, options={"beam_size": 3}) for q in (*good, *poison)]
        answers = [future.result() for future in asked]
    assert [hypotheses(answer) for answer in answers[:8]] == alone
    assert [answer.status_code for answer in answers[8:]] == [400, 413, 413]
    assert "q[1]" in answers[-1].json()["error"]


@pytest.mark.slow
def test_3_overload_is_refused_and_gone_soon(bundles: Path, tmp_path: Path) -> None:
    # A process that sends hundreds of requests a second may itself be seconds late with a head,
    # for which the other tests' server would close the connection.
    with running(bundles, tmp_path, MACARON_MAX_WAIT_S="2") as server:
        idle = faults.latency(server)
        rate = 5 * faults.capacity(server, 2.0)
        found = faults.overload(server, rate, 6.0)
        assert found.lost == 0, found
        assert set(found.statuses) <= {200, 429, 503}, found.statuses
        assert found.statuses[200]
        assert found.statuses[503]
        assert found.without_retry_after == 0
        assert found.percentile(95) <= 6.0
        faults.seconds_to_recover(server, idle, limit=10.0)
        seconds_until(lambda: held(server) == 0, 20)


def test_4_clients_that_are_killed_free_their_rows(server: Server) -> None:
    before = cancelled(server)
    faults.kill_clients(server, 12)
    seconds_until(lambda: cancelled(server) == before + 12, 20)
    seconds_until(lambda: held(server) == 0, 2)


def test_5_a_deadline_is_kept_and_nothing_goes_on(server: Server) -> None:
    begin = time.monotonic()
    answer = server.ask("Das dauert zu lange", options=LONG, timeout_s=0.05)
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")
    assert time.monotonic() - begin < 2
    seconds_until(lambda: held(server) == 0, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"q": ["a"] * 129},
        {"q": "a" * 20_001},
        {"q": "a", "options": {"beam_size": 17}},
        {"q": "a", "options": {"num_hypotheses": 17, "beam_size": 16}},
        {"q": "a", "options": {"max_length": 513}},
        {"q": "a", "alternatives": 10_000},
        {"q": ["Ja. Nein."] * 100, "options": {"beam_size": 16}},
        {"q": "a", "timeout_s": 1e6},
        {"q": "a", "other": "x" * 2**20},
    ],
)
def test_9_translation_has_limits(server: Server, fields: dict[str, Any]) -> None:
    answer = httpx.post(f"{server.url}/translate", json={**PAIR, **fields}, timeout=30)
    assert answer.status_code in (400, 413)
    assert set(answer.json()) == {"error", "code"}


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 100_000},
        {"n": 1000},
        {"best_of": 1000},
        {"logprobs": 1000},
        {"prompt": ["a"] * 129},
        {"stop": [str(number) for number in range(1000)]},
    ],
)
def test_9_generation_has_limits(server: Server, fields: dict[str, Any]) -> None:
    body = {"model": "lm", "prompt": "a", **fields}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=30)
    assert answer.status_code in (400, 413), answer.text
    assert answer.json()["error"]["message"]


def test_8_malformed_requests_do_no_harm(server: Server) -> None:
    found = faults.fuzz(server, 150)
    assert sum(found.values()) == 150
    assert not [status for status in found if status.startswith("5") or status == "hang"], found


@pytest.mark.parametrize("text", faults.UNICODE, ids=ascii)
def test_10_any_text_gets_an_answer(server: Server, text: str) -> None:
    answer = server.ask(text, options={"max_length": 30})
    assert answer.status_code == (400 if "\0" in text else 200), answer.text


def test_10_a_lone_surrogate_is_refused(server: Server) -> None:
    body = b'{"q": "\\ud800", "source": "de", "target": "en"}'
    headers = {"Content-Type": "application/json"}
    assert (
        httpx.post(f"{server.url}/translate", content=body, headers=headers, timeout=60).status_code
        == 400
    )


def test_11_threads_and_descriptors_stay_as_they_are(server: Server) -> None:
    faults.mixed_traffic(server, 60, 60)  # until everything has been used once
    first, last = faults.mixed_traffic(server, 120, 120)
    assert last.threads <= first.threads + 2  # of the pool that grows at need
    assert last.descriptors <= first.descriptors + 2


def test_13_heads_and_bodies_that_never_end_are_given_up(server: Server) -> None:
    begin = time.monotonic()
    assert faults.slow_clients(server, 9, 20.0) == {"closed": 6, "408": 3}
    assert time.monotonic() - begin < CLIENT_TIMEOUT_S + 5


def test_13_a_stream_that_is_not_read_is_given_up(server: Server) -> None:
    before = cancelled(server)
    faults.unread_streams(server, 1)
    seconds_until(lambda: cancelled(server) == before + 1, 5)


def test_14_metrics_stay_bounded_while_two_dialects_are_used(server: Server) -> None:
    stop = threading.Event()

    def use(path: str, body: dict[str, Any]) -> int:
        asked = 0
        while not stop.is_set():
            assert httpx.post(server.url + path, json=body, timeout=30).status_code == 200
            asked += 1
        return asked

    with ThreadPoolExecutor(2) as pool:
        completion = {"model": "lm", "prompt": "a", "max_tokens": 3}
        users = [
            pool.submit(use, "/translate", {"q": "Hallo", **PAIR}),
            pool.submit(use, "/v1/completions", completion),
        ]
        time.sleep(1)
        grown = faults.random_paths(server, 150)
        stop.set()
        assert all(user.result() for user in users)
    assert grown == 0


def test_15_an_answer_from_the_cache_is_the_same(server: Server, bundles: Path) -> None:
    text = "Das kommt zweimal"
    before = total(samples(server), "macaron_cache_hits_total")
    fields = {"options": {"beam_size": 3, "num_hypotheses": 3}}
    first, again = (server.ask(text, **fields) for _ in range(2))
    assert hypotheses(first) == hypotheses(again)
    assert total(samples(server), "macaron_cache_hits_total") == before + 1
    (other,) = Translator(bundles / "tiny", threads=1).translate([text])
    assert first.json()["translatedText"] == other.text


def put_in_place(bundles: Path, new: Path) -> None:
    """Exchange the translation bundle; a bundle that is served must never be written into."""
    (bundles / "tiny").rename(bundles.with_name("old-" + new.name))
    new.rename(bundles / "tiny")


def prepared(source: Path, folder: Path, name: str) -> Path:
    """A copy of a bundle under the name of another."""
    shutil.copytree(source, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "name": name}))
    return folder


def precision(server: Server) -> str:
    """Of the one model that translates."""
    found = httpx.get(f"{server.url}/models", timeout=60).json()["models"]
    (model,) = [card for card in found if card["task"] == "translate"]
    return str(model["precision"])


def test_a_reload_loses_no_request_and_a_bad_bundle_changes_nothing(
    server: Server, served_bundles: Path, tiny_bundle_int8: Path, log: Path, tmp_path: Path
) -> None:
    name = json.loads((served_bundles / "tiny/manifest.json").read_text())["name"]
    stop, statuses, rng = threading.Event(), list[int](), random.Random(8)

    def traffic() -> None:
        while not stop.is_set():
            statuses.append(server.ask(faults.some_text(rng)).status_code)

    def more_traffic() -> None:
        wanted = len(statuses) + 6
        seconds_until(lambda: len(statuses) >= wanted, 30)

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(traffic) for _ in range(3)]
        more_traffic()
        put_in_place(served_bundles, prepared(tiny_bundle_int8, tmp_path / "int8", name))
        server.process.send_signal(signal.SIGHUP)
        seconds_until(lambda: precision(server) == "int8", 30)
        more_traffic()
        bad = prepared(served_bundles / "tiny", tmp_path / "bad", name)
        with (bad / "step.onnx").open("ab") as file:
            file.write(b"x")
        manifest = json.loads((bad / "manifest.json").read_text())
        manifest["attribution"] = "changed"
        (bad / "manifest.json").write_text(json.dumps(manifest))
        put_in_place(served_bundles, bad)
        server.process.send_signal(signal.SIGHUP)
        refused = "macaron_reloads_total,result=refused"
        seconds_until(lambda: samples(server).get(refused) == 1.0, 30)
        more_traffic()
        stop.set()
        for user in users:
            user.result()
    assert set(statuses) == {200}
    assert precision(server) == "int8"
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    (error,) = [line["message"] for line in lines if line["level"] == "ERROR"]
    assert error.startswith("reload refused; the bundles are served as before: ")
    assert "step.onnx: sha256 is" in error


def test_log_lines_are_json_and_without_texts(server: Server, log: Path) -> None:
    secret = "Streng geheim"
    answer = httpx.post(
        f"{server.url}/translate",
        json={"q": secret, **PAIR},
        headers={"X-Request-ID": "of-this-test", "traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"},
        timeout=60,
    )
    assert answer.headers["X-Request-ID"] == "of-this-test"
    # It is written after the answer.
    seconds_until(lambda: "of-this-test" in log.read_text(), 10)
    (line,) = [line for line in log.read_text().splitlines() if "of-this-test" in line]
    fields = json.loads(line)
    assert (fields["route"], fields["status"], fields["texts"]) == ("/translate", 200, 1)
    assert fields["trace_id"] == "ab" * 16  # BentoML's spans go on from the caller's
    assert secret not in log.read_text()


def test_6_termination_finishes_what_was_accepted_and_says_so_at_once(
    bundles: Path, tmp_path: Path
) -> None:
    settings = {"MACARON_DRAIN_S": "1.5", "MACARON_GRACE_S": "40"}
    stream = {"model": "lm", "prompt": "a", "max_tokens": 3000, "min_tokens": 2999, "stream": True}
    rng = random.Random(6)
    texts = [faults.some_text(rng) for _ in range(32)]
    with running(bundles, tmp_path, **settings) as server, ThreadPoolExecutor(2) as pool:
        url = f"{server.url}/v1/completions"
        answers = [
            pool.submit(httpx.post, url, json=stream, timeout=60),
            pool.submit(server.ask, texts, options=LONG),
        ]
        seconds_until(lambda: busy_models(server) == 2, 20)
        server.process.terminate()
        seconds_until(lambda: not is_ready(server), 1)
        assert httpx.get(f"{server.url}/readyz", timeout=60).json()["code"] == "not_ready"
        assert server.ask("noch schnell").status_code == 200  # sent before others knew
        streamed, translated = (answer.result() for answer in answers)
        assert streamed.text.endswith("data: [DONE]\n\n")
        assert "error" not in streamed.text
        assert translated.status_code == 200
        assert server.process.wait(30) == 0


def test_6_what_is_not_finished_within_the_grace_fails(bundles: Path, tmp_path: Path) -> None:
    stream = {"model": "lm", "prompt": "a", "max_tokens": 4000, "min_tokens": 3999, "n": 16}
    with running(bundles, tmp_path, MACARON_GRACE_S="0.5") as server, ThreadPoolExecutor() as pool:
        url = f"{server.url}/v1/completions"
        body = {**stream, "best_of": 16, "timeout_s": 100}
        whole = pool.submit(httpx.post, url, json=body, timeout=60)
        streamed = pool.submit(httpx.post, url, json={**body, "stream": True}, timeout=60)
        seconds_until(lambda: held(server) >= 17, 20)
        begin = time.monotonic()
        server.process.terminate()
        assert whole.result().status_code == 503
        assert whole.result().json()["error"]["code"] == "not_ready"
        assert '"code":"not_ready"' in streamed.result().text
        assert server.process.wait(30) == 0
        assert time.monotonic() - begin < 15


@pytest.mark.slow
def test_7_a_worker_that_dies_takes_its_own_requests_alone(bundles: Path, tmp_path: Path) -> None:
    with running(bundles, tmp_path, MACARON_WORKERS="2") as server:
        seconds_until(lambda: len(faults.worker_pids(server)) == 2, 30)
        found = faults.kill_one(server, faults.worker_pids, 12.0)
    assert found.lost <= found.clients
    assert found.asked > found.lost


@pytest.mark.slow
def test_a_decoding_process_that_dies_takes_no_text_with_it(bundles: Path, tmp_path: Path) -> None:
    with running(bundles, tmp_path, MACARON_THREADS="2") as server:
        before = faults.decoder_pids(server)
        found = faults.kill_one(server, faults.decoder_pids, 6.0)
        lost = faults.total(faults.samples(server), "macaron_decoders_lost_total")
        assert set(before[1:]) < set(faults.decoder_pids(server))
        assert faults.held(server) == 0
    assert lost == 1
    assert found.lost == 0  # every client gets an answer
    assert found.refused == 0  # what it decoded is decoded anew
    assert found.asked > 0
