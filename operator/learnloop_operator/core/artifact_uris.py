"""Artifacts of the data plane: learnloop://<namespace>/<sha256>, readable by pods of that namespace alone."""

SCHEME = "learnloop://"


def foreign(uri: str, namespace: str) -> str:
    """Why a model at `uri` cannot be read from `namespace`, value and fix included; "" where it can."""
    if not uri.startswith(SCHEME):
        return ""
    home = uri.removeprefix(SCHEME).partition("/")[0]
    if home == namespace:
        return ""
    return (
        f"{uri} belongs to namespace {home}, and only pods of {home} can read it: name an artifact of {namespace}, "
        f"or put the file where both can read it (https:// or s3://)"
    )
