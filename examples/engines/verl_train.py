"""Engine `image` by verl: GRPO with a LoRA adapter on the language model that the order names."""

import importlib
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pandas

folder, work = Path(os.environ["LEARNLOOP_ENGINE_DIRECTORY"]), Path("/tmp")
order = json.loads((folder / "order.json").read_text())
model, settings = order["language_model"], {"batch": 128, "group": 8, "rank": 32, "verl": [], **order["settings"]}
sys.path.insert(0, os.environ["LEARNLOOP_ENVIRONMENT_DIRECTORY"])
tasks = importlib.import_module(order["environment"].partition(":")[0])
step, size, resumed = 0, settings["batch"] * settings["group"], []


def hand_in(name: str, body: bytes) -> None:
    (folder / f"{name}.new").write_bytes(body)
    (folder / f"{name}.new").rename(folder / name)


if (folder / "resume").exists():  # the adapter of an earlier attempt
    with tarfile.open(folder / "resume") as saved:
        saved.extractall(work, filter="data")
    step, resumed = int((work / "step").read_text()), [f"actor_rollout_ref.model.lora_adapter_path={work}"]
first, rounds = step, max(1, -(-(order["total_steps"] - step) // size))
drawn = [tasks.task(f"training {order['seed']} {step} {number}") for number in range(rounds * settings["batch"])]
columns = {"data_source": "learnloop", "prompt": [[{"role": "user", "content": question}] for question, _ in drawn]}
columns["reward_model"] = [{"style": "rule", "ground_truth": answer} for _, answer in drawn]
pandas.DataFrame(columns).to_parquet(work / "train.parquet")
given = f"""algorithm.adv_estimator=grpo data.train_files={work}/train.parquet data.val_files={work}/train.parquet
data.train_batch_size={settings["batch"]} data.max_response_length={model["max_tokens"]} trainer.save_freq=5
actor_rollout_ref.model.path={model["folder"]} actor_rollout_ref.model.lora_rank={settings["rank"]}
actor_rollout_ref.model.lora_alpha={settings["rank"]} actor_rollout_ref.model.target_modules=all-linear
actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.load_format=safetensors trainer.test_freq=-1
actor_rollout_ref.rollout.n={settings["group"]} actor_rollout_ref.rollout.temperature={model["temperature"]}
custom_reward_function.path={tasks.__file__} trainer.default_local_dir={work}/saved trainer.logger=['console']
trainer.total_training_steps={rounds} trainer.val_before_train=false""".split()
training = subprocess.Popen([sys.executable, "-m", "verl.trainer.main_ppo", *given, *resumed, *settings["verl"]])
latest = work / "saved/latest_checkpointed_iteration.txt"
while training.poll() is None or step < order["total_steps"]:
    number = int(latest.read_text() or 0) if latest.exists() else 0
    if first + number * size > step:
        step, adapter = first + number * size, work / f"saved/global_step_{number}/actor/lora_adapter"
        (adapter / "step").write_text(str(step))
        with tarfile.open(folder / "checkpoint.new", "w") as saved:
            saved.add(adapter, ".")
        (folder / "checkpoint.new").rename(folder / "checkpoint")
    elif training.poll() is not None:
        sys.exit(training.returncode or 1)
    hand_in("heartbeat.json", json.dumps({"step": step}).encode())
    time.sleep(1)
for name in ("adapter_config.json", "adapter_model.safetensors"):
    hand_in(name, (adapter / name).read_bytes())
hand_in("result.json", json.dumps({"step": step}).encode())
