"""A stand-in for an OpenAI-compatible embeddings service: hashed words in 1,536 dimensions, for one key only."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agent_memory.local.hashing import HashingEmbedder
from tests.support.https import serve_tls

MODEL = "text-embedding-3-small"


class EmbeddingsServer:
    def __init__(self, key, *, tls=None):
        self._key = key
        self._embedder = HashingEmbedder(1536)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"{serve_tls(self._http, tls)}://127.0.0.1:{self._http.server_address[1]}/v1"
        threading.Thread(target=lambda: self._http.serve_forever(0.02), daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()

    def answer(self, authorization, asked):
        if authorization != f"Bearer {self._key}":
            return 401, {"error": {"message": "wrong key"}}
        if asked["model"] != MODEL:
            return 404, {"error": {"message": "no such model"}}
        vectors = self._embedder.embed_passages(asked["input"])
        data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        return 200, {"data": data, "usage": {"total_tokens": len(asked["input"])}}

    def _handler(server):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                known = self.path == "/v1/embeddings"
                status, answer = server.answer(self.headers["authorization"], asked) if known else (404, {})
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        return Handler
