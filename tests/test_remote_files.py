"""Fetching files of others: only https, only public addresses, none of them twice (case 86)."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent_memory import remote_files
from agent_memory.errors import InvalidInputError, TooLargeError
from agent_memory.remote_files import fetch, is_public

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
PUBLIC = "93.184.215.14"

PRIVATE = [
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "198.18.0.1",
    "::1",
    "::",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:169.254.169.254",
    "::ffff:93.184.215.14",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2001:db8::1",
    "no address",
]


@pytest.mark.parametrize("ip", PRIVATE)
def test_addresses_that_are_not_of_the_open_internet_are_none(ip):
    assert not is_public(ip)


@pytest.mark.parametrize("ip", [PUBLIC, "8.8.8.8", "2606:4700::1111"])
def test_public_addresses_are(ip):
    assert is_public(ip)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server: Server = self.server.stack
        server.asked.append((self.headers["host"], self.path))
        status, headers, body = server.pages[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in body:
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, *_):
        pass


class Server:
    """An https server on loopback that stands for hosts of the open internet."""

    def __init__(self, folder):
        key, certificate = _certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.trusting = ssl.create_default_context(cafile=certificate)
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.http.handle_error = lambda *_: None
        self.http.stack = self
        self.asked, self.pages = [], {}
        self.resolved, self.connected = [], []
        self.hosts = {"files.example": [PUBLIC], "other.example": ["2606:4700::1111", "8.8.8.8"]}
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def page(self, path, body=(PNG,), status=200, **headers):
        body = (body,) if isinstance(body, bytes) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = (status, {"content-type": "image/png", **named}, body)

    def resolve(self, host, _port):
        self.resolved.append(host)
        answers = self.hosts.get(host)
        if answers is None:
            raise socket.gaierror
        return answers.pop(0) if answers and isinstance(answers[0], list) else answers

    def connect(self, ip, port, timeout_s):
        self.connected.append((ip, port))
        return socket.create_connection(self.http.server_address, timeout=timeout_s)

    def fetch(self, address, **more):
        given = {"max_bytes": 10_000, "resolve": self.resolve, "connect": self.connect, "tls": self.trusting, **more}
        return fetch(address, **given)


def _certificate(folder):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "files.example")])
    hosts = [x509.DNSName(host) for host in ("files.example", "other.example", "inside.example", "turns.example")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return str(folder / "key.pem"), str(folder / "cert.pem")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("tls"))
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def server(made):
    made.asked, made.pages, made.resolved, made.connected = [], {}, [], []
    return made


def test_a_file_comes_with_its_type_by_the_address_that_was_checked(server):
    server.page("/dot.png?a=b")
    found = server.fetch("https://files.example/dot.png?a=b#c")
    assert (found.data, found.media_type) == (PNG, "image/png")
    assert server.connected == [(PUBLIC, 443)]
    assert server.resolved == ["files.example"], "asked once: a second answer may be another"
    assert server.asked == [("files.example", "/dot.png?a=b")]


def test_redirects_are_followed_a_few_times_each_with_its_own_check(server):
    server.page("/a", status=302, location="https://other.example/b")
    server.page("/b", status=307, location="/c")
    server.page("/c")
    assert server.fetch("https://files.example/a").data == PNG
    assert [ip for ip, _ in server.connected] == [PUBLIC, "2606:4700::1111", "2606:4700::1111"]
    server.page("/loop", status=302, location="/loop")
    with pytest.raises(InvalidInputError):
        server.fetch("https://files.example/loop")
    assert len(server.asked) == 3 + 4


@pytest.mark.parametrize("ip", PRIVATE)
def test_a_redirect_to_the_inside_is_not_followed(server, ip):
    server.hosts["inside.example"] = [ip]
    server.page("/a", status=302, location="https://inside.example/latest/meta-data/")
    with pytest.raises(InvalidInputError) as caught:
        server.fetch("https://files.example/a")
    assert caught.value.code == "ATTACHMENT_NOT_FETCHED"
    assert server.connected == [(PUBLIC, 443)]
    assert "inside" not in str(caught.value)


def test_one_private_address_among_public_ones_is_enough_to_refuse(server):
    server.hosts["inside.example"] = [PUBLIC, "10.0.0.1"]
    with pytest.raises(InvalidInputError):
        server.fetch("https://inside.example/")
    assert server.connected == []


def test_a_name_that_answers_differently_the_second_time_is_asked_once(server):
    server.hosts["turns.example"] = [[PUBLIC], ["127.0.0.1"]]
    server.page("/dot.png")
    assert server.fetch("https://turns.example/dot.png").data == PNG
    assert server.connected == [(PUBLIC, 443)]


@pytest.mark.parametrize(
    "location",
    [
        "http://files.example/b",
        "file:///etc/passwd",
        "https://user:secret@files.example/b",
        "https://[::1]/b",
        "https://files.example:99999/b",
        "ftp://files.example/b",
    ],
)
def test_a_redirect_to_another_scheme_or_with_credentials_is_not_followed(server, location):
    server.page("/a", status=302, location=location)
    server.page("/b")
    with pytest.raises(InvalidInputError):
        server.fetch("https://files.example/a", resolve=lambda host, _: [host if ":" in host else PUBLIC])
    assert [path for _, path in server.asked] == ["/a"]


def test_other_schemes_are_left_alone_without_a_look(server):
    for address in ("http://files.example/", "file:///etc/passwd", "s3://b/k", "data:,x", "", "attachment://x"):
        assert server.fetch(address) is None
    assert server.resolved == []


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"content_length": "20000"}, (b"x" * 20_000,)), ({}, (b"x" * 9_000, b"x" * 9_000))],
    ids=["announced", "unannounced"],
)
def test_more_bytes_than_are_taken_are_refused(server, headers, body):
    server.page("/big", body, **headers)
    with pytest.raises(TooLargeError) as caught:
        server.fetch("https://files.example/big")
    assert caught.value.code == "ATTACHMENT_TOO_LARGE"


def test_an_answer_that_comes_a_byte_at_a_time_ends_with_the_time(server):
    def slowly():
        for _ in range(200):
            time.sleep(0.05)
            yield b"x"

    server.page("/slow", slowly())
    began = time.monotonic()
    with pytest.raises(InvalidInputError):
        server.fetch("https://files.example/slow", timeout_s=0.5)
    assert time.monotonic() - began < 8  # of 10 s


@pytest.mark.parametrize("status", [204, 304, 401, 404, 500])
def test_an_answer_that_is_no_file_is_refused(server, status):
    server.page("/x", b"", status=status)
    with pytest.raises(InvalidInputError):
        server.fetch("https://files.example/x")


def test_a_body_that_breaks_off_is_no_file(server):
    server.page("/short", PNG, content_length=str(len(PNG) + 10))
    with pytest.raises(InvalidInputError):
        server.fetch("https://files.example/short")


def test_a_certificate_for_another_name_or_of_nobody_is_refused(server):
    server.hosts["wrong.example"] = [PUBLIC]
    server.page("/dot.png")
    with pytest.raises(InvalidInputError):
        server.fetch("https://wrong.example/dot.png")
    with pytest.raises(InvalidInputError):
        server.fetch("https://files.example/dot.png", tls=ssl.create_default_context())
    assert server.asked == []


def test_nothing_is_asked_of_names_and_numbers_that_mean_this_machine(monkeypatch):
    """With the real resolver: names and odd spellings of loopback reach no socket."""

    def never(*_args, **_more):
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket, "create_connection", never)
    monkeypatch.setattr(remote_files, "_connect", never)
    for host in ("localhost", "127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0"):
        with pytest.raises(InvalidInputError):
            fetch(f"https://{host}/", max_bytes=10)
