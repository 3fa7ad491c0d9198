"""A cluster's keys and access reviews, served on loopback as the API server does, and tokens signed with the keys."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER = "https://kubernetes.default.svc.cluster.local"


class Cluster:
    """Its keys, by id, and who may do what: "verb resource" by subject."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {}
        self.rights: dict[str, set[str]] = {}
        self.requests = 0
        self.add("k1")
        self.keys["p256"] = ec.generate_private_key(ec.SECP256R1())

    def add(self, kid: str) -> None:
        self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwks(self) -> bytes:
        self.requests += 1
        keys = []
        for kid, key in self.keys.items():
            name = _algorithm(key)
            public = jwt.get_algorithm_by_name(name).to_jwk(key.public_key(), as_dict=True)
            keys.append({**public, "kid": kid, "alg": name})
        return json.dumps({"keys": keys}).encode()

    def token(self, namespace: str = "red", account: str = "default", kid: str = "k1", **changes: Any) -> str:
        claims = {
            "iss": ISSUER,
            "aud": ["learnloop"],
            "exp": int(time.time()) + 600,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": {"namespace": namespace},
        }
        return jwt.encode(claims | changes, self.keys[kid], algorithm=_algorithm(self.keys[kid]), headers={"kid": kid})

    @contextmanager
    def served(self) -> Iterator[str]:
        """The URL of the key set, while the block runs."""
        cluster = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(cluster.jwks())

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["content-length"])))
                attributes = review["spec"]["resourceAttributes"]
                wanted = f"{attributes['verb']} {attributes['resource']}"
                allowed = wanted in cluster.rights.get(review["spec"]["user"], ())
                answer = json.dumps({**review, "status": {"allowed": allowed}}).encode()
                self.send_response(201)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                return None

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/openid/v1/jwks"
        finally:
            server.shutdown()
            server.server_close()


def _algorithm(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
