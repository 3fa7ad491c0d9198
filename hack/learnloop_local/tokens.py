"""Tokens of service accounts, signed with a key of this machine's own: the data plane verifies them as in a cluster."""

import ipaddress
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from learnloop_api import names

ISSUER = "https://learnloop.local"
SECONDS = 10 * 365 * 24 * 3600
"""Nothing renews them, and the key never leaves its folder."""
KEY_ID = "local"
API_AUDIENCE = "https://kubernetes.default.svc"


class Issuer:
    """The key lies in `file`, which only its owner reads."""

    def __init__(self, file: Path) -> None:
        if file.exists():
            key = serialization.load_pem_private_key(file.read_bytes(), password=None)
            assert isinstance(key, rsa.RSAPrivateKey)
        else:
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            file.touch(0o600)
            file.write_bytes(key.private_bytes(*form))
        self._key = key

    def token(
        self,
        namespace: str,
        account: str,
        audience: str = names.TOKEN_AUDIENCE,
        pod: tuple[str, str] | None = None,
        seconds: int = SECONDS,
    ) -> str:
        """`pod`: name and uid of the pod that it is mounted into."""
        about: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": account}}
        if pod is not None:
            about["pod"] = {"name": pod[0], "uid": pod[1]}
        issued = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": [audience],
            "iat": issued,
            "nbf": issued,
            "exp": issued + seconds,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": about,
        }
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": KEY_ID})

    def knows(self, token: str) -> bool:
        """Whether it is one for the API server."""
        try:
            jwt.decode(token, self._key.public_key(), algorithms=["RS256"], audience=API_AUDIENCE, issuer=ISSUER)
        except jwt.InvalidTokenError:
            return False
        return True

    def certificate(self) -> str:
        """PEM for the API server on loopback, signed by its own key: kubectl sends no token without TLS."""
        now, name = datetime.now(UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "learnloop local")])
        public, loopback = self._key.public_key(), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        other = "content_commitment key_encipherment data_encipherment key_agreement crl_sign encipher_only"
        use = {"digital_signature": True, "key_cert_sign": True, "decipher_only": False}
        builder = x509.CertificateBuilder(name, name, public, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(seconds=SECONDS))
        for extension, critical in (
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (x509.KeyUsage(**dict.fromkeys(other.split(), False), **use), True),
            (x509.SubjectAlternativeName([loopback]), False),
            (x509.SubjectKeyIdentifier.from_public_key(public), False),
        ):
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def keys(self) -> dict[str, Any]:
        """The key set (RFC 7517) that verifies them."""
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        return {"keys": [{**public, "kid": KEY_ID, "alg": "RS256", "use": "sig"}]}
