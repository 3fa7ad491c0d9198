"""`python -m bench.language.server_parity SERVER…`: llama.cpp's log-probabilities against the trainer's.

SERVER is the command of a llama-server. The tiny model is written as GGUF in float32, a random adapter as the trainer
exports it. The server draws answers to prompts of the tiny world, with the adapter and without; the trainer scores the
same tokens. With the adapter written in the wrong order of rows, the difference must be seen. The last line is JSON.
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from learnloop_common.acting.gguf_adapter import gguf_adapter
from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_environments.randomness import Split
from learnloop_trainer.language import lora
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rows import Episode, Sampled, batches, rows_of
from testing.language.tiny_model import make, write_gguf

TURNS, TOKENS, RANK, ALPHA = 200, 24, 8, 16.0
MEAN, MOST = 1e-4, 5e-3
"""Bars of |Δ log-probability| with float16 keys and values."""


@contextmanager
def served(command: Sequence[str], model: Path, adapter: Path, options: Sequence[str] = ()) -> Iterator[httpx.Client]:
    """A server of the model with the adapter, until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = ["--model", str(model), "--lora", str(adapter), "--host", "127.0.0.1", "--port", str(port)]
    more = ["--ctx-size", "512", "--threads", "1", "--parallel", "1", "--no-webui", *options]
    with subprocess.Popen([*command, *given, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                end = time.monotonic() + 60
                while True:
                    try:
                        if client.get("/health").status_code == 200:
                            break
                    except httpx.TransportError:
                        pass
                    assert process.poll() is None, "the server ended"
                    assert time.monotonic() < end, "the server does not answer"
                    time.sleep(0.1)
                yield client
        finally:
            process.terminate()


def drawn(client: httpx.Client, prompts: Sequence[Sequence[int]], scale: float) -> list[Sampled]:
    """One answer of the server to each prompt, as ids and log-probabilities.

    The server tells no log-probability of a token that ends within a character: answers with such tokens are left out.
    """
    tokens = []
    for number, prompt in enumerate(prompts):
        body = {"prompt": list(prompt), "n_predict": TOKENS, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        body |= {
            "samplers": ["temperature"],
            "n_probs": 1,
            "seed": number,
            "cache_prompt": False,
            "return_tokens": True,
        }
        answer = client.post("/completion", json=body | {"lora": [{"id": 0, "scale": scale}]})
        answer.raise_for_status()
        rows: list[Any] = answer.json()["completion_probabilities"]
        if [one["id"] for one in rows] != answer.json()["tokens"]:
            continue
        tokens.append(Sampled(prompt, [one["id"] for one in rows], [one["logprob"] for one in rows]))
    return tokens


def differences(network: LanguageNetwork, turns: Sequence[Sampled], *, base: bool) -> np.ndarray[Any, Any]:
    """|Δ log-probability| of every token drawn."""
    episodes = [Episode(rows_of([turn])[0], 0.0, number) for number, turn in enumerate(turns)]
    gaps = []
    with torch.no_grad():
        for batch in batches(episodes, range(len(episodes)), 16_384, network.device):
            ours = network.score_base(batch) if base else network.score(batch).log_prob
            gaps.append((ours - batch.behaviour).abs().numpy())
    return np.concatenate(gaps)


def figures(gaps: np.ndarray[Any, Any]) -> dict[str, float]:
    """Mean and largest of them."""
    return {"tokens": len(gaps), "mean": float(gaps.mean()), "most": float(gaps.max())}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", nargs="+", help="command of a llama-server")
    parser.add_argument("--base", type=Path, help="folder of a tiny model; left out, one is made")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bench-parity-") as root:
        folder, model = options.base or Path(root) / "base", Path(root) / "base.gguf"
        adapter = Path(root) / "adapter.gguf"
        if options.base is None:
            make(folder, ToolLookup(), updates=60)
        made = AutoModelForCausalLM.from_pretrained(folder)
        write_gguf(folder, model)
        chat, world = Chat(AutoTokenizer.from_pretrained(folder), ToolLookup().tools), ToolLookup()
        network = LanguageNetwork(made, lora.attach(made, lora.LAYERS, RANK, ALPHA, 0))
        assert network.adapters is not None
        network.vector.copy_(torch.randn(len(network.vector), generator=torch.Generator().manual_seed(1)) * 0.05)
        config = json.loads((folder / "config.json").read_text())
        arrays = lora.arrays(network.adapters)
        body = gguf_adapter(arrays, config, ALPHA)
        wrong = gguf_adapter(arrays, {**config, "num_attention_heads": 1, "num_key_value_heads": 1}, ALPHA)
        assert body is not None
        assert wrong is not None
        prompts = [chat.opening(world.begin(Split.HELD_OUT, 0, number).opening) for number in range(TURNS)]
        adapter.write_bytes(body)
        with served(options.server, model, adapter) as client:
            alone = differences(network, drawn(client, prompts, 0.0), base=True)
            together = differences(network, drawn(client, prompts, 1.0), base=False)
        adapter.write_bytes(wrong)
        with served(options.server, model, adapter) as client:
            sabotaged = differences(network, drawn(client, prompts, 1.0), base=False)
    figures_of = {"base": figures(alone), "adapter": figures(together), "sabotaged": figures(sabotaged)}
    bars = all(one["mean"] <= MEAN and one["most"] <= MOST for one in (figures_of["base"], figures_of["adapter"]))
    print(json.dumps(figures_of | {"passed": bars and figures_of["sabotaged"]["mean"] > 10 * MEAN}))


if __name__ == "__main__":
    main()
