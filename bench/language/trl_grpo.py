"""The same run with TRL's GRPOTrainer; prints one JSON object. Started by peer.py with the peer's own python.

World, chat template and tokeniser are the product's, so both sides hold the same conversations. Sampling is
transformers' `generate`, as TRL does it without vLLM; advantages, loss and optimiser are TRL's. Tasks of the seed, and
hyperparameters, are those of the product's case.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_environments.randomness import Split
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.rows import Sampled
from learnloop_trainer.language.sampler import Draw, Limits, Rollouts, Uniforms

Job = dict[str, Any]


def generated(model: Any, pad: int) -> Callable[..., list[Sampled | None]]:
    """A Speaker that draws turns by `generate`.

    It keeps no log-probabilities: after a single update of each batch the library asks for none, and to collect them
    would cost it time.
    """

    def speak(
        prompts: Sequence[Sequence[int]], uniforms: Callable[[int], Uniforms], limits: Limits
    ) -> list[Sampled | None]:
        del uniforms  # the library draws by torch's own generator
        longest = max(map(len, prompts))
        ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        most = min(limits.most, limits.context - longest)
        if most < 1:
            return [None] * len(prompts)
        with torch.no_grad():
            made = model.generate(
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=most,
                do_sample=True,
                temperature=limits.temperature,
                top_k=0,
                top_p=1.0,
                pad_token_id=pad,
            )
        fresh = made[:, longest:]
        answers: list[Sampled | None] = []
        for prompt, words in zip(prompts, fresh.tolist(), strict=True):
            stop = next((at + 1 for at, word in enumerate(words) if word in limits.stops), None)
            words_before = words[: stop or len(words)]
            answers.append(
                Sampled(prompt, words_before, [0.0] * len(words_before), limits.temperature, stop is not None)
            )
        return answers

    return speak


def trained(job: Job) -> dict[str, Any]:
    """Learn as the job says, write the model, and say what it took."""
    tokeniser, world = AutoTokenizer.from_pretrained(job["base"]), ToolLookup()
    chat = Chat(tokeniser, world.tools)
    rollouts = Rollouts("ToolLookup-v1", world, chat, job["seed"], 512)
    limits = Limits(1.0, chat.stops, job["most_tokens"], job["context"])
    size, rounds, drawn = job["batch_episodes"], job["rounds"], 0

    def rollout(prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        nonlocal drawn
        model = trainer.accelerator.unwrap_model(trainer.model)
        model.eval()
        held = rollouts.play(
            [Draw(int(prompt), number) for number, prompt in enumerate(prompts)],
            Split.TRAINING,
            generated(model, tokeniser.pad_token_id),
            limits,
            0,
        )
        model.train()
        made: dict[str, Any] = {name: [] for name in ("prompt_ids", "completion_ids", "env_mask", "won")}
        for episode in held:
            [row] = episode.rows  # answers are only ever appended to
            begin = int(row.sampled.argmax())
            made["prompt_ids"].append(row.ids[:begin].tolist())
            made["completion_ids"].append(row.ids[begin:].tolist())
            made["env_mask"].append(row.sampled[begin:].astype(int).tolist())
            made["won"].append(episode.reward)
            drawn += episode.sampled
        return made | {"logprobs": None}

    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=job.get("device", "cpu") == "cpu",
        seed=job["seed"],
        bf16=job.get("bfloat16", False),
        gradient_checkpointing=False,
        disable_dropout=True,
        learning_rate=job["learning_rate"],
        lr_scheduler_type=job["schedule"],
        weight_decay=0.0,
        max_grad_norm=1.0,
        per_device_train_batch_size=size // job["parts"],
        gradient_accumulation_steps=job["parts"],
        num_generations=job["group_size"],
        max_completion_length=job["context"],
        max_steps=rounds,
        beta=job["kl"],
        epsilon=job["clip_low"],
        epsilon_high=job["clip_high"],
        loss_type="grpo",
        shuffle_dataset=False,
        save_strategy="no",
        report_to=[],
        logging_strategy="no",
        disable_tqdm=True,
    )
    tasks = [str(task) for task in range(rounds * size // job["group_size"])]
    adapter = LoraConfig(
        task_type="CAUSAL_LM", r=job["rank"], lora_alpha=job["alpha"], lora_dropout=0.0, target_modules=job["layers"]
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(job["base"]),
        reward_funcs=lambda won, **_: won,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": tasks}),
        processing_class=tokeniser,
        peft_config=adapter if job["weights"] == "lora" else None,
        rollout_func=rollout,
    )
    began, wall = time.process_time(), time.monotonic()
    trainer.train()
    spent, wall = time.process_time() - began, time.monotonic() - wall
    model = trainer.accelerator.unwrap_model(trainer.model)
    if job["weights"] == "lora":
        model = model.merge_and_unload()
    model.save_pretrained(job["folder"])
    tokeniser.save_pretrained(job["folder"])
    return {"cpu_seconds": spent, "wall_seconds": wall, "tokens": drawn}


if __name__ == "__main__":
    torch.set_num_threads(1)
    answer = trained(json.loads(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(answer))
