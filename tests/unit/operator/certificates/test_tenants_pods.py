"""The TLS settings of the operator's pods."""

from learnloop_operator.core.pod_templates import http_get, scraped, token_volume


def test_the_bundle_comes_beside_the_token_where_there_is_one() -> None:
    token, bundle = token_volume()["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == "learnloop"
    assert bundle["configMap"] == {
        "name": "learnloop-ca",
        "optional": True,
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }


def test_probes_and_scrapers_speak_tls_only_where_the_pod_does() -> None:
    assert http_get("/readyz", tls=True) == {"path": "/readyz", "port": "http", "scheme": "HTTPS"}
    assert "scheme" not in http_get("/readyz", tls=False)
    annotations = scraped(8080, tls=True)
    assert annotations["prometheus.io/scheme"] == "https"
    assert "prometheus.io/scheme" not in scraped(8080, tls=False)
