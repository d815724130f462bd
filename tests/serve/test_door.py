"""Keys, rates, limits of connections, TLS, the port for administration, and the log."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import ssl
import subprocess
import threading
import time

import httpx
import pytest

from labelwright_client import Client, ClientError
from serve import guard
from serve.door import Door, Key, key_of, read_keys
from serve.errors import ForbiddenError, RateLimitError, UnauthorizedError
from serve.settings import Settings
from tests.serve.live import live, request
from train.errors import ConfigError

ROW = {"inputs": [[0.0] * 6]}


def key(name, secret, **options):
    return Key(name, hashlib.sha256(secret.encode()).digest(), **options)


def bearer(secret):
    return {b"authorization": f"Bearer {secret}".encode()}


def line(name, secret, rate=""):
    return f"{name}:{hashlib.sha256(secret.encode()).hexdigest()}{rate}\n"


@pytest.fixture
def files(tmp_path):
    users, admins = tmp_path / "users", tmp_path / "admins"
    users.write_text("# who may predict\n\n" + line("ann", "a-secret") + line("bob", "b", ":2"))
    admins.write_text(line("root", "r-secret"))
    return {"api_keys": users, "admin_keys": admins}


@pytest.fixture(params=["protocol", "asgi"])
def start(serve_app, bundle_path, request):
    def build(**settings):
        app = serve_app(bundle_path, **settings).app
        return live(app, Settings(bundles=(bundle_path,), http=request.param, **settings))

    return build


def test_a_key_is_known_by_its_hash_alone():
    keys = [key("ann", "a"), key("bob", "b")]
    assert key_of(bearer("b"), keys).name == "bob"
    assert key_of({b"authorization": b"bearer  b "}, keys).name == "bob"
    for wrong in ({}, bearer("c"), bearer(""), {b"authorization": b"Basic b"}, bearer("b\xff")):
        assert key_of(wrong, keys) is None
    # What the file holds opens nothing.
    assert key_of(bearer(keys[0].digest.hex()), keys) is None


def test_routes_open_by_kind():
    door = Door([key("ann", "a"), key("root", "r", is_admin=True)])
    door.admit(bearer("a"), "/predict")
    door.admit(bearer("r"), "/predict")
    door.admit(bearer("r"), "/metrics")
    door.admit({}, "/healthz")
    with pytest.raises(UnauthorizedError, match="Bearer KEY"):
        door.admit({}, "/models")
    for path in ("/metrics", "/v2/repository/models/x/load"):
        with pytest.raises(ForbiddenError, match="'ann' does not open"):
            door.admit(bearer("a"), path)
    only_admin = Door([key("root", "r", is_admin=True)], is_closed_to_users=False)
    only_admin.admit({}, "/predict")
    with pytest.raises(UnauthorizedError):
        only_admin.admit({}, "/metrics")


def test_a_rate_lets_through_what_it_says_and_no_more():
    now = [100.0]
    door = Door([key("bob", "b", rate=5.0), key("ann", "a")], clock=lambda: now[0])
    passed, waits = 0, set()
    for _ in range(1000):  # ten seconds
        now[0] += 0.01
        door.admit(bearer("a"))
        try:
            door.admit(bearer("b"))
            passed += 1
        except RateLimitError as error:
            waits.add(error.retry_after)
    assert 50 <= passed <= 50 + 5 + 1
    assert waits == {1}
    now[0] += 60
    door.admit(bearer("b"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no keys"),
        ("a-secret-in-the-clear", "line 1: expected name:sha256"),
        (line("x", "x", ":fast"), "the rate must be requests a second"),
        (line("x", "x", ":-1"), "the rate must be requests a second"),
    ],
)
def test_a_file_that_is_none_is_told_without_repeating_it(tmp_path, content, sentence):
    (tmp_path / "keys").write_text(content)
    with pytest.raises(ConfigError, match=sentence) as caught:
        read_keys(tmp_path / "keys")
    assert "in-the-clear" not in str(caught.value)


def test_a_server_with_keys_answers_who_shows_one(start, files):
    with start(**files) as server:
        none = server.post(ROW)
        assert none.status_code == 401
        assert none.headers["www-authenticate"] == "Bearer"
        assert none.json()["error"]["type"] == "unauthorized"
        good = {"authorization": "Bearer a-secret"}
        assert server.post(ROW, headers=good).status_code == 200
        assert server.post(ROW, headers={"authorization": "Bearer nobody"}).status_code == 401
        get = lambda path, **headers: httpx.get(server.url + path, headers=headers).status_code  # noqa: E731
        assert get("/healthz") == get("/readyz") == get("/") == get("/page/app.js") == 200
        assert get("/docs") == get("/openapi.json") == 200  # the same on every server
        assert get("/models") == get("/metrics") == get("/compare") == get("/v2") == 401
        assert get("/models", **good) == 200
        assert get("/metrics", **good) == 403
        assert get("/metrics", authorization="Bearer r-secret") == 200
        infer = httpx.post(f"{server.url}/v2/models/tiny/infer", json={})
        assert infer.status_code == 401
        assert isinstance(infer.json()["error"], str)
        assert httpx.post(f"{server.url}/v2/repository/index", headers=good).status_code == 403
        compared = httpx.post(f"{server.url}/compare", json=ROW, headers=good)
        assert [answer["status"] for answer in compared.json()["answers"]] == [200]


def test_a_rate_holds_for_equal_requests_on_one_connection(start, files):
    """Also where a server knows their headers again and does not read them."""
    body = json.dumps(ROW).encode()
    with start(**files) as server, server.wire() as wire:
        statuses = []
        for _ in range(12):
            wire.send(request(body, "authorization: Bearer b"))
            statuses.append(wire.answer().status)
        assert statuses[0] == 200
        assert statuses.count(429) >= 6


def test_the_client_sends_its_key(start, files, monkeypatch):
    with start(**files) as server:
        with Client(server.url, api_key="a-secret") as client:
            assert len(client.predict([[0.0] * 6]).rows) == 1
        with Client(server.url) as client, pytest.raises(ClientError, match="wants a key"):
            client.predict([[0.0] * 6])
        monkeypatch.setenv("LABELWRIGHT_API_KEY", "a-secret")
        with Client(server.url) as client:
            assert client.models()


def test_slow_headers_and_silence_end(start, monkeypatch):
    monkeypatch.setattr(guard, "HEAD_SECONDS", 0.3)
    with start() as server, server.wire() as silent, server.wire() as slow, server.wire() as good:
        slow.send(b"POST /predict HTTP/1.1\r\nhost: x\r\n")
        for _ in range(3):
            good.send(request(json.dumps(ROW).encode()))
            assert good.answer().status == 200
            time.sleep(0.15)
        for wire in (silent, slow):
            answer = wire.answer()
            assert (answer.status, answer.json()["error"]["type"]) == (408, "header_timeout")
            assert wire.is_closed()
        good.send(request(json.dumps(ROW).encode()))
        assert good.answer().status == 200


def test_headers_without_end_are_refused(start):
    with start() as server, server.wire() as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n")
        time.sleep(0.1)  # a piece of its own
        wire.send(b"x: ", b"y" * guard.MOST_HEAD_BYTES)
        answer = wire.answer()
        assert (answer.status, answer.json()["error"]["type"]) == (431, "headers_too_large")
        # It is not read further, however much comes.
        endless = threading.Thread(target=_send_all, args=(wire, bytes(64 * 2**20)), daemon=True)
        endless.start()
        endless.join(30)
        assert not endless.is_alive()


def test_a_client_that_never_reads_is_let_go(start, monkeypatch):
    monkeypatch.setattr(guard, "READ_SECONDS", 0.2)
    with start() as server, server.wire() as wire:
        ask = request(b"", path="/openapi.json", method="GET") * 500
        sender = threading.Thread(target=_send_all, args=(wire, ask), daemon=True)
        sender.start()
        for _ in range(200):
            if not server.service.visitors._counts:
                break
            time.sleep(0.05)
        assert not server.service.visitors._counts
        sender.join(10)


def _send_all(wire, data):
    with contextlib.suppress(OSError):
        wire.send(data)


def test_one_address_may_not_take_all_connections(start):
    with start(max_client_connections=2) as server:
        with server.wire() as first, server.wire(), server.wire() as third:
            answer = third.answer()
            assert (answer.status, answer.json()["error"]["type"]) == (429, "too_many_connections")
            first.send(request(json.dumps(ROW).encode()))
            assert first.answer().status == 200
        for _ in range(100):
            if not server.service.visitors._counts:
                break
            time.sleep(0.02)
        assert server.post(ROW).status_code == 200


def test_a_body_that_never_begins_ends(start, monkeypatch):
    monkeypatch.setattr("serve.fastpath.BODY_SECONDS", 0.2)
    with start() as server, server.wire() as wire:
        wire.send(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n")
        assert wire.answer().status == 408


def test_other_sites_may_not_ask(start):
    with start() as server:
        asked = httpx.get(f"{server.url}/models", headers={"origin": "http://other.example"})
        assert not [name for name in asked.headers if name.startswith("access-control")]
        preflight = httpx.options(f"{server.url}/predict", headers={"origin": "http://other"})
        assert preflight.status_code == 405


def test_tls_keys_and_two_ports_as_a_process(
    start_server, run_server, bundle_path, tmp_path, files
):
    cert, secret = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    try:
        subprocess.run([*make, "-out", cert, "-keyout", secret], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    wrong = run_server(bundle_path, "--tls-cert", cert, "--tls-key", cert)
    assert wrong.returncode == 2
    assert "certificate and its key in PEM" in wrong.stderr
    flags = ["--tls-cert", cert, "--tls-key", secret, "--admin-port", 0, "--workers", 2]
    keys = ["--api-keys", files["api_keys"], "--admin-keys", files["admin_keys"]]
    with start_server(bundle_path, *flags, *keys, "--log-format", "json") as server:
        admin = server.process.stdout.readline().rstrip().rpartition(" on ")[2]
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(verify=trusted, headers={"authorization": "Bearer r-secret"}) as web:
            assert web.post(f"{server.url}/predict", json=ROW).status_code == 200
            assert web.get(f"{server.url}/metrics").status_code == 404
            assert web.get(f"{admin}/metrics").status_code == 200
            assert web.get(f"{admin}/healthz").status_code == 200
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            plain.sendall(b"\xff\x00 GET / HTTP/1.1\r\n\r\n")
            plain.recv(100)
        server.process.terminate()
        _, log = server.process.communicate(timeout=30)
    for event in map(json.loads, filter(None, log.splitlines())):
        assert {"time", "level", "message"} <= set(event)
    assert "r-secret" not in log


def test_the_command_makes_a_key_that_opens(run_server, tmp_path):
    done = run_server("key", "ann", "--rate", 5)
    secret, made = done.stdout.splitlines()
    (tmp_path / "keys").write_text(made + "\n")
    (known,) = read_keys(tmp_path / "keys")
    assert (known.name, known.rate) == ("ann", 5.0)
    assert key_of(bearer(secret), [known]) is known
    assert secret not in made
    assert run_server("key", "an:n").returncode == 2


@pytest.mark.parametrize("style", ["text", "json"])
def test_the_log_has_neither_rows_nor_keys(start_server, bundle_path, files, style):
    flags = ["--api-keys", files["api_keys"], "--workers", 1, "--log-format", style]
    with start_server(bundle_path, *flags) as server:
        headers = {"authorization": "Bearer a-secret", "x-request-id": "mine"}
        for body in (
            b'{"inputs": [["private words"]]}',
            b"private words",
            b'{"private": 12345678}',
        ):
            asked = httpx.post(f"{server.url}/predict", content=body, headers=headers)
            assert asked.status_code in (400, 422)
        assert httpx.post(f"{server.url}/predict", json=ROW, headers=headers).status_code == 200
        server.process.terminate()
        out, log = server.process.communicate(timeout=30)
    for word in ("private", "12345678", "a-secret"):
        assert word not in out + log
