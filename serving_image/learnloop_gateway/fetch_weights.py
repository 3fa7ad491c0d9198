"""`python -m learnloop_gateway.fetch_weights`: verify the base model and fetch what the arm adds, before serving.

What was fetched is laid out as the server of this kind reads it, and the arguments that name it are written to the file
`arguments` next to it:

    base://            the base model alone
    an adapter         vLLM: adapter_model.safetensors and adapter_config.json; llama.cpp: adapter.gguf, made of it
    whole weights      vLLM: a folder with the base model's tokeniser and configuration
"""

import asyncio
import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from learnloop_api.kinds.language_model import BASE_SCHEME, LanguageModel
from learnloop_common import telemetry, termination_message
from learnloop_common.acting.gguf_adapter import gguf_adapter
from learnloop_common.acting.policy import ModelError
from learnloop_common.settings import ConfigurationError
from learnloop_serving.policy_loader import fetch
from learnloop_serving.settings import Settings

log = logging.getLogger(__name__)
CHUNK = 1 << 20
MOST_BYTES = 1 << 40
GGUF = b"GGUF"
SERVED = "arm"
ELSEWHERE = "-elsewhere"


def folder_digest(folder: Path) -> str:
    """SHA-256 over the sorted lines `digest  ./path` of all files, as LanguageModel.base.sha256 describes it."""
    lines = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            lines.append((f"./{path.relative_to(folder).as_posix()}", digest))
    lines.sort(key=lambda line: line[0].encode())
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in lines).encode()).hexdigest()


def verify(folder: Path, sha256: str) -> None:
    """Raises ModelError where the folder is not the base model that is asked for."""
    if not folder.is_dir():
        raise ModelError(f"languageModel.base.uri: {folder} is not a folder: mount the base model there")
    strange = next(filter(_uncovered, folder.rglob("*")), None)
    if strange is not None:
        what = f"{str(strange)!r} is a link, no file, or has a line break in its name"
        raise ModelError(f"languageModel.base.uri: {what}, so the digest does not cover it: copy the files themselves")
    digest = folder_digest(folder)
    if digest != sha256:
        raise ModelError(f"languageModel.base.sha256: {folder} has {digest}, expected {sha256}")


def _uncovered(path: Path) -> bool:
    return path.is_symlink() or not (path.is_file() or path.is_dir()) or "\n" in path.name


def metadata_of(file: Path) -> Mapping[str, str]:
    """The metadata of a safetensors file; raises ModelError for another file."""
    try:
        with safe_open(file, framework="numpy") as opened:
            return dict(opened.metadata() or {})
    except (SafetensorError, OSError) as error:
        problem = f"the arm's weights are not a safetensors file ({str(error)[:100]})"
        raise ModelError(f"{problem}: serve what a language algorithm trained") from None


def lay_out(file: Path, kind: str, base: Path, folder: Path, *, rank: int, gguf: str) -> list[str]:
    """Put the arm's weights where a server of this kind reads them; returns the arguments that name them.

    Raises ModelError for weights that the server does not read.
    """
    with file.open("rb") as opened:
        is_gguf = opened.read(4) == GGUF
    if kind == "llama.cpp":
        if is_gguf:
            shutil.move(file, folder / "adapter.gguf")
        else:
            (folder / "adapter.gguf").write_bytes(as_gguf(file, base))
            file.unlink()
        return ["--model", str(base / gguf), "--lora", str(folder / "adapter.gguf")]
    metadata = metadata_of(file)
    if metadata.get("learnloop.kind") == "adapter":
        shutil.move(file, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(metadata.get("adapter_config.json", "{}"), encoding="utf-8")
        own = [f"--model={base}", "--served-model-name=base", "--enable-lora", f"--max-lora-rank={rank}"]
        return [*own, "--lora-modules", f"{SERVED}={folder}"]
    for path in base.iterdir():
        if path.is_file() and path.suffix in (".json", ".jinja", ".txt", ".model") and "index" not in path.name:
            shutil.copyfile(path, folder / path.name)
    shutil.move(file, folder / "model.safetensors")
    return [f"--model={folder}", f"--served-model-name={SERVED}"]


def as_gguf(file: Path, base: Path) -> bytes:
    """A trained adapter as llama.cpp reads it; raises ModelError for what has no such form."""
    metadata = metadata_of(file)
    if metadata.get("learnloop.kind") != "adapter":
        raise ModelError("llama.cpp serves adapters and GGUF files: set serving.language.server.kind to vllm")
    try:
        alpha = float(json.loads(metadata["adapter_config.json"])["lora_alpha"])
        config = json.loads((base / "config.json").read_text(encoding="utf-8"))
        made = gguf_adapter(load_file(file), config, alpha)
    except (KeyError, ValueError, TypeError, OSError, RecursionError, SafetensorError) as error:
        raise ModelError(f"the adapter cannot be written as GGUF: {error!r}"[:300]) from None
    if made is None:
        architectures = config.get("architectures")
        raise ModelError(
            f"an adapter of {architectures} has no GGUF form here: set serving.language.server.kind to vllm"
        )
    return made


def base_alone(kind: str, base: Path, gguf: str) -> list[str]:
    """The arguments of an arm that adds nothing."""
    if kind == "llama.cpp":  # it takes a value from the next word alone
        return ["--model", str(base / gguf)]
    return [f"--model={base}", f"--served-model-name={SERVED}"]


async def prepare(settings: Settings, env: Mapping[str, str]) -> None:
    """See the module; raises ModelError."""
    kind = env.get("LEARNLOOP_SERVER_KIND", "vllm")
    base, folder = Path(env["LEARNLOOP_BASE_FOLDER"]), Path(env["LEARNLOOP_WEIGHTS_FOLDER"])
    gguf = env.get("LEARNLOOP_GGUF_FILE", "")
    model = LanguageModel.model_validate_json(env["LEARNLOOP_LANGUAGE_MODEL"])
    await asyncio.to_thread(verify, base, model.base.sha256)
    folder.mkdir(parents=True, exist_ok=True)
    elsewhere = kind.endswith(ELSEWHERE)
    kind = kind.removesuffix(ELSEWHERE)
    if settings.model_uri.startswith(BASE_SCHEME):
        arguments = base_alone(kind, base, gguf)
    else:
        fetched = folder / "fetched"
        digest = await fetch(settings, fetched, MOST_BYTES)
        if digest != settings.model_sha256:
            raise ModelError(f"sha256: {settings.model_uri} has {digest}, expected {settings.model_sha256}")
        rank = int(env.get("LEARNLOOP_MAX_LORA_RANK", "64"))
        arguments = await asyncio.to_thread(lay_out, fetched, kind, base, folder, rank=rank, gguf=gguf)
    if any(set(argument) & set(" \t\n*?[\"'$`\\") for argument in arguments):
        raise ModelError(f"languageModel.base.uri: {base}: a path with blanks or signs of a shell cannot be served")
    if not elsewhere:
        (folder / "arguments").write_text(" ".join(arguments) + "\n", encoding="utf-8")
    log.info("the weights of revision %s lie in %s", settings.revision, folder)


def main() -> int:
    telemetry.set_up()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        asyncio.run(prepare(Settings.read(), os.environ))
    except (ModelError, ConfigurationError, OSError) as error:
        termination_message.leave(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
