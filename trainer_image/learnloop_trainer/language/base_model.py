"""Opens a base model: a folder in the format of transformers, or a GGUF file.

The digest is what this prints inside of the folder, so that anybody can make it:

    find . -type f | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum

Weights are read from safetensors files alone, and no code out of the folder runs.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from learnloop_api.kinds.language_model import LanguageModel
from learnloop_environments.errors import ConfigError
from learnloop_trainer import errors, training_order
from learnloop_trainer.language import messages_to_tokens, sampler

FIELD = "spec.data.languageModel"
FIX = "name a folder with config.json, tokenizer.json and *.safetensors, as save_pretrained of transformers writes it"
CHUNK = 1 << 20
MOST_BYTES = 512 << 30
CONTEXT_KEYS = ("max_position_embeddings", "n_positions")


def folder_digest(folder: Path) -> str:
    """See the module; raises OSError for what cannot be read."""
    lines = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        body = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                body.update(chunk)
        lines.append((f"./{path.relative_to(folder).as_posix()}", body.hexdigest()))
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(lines, key=lambda line: line[0].encode()))
    return hashlib.sha256(text.encode()).hexdigest()


def _uncovered(path: Path) -> bool:
    return path.is_symlink() or not (path.is_file() or path.is_dir()) or "\n" in path.name


@dataclass(frozen=True)
class Base:
    """A base model that is what the order says it is."""

    folder: Path
    sha256: str

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """config.json; raises ConfigError where there is none."""
        return _json(self.folder / "config.json", self.folder)

    @cached_property
    def tokeniser(self) -> Any:
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self.folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{FIELD}.base", str(self.folder), f"has no tokeniser ({_short(error)})", FIX) from None

    @cached_property
    def template_sha256(self) -> str:
        """Digest of the chat template's text; raises ConfigError without one."""
        template = getattr(self.tokeniser, "chat_template", None)
        if not isinstance(template, str):
            raise ConfigError(f"{FIELD}.base", str(self.folder), "has no chat template", FIX)
        return messages_to_tokens.template_digest(template)

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """Further ids that end a turn, as generation_config.json says."""
        path = self.folder / "generation_config.json"
        ending = _json(path, self.folder).get("eos_token_id") if path.exists() else None
        ids = ending if isinstance(ending, list) else [ending]
        return tuple(int(one) for one in ids if isinstance(one, int))

    @cached_property
    def vocabulary(self) -> int:
        """How many words it has, those without a text included; raises ConfigError without a tokeniser."""
        text = self.config.get("text_config")
        given = [one.get("vocab_size") for one in (self.config, text) if isinstance(one, dict)]
        return next((one for one in given if isinstance(one, int)), None) or len(self.tokeniser)

    def context(self, requested: int | None) -> int:
        """Tokens of a conversation at most; raises ConfigError for more than the model has places."""
        places = next((self.config[key] for key in CONTEXT_KEYS if isinstance(self.config.get(key), int)), None)
        if requested is None and places is None:
            fix = "set contextLength"
            raise ConfigError(f"{FIELD}.contextLength", "", "is left out, and config.json does not say either", fix)
        if requested is not None and places is not None and requested > places:
            raise ConfigError(f"{FIELD}.contextLength", requested, f"is above the model's {places} places", "lower it")
        return int(requested or places or 0)

    def model(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Any:
        """The model itself, fresh; raises ConfigError where its weights cannot be read."""
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=dtype
            )
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            problem = f"cannot be loaded ({_short(error)})"
            raise ConfigError(f"{FIELD}.base", str(self.folder), problem, FIX) from None
        model = loaded.to(device).eval()
        if why := sampler.unfaithful(model, self.vocabulary):
            fix = "use another base"
            raise ConfigError(f"{FIELD}.base", str(self.folder), f"is {type(model).__name__}: it {why}", fix)
        return model


def opened(model: LanguageModel, environ: Mapping[str, str], cache: Path) -> Base:
    """The base model the order names, checked; raises ConfigError where it is another one, or none.

    `cache`: a folder of this pod's for what has to be fetched.
    """
    folder = training_order.model_folder(model, environ) or _fetched(model, environ, cache)
    if not folder.is_dir():
        raise ConfigError(f"{FIELD}.base.uri", model.base.uri, f"is not a folder in this pod ({folder})", FIX)
    strange = next(filter(_uncovered, folder.rglob("*")), None)
    if strange is not None:
        problem = f"has {str(strange)!r}: a link, no file, or a line break in its name, which the digest does not cover"
        raise ConfigError(f"{FIELD}.base.uri", model.base.uri, problem, "copy the files themselves")
    try:
        sha256 = folder_digest(folder)
    except OSError as error:
        raise ConfigError(f"{FIELD}.base.uri", model.base.uri, f"cannot be read ({error.strerror})", FIX) from None
    if sha256 != model.base.sha256:
        fix = f"set it to {sha256}, if that is the model you mean"
        raise ConfigError(f"{FIELD}.base.sha256", model.base.sha256, f"is not the digest of {model.base.uri}", fix)
    base = Base(folder, sha256)
    if model.template_sha256 is not None and base.template_sha256 != model.template_sha256:
        problem, fix = "is not the digest of the model's chat template", f"set it to {base.template_sha256}"
        raise ConfigError(f"{FIELD}.templateSha256", model.template_sha256, problem, fix)
    return base


def _fetched(model: LanguageModel, environ: Mapping[str, str], cache: Path) -> Path:
    """From S3; credentials, region and endpoint come from the usual AWS_* variables."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    uri = model.base.uri
    options: dict[str, Any] = {"client_options": {"allow_http": True}} if _plain(environ) else {}
    target = cache / model.base.sha256
    try:
        store = S3Store.from_url(uri, retry_config={"max_retries": 3}, **options)
        total = 0
        for page in obstore.list(store):
            for item in page:
                total += item["size"]
                if total > MOST_BYTES:
                    raise ConfigError(f"{FIELD}.base.uri", uri, f"holds more than {MOST_BYTES} bytes", FIX)
                name = PurePosixPath(item["path"])
                if name.is_absolute() or ".." in name.parts:
                    raise ConfigError(f"{FIELD}.base.uri", uri, f"holds an object named {name}", FIX)
                place = target / name
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("wb") as file:
                    for chunk in obstore.get(store, item["path"]).stream(min_chunk_size=CHUNK):
                        file.write(bytes(chunk))
    except (FileNotFoundError, PermissionError) as error:
        raise ConfigError(f"{FIELD}.base.uri", uri, f"cannot be read ({_short(error)})", FIX) from None
    except (BaseError, OSError) as error:
        raise errors.StoreUnavailable(f"{uri}: {_short(error)}") from None
    if not total:
        raise ConfigError(f"{FIELD}.base.uri", uri, "holds no objects", FIX)
    return target


def _plain(environ: Mapping[str, str]) -> bool:
    return environ.get("AWS_ENDPOINT_URL", environ.get("AWS_ENDPOINT", "")).startswith("http://")


def _json(path: Path, folder: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{FIELD}.base", str(folder), f"has no {path.name} ({_short(error)})", FIX) from None
    return content if isinstance(content, dict) else {}


def _short(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
